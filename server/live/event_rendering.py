"""Turns the events of a recognition session into JSON events for the log and for readers. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, assert_never

from msgspec.json import encode as json_bytes  # orjson's bytes hold 4 kB each, and readers' events are kept

from pipeline.attribution import SpeakerRun
from pipeline.audio import seconds
from pipeline.documents.formats import segment_object, word_event
from pipeline.documents.spoken import certainty, doubtful_languages
from pipeline.events import (
    Finalized,
    LanguageDetected,
    Partial,
    SegmentClosed,
    SpeechEnded,
    SpeechStarted,
    TurnEnded,
    Warned,
    WordsCommitted,
)
from pipeline.speakers.live import LiveSpeakers
from pipeline.timed_events import TimedEvent
from pipeline.words import Segment, Word, join_words, speaker_members
from server.model.events import NewEvent
from server.model.instants import iso

TURN_ENDED = "turn.ended"


@dataclass(slots=True)
class LogBatch:
    """Consecutive events, ready to be stored."""

    events: list[NewEvent] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)  # closed ones
    shown: dict[int | None, bytes | None] = field(default_factory=dict)  # by channel, its newest partial; None: no more
    partials: int = 0  # the number of partials, including those that a later one replaced
    lags_s: list[float] = field(default_factory=list)  # of the words
    said: dict[int | None, list[Word]] = field(default_factory=dict)  # by channel, its new words
    finalized: int | None = None  # the position up to which a writer's finalize decided everything
    languages: dict[int | None, LanguageDetected] = field(default_factory=dict)  # by channel
    warnings: list[Warned] = field(default_factory=list)


class EventRenderer:
    """Renders the events of one session. Words and segments of all its channels share one numbering."""

    def __init__(self, speakers: LiveSpeakers | None = None, *, words: int = 0, segments: int = 0) -> None:
        """*speakers* labels words by voice. If it is None, each separate channel is one speaker.

        *words* and *segments* are the numbers of those that readers had before a restart.
        """
        self._speakers = speakers
        self._words = words
        self._segments = segments
        self._certainty: dict[str, tuple[int, float]] = {}  # of each language
        self._warned_of_language = False
        self._ids: dict[int | None, tuple[int, int]] = {}  # by channel: its newest segment's own number, and its id

    def batch(self, happened: Iterable[TimedEvent]) -> LogBatch:
        """Render the events since the last batch."""
        batch = LogBatch()
        for one in happened:
            self._add(batch, one)
        return batch

    def _add(self, batch: LogBatch, one: TimedEvent) -> None:
        channel = one.channel
        where = {} if channel is None else {"channel": channel}
        match one.event:
            case WordsCommitted():
                self._add_words(batch, one, one.event)
            case SegmentClosed(number, segment, forced):
                batch.shown[channel] = None
                batch.segments.append(replace(segment, channel=channel))
                _log(batch, "segment", self._segment(channel, number, batch.segments[-1], forced=forced))
                self._warn_of_language(batch)
            case Partial(words, segment):
                batch.partials += 1
                said = _partial(words, self._id(channel, segment))
                members = where if self._speakers is not None else speaker_members(channel)
                batch.shown[channel] = json_bytes({**said, **members})
            case SpeechStarted(at) | SpeechEnded(at):
                kind = "speech.started" if isinstance(one.event, SpeechStarted) else "speech.ended"
                _log(batch, kind, {"at": seconds(at), **where})
            case TurnEnded(at, probability):
                batch.events.append(turn_ended(at, probability, channel))
            case Finalized(at):
                if channel is None:
                    batch.finalized = at
                _log(batch, "finalized", {"at": seconds(at), **where})
            case LanguageDetected(language, probability):
                batch.languages[channel] = one.event
                _log(batch, "language", {"language": language, "probability": round(probability, 4), **where})
            case Warned(code, message):
                batch.warnings.append(one.event)
                batch.events.append(warning_event(code, message, channel))
            case _:
                assert_never(one.event)

    def _add_words(self, batch: LogBatch, one: TimedEvent, event: WordsCommitted) -> None:
        batch.shown[one.channel] = None
        segment, at = self._id(one.channel, event.segment), iso(round(one.at_s * 1000))
        for number, (word, lag_s) in enumerate(zip(event.words, one.lags_s, strict=True), self._words):
            body = {"index": number, "segment": segment, **word_event(word), **self._speaker(word, one.channel)}
            _log(batch, "word", {**body, "emitted_at": at, "lag_ms": round(lag_s * 1000)})
        self._words += len(event.words)
        batch.lags_s += one.lags_s
        batch.said.setdefault(one.channel, []).extend(event.words)

    def _warn_of_language(self, batch: LogBatch) -> None:
        """Add a warning, once, when much speech may be in another language. The record says at the end how much."""
        if self._warned_of_language:
            return
        self._certainty = certainty(batch.segments[-1:], self._certainty)
        for note in doubtful_languages(self._certainty)[:1]:
            code, _, message = note.partition(": ")
            batch.events.append(warning_event(code, message))
            self._warned_of_language = True

    def _speaker(self, word: Word, channel: int | None) -> Mapping[str, int | str]:
        """The members `speaker` and `channel` of *word*."""
        if self._speakers is None:
            return speaker_members(channel)
        return _members(channel, self._speakers.label(word, channel))

    def _segment(self, channel: int | None, number: int, segment: Segment, *, forced: bool) -> dict[str, Any]:
        """The body of a segment's event."""
        if self._speakers is None:
            return closed_segment(self._id(channel, number), segment, forced=forced)
        labels = self._speakers.last_labels(len(segment.words), channel)
        return labelled_segment(self._id(channel, number), segment, labels, forced=forced)

    def _id(self, channel: int | None, number: int) -> int:
        """The session's id for the channel's segment *number*. Each new segment gets the next id."""
        if self._ids.get(channel, (None, 0))[0] != number:
            self._ids[channel] = number, self._segments
            self._segments += 1
        return self._ids[channel][1]


