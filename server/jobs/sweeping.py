"""Deleting what is old: jobs after their retention, stored bytes that belong to no job, and forgotten accounts."""

import asyncio
import time
from dataclasses import dataclass, field

from server.clock import now_ms
from server.faults import contain
from server.jobs.erasing import Eraser
from server.logs import log
from server.metrics import Metrics
from server.model.erasures import Why
from server.storage.ports import Storage
from server.waiting import set_within

EVERY_S = 600.0
TIDY_S = 5.0  # how often the traces of what was erased are wiped
AT_ONCE = 200
ORPHAN_MS = 24 * 3600 * 1000  # bytes without a job are deleted once they are this old


@dataclass
class Sweeper:
    """The background work that deletes; run() it with the server."""

    storage: Storage
    eraser: Eraser
    alone_since: int | None = None  # since this instant nobody else has begun jobs here (ms); None: others may do so
    _stopping: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    @property
    def metrics(self) -> Metrics:
        return self.eraser.metrics

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        """Sweep every EVERY_S seconds, if no other process does, and tidy up every TIDY_S until stop()."""
        sweep_at = time.monotonic()
        while not self._stopping.is_set():
            if time.monotonic() >= sweep_at and self.storage.leads:
                sweep_at = time.monotonic() + EVERY_S
                with contain("sweep", self.metrics):
                    await self.sweep()
            with contain("tidying", self.metrics):
                await self.eraser.tidy()
            await set_within(self._stopping, TIDY_S)

    async def sweep(self) -> None:
        """Delete every expired job, every prefix whose job is gone, and what the storage keeps for a time only."""
        while expired := await self.storage.jobs.expired(limit=AT_ONCE):
            for job_id in expired:
                await self.eraser.delete(job_id, why=Why.EXPIRED)
            log.info("expired jobs deleted", extra={"count": len(expired)})
        for prefix, changed_at in await self.storage.blobs.prefixes():
            with contain("sweep", self.metrics, prefix=prefix):
                if await self._is_orphaned(prefix, changed_at):
                    await self.storage.blobs.delete(prefix)
                    log.info("orphaned bytes deleted", extra={"prefix": prefix})
        if forgotten := await self.storage.upkeep.forget_old():
            log.info("old rows forgotten", extra={"count": forgotten})

    async def _is_orphaned(self, prefix: str, changed_at: int) -> bool:
        """Whether the bytes under *prefix* belong to no job, and to none that a request is about to make."""
        if await self.storage.jobs.get(prefix) is not None:
            return False
        abandoned = self.alone_since is not None and changed_at < self.alone_since  # by a server that was killed
        old = abandoned or now_ms() - changed_at > ORPHAN_MS
        return old or bool(await self.storage.upkeep.erasures(job_id=prefix, limit=1))
