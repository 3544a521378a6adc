"""Any exception of the project -> the Problem that says it over HTTP; None for what nobody foresaw."""

from collections.abc import Callable, Mapping
from typing import Any

from pipeline.errors import AudioTooLong
from server.accounts.limits import Standing, seconds_until
from server.accounts.signed import WrongScope
from server.clock import now_ms
from server.errors import CHALLENGES, CODES, Problem
from server.model import errors as storage
from server.model.instants import iso

SOON = {"Retry-After": "5"}
UNAVAILABLE = 503


def problem_of(error: Exception) -> Problem | None:
    if isinstance(error, Problem):
        return error
    for kind, translate in _TRANSLATIONS.items():
        if isinstance(error, kind):
            return translate(error)
    code = getattr(error, "code", None)  # the small errors of our pure modules name one of the table's codes
    if not isinstance(code, str) or code not in CODES or code == "internal":
        return None
    return Problem(code, str(error), headers=SOON if CODES[code][0] == UNAVAILABLE else None)


def _quota(error: storage.QuotaExceeded) -> Problem:
    wait_s = seconds_until(error.resets_at, now_ms())
    members = {"limit": error.limit, "used": error.used, "window": error.name, "resets_at": iso(error.resets_at)}
    return Problem(
        "quota_exceeded",
        f"{error.name}: {error.used} of {error.limit} used; free again at {iso(error.resets_at)}",
        headers={"Retry-After": str(wait_s), "x-should-retry": "false"},
        members={**members, "violated-policies": [error.name]},
    )


def rate_limited(standing: Standing, *, now: int) -> Problem:
    """The window of *standing* is full."""
    return Problem(
        "rate_limited",
        f"{standing.limit} requests per {standing.name}",
        headers={"Retry-After": str(seconds_until(standing.resets_at, now))},
        members={
            "limit": standing.limit,
            "used": standing.used,
            "window": standing.name,
            "resets_at": iso(standing.resets_at),
            "violated-policies": [standing.name],
        },
    )


def _concurrency(error: storage.ConcurrencyLimited) -> Problem:
    return Problem(
        "concurrency_limited",
        f"{error.used} of {error.limit} unfinished jobs; wait for one to end",
        headers=SOON,
        members={
            "limit": error.limit,
            "used": error.used,
            "window": error.name,
            "violated-policies": [error.name],
        },
    )


def _wrong_scope(error: WrongScope) -> Problem:
    challenge = f'{CHALLENGES["insufficient_scope"]["WWW-Authenticate"]}, scope="{error.needed}"'
    return Problem("insufficient_scope", str(error), headers={"WWW-Authenticate": challenge})


def _too_long(error: AudioTooLong) -> Problem:
    return Problem("audio_too_long", str(error), members={"limit": error.limit_s, "actual": error.actual_s})


def _plain(code: str, headers: Mapping[str, str] | None = None) -> Callable[[Exception], Problem]:
    return lambda error: Problem(code, str(error) or CODES[code][1], headers=headers)


_TRANSLATIONS: Mapping[type[Exception], Callable[[Any], Problem | None]] = {
    AudioTooLong: _too_long,
    WrongScope: _wrong_scope,
    storage.QuotaExceeded: _quota,
    storage.ConcurrencyLimited: _concurrency,
    storage.QueueFull: _plain("queue_full", {"Retry-After": "30"}),
    storage.IdempotencyReused: _plain("idempotency_key_reused"),
    storage.IdempotencyInProgress: _plain("idempotency_in_progress", {"Retry-After": "2"}),
    storage.DiskFull: _plain("disk_full", {"Retry-After": "60"}),
    storage.StorageBusy: _plain("not_ready", {"Retry-After": "5"}),
}