def _members(channel: int | None, speaker: str | None) -> Mapping[str, int | str]:
    where: dict[str, int | str] = {} if channel is None else {"channel": channel}
    return where if speaker is None else {**where, "speaker": speaker}


def turn_ended(at: int, probability: float | None, channel: int | None) -> NewEvent:
    """The event for the end of a turn whose last word ends at the position *at*."""
    where = {} if channel is None else {"channel": channel}
    rounded = None if probability is None else round(probability, 4)
    return NewEvent(TURN_ENDED, json_bytes({"at": seconds(at), "probability": rounded, **where}))


def warning_event(code: str, message: str, channel: int | None = None) -> NewEvent:
    """The event for a warning that readers get while the session runs."""
    where = {} if channel is None else {"channel": channel}
    return NewEvent("warning", json_bytes({"code": code, "message": message, **where}))


def revised_event(runs: Sequence[SpeakerRun], *, final: bool) -> NewEvent:
    """The event with the new speakers of words that readers already have."""
    return NewEvent("speakers.revised", json_bytes({"words": [asdict(run) for run in runs], "final": final}))


def closed_segment(number: int, segment: Segment, *, forced: bool) -> dict[str, Any]:
    """The body of a segment's event."""
    return {**segment_object(number, segment), "forced": forced}


def labelled_segment(number: int, segment: Segment, labels: Counter[str], *, forced: bool) -> dict[str, Any]:
    """The body of a segment's event. Its speaker is that of most of its words, which have these *labels*."""
    body = closed_segment(number, segment, forced=forced)
    body.pop("speaker", None)
    return {**body, **_members(segment.channel, labels.most_common(1)[0][0] if labels else None)}


def _partial(words: Sequence[Word], segment: int) -> dict[str, Any]:
    start, end = (seconds(words[0].start), seconds(words[-1].end)) if words else (None, None)
    return {"segment": segment, "text": join_words(words), "start": start, "end": end}


def _log(batch: LogBatch, kind: str, body: dict[str, Any]) -> None:
    batch.events.append(NewEvent(kind, json_bytes(body)))
