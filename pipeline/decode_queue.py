"""The decode jobs of a file on their way through the scheduler. batch.py has a queue for each channel it transcribes.

A few jobs for each call of the engine wait in the scheduler at once, so that it can fill its batches.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pipeline.audio import LONGEST_JOB, Samples, position
from pipeline.ingest.packing import DecodeJob, Packed, Passed
from pipeline.recognition.engine import TRANSLATE, DecodeRequest, RecognitionResult
from pipeline.recognition.scheduler import Urgency

BATCHES_AHEAD = 2
"""Jobs for each call of the engine that one file may have waiting: one waits while the other is recognised."""
MAX_SPAN = position(300)
"""The most audio between the first and the last waiting item. Other channels of the file are decoded together with this
one, and their jobs fill the memory meanwhile."""
ENGLISH = "en"  # of translations


class FileRecogniser(Protocol):
    """What the jobs of files need from the scheduler."""

    async def recognise(self, request: DecodeRequest, *, tenant: str, urgency: Urgency) -> RecognitionResult: ...
    async def detect_language(self, windows: Sequence[Samples], *, tenant: str) -> tuple[str, float]: ...


@dataclass(slots=True)
class _QueuedItem:
    item: Packed
    answer: "asyncio.Task[RecognitionResult] | None" = None  # None: silence, or a job that waits for the language


class DecodeQueue:
    """The items of one file that are not part of a chunk yet, in order. Their decode jobs wait in the scheduler.

    Unless the language of all jobs is known, it is detected in the first 30 s of speech, or in less after MAX_SPAN. In
    a multilingual file it is detected in each job. The language of one job is a hint for the next, so jobs are
    recognised one after the other.
    """

    def __init__(
        self,
        recogniser: FileRecogniser,
        *,
        tenant: str,
        language: tuple[str, float | None] | None,
        multilingual: bool,
        task: str,
        hint: str,
        max_jobs: int,
    ) -> None:
        """*language* is the known one and its probability; the rest is as in BatchOptions."""
        self._recogniser = recogniser
        self._tenant = tenant
        self.language = language
        self._multilingual = multilingual
        self._task = task
        self._hint = hint
        self._max_jobs = max_jobs
        self._items: deque[_QueuedItem] = deque()

    async def add(self, item: Packed) -> None:
        queued = _QueuedItem(item)
        self._items.append(queued)
        if self._multilingual:
            self._start_next()
        elif self.language is not None:
            self._start(queued)
        elif self._is_long or sum(len(job.samples) for job in self._unstarted_jobs()) >= LONGEST_JOB:
            await self.start_all()

    async def start_all(self) -> None:
        """Give every job to the scheduler, after detecting the language if it is not known.

        Does nothing for a multilingual file, whose jobs are recognised one after the other.
        """
        if self._multilingual:
            return
        if self.language is None and (jobs := list(self._unstarted_jobs())):
            windows = [job.samples for job in jobs]
            self.language = await self._recogniser.detect_language(windows, tenant=self._tenant)
        for queued in self._items:
            self._start(queued)

    @property
    def text_language(self) -> str | None:
        """The language of the text; None if it is not known yet."""
        if self._task == TRANSLATE:
            return ENGLISH
        return None if self.language is None else self.language[0]

    @property
    def waiting(self) -> bool:
        return bool(self._items)

    @property
    def full(self) -> bool:
        if self._is_long:
            return True
        if self._multilingual:
            return sum(isinstance(queued.item, DecodeJob) for queued in self._items) >= self._max_jobs
        return sum(queued.answer is not None for queued in self._items) >= self._max_jobs

    @property
    def first_is_done(self) -> bool:
        if not self._items:
            return False
        first = self._items[0]
        return isinstance(first.item, Passed) or (first.answer is not None and first.answer.done())

    async def first(self) -> tuple[Packed, RecognitionResult | None]:
        """Wait for the oldest item, remove it, and return it with its result."""
        first = self._items[0]
        result = await first.answer if first.answer is not None else None
        self._items.popleft()
        if self._multilingual and result is not None:
            result = replace(result, words=tuple(replace(word, language=result.language) for word in result.words))
            if result.words and result.language is not None:
                self.language = result.language, result.language_probability
            self._start_next()
        return first.item, result

    async def close(self) -> None:
        """Cancel the jobs that are still in the scheduler."""
        answers = [queued.answer for queued in self._items if queued.answer is not None]
        for answer in answers:
            answer.cancel()
        if answers:
            await asyncio.wait(answers)

    @property
    def _is_long(self) -> bool:
        """Whether the waiting items span MAX_SPAN."""
        ends = [one.item.end if isinstance(one.item, DecodeJob) else one.item.at for one in self._items]
        return bool(ends) and ends[-1] - ends[0] >= MAX_SPAN

    def _unstarted_jobs(self) -> Iterator[DecodeJob]:
        return (queued.item for queued in self._items if isinstance(queued.item, DecodeJob) and queued.answer is None)

    def _start_next(self) -> None:
        """Start the oldest job, unless it is being recognised already."""
        oldest = next((queued for queued in self._items if isinstance(queued.item, DecodeJob)), None)
        if oldest is not None:
            self._start(oldest)

    def _start(self, queued: _QueuedItem) -> None:
        known = self.language and self.language[0]
        if isinstance(queued.item, DecodeJob) and queued.answer is None and (known is not None or self._multilingual):
            request = DecodeRequest(
                samples=queued.item.samples,
                start=queued.item.start,
                language=None if self._multilingual else known,
                before=known if self._multilingual else None,
                task=self._task,
                hint=self._hint,
                voiced=queued.item.voiced,
            )
            recognising = self._recogniser.recognise(request, tenant=self._tenant, urgency=Urgency.BATCH)
            queued.answer = asyncio.ensure_future(recognising)
