"""The newest audio of a live stream, in frames with a probability of speech, and which of it a request has.

Frames are appended at the end and cut off at the start. They are kept in 16 bits, which halves a session's memory: the
samples of most clients come in 16 bits, and what others lose is 98 dB below full scale.

Theory. Whisper makes the most errors with a short phrase alone in its window: context helps it. So the audio of a
request begins before its turn, as early as the length of the window allows. Words that are already decided are later
removed from the answer. A window must not begin inside a word, or Whisper guesses another word from its rest. So it
begins in the middle of a gap between two decided words, preferably a long one, or where the turn itself begins.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise

import numpy as np

from pipeline.audio import FULL_SCALE, LONGEST_JOB, WINDOW, Pcm, Windows, position
from pipeline.recognition.agreement import Agreement, select_of_turn
from pipeline.recognition.engine import RecognitionResult
from pipeline.recognition.stream_options import StreamOptions
from pipeline.recognition.turns import APART, Turn
from pipeline.words import Word

MAX_FRAMES = LONGEST_JOB // WINDOW
"""The most frames in one decode job, just under 30 s. A window holds no more."""

SPARE_FRAMES = 64
"""The frames, 2 s, for which there is space when the window is moved to a new array."""

FRESH_FRAMES = 24
"""So many frames are brought into 16 bits together, which costs a quarter of doing so one by one."""

_LOUDEST = np.float32(FULL_SCALE - 1)

SPARE = position(1)
"""Decided audio that is kept beyond the longest request."""


class AudioWindow:
    """A run of frames of WINDOW samples. It starts and ends at multiples of WINDOW and holds at most MAX_FRAMES.

    A full window refuses more, until something is decided and cut off.
    """

    def __init__(self, start: int = 0) -> None:
        """*start* is the position of the first frame. Raises ValueError unless it is a multiple of WINDOW."""
        if start % WINDOW:
            raise ValueError(f"a stream starts at a multiple of {WINDOW} samples, got {start}")
        self._first = start // WINDOW  # number of the oldest frame that is kept, counted from the recording's first
        self._count = 0  # frames that are kept
        self._audio = np.empty((SPARE_FRAMES, WINDOW), np.int16)  # rows are written once: samples() returns views
        self._speech = np.empty(SPARE_FRAMES)  # of each row
        self._at = 0  # the row of the oldest frame
        self._fresh: list[Windows] = []  # the newest frames, whose rows are not written yet
        self._unwritten = 0  # how many these are

    @property
    def start(self) -> int:
        return self._first * WINDOW

    @property
    def end(self) -> int:
        return (self._first + self._count) * WINDOW

    @property
    def room(self) -> int:
        """How many samples can be appended."""
        return (MAX_FRAMES - self._count) * WINDOW

    def append(self, frames: Windows, speech: Sequence[float]) -> None:
        """Take the next frames, in -1..1, with their probabilities. Raises ValueError for other sizes or when full."""
        if frames.shape != (len(speech), WINDOW):
            raise ValueError(f"a frame has {WINDOW} samples and a probability, got an array of shape {frames.shape}")
        if self._count + len(frames) > MAX_FRAMES:
            raise ValueError(f"the window is full: {MAX_FRAMES} frames are undecided")
        end = self._at + self._count
        if end + len(frames) > len(self._audio):
            self._make_space(len(frames))
            end = self._count
        self._speech[end : end + len(frames)] = speech
        self._count += len(frames)
        self._fresh.append(frames)
        self._unwritten += len(frames)
        if self._unwritten >= FRESH_FRAMES:
            self._write_fresh()

    def cut(self, position: int) -> None:
        """Drop the frames that end at or before *position*, if they are still there."""
        dropped = min(position // WINDOW - self._first, self._count)
        if dropped > 0:
            self._at += dropped
            self._first += dropped
            self._count -= dropped

    def samples(self, start: int, end: int) -> Pcm:
        """Return the audio between two positions, rounded out to whole frames. At least one of them must be there."""
        self._write_fresh()
        samples: Pcm = self._audio[self._rows(start, end)].reshape(-1)
        return samples

    def voiced(self, start: int, end: int, min_speech: float) -> bytes:
        """Return a byte for each frame of samples(start, end): 1 if its speech is at least this probable, else 0."""
        return (self._speech[self._rows(start, end)] >= min_speech).tobytes()

    def voiced_spans(self, start: int, end: int, min_speech: float) -> tuple[tuple[int, int], ...]:
        """Return the spans of samples(start, end) with a probability of speech of at least *min_speech*, in order."""
        voiced, place = self.voiced(start, end, min_speech), max(start // WINDOW, self._first)
        spans: list[tuple[int, int]] = []
        begin = voiced.find(1)
        while begin >= 0:
            after = voiced.find(0, begin)
            after = len(voiced) if after < 0 else after
            spans.append(((place + begin) * WINDOW, (place + after) * WINDOW))
            begin = voiced.find(1, after)
        return tuple(spans)

    def _rows(self, start: int, end: int) -> slice:
        """Return the rows of the kept frames between two positions."""
        first = max(0, start // WINDOW - self._first)
        last = min(-(-end // WINDOW) - self._first, self._count)
        return slice(self._at + first, self._at + max(first, last))

    def _write_fresh(self) -> None:
        if self._fresh:
            end = self._at + self._count
            frames = np.concatenate(self._fresh) * FULL_SCALE
            np.minimum(frames, _LOUDEST, out=self._audio[end - len(frames) : end], casting="unsafe")
            self._fresh.clear()
            self._unwritten = 0

    def _make_space(self, more: int) -> None:
        """Move the frames to the start of an array that has space for *more* and SPARE_FRAMES besides."""
        self._write_fresh()
        rows, count = slice(self._at, self._at + self._count), self._count
        size = count + more + SPARE_FRAMES
        audio, speech = np.empty((size, WINDOW), np.int16), np.empty(size)
        audio[:count], speech[:count] = self._audio[rows], self._speech[rows]
        self._audio, self._speech, self._at = audio, speech, 0


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
