"""Errors that several rooms know by name. Each docstring says what the caller can do about it."""


class BadLimits(Exception):
    """A number of the plans that cannot be used. The message names it, what it got and what it takes."""


class StorageError(Exception):
    """Base of all errors of storage."""


class QuotaExceeded(StorageError):
    """The account has used up a counted allowance. Wait until *resets_at*."""

    def __init__(self, name: str, *, limit: int, used: int, resets_at: int) -> None:
        super().__init__(f"{name}: {used} of {limit} used")
        self.name, self.limit, self.used, self.resets_at = name, limit, used, resets_at


class ConcurrencyLimited(StorageError):
    """The account has as many unfinished jobs as its plan allows. Wait for one to end."""

    def __init__(self, name: str, *, limit: int, used: int) -> None:
        super().__init__(f"{name}: {used} of {limit} in use")
        self.name, self.limit, self.used = name, limit, used


class QueueFull(StorageError):
    """The server has as many waiting jobs as it is willing to hold. Try again later."""


class IdempotencyReused(StorageError):
    """The Idempotency-Key was used before for another request."""


class IdempotencyInProgress(StorageError):
    """The first request with this Idempotency-Key is still arriving. Try again shortly."""


class DiskFull(StorageError):
    """No room left for what was to be written; nothing of it was kept."""


class StorageBusy(StorageError):
    """Another process has kept the storage for itself for too long; nothing was written. Try again."""


class BlobExists(StorageError):
    """A blob of that name is already there. Blobs never change: choose another name (workers put the epoch in it)."""


class NoSuchBlob(StorageError):
    """Nothing is stored under that key."""


class FolderInUse(StorageError):
    """Another server already works in this folder; the message is one sentence for the operator."""
