"""The events of a live stream, when each was decided, and how they reach their reader. All times are positions.

Code that handles events matches all of them.
"""

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TypeAlias

from pipeline.audio import position
from pipeline.words import Segment, Word, join_words

MAX_UNREAD = 1000
"""Audio is processed only while fewer events than this are unread."""

UNDECIDED = position(60)
"""The audio that is kept and buffered is never longer, so earlier arrival times are of no use."""


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """Someone began to speak at this position."""

    at: int


@dataclass(frozen=True, slots=True)
class SpeechEnded:
    """The speech that began last has ended at this position. Its last words may not be committed yet."""

    at: int


@dataclass(frozen=True, slots=True)
class Partial:
    """The words so far after the last committed one, which may still change. Each partial replaces the one before it.

    A partial without words withdraws the one before it. WordsCommitted and SegmentClosed end the current partial; its
    remaining words are reported in a new one.
    """

    words: tuple[Word, ...]
    segment: int

    @property
    def text(self) -> str:
        return join_words(self.words)


@dataclass(frozen=True, slots=True)
class WordsCommitted:
    """Words that will never change, in the order of the stream. There is at least one.

    *index* is the number of words that this stream committed before them. It never skips a number and never goes back.
    """

    words: tuple[Word, ...]
    index: int
    segment: int


@dataclass(frozen=True, slots=True)
class SegmentClosed:
    """All words of segment *id* (0, 1, ...) are committed. *forced*: it was too long, and the speaker did not pause."""

    id: int
    segment: Segment
    forced: bool = False


@dataclass(frozen=True, slots=True)
class Finalized:
    """Everything that was said before this position is decided. All later words end after it.

    It is the answer to finalize(). It also comes after a sound like speech that had no words.
    """

    at: int


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The speaker has finished: everything said since the last TurnEnded is one turn, whose last word ends at *at*.

    Only streams whose turns end by meaning report it. *probability* comes from the last check of the turn; None if the
    turn ended before a check.
    """

    at: int
    probability: float | None


@dataclass(frozen=True, slots=True)
class LanguageDetected:
    """The language of the stream is known. If the request allows it to change, each change is another event."""

    language: str
    probability: float


@dataclass(frozen=True, slots=True)
class Warned:
    """A message for readers; the stream continues. *code* is a stable name."""

    code: str
    message: str


Event: TypeAlias = (
    SpeechStarted
    | SpeechEnded
    | Partial
    | WordsCommitted
    | SegmentClosed
    | TurnEnded
    | Finalized
    | LanguageDetected
    | Warned
)


@dataclass(frozen=True, slots=True)
class TimedEvent:
    """An event and the time of its decision, in seconds of Unix time. Changes of the system's clock do not move it.

    For WordsCommitted, *lags_s* has the seconds from the arrival of each word's end to that time.
    """

    event: Event
    at_s: float
    lags_s: tuple[float, ...] = ()
    channel: int | None = None  # whose event it is; None if it concerns all, or all are recognised together


class EventClock:
    """Gives the events of one stream their times, and checks from outside that committed words never change."""

    def __init__(self, epoch_s: float) -> None:
        """*epoch_s* is the Unix time at which the clock of the event loop showed 0."""
        self.epoch_s = epoch_s
        self.lag_s = 0.0
        """The lag of the last committed word."""
        self.retractions = 0
        """Committed words that changed later: must be 0."""
        self._arrivals: deque[tuple[int, float]] = deque()  # position after each piece, and its arrival
        self._words = 0
        self._end = 0

    def note_arrival(self, position: int, now_s: float) -> None:
        """Note that all audio before *position* has come by *now_s*, a time of the event loop."""
        self._arrivals.append((position, now_s))
        while self._arrivals[0][0] < position - UNDECIDED:
            self._arrivals.popleft()

    def stamp(self, event: Event, now_s: float) -> TimedEvent:
        """Return *event*, which was decided at *now_s*, with its time and the lags of its words."""
        at_s = self.epoch_s + now_s
        if not isinstance(event, WordsCommitted):
            return TimedEvent(event, at_s)
        lags_s = tuple(now_s - self._arrival_s(word.end) for word in event.words)
        self.retractions += event.index != self._words or event.words[0].start < self._end
        self._words = event.index + len(event.words)
        self._end = event.words[-1].end
        while len(self._arrivals) > 1 and self._arrivals[0][0] < self._end:  # later words end later
            self._arrivals.popleft()
        self.lag_s = lags_s[-1]
        return TimedEvent(event, at_s, lags_s)

    def _arrival_s(self, position: int) -> float:
        """Return when the audio up to *position* had arrived, or a later time if that is no longer kept."""
        index = bisect_left(self._arrivals, position, key=lambda arrival: arrival[0])
        return self._arrivals[min(index, len(self._arrivals) - 1)][1]


class Changes:
    """Wakes tasks that wait for a condition. A task that changes something calls notify() after the change."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}

    def notify(self) -> None:
        """Wake the tasks in until() whose condition holds now."""
        for waiter, holds in self._waiting.items():
            if not waiter.done() and holds():
                waiter.set_result(None)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until *holds* is true. Returns at once if it is already."""
        while not holds():
            waiter = asyncio.get_running_loop().create_future()
            self._waiting[waiter] = holds
            try:
                await waiter
            finally:
                del self._waiting[waiter]


async def read_events(
    unread: deque[TimedEvent], changes: Changes, over: Callable[[], bool]
) -> AsyncIterator[TimedEvent]:
    """Yield the *unread* events as they come, until *over* holds and none is left. Each read makes room for more."""
    while True:
        await changes.until(lambda: bool(unread) or over())
        if not unread:
            return
        yield unread.popleft()
        changes.notify()
