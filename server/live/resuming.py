"""Where a live session continues after its server died, as read from the job's chunks and log. Pure.

Closed segments are chunks of the job. Words that were committed after the last of them are only in the log. They become
a segment of their own, because a committed word neither changes nor disappears. The stream continues after the last
word.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from pipeline.audio import position
from pipeline.documents.stored import restored
from pipeline.words import Chunk, Segment, Word
from server.live.telling import Origin
from server.model.events import Event

LEAD = position(0.3)
"""Audio before the end of the last word that is heard again: where a word ends is known to a tenth of a second or two,
and a first sound that was cut off makes another word."""

MIN_PROBABILITY = 1e-3  # lower bound for a word's probability in the mean of a segment that was never closed


@dataclass(frozen=True, slots=True)
class Past:
    """What a live job has said so far. The segment of the *open_words* was never closed."""

    chunks: tuple[Chunk, ...] = ()
    open_words: tuple[Word, ...] = ()

    @property
    def settled(self) -> int:
        """The position up to which everything is decided: the end of the last word."""
        return self.open_words[-1].end if self.open_words else self.end

    @property
    def origin(self) -> Origin:
        """Where the stream continues once the open words are a segment."""
        return Origin(
            position=resumed_at(self.settled),
            words=self.words + len(self.open_words),
            segments=self.segments + bool(self.open_words),
        )

    @property
    def end(self) -> int:
        """The end of the last closed segment."""
        return self.chunks[-1].end if self.chunks else 0

    @property
    def words(self) -> int:
        return sum(len(segment.words) for chunk in self.chunks for segment in chunk.segments)

    @property
    def segments(self) -> int:
        return sum(len(chunk.segments) for chunk in self.chunks)

    @property
    def language(self) -> str | None:
        return self.chunks[-1].language if self.chunks else None

    @property
    def language_probability(self) -> float | None:
        return self.chunks[-1].language_probability if self.chunks else None

    @property
    def last_segment(self) -> Segment | None:
        """The open words as a segment; None if there are none."""
        if not self.open_words:
            return None
        logs = [math.log(max(word.probability, MIN_PROBABILITY)) for word in self.open_words]
        return Segment(self.open_words, avg_logprob=sum(logs) / len(logs), no_speech_prob=0.0)


def resumed_at(settled: int) -> int:
    """Where the audio must continue when everything before *settled* is decided."""
    return max(0, settled - LEAD)


def read_past(bodies: Sequence[bytes], log: Iterable[Event]) -> Past:
    """The past in the bodies of a job's chunks and in its log."""
    closed = Past(tuple(restored(body) for body in bodies))
    said = [orjson.loads(event.body) for event in log if event.type == "word"]
    return Past(closed.chunks, tuple(_word(body, closed.end) for body in said if body["index"] >= closed.words))


def _word(body: Mapping[str, Any], least: int) -> Word:
    """A word from the log. Its times are rounded to milliseconds, possibly to before the end of the last segment."""
    start, end = (max(position(body[name]), least) for name in ("start", "end"))
    return Word(body["word"], start, end, body["probability"], body.get("spaced", True))
