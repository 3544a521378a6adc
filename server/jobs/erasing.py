"""Erasing jobs so that no byte of them stays in the data folder."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field

from server.accounts.limits import Tally
from server.clock import now_ms
from server.faults import contain
from server.logs import log
from server.metrics import Metrics
from server.model.erasures import ErasedPart, ErasureReason
from server.model.errors import BlobsAway
from server.storage.ports import Storage
from server.waiting import set_within

AT_ONCE = 100
SENDING_S = 10.0
HELD_MS = 60_000  # how long somebody who is still being answered delays the erasing of results that others got
SCRUB_SHARE = 0.05  # of the time at most: a large storage is scrubbed less often


@dataclass(slots=True)
class Eraser:
    """Erases jobs. One for each server process; its housekeeping calls tidy() every few seconds."""

    storage: Storage
    metrics: Metrics
    alone: bool = True  # no other process has somebody who waits for results or reads them
    _holders: Tally[str] = field(default_factory=Tally)
    _sending: dict[str, set[asyncio.Event]] = field(default_factory=dict)
    _erased: list[str] = field(default_factory=list)  # since the last tidy()
    _next_scrub: float = 0.0

    async def delete(self, job_id: str, *, why: ErasureReason) -> None:
        """Delete the job with everything that is its own. It is fine if there is none."""
        prefix = await self.storage.jobs.delete(job_id, why=why)
        if prefix is not None:
            await self._finish(prefix, ErasedPart.JOB, why)

    def holding(self, job_id: str) -> AbstractContextManager[None]:
        """Keep the job's results while the block lasts, for somebody who waits for them or is reading them."""
        return self._holders.adding(job_id)

    @asynccontextmanager
    async def sending(self, job_id: str) -> AsyncIterator[None]:
        """The block sends all results of the job. If it ends well, the client has them: note_answered() is called."""
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
        """Wait while the results are being sent, so that the client's next request finds them delivered."""
        for over in [*self._sending.get(job_id, ())]:
            await set_within(over, SENDING_S)

    async def note_answered(self, job_id: str) -> None:
        """Note that the client has the job's results, and erase them if its order keeps none.

        While a holding() block uses them they stay; tidy() erases them later.
        """
        await self.storage.jobs.note_answered(job_id)
        if not self._holders[job_id]:
            await self._erase_outputs(job_id)

    async def tidy(self) -> None:
        """Erase results that are not kept, and wipe everything erased since the last call from the files of the store.

        A worker that learned of a deletion too late may have stored something after it, so that is deleted again.
        """
        for job in await self.storage.jobs.to_erase(limit=AT_ONCE):
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
        self._erased.append(prefix)  # tidy() deletes its bytes if that cannot be done now
        try:
            await self.storage.blobs.delete(prefix)
        except (BlobsAway, OSError) as error:
            log.warning("bytes of an erased job cannot be deleted yet: %s", error, extra={"job": prefix})
        log.info("erased", extra={"job": prefix, "what": what.value, "why": why.value})
