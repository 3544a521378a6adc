"""The decode jobs of a file on their way through the scheduler. batch.py has a queue for each channel it transcribes.

A few jobs for each call of the engine wait in the scheduler at once, so that it can fill its batches.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipeline.audio import position
from pipeline.ingest.speech import DecodeJob, Packed
from pipeline.recognition.engine import DecodeRequest, RecognitionResult
from pipeline.recognition.hints import Hints
from pipeline.recognition.languages import MIN_SPEECH_S
from pipeline.recognition.routing import LanguageRouter
from pipeline.recognition.scheduler import Urgency

BATCHES_AHEAD = 2
"""Jobs for each call of the engine that one file may have waiting: one waits while the other is recognised."""

REMEMBERED = 5
"""Jobs whose language is a hint for a later one: a single job may be wrong."""

MAX_SPAN = position(300)
"""The most audio between the first and the last waiting item. Other channels of the file are decoded together with this
one, and their jobs fill the memory meanwhile."""


@dataclass(slots=True)
class _QueuedItem:
    item: Packed
    answer: "asyncio.Task[RecognitionResult] | None" = None  # None: silence


class DecodeQueue:
    """The items of one file that are not part of a chunk yet, in order. Their decode jobs wait in the scheduler.

    The language of each job is found anew, unless the order names it. What was spoken *max_jobs* and more earlier is a
    hint: those jobs are certainly recognised, so the same file always gives the same hints. A job with little speech
    waits for the one before it, whose language is its hint.
    """

    def __init__(
        self,
        recogniser: LanguageRouter,
        *,
        tenant: str,
        language: str | None,
        languages: frozenset[str],
        before: Sequence[str | None],
        task: str,
        hints: Hints,
        max_jobs: int,
    ) -> None:
        """Make an empty queue.

        *before* has the languages of the jobs that were recognised before a restart, the last one at its end. The rest
        is as in BatchOptions.
        """
        self._recogniser = recogniser
        self._tenant = tenant
        self._language = language
        self._languages = languages
        self._task = task
        self._hints = hints
        self._max_jobs = max_jobs
        self._spoken = deque(before, maxlen=max_jobs + REMEMBERED - 1)
        self._items: deque[_QueuedItem] = deque()

    def add(self, item: Packed) -> None:
        """Append an item, and give it to the scheduler if it is a job. The queue must not be full."""
        queued = _QueuedItem(item)
        if isinstance(item, DecodeJob):
            request = DecodeRequest(
                samples=item.samples,
                start=item.start,
                language=self._language,
                languages=self._languages,
                before=self._language_before(),
                task=self._task,
                hints=self._hints,
                voiced=item.voiced,
            )
            neighbour: asyncio.Task[RecognitionResult] | None = None
            if self._language is None and 0 < request.voiced_s < MIN_SPEECH_S:
                neighbour = next((one.answer for one in reversed(self._items) if one.answer is not None), None)
                if neighbour is None and self._spoken:
                    request = replace(request, before=self._spoken[-1])
            queued.answer = asyncio.ensure_future(self._recognise(request, neighbour))
        self._items.append(queued)

    async def _recognise(
        self, request: DecodeRequest, neighbour: "asyncio.Task[RecognitionResult] | None"
    ) -> RecognitionResult:
        """Recognise a job, after its *neighbour* if its language should be known."""
        if neighbour is not None:
            await asyncio.wait([neighbour])  # its error is that of the file, which ends with it
            request = replace(request, before=neighbour.result().language or request.before)
        return await self._recogniser.recognise(request, tenant=self._tenant, urgency=Urgency.BATCH)

    @property
    def waiting(self) -> bool:
        return bool(self._items)

    @property
    def full(self) -> bool:
        return self._jobs >= self._max_jobs or self._is_long

    @property
    def first_is_done(self) -> bool:
        return bool(self._items) and (self._items[0].answer is None or self._items[0].answer.done())

    async def first(self) -> tuple[Packed, RecognitionResult | None]:
        """Wait for the oldest item, remove it, and return it with its result."""
        first = self._items[0]
        result = await first.answer if first.answer is not None else None
        self._items.popleft()
        if result is not None:
            silent = not result.words and len(self._spoken) > 0
            self._spoken.append(self._spoken[-1] if silent else result.language)
        return first.item, result

    async def close(self) -> None:
        """Cancel the jobs that are still in the scheduler."""
        answers = [queued.answer for queued in self._items if queued.answer is not None]
        for answer in answers:
            answer.cancel()
        if answers:
            await asyncio.wait(answers)

    @property
    def _jobs(self) -> int:
        return sum(queued.answer is not None for queued in self._items)

    @property
    def _is_long(self) -> bool:
        """Whether the waiting items span MAX_SPAN."""
        ends = [one.item.end if isinstance(one.item, DecodeJob) else one.item.at for one in self._items]
        return bool(ends) and ends[-1] - ends[0] >= MAX_SPAN

    def _language_before(self) -> str | None:
        """Return the language of most of the REMEMBERED jobs that came *max_jobs* or more before the newest one.

        They are already recognised.
        """
        back = self._max_jobs - self._jobs
        known = list(self._spoken)[: len(self._spoken) - back + 1][-REMEMBERED:] if back > 0 else []
        return max(reversed(known), key=known.count, default=None)
