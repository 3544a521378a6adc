"""Sessions in virtual time, with a recogniser of known speed and a detector that knows the speech, for tests."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from itertools import chain, cycle
from typing import Any, TypeVar

import numpy as np

from pipeline.audio import RATE, WINDOW, Windows, position
from pipeline.errors import EngineFailed
from pipeline.events import TimedEvent, WordsCommitted
from pipeline.live_stream import LiveStream, MultichannelStream
from pipeline.recognition.engine import DecodeRequest, RecognitionResult
from pipeline.recognition.stream import StreamCore
from pipeline.recognition.stream_options import BEGINNING, StreamOptions, StreamStart
from pipeline.words import Word
from tests.pipeline.scripted_streams import talk

S = TypeVar("S", LiveStream, MultichannelStream)


SPOKEN = (*talk(12), *(Word(f"v{n}", position(7 + n / 2), position(7.4 + n / 2), 0.9) for n in range(9)))
LENGTH = position(12.345)


class Voice:
    """Detects speech where *words* are, by counting windows."""

    def __init__(self, words: tuple[Word, ...], start: int = 0) -> None:
        self._words = words
        self._at = start

    def __call__(self, windows: Windows) -> list[float]:
        start, self._at = self._at, self._at + windows.size
        places = range(start, self._at, WINDOW)
        return [0.95 if any(w.start < at + WINDOW and w.end > at for w in self._words) else 0.02 for at in places]


class ScriptedRecogniser:
    """Recognises those of *words* that are in the window. *takes* has the seconds that each call takes."""

    def __init__(
        self,
        words: tuple[Word, ...],
        *,
        takes: Iterable[float] = (0.08,),
        fails: Iterable[bool] = (False,),
        queue_s: float = 0.0,
    ) -> None:
        self._queue_s = queue_s  # before each call begins, which then asks for a newer window
        self._words = words
        self._takes = cycle(takes)
        self._fails = cycle(fails)
        self.requests: list[DecodeRequest] = []

    async def recognise(
        self, request: DecodeRequest, *, tenant: str, newer: Callable[[], DecodeRequest | None] | None = None
    ) -> RecognitionResult:
        assert tenant == "acct"
        if self._queue_s:
            await asyncio.sleep(self._queue_s)
            request = newer() or request
        self.requests.append(request)
        await asyncio.sleep(next(self._takes))
        if next(self._fails):
            raise EngineFailed("the engine died")
        end = request.start + len(request.samples)
        inside = [w for w in self._words if request.start <= (w.start + w.end) // 2 < end]
        words = tuple(w if w.end <= end else Word(w.text[:1], w.start, end, w.probability) for w in inside)
        return RecognitionResult(words, "en", 0.9, -0.2, 0.05)


def stream_of(
    recogniser: ScriptedRecogniser, words: tuple[Word, ...] = SPOKEN, start: StreamStart = BEGINNING
) -> LiveStream:
    """Make a session whose detector finds speech where *words* are."""
    core = StreamCore(StreamOptions(), start)
    return LiveStream(core, vad=Voice(words, start.at), recogniser=recogniser, tenant="acct")


async def run_whole(session: S, feed: Callable[[S], Coroutine[Any, Any, None]]) -> list[TimedEvent]:
    """Run a whole session: *feed*, then the end."""
    happened: list[TimedEvent] = []

    async def read() -> None:
        happened.extend([one async for one in session.events()])

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(session.run())
        tasks.create_task(read())
        await feed(session)
        session.finish()
    return happened


async def run_stream(
    feed: Callable[[LiveStream], Coroutine[Any, Any, None]],
    recogniser: ScriptedRecogniser,
    *,
    words: tuple[Word, ...] = SPOKEN,
) -> tuple[LiveStream, list[TimedEvent]]:
    """Run a whole session that hears *words*."""
    session = stream_of(recogniser, words)
    return session, await run_whole(session, feed)


def committed_words(happened: Iterable[TimedEvent]) -> tuple[Word, ...]:
    """Return the words that were committed."""
    return tuple(chain.from_iterable(one.event.words for one in happened if isinstance(one.event, WordsCommitted)))


def at_once(*sizes: int) -> Callable[[LiveStream], Coroutine[Any, Any, None]]:
    """Feed all audio as fast as possible, in pieces of these sizes and then of one second."""

    async def feed(session: LiveStream) -> None:
        left = LENGTH
        for size in chain(sizes, cycle([RATE])):
            piece = min(size, left)
            await session.feed(np.zeros(piece, np.float32))
            left -= piece
            if not left:
                return

    return feed


def in_real_time(length: int = LENGTH, *, piece: int = WINDOW) -> Callable[[LiveStream], Coroutine[Any, Any, None]]:
    """Feed that much audio at the speed of speech."""

    async def feed(session: LiveStream) -> None:
        for at in range(0, length, piece):
            size = min(piece, length - at)
            await asyncio.sleep(size / RATE)
            await session.feed(np.zeros(size, np.float32))

    return feed
