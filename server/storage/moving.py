"""Copies blobs from one store to another, for `scribewire move`."""

import asyncio
import hashlib
from collections.abc import AsyncIterable, Callable, Iterator
from dataclasses import dataclass

from server.model.errors import StorageError
from server.storage.ports import BlobStore

AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Checksum:
    """The size and digest of a blob's bytes."""

    bytes: int
    sha256: str


async def copy_blobs(
    keys: Iterator[str], source: BlobStore, target: BlobStore, *, report: Callable[[Checksum], None]
) -> None:
    """Copy the blobs that *target* does not have, read each one back, and *report* each whose bytes are the same.

    Raises StorageError if they differ, because *target* already had another blob of that name. After BlobsAway it may
    be called again.
    """

    async def work() -> None:
        for key in keys:
            if await target.size(key) is None:
                async with target.create(key) as sink:
                    async for piece in source.read(key):
                        await sink.write(piece)
            ours, theirs = await _checksum_of(source.read(key)), await _checksum_of(target.read(key))
            if ours != theirs:
                raise StorageError(f"{key} is stored there with other bytes: choose a prefix that is empty")
            report(ours)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(work())


async def _checksum_of(pieces: AsyncIterable[bytes]) -> Checksum:
    digest, size = hashlib.sha256(), 0
    async for piece in pieces:
        digest.update(piece)
        size += len(piece)
    return Checksum(size, digest.hexdigest())
