"""The events of a job that readers get: renderings of its timeline, numbered 1, 2, 3, ... without a gap.

An entry is rendered alone, always to the same events: those who read while it is written, late ones and those who come
back with Last-Event-ID get equal bytes. An entry may have no event, or, like `Words`, several. EVENTS and WARNINGS list
what may come; the reference shows both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from msgspec.json import encode as json_bytes  # orjson's bytes hold 4 kB each, and readers' events are kept

from pipeline.audio import seconds
from pipeline.documents.formats import rounded, word_event
from pipeline.documents.translated import translation_object
from pipeline.timeline import (
    Change,
    Correction,
    DecidedUpTo,
    Entry,
    FinalizedUpTo,
    JobEnd,
    LanguageFound,
    Notice,
    Progress,
    SegmentEnd,
    SpeakerName,
    SpeakersJoined,
    SpeakersRevised,
    SpeakerTurns,
    SpeechEnd,
    SpeechStart,
    StateChange,
    Translation,
    TurnEnd,
    Words,
    WordsGiven,
    WordsReplaced,
)
from pipeline.words import join_words, speaker_members
from server.clock import iso


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event that has no number yet."""

    type: str
    body: bytes  # JSON object without seq


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a job. *stream* is the job's id."""

    stream: str
    seq: int  # 1, 2, 3, ... without gaps
    at: int
    type: str
    body: bytes


# fmt: off
EVENTS: Mapping[str, tuple[bool, str]] = {
    "job.status": (True, "The job's status changed."),
    "job.progress": (True, "How much of the audio is done, 0 to 1."),
    "word": (True, (
        "A final word: `index`, `segment`, `word`, `start`, `end`, `probability`; "
        "`language` where several may be found; "
        "`spaced` is false where no space belongs before it. Live also `emitted_at` and `lag_ms`.")),
    "segment": (True, "A phrase is complete."),
    "translation": (True, (
        "A translated unit: `target`, `first` and `last` (numbers of the words), `start`, `end`, `text`, `lag_ms`.")),
    "corrected": (True, (
        "A person changed the words `first` to `last` into `words`, or their `speaker`, or named or joined speakers; "
        "`revision`, `by`. It may come after the job's end.")),
    "speakers.revised": (True, (
        'With `diarize`: `words` gives runs of words their speakers, `[{"first": 12, "last": 17, '
        '"speaker": "S2"}]`, both included; `final`.')),
    "speech.started": (True, "Live: speech began at `at`."),
    "speech.ended": (True, "Live: speech ended at `at`."),
    "turn.ended": (True, (
        "Live, with `endpointing=semantic`: a turn is over. `at` is the end of its last word, `probability` how sure "
        "that is.")),
    "finalized": (True, (
        "Live: everything before `at` is decided: the answer to `finalize`, to `keep_alive` in a pause, and after "
        "speech without words.")),
    "language": (True, "Live: the language from here on, and its `probability`."),
    "warning": (True, "Live: a message for readers; the stream goes on."),
    "partial": (False, (
        "Live: the words after the last final one. It replaces the partial before it, of its `channel`.")),
    "job.completed": (True, "The job is done. The body is that of the webhook."),
    "job.failed": (True, "The job failed. The body is that of the webhook."),
    "job.canceled": (True, "The job was canceled."),
}
# fmt: on
"""Every event that readers get: whether it is numbered, and what it says."""


WARNINGS: Mapping[str, str] = {
    # about the request
    "unknown_parameter": "`param` is not a field of this request. It was ignored.",
    "ignored_parameter": "Another field makes `param` useless, such as `max_speakers` without `diarize`.",
    "prompt_shortened": "The prompt is longer than 1,000 characters; only its end is used.",
    "webhook_disabled": "The webhook's address is no longer called.",
    "endpointing_unavailable": "Turns end by silence, because the model for `semantic` is not installed.",
    "windows_unmeasured": "Live words come late: this model is not measured yet. Run `scribewire doctor --save`.",
    # about the recording
    "other_tracks": "Somebody speaks on an audio track that was not transcribed; the message names it.",
    "undecodable_track": "An audio track cannot be decoded, so others were used.",
    "identical_channels": "Two separate channels are the same; one was transcribed for both.",
    "two_talks": "Different people talk at the same time on the two channels. `channels=separate` transcribes both.",
    "audio_truncated": "The recording ends before its header says, or was cut at the plan's limit.",
    "frames_skipped": "Damaged frames were left out; how many, and their seconds.",
    "gaps_filled": "Gaps were filled with silence, so that words keep their time; how many, and their seconds.",
    "times_shifted": "Time stamps jump ahead by more than 600 s and the stated length; the rest was moved up.",
    "header_found": "A file that was declared as raw audio has a header, which was used.",
    "bytes_not_heard": "Some bytes are no part of a recording that can be decoded; how many, and why.",
    "quiet_input": "The speech is very quiet: below -45 dBFS, or nothing above -60 dBFS for ten live seconds.",
    # about the text
    "language_doubtful": "More than 3 s of speech may be in another language than the text says.",
    "number_words_unknown": "`numerals` or `redact` for a language whose number words are not known.",
    "address_words_unknown": "`redact=email` for a language whose words for `@` and `dot` are not known.",
    "engine_failed": "The recogniser failed at the end of an utterance; an earlier hypothesis was used.",
    "translation_unavailable": "The translator failed for a while; the message says from when to when.",
    "translation_incomplete": "Some seconds have no translation; the message names them.",
    # about a live session
    "recording_failed": "The audio could not be kept.",
    "recording_incomplete": "The audio from before a restart of the server was not kept.",
}
"""Every warning that a record or a live reader may get, by its code. Codes never change their meaning."""


