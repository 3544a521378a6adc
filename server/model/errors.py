"""Errors that several folders use. The docstring of each says what the caller can do about it.

`http/problems.py` turns a RequestError into an answer; nothing below the routes knows HTTP.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# --- errors for clients ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FieldError:
    """A member of a request that cannot be used."""

    param: str
    code: str  # unknown_value, invalid_type, out_of_range, ...
    message: str
    pointer: str | None = None

    @property
    def path(self) -> str:
        """The JSON Pointer of the member (RFC 6901)."""
        return self.pointer or "/" + self.param.replace("~", "~0").replace("/", "~1")


class RequestError(Exception):
    """A request could not be fulfilled. Clients switch on *code*, which never changes; the message is for people."""

    code: str
    retry_after_s: int | None = None


class Refused(RequestError):
    """A refusal without a class of its own. *members* are further members of the answers.Problem, such as numbers."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        retry_after_s: int | None = None,
        errors: Sequence[FieldError] = (),
        members: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.retry_after_s = retry_after_s
        self.errors = tuple(errors)
        self.members = dict(members or {})


def invalid(errors: Sequence[FieldError]) -> Refused:
    """A refusal that reports all faulty members of a request together."""
    return Refused("invalid_parameter", "; ".join(f"{e.param}: {e.message}" for e in errors), errors=errors)


def invalid_member(param: str, code: str, message: str) -> Refused:
    """A refusal that reports one faulty member of a request."""
    return invalid([FieldError(param, code, message)])


class LimitReached(RequestError):
    """A counted limit is used up: *used* of *limit*. *name* is the window or allowance."""

    def __init__(self, name: str, *, limit: int, used: int, resets_at: int = 0) -> None:
        super().__init__(f"{name}: {used} of {limit} used")
        self.name, self.limit, self.used, self.resets_at = name, limit, used, resets_at


class RateLimited(LimitReached):
    """Too many requests within a minute. Wait until *resets_at* (ms since 1970 UTC)."""

    code = "rate_limited"


class QuotaExceeded(LimitReached):
    """The account has used up an allowance of its day or month. Wait until *resets_at* (ms since 1970 UTC)."""

    code = "quota_exceeded"


class ConcurrencyLimited(LimitReached):
    """The account has as many unfinished jobs or uploads as its plan allows. Wait for one to end."""

    code = "concurrency_limited"
    retry_after_s = 5


class TooManyKeys(LimitReached):
    """The account has as many working keys as it may have. Revoke one."""

    code = "quota_exceeded"


class TooManyChannels(LimitReached):
    """The account has as many channels as it may have. Delete one."""

    code = "quota_exceeded"


class QueueFull(RequestError):
    """The server has as many waiting jobs as it accepts. Try again later."""

    code = "queue_full"
    retry_after_s = 30


class IdempotencyReused(RequestError):
    """The Idempotency-Key was used before for another request."""

    code = "idempotency_key_reused"


class IdempotencyInProgress(RequestError):
    """The first request with this Idempotency-Key is still arriving. Try again shortly."""

    code = "idempotency_in_progress"
    retry_after_s = 2


class WrongScope(RequestError):
    """The stream token is valid for this job, but in the other direction. Ask for one with the *needed* scope."""

    code = "insufficient_scope"

    def __init__(self, message: str, *, needed: str) -> None:
        super().__init__(message)
        self.needed = needed


# --- storage -----------------------------------------------------------------------------------------------------


class StorageError(Exception):
    """The storage could not do its work. Clients see only those errors that are also RequestErrors."""


class DiskFull(StorageError, RequestError):
    """The disk has no space for a write; nothing of it was kept."""

    code = "disk_full"
    retry_after_s = 60


class StorageBusy(StorageError, RequestError):
    """Another process kept the storage locked for too long; nothing was written. Try again."""

    code = "not_ready"
    retry_after_s = 5


class BlobsAway(StorageError, RequestError):
    """The store of audio and results, on another machine, cannot be reached or refuses requests. Try again."""

    code = "not_ready"
    retry_after_s = 5


class DiskFailed(BlobsAway):
    """The disk of the data folder failed, or the process may open no more files. Try again."""


class StorageAway(StorageBusy):
    """The database cannot be reached, read or written at the moment. Try again."""

    retry_after_s = 2


class OutcomeUnknown(StorageAway):
    """The database went away during a write. Find out whether the write happened before you try again."""


class BlobExists(StorageError):
    """A blob of that name exists. Blobs never change: choose another name (workers put the epoch into it)."""


class NoSuchBlob(StorageError):
    """Nothing is stored under that key."""


class FolderInUse(StorageError):
    """Another server already works in this folder. The message is one sentence for the operator."""


# --- configuration -----------------------------------------------------------------------------------------------


class BadLimits(Exception):
    """A number of the plans cannot be used. The message names it, its value and the values that are allowed."""
