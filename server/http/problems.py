"""Turns errors into Problems, which are answered as problem+json (RFC 9457).

A RequestError of the domain and an error of the pipeline have a code and become the Problem of that code. For an
unexpected error there is no Problem; operation.py answers it without details.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import UNSET
from msgspec.json import encode as json_bytes

from pipeline.errors import AudioTooLong, PipelineError
from server.clock import iso, now_ms
from server.http.headers import seconds_until
from server.model import answers
from server.model.errors import (
    ConcurrencyLimited,
    FieldError,
    LimitReached,
    QuotaExceeded,
    RateLimited,
    Refused,
    RequestError,
    TooManyChannels,
    TooManyKeys,
    WrongScope,
)

CODES: Mapping[str, tuple[int, str]] = {
    # syntax
    "invalid_request": (400, "Invalid request"),
    "invalid_json": (400, "Invalid JSON"),
    "invalid_multipart": (400, "Invalid multipart body"),
    "invalid_cursor": (400, "Invalid cursor"),
    "invalid_last_event_id": (400, "Invalid Last-Event-ID"),
    "invalid_idempotency_key": (400, "Invalid Idempotency-Key"),
    "invalid_message": (400, "Invalid message"),
    "input_audio_buffer_commit_empty": (400, "Nothing to commit"),
    # authentication and permission
    "missing_credentials": (401, "Missing credentials"),
    "invalid_key": (401, "Invalid API key"),
    "invalid_token": (401, "Invalid token"),
    "environment_mismatch": (403, "Wrong environment"),
    "insufficient_scope": (403, "Insufficient scope"),
    "plan_feature": (403, "Not part of this plan"),
    "invalid_signature": (403, "Invalid signature"),
    "url_expired": (403, "Link expired"),
    "signup_closed": (403, "Sign-up is closed"),
    "origin_not_allowed": (403, "Origin not allowed"),
    # unknown places
    "not_found": (404, "Not found"),
    "job_not_found": (404, "Job not found"),
    "output_not_found": (404, "Output not found"),
    "key_not_found": (404, "Key not found"),
    "channel_not_found": (404, "Channel not found"),
    "delivery_not_found": (404, "Delivery not found"),
    "model_not_found": (404, "Model not found"),
    "method_not_allowed": (405, "Method not allowed"),
    "not_acceptable": (406, "Not acceptable"),
    # not in this state
    "ingest_idle": (408, "No audio arrived"),
    "request_timeout": (408, "The body stopped arriving"),
    "job_active": (409, "Job is still active"),
    "job_not_cancelable": (409, "Job can no longer be canceled"),
    "job_not_completed": (409, "Job is not completed"),
    "ingest_busy": (409, "Another writer is connected"),
    "ingest_finished": (409, "The live session takes no more audio"),
    "idempotency_in_progress": (409, "First request still in progress"),
    "not_correctable": (409, "Job cannot be corrected"),
    "not_revertible": (409, "Revision cannot be taken back"),
    "revision_changed": (412, "Another revision came first"),
    # too large
    "payload_too_large": (413, "Payload too large"),
    "audio_too_long": (413, "Audio too long"),
    "prompt_too_long": (413, "Prompt too long"),
    "uri_too_long": (414, "URI too long"),
    "upgrade_required": (426, "Upgrade required"),
    "headers_too_large": (431, "Request header fields too large"),
    # wrong kind
    "unsupported_media_type": (415, "Unsupported media type"),
    "unsupported_encoding": (415, "Unsupported content encoding"),
    "unsupported_audio_format": (415, "Unsupported audio format"),
    "range_not_satisfiable": (416, "Range not satisfiable"),
    # well-formed but unusable
    "missing_input": (422, "Missing input"),
    "ambiguous_input": (422, "Ambiguous input"),
    "empty_file": (422, "Empty file"),
    "invalid_parameter": (422, "Invalid parameter"),
    "not_aligned": (422, "Document does not fit the transcript"),
    "invalid_audio": (422, "Invalid audio"),
    "no_audio_stream": (422, "No audio stream"),
    "url_not_allowed": (422, "URL not allowed"),
    "source_failed": (422, "Source cannot be fetched"),
    "unknown_models": (422, "Unknown models"),
    "idempotency_key_reused": (422, "Idempotency-Key reused"),
    # limits
    "rate_limited": (429, "Too many requests"),
    "quota_exceeded": (429, "Quota exceeded"),
    "concurrency_limited": (429, "Too many active jobs"),
    "too_many_connections": (429, "Too many connections"),
    "audio_too_fast": (429, "Audio too fast"),
    # the server's own troubles
    "internal": (500, "Internal error"),
    "queue_full": (503, "Queue full"),
    "not_ready": (503, "Not ready"),
    "shutting_down": (503, "Shutting down"),
    "disk_full": (503, "Disk full"),
    "engine_error": (503, "Engine unavailable"),
    "engine_timeout": (503, "Engine too slow"),
    "decode_timeout": (422, "Audio could not be decoded in time"),
    "unfinished": (504, "Not finished in time"),
}
"""By code: status and title. A test checks the error table of api.md against it."""

UNDECODABLE = ("unsupported_audio_format", "invalid_audio", "no_audio_stream", "decode_timeout")
"""The codes for files that cannot be decoded."""

TYPE_BASE = "https://scribewire.dev/problems/"  # an identifier, equal on every installation; not a link
UNAVAILABLE = 503
UNAVAILABLE_RETRY_S = 5

_LIMIT_TEXTS: Mapping[type[LimitReached], str] = {
    QuotaExceeded: "{window}: {used} of {limit} used; free again at {resets_at}",
    RateLimited: "{limit} requests per {window}",
    ConcurrencyLimited: "{used} of {limit} {window} at the same time; wait for one to end",
    TooManyKeys: "{used} of {limit} working keys; revoke one first",
    TooManyChannels: "{used} of {limit} channels; delete one first",
}

CHALLENGES: Mapping[str, Mapping[str, str]] = {
    code: {"WWW-Authenticate": challenge}
    for code, challenge in {
        "missing_credentials": 'Bearer realm="api"',  # RFC 6750, section 3.1: no error attribute when nothing was sent
        "invalid_key": 'Bearer realm="api", error="invalid_token"',
        "invalid_token": 'Bearer realm="api", error="invalid_token"',
        "insufficient_scope": 'Bearer realm="api", error="insufficient_scope"',
    }.items()
}
"""Headers of every answer with these codes."""


class Problem(Refused):
    """A refusal with its status and headers. Only code that knows HTTP raises it; other code raises Refused."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
        members: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(code, detail, errors=errors, members=members)
        self.status, self.title = CODES[code]
        self.headers = {**CHALLENGES.get(code, {}), **(headers or {})}

    def body(self, *, instance: str, request_id: str) -> answers.Problem:
        return answers.Problem.of(
            self,
            type=TYPE_BASE + self.code,
            instance=instance,
            request_id=request_id,
            errors=[answers.Fault.of(error, pointer=error.path) for error in self.errors] or UNSET,
            **self.members,
        )


