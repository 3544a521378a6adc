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
from server.http.codes import CODES
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
