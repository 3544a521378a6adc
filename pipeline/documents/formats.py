"""A Transcript as the files that readers download. All of them hold the same words in the same order."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import orjson

from pipeline.audio import seconds
from pipeline.documents.cues import Cue, cues
from pipeline.words import Segment, Transcript, Word

SCHEMA = "service_v1"
"""What the JSON file calls its own shape; service_v1.json beside this file describes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """What the JSON file says besides what was heard."""

    job_id: str
    created_at: str  # RFC 3339
    metadata: Mapping[str, str] = field(default_factory=dict)
    words: bool = False  # list every word with its times?


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of file."""

    media_type: str
    extension: str
    render: Callable[[Transcript, Heading], bytes]


def service_v1(transcript: Transcript, heading: Heading) -> bytes:
    """The transcript as UTF-8 JSON of the schema service_v1, with a `words` member iff the heading asks for it."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "job_id": heading.job_id,
        "created_at": heading.created_at,
        "duration": seconds(transcript.duration),
        "language": transcript.language,
        "language_probability": _rounded(transcript.language_probability),
        "model": transcript.model,
        "engine": transcript.engine,
        "text": transcript.text,
        "segments": [segment_object(index, segment) for index, segment in enumerate(transcript.segments)],
    }
    if heading.words:
        document["words"] = [word_object(word) for word in transcript.words]
    document["metadata"] = dict(heading.metadata)
    return orjson.dumps(document)


def word_object(word: Word) -> dict[str, Any]:
    """A word as it is written on the wire: in the JSON file, in the job record, in events. Times in seconds."""
    return {
        "word": word.text,
        "start": seconds(word.start),
        "end": seconds(word.end),
        "probability": _rounded(word.probability),
    }


def word_event(word: Word) -> dict[str, Any]:
    """The same in events: who joins the words himself has to know where no space belongs."""
    return word_object(word) if word.spaced else {**word_object(word), "spaced": False}


def segment_object(index: int, segment: Segment) -> dict[str, Any]:
    """A segment as it is written in the JSON file. Times in seconds; it ends with the last of its words to end."""
    return {
        "id": index,
        "start": seconds(segment.start),
        "end": seconds(max(word.end for word in segment.words)),
        "text": segment.text,
        "avg_logprob": _rounded(segment.avg_logprob),
        "no_speech_prob": _rounded(segment.no_speech_prob),
    }


def srt(transcript: Transcript) -> bytes:
    """SubRip: UTF-8 without a byte order mark, LF. No speech gives no bytes."""
    return "".join(
        f"{number}\n{_clock(cue.start_ms, ',')} --> {_clock(cue.end_ms, ',')}\n{_text(cue)}\n\n"
        for number, cue in enumerate(cues(transcript.words, transcript.duration), start=1)
    ).encode()


def vtt(transcript: Transcript) -> bytes:
    """WebVTT: UTF-8 without a byte order mark, LF. No speech gives the header alone."""
    return "".join(
        (
            "WEBVTT\n\n",
            *(
                f"{_clock(cue.start_ms, '.')} --> {_clock(cue.end_ms, '.')}\n{_escaped(_text(cue))}\n\n"
                for cue in cues(transcript.words, transcript.duration)
            ),
        )
    ).encode()


def txt(transcript: Transcript) -> bytes:
    """The text and one newline. No speech gives no bytes."""
    text = transcript.text
    return f"{text}\n".encode() if text else b""


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        "json": Format("application/json", "json", service_v1),
        "srt": Format("application/x-subrip; charset=utf-8", "srt", lambda transcript, _: srt(transcript)),
        "vtt": Format("text/vtt; charset=utf-8", "vtt", lambda transcript, _: vtt(transcript)),
        "txt": Format("text/plain; charset=utf-8", "txt", lambda transcript, _: txt(transcript)),
    }
)
"""Every file a job can make, by the name that requests use for it."""


def _clock(ms: int, point: str) -> str:
    return f"{ms // 3_600_000:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}{point}{ms % 1000:03}"


def _text(cue: Cue) -> str:
    return "\n".join(cue.lines)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 4) + 0.0  # + 0.0 turns -0.0 into 0.0