def raw_answer(problem: Problem, *, request_id: str) -> bytes:
    """The bytes of an HTTP answer to a request that is not read. The connection must be closed after it."""
    body = json_bytes(problem.body(instance="/", request_id=request_id))
    headers = {
        "Content-Type": "application/problem+json",
        "Content-Length": str(len(body)),
        "X-Request-Id": request_id,
        **problem.headers,
    }
    lines = [f"HTTP/1.1 {problem.status} {problem.title}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode() + body


def problem_of(error: Exception) -> Problem | None:
    """The Problem that answers *error*; None for an unexpected error."""
    for kind, translate in _TRANSLATIONS.items():
        if isinstance(error, kind):
            return translate(error)
    return None


def _of_refusal(error: Refused) -> Problem:
    return Problem(
        error.code, error.detail, errors=error.errors, members=error.members, headers=_retry_after(error.retry_after_s)
    )


def _request_error(error: RequestError) -> Problem:
    return Problem(error.code, str(error) or CODES[error.code][1], headers=_retry_after(error.retry_after_s))


def _pipeline(error: PipelineError) -> Problem | None:
    if error.code not in CODES or error.code == "internal":
        return None
    wait_s = UNAVAILABLE_RETRY_S if CODES[error.code][0] == UNAVAILABLE else None
    return Problem(error.code, str(error), headers=_retry_after(wait_s))


def _of_limit(error: LimitReached) -> Problem:
    """The Problem with the numbers of the limit. For a quota it asks clients not to try again by themselves."""
    numbers = {"limit": error.limit, "used": error.used, "window": error.name, "violated_policies": [error.name]}
    wait_s = error.retry_after_s
    if error.resets_at:
        numbers["resets_at"] = iso(error.resets_at)
        wait_s = seconds_until(error.resets_at, now_ms())
    no_retry = {"x-should-retry": "false"} if error.code == "quota_exceeded" else {}
    return Problem(
        error.code,
        _LIMIT_TEXTS[type(error)].format_map(numbers),
        headers=_retry_after(wait_s) | no_retry,
        members=numbers,
    )


def _wrong_scope(error: WrongScope) -> Problem:
    challenge = f'{CHALLENGES[error.code]["WWW-Authenticate"]}, scope="{error.needed}"'
    return Problem(error.code, str(error), headers={"WWW-Authenticate": challenge})


def _too_long(error: AudioTooLong) -> Problem:
    return Problem(error.code, str(error), members={"limit": error.limit_s, "actual": error.actual_s})


def _retry_after(seconds: int | None) -> dict[str, str]:
    return {} if seconds is None else {"Retry-After": str(seconds)}


_TRANSLATIONS: Mapping[type[Exception], Callable[[Any], Problem | None]] = {
    Problem: lambda problem: problem,
    Refused: _of_refusal,
    LimitReached: _of_limit,
    WrongScope: _wrong_scope,
    RequestError: _request_error,
    AudioTooLong: _too_long,
    PipelineError: _pipeline,
}
"""The first row whose class fits an error is used, so a class must stand above its base."""
