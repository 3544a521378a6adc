"""The bodies and events in which OpenAI's clients read a finished transcription. `files.py` sends them."""

from collections.abc import Iterable, Mapping, Sequence
from string import ascii_uppercase
from typing import Any

import orjson

from pipeline.attribution import segments_in_time
from pipeline.documents.formats import segment_object, word_object
from pipeline.documents.stored import unpack_chunk
from pipeline.recognition.engine import TRANSLATE
from pipeline.words import Segment, speaker_number, words_in_time
from server.http.sse import event
from server.model.jobs import Job


def usage(job: Job) -> Mapping[str, Any]:
    """Return the usage of a recording: its length in whole seconds, rounded up."""
    return {"type": "duration", "seconds": -(-int((job.duration_s or 0) * 1000) // 1000)}


def stream_event(kind: str, **members: Any) -> bytes:
    """Return a streamed event of type *kind* as Server-Sent Events carry it."""
    return event(None, orjson.dumps({"type": kind, **members}))


def verbose_body(job: Job, chunks: Iterable[bytes], *, words: bool) -> bytes:
    """Return the body of verbose_json. Call it on a thread, because a long file takes a moment.

    The language of a translation is that of its text, by OpenAI's name; that of a transcription is a code such as "en".
    """
    segments = _in_time(chunks)
    shown = {
        "task": job.order.task,
        "language": "english" if job.order.task == TRANSLATE else job.language,
        "duration": job.duration_s,
        "text": job.text,
        "segments": [_verbose_segment(number, segment) for number, segment in enumerate(segments)],
        "usage": usage(job),
    }
    if words:
        spoken = [word_object(word, segment) for word, segment in words_in_time(segments)]
        members = ("word", "start", "end", *(("speaker",) if job.order.diarize else ()))
        shown["words"] = [{name: word[name] for name in members if name in word} for word in spoken]
    return orjson.dumps(shown)


def diarized_body(job: Job, chunks: Iterable[bytes]) -> bytes:
    """Return the body of diarized_json. A long file takes a moment, for which the event loop must not wait."""
    shown = {
        "task": "transcribe",
        "duration": job.duration_s,
        "text": job.text,
        "segments": [{"type": "transcript.text.segment", **segment} for segment in spoken_segments(chunks)],
        "usage": usage(job),
    }
    return orjson.dumps(shown)


def spoken_segments(chunks: Iterable[bytes]) -> list[Mapping[str, Any]]:
    """Return the segments of stored chunks, each of one speaker."""
    return [spoken_segment(segment_object(number, segment)) for number, segment in enumerate(_in_time(chunks))]


def spoken_segment(segment: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a segment with its speaker: a name, or the letter A for S1, B for S2, ...; A if the speaker is unknown.

    *segment* comes from the JSON file or from a `segment` event.
    """
    speaker = segment.get("speaker", "S1")
    if number := speaker_number(speaker):
        speaker = ascii_uppercase[number - 1]
    return {"id": segment_name(segment["id"]), "speaker": speaker} | {
        name: segment[name] for name in ("start", "end", "text")
    }


def segment_name(number: int) -> str:
    """Return the id of segment *number*, which OpenAI's clients expect to be text."""
    return f"seg_{number}"


def _in_time(chunks: Iterable[bytes]) -> Sequence[Segment]:
    """Return the segments of stored chunks in the order of the transcript."""
    return segments_in_time([unpack_chunk(body) for body in chunks])


def _verbose_segment(number: int, segment: Segment) -> Mapping[str, Any]:
    """A segment with the members that OpenAI's clients require; those that this service lacks are zero or empty."""
    shown = segment_object(number, segment)
    return {"seek": 0, "tokens": [], "temperature": 0.0, "compression_ratio": 0.0, **shown}
