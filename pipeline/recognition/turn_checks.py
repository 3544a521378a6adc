"""Decides when to check whether the speaker of a live stream has finished, and which turns are over. stream.py uses it.

If only silence counts, every turn ends after the same pause, whatever was said. If meaning counts too, a short pause is
enough after a sentence that sounds finished, and a longer one is needed otherwise. So each pause is checked while it is
short, and once or twice again later, because a speaker who stays silent has probably finished. If no check finds an
end, the turn ends after TurnOptions.endpointing.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pipeline.audio import WINDOW, Samples, floats_of, position
from pipeline.events import TurnEnded
from pipeline.recognition.turns import APART, ENDPOINTING, LEAVE, ONSET, Turn
from pipeline.recognition.window import AudioWindow

LONGEST_CHECK = position(8)
"""The most audio of a check: the model takes no more."""


@dataclass(frozen=True, slots=True)
class Eagerness:
    """How soon a turn counts as over. Lengths are in samples."""

    looks: tuple[tuple[int, float], ...]  # silences in a pause, each with the probability that ends the turn there
    longest: int  # pause, after which it ends whatever was said


# After a tenth of a second and half a second. With more silence the model is less sure (area under the curve 0.87 after
# 0.1 s, 0.80 after 0.8 s), except for very short turns such as "Hello": 0.32 after 0.1 s, 0.96 after half a second.
MEDIUM = Eagerness(((ONSET, 0.7), (ENDPOINTING, 0.95)), position(3))

EAGERNESS: Mapping[str, Eagerness] = {
    "low": Eagerness(((ONSET, 0.9),), position(5)),
    "medium": MEDIUM,
    "high": Eagerness(((ONSET, 0.5), (ENDPOINTING, 0.9)), APART),
    "auto": MEDIUM,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCheckOptions:
    """How turns end by meaning. Lengths are in samples."""

    eagerness: Eagerness = MEDIUM
    # Longer silences are cut to this. A clause is a whole sentence without the one before it: of 23 pauses in sentences
    # 7 ended a turn so, 10 with silences as they were, 18 with the turn alone.
    gap: int = 9 * WINDOW


@dataclass(frozen=True, slots=True, eq=False)
class TurnCheck:
    """The question whether *turn* is over, and the audio by which it is answered."""

    turn: Turn
    samples: Samples
    end: int  # of the audio
    voiced: int  # where the speech of the turn ended then
    enough: float  # with this probability the turn is over


class TurnChecks:
    """Chooses the checks of one stream, at most one at a time, and reports the ends of its turns."""

    def __init__(self, options: TurnCheckOptions | None, open_turn: int | None = None) -> None:
        """Without *options* turns end by silence alone: no turn is checked, and no end is reported.

        *open_turn*: as in StreamStart.
        """
        self._options = options
        self._in_flight: TurnCheck | None = None
        self._pause: tuple[Turn, int] | None = None  # the turn and its end of speech of the pause that was looked at
        self._looks = 0  # at that pause
        self._last_word_end = open_turn

    def next_look(self, turn: Turn | None) -> int:
        """Return the position in the pause after *turn* at which it is checked next, if the pause lasts that long."""
        if self._options is None or turn is None or not turn.open or self._in_flight is not None:
            return sys.maxsize
        done = self._looks if self._pause == (turn, turn.voiced) else 0
        looks = self._options.eagerness.looks
        return turn.voiced + looks[done][0] if done < len(looks) else sys.maxsize

    def choose(self, turn: Turn | None, window: AudioWindow) -> TurnCheck | None:
        """Return the check of the newest turn that is due now, at the end of *window*. It is in flight then."""
        if turn is None or self._options is None or window.end < self.next_look(turn):
            return None
        looks = self._options.eagerness.looks
        self._pause = turn, turn.voiced
        self._looks = sum(turn.voiced + silence <= window.end for silence, _ in looks)
        samples, enough = self._gather(turn, window), looks[self._looks - 1][1]
        self._in_flight = TurnCheck(turn, samples, window.end, turn.voiced, enough)
        return self._in_flight

    def _gather(self, turn: Turn, window: AudioWindow) -> Samples:
        """Return the newest LONGEST_CHECK samples of speech, with long silences made short.

        Half of a sentence often sounds like a whole one. So a turn that closely follows another is checked together
        with the speech before it. The pause that is being checked keeps its length.
        """
        assert self._options is not None
        silent = np.frombuffer(window.voiced(window.start, window.end, LEAVE), np.uint8) == 0
        frame = np.arange(len(silent))
        silence = frame - np.maximum.accumulate(np.where(silent, -1, frame))  # frames since the last with speech
        begin = max(0, (turn.start - window.start) // WINDOW)
        apart = np.flatnonzero(silence[:begin] * WINDOW > APART)
        included = (silence * WINDOW <= self._options.gap) | (frame >= (turn.voiced - window.start) // WINDOW)
        included[: apart[-1] + 1 if len(apart) else 0] = False
        frames = window.samples(window.start, window.end).reshape(-1, WINDOW)[included]
        return floats_of(frames[-LONGEST_CHECK // WINDOW :].ravel())

    def is_late(self, now: int, patience: int) -> bool:
        """Return whether the check in flight, if any, began more than *patience* samples ago."""
        return self._in_flight is not None and now >= self._in_flight.end + patience

    def receive(self, probability: float | None) -> bool:
        """Take the answer to the check in flight, None if it failed. Return whether its turn ends because of it."""
        check, self._in_flight = self._in_flight, None
        if check is None:
            raise ValueError("no check is in flight")
        turn = check.turn
        if probability is None or not turn.open or turn.voiced != check.voiced:
            return False  # the speaker went on
        turn.over = probability
        return probability >= check.enough

    def note_word(self, until: int) -> None:
        """Note the end of the last word so far."""
        self._last_word_end = until

    def conclude(self, turn: Turn | None = None) -> list[TurnEnded]:
        """Return TurnEnded for *turn*, if it has words. All of them are known. None: a turn from before this stream."""
        until, self._last_word_end = self._last_word_end, None
        if self._options is None or until is None:
            return []
        return [TurnEnded(until, turn.over if turn is not None else None)]
