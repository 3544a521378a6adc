"""Erases jobs so that no byte of them stays in the data folder."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field

from server.clock import now_ms
from server.faults import contain
from server.keyed_limits import Tally
from server.logs import log
from server.metrics import Metrics
from server.model.errors import BlobsAway
from server.model.jobs import ErasedPart, ErasureReason
from server.storage.sql.storage import Storage
from server.waiting import set_within

AT_ONCE = 100
SENDING_S = 10.0
HELD_MS = 60_000  # longest time for which a holding() block delays the erasure of results that a client already has
SCRUB_SHARE = 0.05  # of the time at most: a large storage is scrubbed less often


@dataclass(slots=True)
class Eraser:
    """Erases jobs. Each server process has one, and its housekeeping calls tidy() every few seconds."""

    storage: Storage
    metrics: Metrics
    alone: bool = True  # False: clients of other processes may be waiting for results or reading them
    _holders: Tally[str] = field(default_factory=Tally)
    _sending: dict[str, set[asyncio.Event]] = field(default_factory=dict)
    _erased: list[str] = field(default_factory=list)  # since the last tidy()
    _next_scrub: float = 0.0

    async def delete(self, job_id: str, *, why: ErasureReason) -> None:
        """Delete the job, if it exists, with its files."""
        prefix = await self.storage.jobs.delete(job_id, why=why)
        if prefix is not None:
            await self._finish(prefix, ErasedPart.JOB, why)

    def holding(self, job_id: str) -> AbstractContextManager[None]:
        """Keep the job's results while the block lasts, for a client that waits for them or reads them."""
        return self._holders.adding(job_id)

    @asynccontextmanager
    async def sending(self, job_id: str) -> AsyncIterator[None]:
        """Send all results of the job in the block. If it ends without an error, note_answered() is called."""
        over = asyncio.Event()
        self._sending.setdefault(job_id, set()).add(over)
        try:
            yield
            await self.note_answered(job_id)
        finally:
            over.set()
            self._sending[job_id].discard(over)
            if not self._sending[job_id]:
                del self._sending[job_id]

    async def settle(self, job_id: str) -> None:
        """Wait until no sending() block of the job runs, so that its results count as delivered in the next request."""
        for over in [*self._sending.get(job_id, ())]:
            await set_within(over, SENDING_S)

    async def note_answered(self, job_id: str) -> None:
        """Note that the client has the job's results, and erase them if its order keeps none.

        During a holding() block they stay, and tidy() erases them later.
        """
        await self.storage.jobs.note_answered(job_id)
        if not self._holders[job_id]:
            await self._erase_outputs(job_id)

    async def tidy(self) -> None:
        """Erase results that are not kept, then scrub the storage, so that no byte of what was erased is left.

        A worker may have stored a file after its job was erased, so the files of erased jobs are deleted once more.
        """
        for job in await self.storage.jobs.list_to_erase(limit=AT_ONCE):
            free = self.alone and not self._holders[job.id]
            if free or now_ms() - (job.answered_at or 0) > HELD_MS:
                with contain("erasing", self.metrics, job=job.id):
                    await self._erase_outputs(job.id)
        with contain("scrubbing", self.metrics):
            await self._scrub()
        for prefix in self._erased[:]:
            with contain("erasing", self.metrics, job=prefix):
                await self.storage.blobs.delete(prefix)
                self._erased.remove(prefix)

    async def _scrub(self) -> None:
        began = time.monotonic()
        if began >= self._next_scrub and await self.storage.upkeep.scrub():
            now = time.monotonic()
            self._next_scrub = now + (now - began) / SCRUB_SHARE

    async def _erase_outputs(self, job_id: str) -> None:
        prefix = await self.storage.jobs.erase_outputs(job_id)
        if prefix is not None:
            await self._finish(prefix, ErasedPart.OUTPUTS, ErasureReason.NOT_KEPT)

    async def _finish(self, prefix: str, what: ErasedPart, why: ErasureReason) -> None:
        self._erased.append(prefix)  # tidy() deletes its files again, or now if that fails here
        try:
            await self.storage.blobs.delete(prefix)
        except (BlobsAway, OSError) as error:
            log.warning("bytes of an erased job cannot be deleted yet: %s", error, extra={"job": prefix})
        log.info("erased", extra={"job": prefix, "what": what.value, "why": why.value})
