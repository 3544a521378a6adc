"""Finds the turns of a live stream, stretches of speech that end at a long pause, and keeps the undecided ones.

stream.py uses it.
"""

from collections import deque
from dataclasses import dataclass, replace

from pipeline.audio import position
from pipeline.events import SpeechEnded, SpeechStarted
from pipeline.ingest.speech import Segmenter, SegmenterOptions

_USUAL = SegmenterOptions()

ENTER, LEAVE = _USUAL.enter, _USUAL.leave
"""The probabilities that start speech and continue it."""

ONSET, ENDPOINTING = _USUAL.min_speech, position(0.5)
"""The shortest speech, a tenth of a second, and the silence that ends a turn."""

APART = position(1.5)
"""Speech before a longer silence does not help to understand what follows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOptions:
    """All lengths in samples."""

    onset: int = ONSET
    endpointing: int = ENDPOINTING


@dataclass(slots=True)
class Turn:
    """One stretch of speech. *voiced* is the end of its last window with speech, which grows while the turn is open."""

    start: int
    voiced: int
    ended: int | None = None  # where the silence became long enough, or end() was called
    over: float | None = None  # the probability that its speaker has finished, if anybody looked (turn_checks.py)

    @property
    def open(self) -> bool:
        return self.ended is None


class Turns:
    """Holds the turns that are not decided yet, oldest first. Only the newest can be open."""

    def __init__(self, options: TurnOptions, start: int = 0) -> None:
        """*start* is the position of the first window."""
        self._segmenter = Segmenter(
            SegmenterOptions(
                enter=ENTER,
                leave=LEAVE,
                min_speech=options.onset,
                silence=options.endpointing,
                pad=0,  # stream.py itself keeps the audio around speech
            ),
            start,
        )
        self._turns: deque[Turn] = deque()

    @property
    def first(self) -> Turn | None:
        return self._turns[0] if self._turns else None

    @property
    def last(self) -> Turn | None:
        return self._turns[-1] if self._turns else None

    @property
    def steady(self) -> int:
        """The position before which no window can end with an event, whatever the windows contain."""
        return self._segmenter.steady

    def add_window(self, now: int, speech: float) -> list[SpeechStarted | SpeechEnded]:
        """Take the speech probability of the window that ends at *now*; return the starts and ends of turns."""
        events = self._segmenter.add_window(speech)
        self._follow(events, now)
        return events

    def end(self, now: int) -> list[SpeechStarted | SpeechEnded]:
        """End the open turn, if any, and return its end."""
        events = self._segmenter.end()
        self._follow(events, now)
        return events

    def split_first(self, at: int, voiced: int) -> None:
        """Make two turns of the first one: one whose speech ends at *voiced*, and one that begins at *at*."""
        turn = self._turns[0]
        self._turns[0] = Turn(turn.start, voiced, ended=at)
        self._turns.insert(1, replace(turn, start=at))

    def remove_first(self) -> None:
        """Forget the first turn, which is decided."""
        self._turns.popleft()

    def _follow(self, events: list[SpeechStarted | SpeechEnded], now: int) -> None:
        for event in events:
            if isinstance(event, SpeechStarted):
                self._turns.append(Turn(start=event.at, voiced=now))
            else:
                self._turns[-1].ended = now
        if self._segmenter.speaking:
            self._turns[-1].voiced = self._segmenter.voiced
