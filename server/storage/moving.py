"""Copying blobs from one store to another, for `scribewire move`."""

import asyncio
import hashlib
from collections.abc import AsyncIterable, Callable, Iterator
from dataclasses import dataclass

from server.model.errors import StorageError
from server.storage.ports import BlobStore

AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Sum:
    """The size and digest of a blob that was read."""

    bytes: int
    sha256: str


async def copy_blobs(keys: Iterator[str], source: BlobStore, target: BlobStore, *, told: Callable[[Sum], None]) -> None:
    """Copy the blobs that *target* does not have, read each one back, and report each to *told* after comparing its
    bytes.

    Raises StorageError if they differ: then *target* had another blob of that name. After BlobsAway call it again.
    """

    async def work() -> None:
        for key in keys:
            if await target.size(key) is None:
                async with target.create(key) as sink:
                    async for piece in source.read(key):
                        await sink.write(piece)
            ours, theirs = await _sum(source.read(key)), await _sum(target.read(key))
            if ours != theirs:
                raise StorageError(f"{key} is stored there with other bytes: choose a prefix that is empty")
            told(ours)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(work())


async def _sum(pieces: AsyncIterable[bytes]) -> Sum:
    digest, size = hashlib.sha256(), 0
    async for piece in pieces:
        digest.update(piece)
        size += len(piece)
    return Sum(size, digest.hexdigest())
