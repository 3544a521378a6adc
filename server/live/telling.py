"""Turning what a session reports into events for the log and for readers. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

import orjson

from pipeline.audio import seconds
from pipeline.documents.formats import segment_object, word_event
from pipeline.events import (
    Finalized,
    LanguageDetected,
    Partial,
    SegmentClosed,
    SpeechEnded,
    SpeechStarted,
    Warned,
    WordsCommitted,
)
from pipeline.session import Happened
from pipeline.words import Segment, Word, written
from server.model.events import NewEvent
from server.model.instants import iso


@dataclass(frozen=True, slots=True)
class Origin:
    """Where on the stream's clock a session began, and what had been said before. Not zero after a restart."""

    position: int = 0
    words: int = 0
    segments: int = 0


@dataclass(slots=True)
class LogBatch:
    """Consecutive events, ready to be stored. Positions are on the stream's clock."""

    events: list[NewEvent] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)  # that were closed
    partial: bytes | None = None  # the newest, if it came after the last word
    partial_ended: bool = False  # the one shown before is in the log now
    partials: int = 0  # how many were reported, shown or not
    lags_s: list[float] = field(default_factory=list)  # of the words
    settled: int = 0  # end of the last word
    finalized: int | None = None  # up to where a writer's wish to decide everything was fulfilled
    language: LanguageDetected | None = None
    warnings: list[Warned] = field(default_factory=list)


def log_batch(happened: Iterable[Happened], origin: Origin) -> LogBatch:
    """Describe what *happened* since the last batch."""
    batch = LogBatch()
    for one in happened:
        _add(batch, one, origin)
    return batch


def _add(batch: LogBatch, one: Happened, origin: Origin) -> None:
    match one.event:
        case WordsCommitted(words, index, segment):
            _end_partial(batch)
            first = origin.words + index
            at = iso(round(one.at_s * 1000))
            for number, (word, lag_s) in enumerate(zip(words, one.lags_s, strict=True), first):
                body = {"index": number, "segment": origin.segments + segment, **word_event(shifted(word, origin))}
                _log(batch, "word", {**body, "emitted_at": at, "lag_ms": round(lag_s * 1000)})
            batch.lags_s += one.lags_s
            batch.settled = shifted(words[-1], origin).end
        case SegmentClosed(number, segment, forced):
            _end_partial(batch)
            moved = replace(segment, words=tuple(shifted(word, origin) for word in segment.words))
            batch.segments.append(moved)
            _log(batch, "segment", closed_segment(origin.segments + number, moved, forced=forced))
        case Partial(words, segment):
            batch.partials += 1
            batch.partial = _partial([shifted(word, origin) for word in words], origin.segments + segment)
        case SpeechStarted(at):
            _log(batch, "speech.started", {"at": seconds(origin.position + at)})
        case SpeechEnded(at):
            _log(batch, "speech.ended", {"at": seconds(origin.position + at)})
        case Finalized(at):
            batch.finalized = origin.position + at
            _log(batch, "finalized", {"at": seconds(batch.finalized)})
        case LanguageDetected(language, probability):
            batch.language = one.event
            _log(batch, "language", {"language": language, "probability": round(probability, 4)})
        case Warned(code, message):
            batch.warnings.append(one.event)
            _log(batch, "warning", {"code": code, "message": message})
        case _:
            assert_never(one.event)


def shifted(word: Word, origin: Origin) -> Word:
    """A word of the session, moved to the stream's clock."""
    return replace(word, start=origin.position + word.start, end=origin.position + word.end)


def closed_segment(number: int, segment: Segment, *, forced: bool) -> dict[str, Any]:
    """The body of a segment's event."""
    return {**segment_object(number, segment), "forced": forced}


def _partial(words: list[Word], segment: int) -> bytes:
    start, end = (seconds(words[0].start), seconds(words[-1].end)) if words else (None, None)
    return orjson.dumps({"segment": segment, "text": written(words), "start": start, "end": end})


def _end_partial(batch: LogBatch) -> None:
    batch.partial, batch.partial_ended = None, True


def _log(batch: LogBatch, kind: str, body: dict[str, Any]) -> None:
    batch.events.append(NewEvent(kind, orjson.dumps(body)))
