"""The bodies of OpenAI's API: finished transcriptions, their events, and errors."""

import math
from collections.abc import Iterable, Mapping, Sequence
from string import ascii_uppercase
from typing import Any

import orjson

from pipeline.attribution import segments_in_time
from pipeline.documents.formats import segment_object, word_object
from pipeline.languages import ENGLISH, english_name
from pipeline.recognition.engine import TRANSLATE
from pipeline.timeline import unpack
from pipeline.transcription import Transcription
from pipeline.words import Segment, speaker_number, words_in_time
from server.http.operation import ErrorShape
from server.http.problems import Problem
from server.http.streamed import event
from server.model.errors import FieldError, Refused, invalid_member
from server.model.jobs import Job
from server.model.offers import Offer

SERVER_ERROR = 500
_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
LEAST_PROBABILITY = 1e-9  # the logarithm of 0 is no number of JSON


def usage(job: Job) -> Mapping[str, Any]:
    """The member `usage`: the length of the recording in whole seconds, rounded up."""
    return {"type": "duration", "seconds": -(-int((job.duration_s or 0) * 1000) // 1000)}


def stream_event(kind: str, **members: Any) -> bytes:
    """An event of type *kind* as a Server-Sent Event."""
    return event(None, orjson.dumps({"type": kind, **members}))


def verbose_body(job: Job, chunks: Iterable[bytes], *, words: bool) -> bytes:
    """The body of verbose_json. Call it on a thread, because a long file takes a moment."""
    segments = _in_time(chunks)
    written = ENGLISH if job.order.task == TRANSLATE else job.language
    shown = {
        "task": job.order.task,
        "language": None if written is None else english_name(written),
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
    """The body of diarized_json. Call it on a thread, because a long file takes a moment."""
    shown = {
        "task": "transcribe",
        "duration": job.duration_s,
        "text": job.text,
        "segments": [{"type": "transcript.text.segment", **segment} for segment in spoken_segments(chunks)],
        "usage": usage(job),
    }
    return orjson.dumps(shown)


def text_body(job: Job, stored: Iterable[bytes]) -> bytes:
    """The body of json with log probabilities. Call it on a thread, because a long file takes a moment."""
    return orjson.dumps({"text": job.text, "logprobs": word_logprobs(job, stored), "usage": usage(job)})


def word_logprobs(job: Job, stored: Iterable[bytes]) -> list[Mapping[str, Any]]:
    """The log probability of each word of the text, with the space before it: the tokens join to the text."""
    text, shown, at = job.text or "", list[Mapping[str, Any]](), 0
    for segment in _in_time(stored):
        for word in segment.words:
            end = text.index(word.text, at) + len(word.text)
            shown.append(logprob(text[at:end], round(word.probability, 4)))
            at = end
    return shown


def logprob(token: str, probability: float) -> Mapping[str, Any]:
    """A token in OpenAI's form."""
    return {
        "token": token,
        "logprob": round(math.log(max(probability, LEAST_PROBABILITY)), 6),
        "bytes": list(token.encode()),
    }


def spoken_segments(stored: Iterable[bytes]) -> list[Mapping[str, Any]]:
    """The segments of a stored timeline, each with its speaker."""
    return [spoken_segment(segment_object(number, segment)) for number, segment in enumerate(_in_time(stored))]


def spoken_segment(segment: Mapping[str, Any]) -> Mapping[str, Any]:
    """A segment in OpenAI's form. Its speaker is a name, or the letter A for S1, B for S2, ...; A if it is unknown.

    *segment* comes from the JSON file or from a `segment` event.
    """
    speaker = segment.get("speaker", "S1")
    if number := speaker_number(speaker):
        speaker = ascii_uppercase[number - 1]
    return {"id": segment_name(segment["id"]), "speaker": speaker} | {
        name: segment[name] for name in ("start", "end", "text")
    }


def segment_name(number: int) -> str:
    """The id of segment *number*, which OpenAI's clients expect to be text."""
    return f"seg_{number}"


def _in_time(stored: Iterable[bytes]) -> Sequence[Segment]:
    return segments_in_time(Transcription.of(map(unpack, stored)).chunks())


def _verbose_segment(number: int, segment: Segment) -> Mapping[str, Any]:
    """A segment with all members that OpenAI's clients require. Those that this service lacks are zero or empty."""
    shown = segment_object(number, segment)
    return {"seek": 0, "tokens": [], "temperature": 0.0, "compression_ratio": 0.0, **shown}


def error_body(problem: Problem, _request_id: str = "") -> Mapping[str, Any]:
    """The problem in the shape of OpenAI's API."""
    kind = "server_error" if problem.status >= SERVER_ERROR else _TYPES.get(problem.status, "invalid_request_error")
    param = problem.errors[0].param if problem.errors else None
    return {"error": {"message": problem.detail, "type": kind, "param": param, "code": problem.code}}


SHAPE = ErrorShape(schema="OpenAIError", body=error_body)


def invalid_value(param: str, message: str) -> Refused:
    return invalid_member(param, "unknown_value", message)


def unknown_model(name: str, offer: Offer) -> Problem:
    """The refusal of the model *name*, which this server does not have."""
    return Problem(
        "model_not_found",
        f"{offer.unknown_model(name)}, and whisper-1 leaves the choice to the server",
        errors=[FieldError("model", "unknown_value", "unknown model")],
    )
