"""Which windows of a live stream are recognised, and where their audio begins. stream.py decides when.

Theory. Whisper makes the most errors with a short phrase alone in its window: context helps it. So the audio of a
request begins before its turn, as early as the length of the window allows. Words that are already decided are later
removed from the answer. A window must not begin inside a word, or Whisper guesses another word from its rest. So it
begins in the middle of a gap between two decided words, preferably a long one, or where the turn itself begins.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise

from pipeline.audio import WINDOW, position
from pipeline.recognition.agreement import Agreement
from pipeline.recognition.engine import RecognitionResult
from pipeline.recognition.merging import select_of_turn
from pipeline.recognition.stream_options import StreamOptions
from pipeline.recognition.turns import APART, Turn
from pipeline.recognition.window import AudioWindow
from pipeline.words import Word

SPARE = position(1)
"""Decided audio that is kept beyond the longest request."""


class Aim(Enum):
    """Why a window is recognised."""

    PARTIAL = auto()  # the turn goes on
    FINAL = auto()  # the speaker pauses, or stopped
    CUT = auto()  # the segment is too long


@dataclass(frozen=True, slots=True)
class WindowRequest:
    """A decode request as the core of a stream remembers it."""

    aim: Aim
    end: int  # of the audio in the request
    voiced: int  # where the speech of the turn ended at the time of the request

    def has_all_of(self, turn: Turn) -> bool:
        """Return whether this is a final with all speech of *turn* so far."""
        return self.aim is Aim.FINAL and self.voiced == turn.voiced


class RequestStarts:
    """Where the audio of the requests about the first turn of a stream begins, and which of their words are its own."""

    def __init__(self, options: StreamOptions, window: AudioWindow, agreement: Agreement) -> None:
        self.newest = 0
        """Where the audio of the newest request begins."""
        self._options = options
        self._window = window
        self._agreement = agreement
        self._turn = Turn(0, 0)
        self._edge = 0  # where the first word of the turn may begin
        self._near = False  # finals begin where partials do, because an answer stopped before the turn
        self._alone = False  # no speech before the turn is used, because an answer stopped there again
        self._language: str | None = None  # of the newest request

    def begin(self, turn: Turn) -> int:
        """Make *turn* the one whose requests are chosen. Return where its first word may begin.

        At the start of a stream the voice detector may miss first words that the recogniser finds, but its probability
        rises. So where no final word is before the turn, it begins with the first faint frame shortly before it.
        """
        options = self._options
        after_words = any(word.end <= turn.start for word in self._agreement.committed)
        faint = () if after_words else self._window.voiced_spans(turn.start - options.early, turn.start, options.faint)
        self._turn = turn
        self._edge = min([turn.start, *(start for start, _ in faint[:1])]) - options.lead
        self._near = self._alone = False
        return self._edge

    def unused(self, ask: WindowRequest) -> int:
        """Return the position before which neither *ask* nor a later request begins, even if that one ends sooner."""
        return min(self._agreement.end - self._options.lead, ask.end - self._options.final - SPARE)

    @property
    def edge(self) -> int:
        """Where the first word of the turn may begin."""
        return self._edge

    def choose(self, ask: WindowRequest, language: str | None) -> int:
        """Return where the audio of *ask*, the newest request, begins.

        Speech in another language than *language* is not used; with None it is unknown which one is spoken.
        """
        self._language = language
        self.newest = self._find(ask)
        return self.newest

    def _find(self, ask: WindowRequest) -> int:
        """Return the best beginning with which the audio is short enough for its aim; the shortest if none is."""
        options, turn, committed = self._options, self._turn, self._in_same_language()
        length = options.partial if ask.aim is Aim.PARTIAL or self._near else options.final
        begin = max(self._edge, self._window.start)
        if options.translates:  # words that were decided before could not be found in the answer
            return max(begin, self._agreement.end)
        before = [word for word in committed if word.end <= turn.start]
        alone = self._alone or not before or turn.start - before[-1].end > APART
        earliest = begin if alone else max(before[0].start - options.lead, self._window.start)
        if ask.end - earliest <= length:
            return earliest
        gaps = [((word.end + after.start) // 2, after.start - word.end) for word, after in pairwise(committed)]
        if len(before) == len(committed):  # nothing of the turn is decided, so the window may also begin with it
            gaps.append((begin, options.pause))
        gaps = [(at, pause) for at, pause in gaps if at >= earliest] or [(earliest, 0)]
        short_enough = [(at, pause) for at, pause in gaps if ask.end - at <= length] or gaps[-1:]
        return next((at for at, pause in short_enough if pause >= options.pause), short_enough[0][0])

    def _in_same_language(self) -> Sequence[Word]:
        """Return the last committed words, as far back as they are in the language of the request."""
        committed = self._agreement.committed
        if self._language is None:
            return committed
        others = (at for at, word in enumerate(reversed(committed)) if word.language not in (None, self._language))
        return committed[len(committed) - next(others, len(committed)) :]

    def select_of_turn(self, words: Sequence[Word]) -> tuple[Word, ...]:
        """Return *words*, which are in order, without those of earlier turns."""
        return tuple(select_of_turn(words, self._agreement.earlier, self._edge))

    def misses_speech(self, ask: WindowRequest, result: RecognitionResult, *, begun: bool) -> bool:
        """Return whether the audio of *ask* begins before the turn, and speech of the turn has no word in *result*.

        The engine says so, or a final has no new words although the last partial had some and no word of the turn is
        final yet (*begun*).
        """
        if self.newest >= self._edge:
            return False  # the turn was recognised alone already
        agreement = self._agreement
        lost = ask.aim is not Aim.PARTIAL and bool(agreement.pending) and not begun
        return result.incomplete or (lost and not agreement.select_fresh(result.words, ask.end))

    def begin_later(self, ask: WindowRequest) -> bool:
        """Let requests about the turn begin later than *ask*: a final where partials do, then at the turn itself.

        Return False if they begin there already.
        """
        self._alone = self._near or ask.aim is Aim.PARTIAL
        self._near = True
        return self._find(ask) > self.newest or (not self._alone and self.begin_later(ask))


def end_of_frame(position: int) -> int:
    """Return the end of the frame that holds *position*."""
    return -(-position // WINDOW) * WINDOW
