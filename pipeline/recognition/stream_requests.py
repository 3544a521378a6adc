"""Which windows of a live stream are recognised, and where their audio begins. stream.py decides when.

Theory. Whisper makes the most errors with a short phrase alone in its window: context helps it. So the audio of a
request begins before its turn, as early as the length of the window allows. Words that are already decided are later
removed from the answer. A window must not begin inside a word, or Whisper guesses another word from its rest. So it
begins in the middle of a gap between two decided words, preferably a long one, or where the turn itself begins.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import pairwise

from pipeline.audio import WINDOW
from pipeline.recognition.merging import ends_with
from pipeline.recognition.spoken_form import may_pause
from pipeline.recognition.stream_options import StreamOptions
from pipeline.recognition.turns import Turn
from pipeline.recognition.window import AudioWindow
from pipeline.words import Word


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
    opening: bool = field(default=False, compare=False)  # whether little was said in the stream until then

    def has_all_of(self, turn: Turn) -> bool:
        """Return whether this is a final with all speech of *turn* so far."""
        return self.aim is Aim.FINAL and self.voiced == turn.voiced


def find_audio_start(
    turn: Turn,
    kept: Sequence[Word],
    *,
    edge: int,
    oldest: int,
    end: int,
    length: int,
    alone: bool,
    options: StreamOptions,
) -> int:
    """Return where the audio of a request about *turn* begins, if it ends at *end* and *length* samples are wanted.

    Its first word begins at *edge* or later. *kept* are the decided words whose audio is still in memory, from *oldest*
    on. With *alone* no speech before the turn is used. The audio is longer than *length* only if every possible
    beginning lies too far back.
    """
    begin = max(edge, oldest)
    before = [word for word in kept if word.end <= turn.start]
    alone = alone or not before or turn.start - before[-1].end > options.apart
    earliest = begin if alone else max(before[0].start - options.lead, oldest)
    if end - earliest <= length:
        return earliest
    gaps = [((word.end + after.start) // 2, after.start - word.end) for word, after in pairwise(kept)]
    if len(before) == len(kept):  # nothing of the turn is decided, so the window may also begin with it
        gaps.append((begin, options.pause))
    gaps = [(at, pause) for at, pause in gaps if at >= earliest] or [(earliest, 0)]
    short_enough = [(at, pause) for at, pause in gaps if end - at <= length] or gaps[-1:]
    return next((at for at, pause in short_enough if pause >= options.pause), short_enough[0][0])


def find_edge(turn: Turn, kept: Sequence[Word], window: AudioWindow, options: StreamOptions) -> int:
    """Return where the first word of *turn* may begin.

    At the start of a stream a voice detector misses first words that recognisers hear, but it has a doubt. So where no
    *kept* word is before it, the turn begins with the first doubt shortly before it.
    """
    spoken = any(word.end <= turn.start for word in kept)
    faint = () if spoken else window.voiced_spans(turn.start - options.early, turn.start, options.faint)
    return min([turn.start, *(start for start, _ in faint[:1])]) - options.lead


def in_turn(words: tuple[Word, ...], turn: Turn, *, edge: int, earlier: Sequence[Word]) -> tuple[Word, ...]:
    """Return those of *words*, which are in order, that are not of *earlier* turns. *turn* has none before *edge*.

    A number may have begun before it. The last word of the turn before may stand where *turn* begins.
    """
    before = sum(word.start + word.end < 2 * edge and not _goes_on(word, turn) for word in words)
    return words[before + ends_with(earlier, words[: before + 1]) :]


def _goes_on(word: Word, turn: Turn) -> bool:
    """Return whether *word* can have pauses in it and reaches into *turn*."""
    return word.end > turn.start and may_pause(word.text)


def end_of_frame(position: int) -> int:
    """Return the end of the frame that holds *position*."""
    return -(-position // WINDOW) * WINDOW
