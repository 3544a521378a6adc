"""What went wrong, as HTTP says it: the one table from stable codes to statuses, and problem+json (RFC 9457).

Everything that is raised inside the server ends here: a Problem is already HTTP; any other exception that names a
*code* of the table becomes one; what is left is our own fault, a 500 without details.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

TYPE_BASE = "https://scribewire.dev/problems/"  # an identifier, equal on every installation; not a link

CODES: Mapping[str, tuple[int, str]] = {
    # syntax
    "invalid_json": (400, "Invalid JSON"),
    "invalid_multipart": (400, "Invalid multipart body"),
    "invalid_cursor": (400, "Invalid cursor"),
    "invalid_last_event_id": (400, "Invalid Last-Event-ID"),
    "invalid_idempotency_key": (400, "Invalid Idempotency-Key"),
    "invalid_message": (400, "Invalid message"),
    # who
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
    # where
    "not_found": (404, "Not found"),
    "job_not_found": (404, "Job not found"),
    "output_not_found": (404, "Output not found"),
    "key_not_found": (404, "Key not found"),
    "delivery_not_found": (404, "Delivery not found"),
    "model_not_found": (404, "Model not found"),
    "method_not_allowed": (405, "Method not allowed"),
    "not_acceptable": (406, "Not acceptable"),
    # not now
    "ingest_idle": (408, "No audio arrived"),
    "request_timeout": (408, "The body stopped arriving"),
    "job_active": (409, "Job is still active"),
    "job_not_cancelable": (409, "Job can no longer be canceled"),
    "job_not_completed": (409, "Job is not completed"),
    "ingest_busy": (409, "Another writer is connected"),
    "ingest_finished": (409, "The live session takes no more audio"),
    "idempotency_in_progress": (409, "First request still in progress"),
    "version_gone": (410, "Version gone"),
    # too much
    "payload_too_large": (413, "Payload too large"),
    "audio_too_long": (413, "Audio too long"),
    "prompt_too_long": (413, "Prompt too long"),
    # not this kind
    "unsupported_media_type": (415, "Unsupported media type"),
    "unsupported_encoding": (415, "Unsupported content encoding"),
    "unsupported_audio_format": (415, "Unsupported audio format"),
    "range_not_satisfiable": (416, "Range not satisfiable"),
    # well-formed, wrong content
    "missing_input": (422, "Missing input"),
    "ambiguous_input": (422, "Ambiguous input"),
    "empty_file": (422, "Empty file"),
    "invalid_parameter": (422, "Invalid parameter"),
    "invalid_audio": (422, "Invalid audio"),
    "no_audio_stream": (422, "No audio stream"),
    "url_not_allowed": (422, "URL not allowed"),
    "unknown_models": (422, "Unknown models"),
    "idempotency_key_reused": (422, "Idempotency-Key reused"),
    # counted
    "rate_limited": (429, "Too many requests"),
    "quota_exceeded": (429, "Quota exceeded"),
    "concurrency_limited": (429, "Too many active jobs"),
    "too_many_connections": (429, "Too many connections"),
    "audio_too_fast": (429, "Audio too fast"),
    # ours
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
"""code -> (status, title). The README's error table is checked against it."""

CHALLENGES: Mapping[str, Mapping[str, str]] = {
    code: {"WWW-Authenticate": challenge}
    for code, challenge in {
        "missing_credentials": 'Bearer realm="api"',  # RFC 6750, section 3.1: no error attribute when nothing was sent
        "invalid_key": 'Bearer realm="api", error="invalid_token"',
        "invalid_token": 'Bearer realm="api", error="invalid_token"',
        "insufficient_scope": 'Bearer realm="api", error="insufficient_scope"',
    }.items()
}
"""Headers that go with a code wherever it is raised."""

JOB_CODES = (
    "source_unreachable", "source_timeout", "source_http_error", "source_too_large", "source_not_allowed",
    "unsupported_audio_format", "invalid_audio", "no_audio_stream", "audio_too_long", "decode_timeout",
    "engine_error", "engine_timeout", "queue_timeout", "internal",
)  # fmt: skip
"""What job.error.code may say."""


@dataclass(frozen=True, slots=True)
class FieldError:
    """One member of a request that cannot be used."""

    param: str
    code: str  # unknown_value, invalid_type, out_of_range, ...
    message: str
    pointer: str | None = None

    def to_json(self) -> dict[str, str]:
        pointer = self.pointer or "/" + self.param.replace("~", "~0").replace("/", "~1")
        return {"param": self.param, "pointer": pointer, "code": self.code, "message": self.message}


class Problem(Exception):
    """An answer other than success. Raise it anywhere in a route; the outermost edge writes it."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
        members: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.status, self.title = CODES[code]
        self.errors = tuple(errors)
        self.headers = {**CHALLENGES.get(code, {}), **(headers or {})}
        self.members = dict(members or {})

    def to_json(self, *, instance: str, request_id: str) -> dict[str, object]:
        body: dict[str, object] = {
            "type": TYPE_BASE + self.code,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "instance": instance,
            "code": self.code,
            "request_id": request_id,
            **self.members,
        }
        if self.errors:
            body["errors"] = [error.to_json() for error in self.errors]
        return body


def invalid(errors: Sequence[FieldError]) -> Problem:
    """422 for the members in *errors*; the first one is the headline."""
    return Problem("invalid_parameter", "; ".join(f"{e.param}: {e.message}" for e in errors), errors=errors)
