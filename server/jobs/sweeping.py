"""Deleting what is old: jobs after their retention, and stored bytes that belong to no job."""

import asyncio
from dataclasses import dataclass, field

from server.clock import now_ms
from server.logs import log
from server.storage.ports import BlobStore, JobStore
from server.waiting import set_within

EVERY_S = 600.0
AT_ONCE = 200
ORPHAN_MS = 24 * 3600 * 1000  # an upload or a dead worker's output is deleted once it is this old


@dataclass
class Sweeper:
    """The background work that deletes; run() it with the server."""

    jobs: JobStore
    blobs: BlobStore
    _stopping: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        """Sweep every EVERY_S seconds until stop()."""
        while not self._stopping.is_set():
            try:
                await self.sweep()
            except Exception:  # noqa: BLE001  the next round may succeed
                log.exception("sweep failed")
            await set_within(self._stopping, EVERY_S)

    async def sweep(self) -> None:
        """Delete every expired job, then every prefix that has had no job for ORPHAN_MS."""
        while expired := await self.jobs.expired(limit=AT_ONCE):
            for job_id in expired:
                prefix = await self.jobs.delete(job_id)
                if prefix is not None:
                    await self.blobs.delete(prefix)
            log.info("expired jobs deleted", extra={"count": len(expired)})
        for prefix, changed_at in await self.blobs.prefixes():
            if now_ms() - changed_at > ORPHAN_MS and await self.jobs.get(prefix) is None:
                await self.blobs.delete(prefix)
                log.info("orphaned bytes deleted", extra={"prefix": prefix})
