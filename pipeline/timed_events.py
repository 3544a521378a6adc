"""Events of a live stream with the time of their decision, and how they reach their reader.

LiveStream and MultichannelStream queue their events here.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from pipeline.audio import position
from pipeline.events import Event, WordsCommitted
from pipeline.waking import Changes

MAX_UNREAD = 1000
"""Audio is processed only while fewer events than this are unread."""

UNDECIDED = position(60)
"""The audio that is kept and buffered is never longer, so earlier arrival times are of no use."""


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
