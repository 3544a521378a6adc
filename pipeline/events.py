"""What a live stream reports, as values: a small vocabulary, to be matched exhaustively. All times are positions."""

from dataclasses import dataclass
from typing import TypeAlias

from pipeline.words import Segment, Word, written


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """Someone began to speak at this position."""

    at: int


@dataclass(frozen=True, slots=True)
class SpeechEnded:
    """The speech that began last ended at this position; its last words may still be on their way."""

    at: int


@dataclass(frozen=True, slots=True)
class Partial:
    """What is heard after the last committed word so far. Replaces the partial before it; no words: it was nothing.

    WordsCommitted and SegmentClosed end the partial before them: what remains of it is said again.
    """

    words: tuple[Word, ...]
    segment: int

    @property
    def text(self) -> str:
        return written(self.words)


@dataclass(frozen=True, slots=True)
class WordsCommitted:
    """Words that will never change, in the order of the stream. There is at least one.

    *index* is the number of words committed in this stream before them: it never skips and never goes back.
    """

    words: tuple[Word, ...]
    index: int
    segment: int


@dataclass(frozen=True, slots=True)
class SegmentClosed:
    """All words of segment *id* (0, 1, ...) are committed. *forced*: cut by length, the speaker went on."""

    id: int
    segment: Segment
    forced: bool = False


@dataclass(frozen=True, slots=True)
class LanguageDetected:
    """The stream's language is settled for the rest of the stream."""

    language: str
    probability: float


@dataclass(frozen=True, slots=True)
class Warned:
    """Something a reader should know; the stream goes on. *code* is a stable name."""

    code: str
    message: str


Event: TypeAlias = SpeechStarted | SpeechEnded | Partial | WordsCommitted | SegmentClosed | LanguageDetected | Warned
