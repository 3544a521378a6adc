"""The events of a live stream, as values. Code that handles them matches all of them. All times are positions."""

from dataclasses import dataclass
from typing import TypeAlias

from pipeline.words import Segment, Word, join_words


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
    """The language of the stream is known. If the order allows it to change, each change is another event."""

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
