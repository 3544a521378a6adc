"""What the two forms of storage have each in its own way: blobs, and what the nodes of a cluster share.

Everything else is sql/, over either database.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from server.model.accounts import WindowUse
from server.model.offers import Offer
from server.storage.scratch import Sink


class BlobStore(Protocol):
    """Named byte strings that never change. Keys are "job_.../name", so deleting a prefix deletes all blobs of a job.

    Every method raises BlobsAway while a backend on another machine cannot be reached.
    """

    @property
    def scratch(self) -> Path:
        """A private folder for files without a name, such as a recording that is not a blob yet."""

    def create(self, key: str, *, leave_reserve: bool = False) -> AbstractAsyncContextManager[Sink]:
        """Write a blob. It is stored durably at the end of the block; nothing is left of it if the block raises.

        *key*: plain names, otherwise ValueError. If it is taken, the end of the block raises BlobExists. In a bucket,
        two writers of one key that end at the same moment may both succeed, so each writer needs its own key.
        *leave_reserve*: for incoming audio. Entering the block and every write raise DiskFull rather than use the space
        that the backend reserves for its database and for outputs.
        """

    async def size(self, key: str) -> int | None: ...

    def read(self, key: str, start: int = 0, stop: int | None = None) -> AsyncGenerator[bytes]:
        """The bytes [start, stop) in pieces of at most 256 KiB. Raises NoSuchBlob with the first piece."""

    def local(self, key: str) -> AbstractAsyncContextManager[Path]:
        """A file with the blob's bytes while the block lasts. Its name says nothing about the content.

        A backend without files makes a copy in *scratch*. Raises NoSuchBlob, and DiskFull if the copy does not fit.
        """

    async def delete(self, prefix: str) -> None:
        """Delete everything under *prefix*, if there is anything. "job_1" does not touch "job_12"."""

    async def prefixes(self) -> list[tuple[str, int]]:
        """Top-level prefixes, each with the instant of its last change. Used to find those that belong to no job.

        A backend that may have millions returns a part of them, and the next part at the next call.
        """

    async def close(self) -> None:
        """Release threads and connections. The storage calls it."""


class RateCounter(Protocol):
    """Requests of the last minute, counted for all nodes together; in memory if one process has the storage alone."""

    async def hit(self, subject: str, *, limit: int) -> WindowUse:
        """Count a request of *subject* if fewer than *limit* were counted within the last minute, to the second."""


class Offers(Protocol):
    """The offer of the model. Nodes with a model publish it for nodes without one."""

    async def publish(self, offer: Offer) -> None:
        """Store *offer* in place of the last one."""

    async def last(self) -> Offer | None:
        """The last offer; None if no node with a model has started yet."""


class Relay(Protocol):
    """Messages to the other nodes that have this storage open. Any may get lost; none is stored."""

    async def send(self, message: bytes) -> None:
        """Send *message*. It is dropped while the database is away, or if it is too long."""

    def listen(self, handle: Callable[[bytes], None]) -> None:
        """Call *handle* in the running event loop with each message of another node from now on."""
