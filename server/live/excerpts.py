"""Stores excerpts of the voices of a live session, from which another server learns them if it continues the session.

Each version is a blob of its own; the job names the newest. All are deleted when the job has ended.
"""

import asyncio
from collections.abc import Mapping

from pipeline.audio import Samples
from pipeline.speakers.excerpts import Excerpts, read_excerpts, stored_excerpts
from server.jobs.leases import HeldLease
from server.jobs.voices import voices_key
from server.logs import log
from server.model.errors import BlobsAway, DiskFull
from server.model.leases import LeaseLost
from server.storage.ports import BlobStore


class ExcerptStore:
    """Reads and writes the excerpts of one session, under its lease."""

    def __init__(self, held: HeldLease, blobs: BlobStore) -> None:
        self._held = held
        self._blobs = blobs
        self._written = 0
        none = voices_key(held.job.id)  # the job's blob while there are no excerpts
        self._newest = None if held.lease.blob == none else held.lease.blob

    async def read(self) -> Mapping[int | None, Mapping[str, Samples]]:
        """The stored excerpts. Raises BlobsAway."""
        if self._newest is None:
            return {}
        body = b"".join([piece async for piece in self._blobs.read(self._newest)])
        return await asyncio.to_thread(read_excerpts, body)

    async def write(self, excerpts: Excerpts) -> None:
        """Replace the stored excerpts. Raises LeaseLost.

        An error of the storage is only logged, because the session's words do not need the excerpts.
        """
        self._written += 1
        key = f"{voices_key(self._held.job.id)}/{self._held.lease.epoch}-{self._written}"
        body = await asyncio.to_thread(stored_excerpts, excerpts)
        try:
            async with self._blobs.create(key) as sink:
                await sink.write(body)
            await self._held.note(blob=key)
            earlier, self._newest = self._newest, key
            if earlier is not None:
                await self._blobs.delete(earlier)  # if that fails, it is deleted at the end of the job
        except (BlobsAway, DiskFull, OSError) as error:
            log.warning("excerpts of voices cannot be kept now: %s", error, extra={"job": self._held.job.id})
        except LeaseLost:
            await self._blobs.delete(key)
            raise