def render(entry: Entry) -> list[NewEvent]:  # noqa: C901, PLR0912  a case for each kind of entry
    """The events of *entry*, in order."""
    match entry:
        case Words():
            return _words(entry) if entry.shown else []
        case SegmentEnd():
            return [_event("segment", _segment(entry))]
        case LanguageFound(language, probability, channel):
            return [_event("language", {"language": language, "probability": round(probability, 4), **_on(channel)})]
        case SpeakersRevised(runs, final):
            words = [{"first": run.first, "last": run.last, "speaker": run.speaker} for run in runs]
            return [_event("speakers.revised", {"words": words, "final": final})]
        case Translation():
            return [_event("translation", translation_object(entry))] if entry.text else []
        case TurnEnd(at, probability, channel):
            shown = None if probability is None else round(probability, 4)
            return [_event("turn.ended", {"at": seconds(at), "probability": shown, **_on(channel)})]
        case FinalizedUpTo(at, channel):
            return [_event("finalized", {"at": seconds(at), **_on(channel)})]
        case SpeechStart(at, channel):
            return [_event("speech.started", {"at": seconds(at), **_on(channel)})]
        case SpeechEnd(at, channel):
            return [_event("speech.ended", {"at": seconds(at), **_on(channel)})]
        case Notice(code, message, channel):
            return [_event("warning", {"code": code, "message": message, **_on(channel)})]
        case StateChange(state, progress):
            return [_event("job.status", {"status": state, "progress": progress})]
        case Progress(progress):
            return [_event("job.progress", {"progress": progress})]
        case Correction(revision, by, changes):
            return [_event("corrected", {"revision": revision, "by": by, **change_object(one)}) for one in changes]
        case JobEnd(state):  # it has only a type: the job's record is rendered when it is sent
            return [_event(f"job.{state}", {"type": f"job.{state}"})]
        case DecidedUpTo() | SpeakerTurns():
            return []
        case _:
            assert_never(entry)


def change_object(change: Change) -> dict[str, object]:
    """Return a change as events and lists of corrections have it."""
    match change:
        case WordsReplaced(first, last, words):
            shown = [word_event(stored.word) for stored in words]
            text = join_words(stored.word for stored in words)
            return {"first": first, "last": last, "text": text, "words": shown}
        case WordsGiven(first, last, speaker):
            return {"first": first, "last": last, "speaker": speaker or None}
        case SpeakerName(speaker, name):
            return {"speaker": speaker, "name": name or None}
        case SpeakersJoined(speaker, into):
            return {"speaker": speaker, "into": into}
        case _:
            assert_never(change)


def _words(entry: Words) -> list[NewEvent]:
    when = {} if entry.emitted_at is None else {"emitted_at": iso(entry.emitted_at)}
    events = []
    for number, stored in enumerate(entry.words, entry.first):
        body = {
            "index": number,
            "segment": entry.segment,
            **word_event(stored.word),
            **_speaker(entry.channel, stored.speaker),
            **when,
        }
        events.append(_event("word", body if stored.lag_ms is None else {**body, "lag_ms": stored.lag_ms}))
    return events


def _segment(entry: SegmentEnd) -> dict[str, object]:
    return {
        "id": entry.segment,
        "start": seconds(entry.start),
        "end": seconds(entry.end),
        "text": entry.text,
        "avg_logprob": rounded(entry.avg_logprob),
        "no_speech_prob": rounded(entry.no_speech_prob),
        **({} if entry.language is None else {"language": entry.language}),
        **_speaker(entry.channel, entry.speaker),
        **({} if entry.forced is None else {"forced": entry.forced}),
    }


def _speaker(channel: int | None, label: str | None) -> dict[str, int | str]:
    return _on(channel) if label == "" else speaker_members(channel, label)


def _on(channel: int | None) -> dict[str, int | str]:
    return {} if channel is None else {"channel": channel}


def _event(kind: str, body: dict[str, object]) -> NewEvent:
    return NewEvent(kind, json_bytes(body))
