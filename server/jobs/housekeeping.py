"""Erases jobs so that no byte of them stays in the data folder, and repeats what is cleaned up in the background.

`chores_of()` in worker_process.py lists all chores: what is done, how often, and by which process.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field

from server.background import contain
from server.clock import now_ms
from server.jobs.attempts import source_key
from server.jobs.probing import voices_key
from server.keyed_limits import Tally
from server.logs import log
from server.metrics import Metrics
from server.model.errors import BlobsAway
from server.model.jobs import ErasedPart, ErasureReason
from server.model.orders import AUDIO
from server.storage.ports import BlobStore
from server.storage.sql.jobs import JobStore
from server.storage.sql.storage import Storage
from server.waiting import set_within

AT_ONCE = 100
SENDING_S = 10.0
HELD_MS = 60_000  # longest time for which a holding() block delays the erasure of results that a client already has
SCRUB_SHARE = 0.05  # of the time at most: a large storage is scrubbed less often
REAP_S = 5.0
SWEEP_S = 600.0
TIDY_S = 5.0
LOOK_S = 5.0  # how often a process checks whether a chore has become its own
EXPIRED_AT_ONCE = 200
ORPHAN_MS = 24 * 3600 * 1000  # bytes without a job are deleted once they are this old


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

    async def settle(self, job_id: str) -> bool:
        """Wait until no sending() block of the job runs, so that its results count as delivered in the next request.

        Returns whether there was one.
        """
        under_way = [*self._sending.get(job_id, ())]
        for over in under_way:
            await set_within(over, SENDING_S)
        return bool(under_way)

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


@dataclass(frozen=True, slots=True)
class Chore:
    """A task that is repeated. Its *name* labels its faults."""

    name: str
    every_s: float
    do: Callable[[], Awaitable[object]]
    is_ours: Callable[[], bool] = lambda: True  # whether this process does it now


@dataclass(slots=True)
class Housekeeping:
    """Repeats chores, each in a task of its own. A failed chore is tried again when it is next due."""

    chores: Sequence[Chore]
    metrics: Metrics
    closing: asyncio.Event  # set when the process stops

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for chore in self.chores:
                tasks.create_task(self._repeat(chore), name=chore.name)

    async def _repeat(self, chore: Chore) -> None:
        due = time.monotonic()
        while not self.closing.is_set():
            if time.monotonic() >= due and chore.is_ours():
                due = time.monotonic() + chore.every_s
                with contain(chore.name, self.metrics):
                    await chore.do()
            await set_within(self.closing, min(chore.every_s, LOOK_S))


@dataclass(frozen=True, slots=True)
class JobChores:
    jobs: JobStore
    blobs: BlobStore
    metrics: Metrics

    async def reap(self) -> None:
        """Call JobStore.reap(), and count and log the jobs."""
        if reaped := await self.jobs.reap(limit=100):
            self.metrics.leases_lost.inc(reaped)
            log.warning("jobs reaped", extra={"count": reaped})

    async def delete_spent_audio(self) -> None:
        """Delete the audio of ended jobs, unless it is kept with their outputs.

        What cannot be deleted is tried again at the next call.
        """
        tried: set[str] = set()
        left = 0
        while found := [job for job in await self.jobs.list_with_audio(limit=100 + left) if job not in tried]:
            tried.update(found)
            deleted = []
            for job_id in found:
                with contain("deleting audio", self.metrics, job=job_id):
                    if await self.jobs.artifact(job_id, AUDIO) is None:
                        await self.blobs.delete(source_key(job_id))
                    await self.blobs.delete(voices_key(job_id))
                    deleted.append(job_id)
            await self.jobs.note_audio_deleted(deleted)
            left += len(found) - len(deleted)


@dataclass(frozen=True, slots=True)
class Sweeper:
    """Deletes jobs after their retention, stored files without a job, and old rows."""

    storage: Storage
    eraser: Eraser
    alone_since: int | None = None  # ms since 1970 UTC, since when only this process accepts jobs; None: others do too

    async def sweep(self) -> None:
        await self._delete_expired()
        for prefix, changed_at in await self.storage.blobs.prefixes():
            with contain("sweep", self.eraser.metrics, prefix=prefix):
                if await self._is_orphaned(prefix, changed_at):
                    await self.storage.blobs.delete(prefix)
                    log.info("orphaned bytes deleted", extra={"prefix": prefix})
        if forgotten := await self.storage.upkeep.forget_old():
            log.info("old rows forgotten", extra={"count": forgotten})

    async def _delete_expired(self) -> None:
        """Delete the jobs whose retention is over. What cannot be deleted is tried again by the next sweep."""
        tried: set[str] = set()
        left = 0
        jobs = self.storage.jobs
        while expired := [job for job in await jobs.list_expired(limit=EXPIRED_AT_ONCE + left) if job not in tried]:
            tried.update(expired)
            deleted = 0
            for job_id in expired:
                with contain("sweep", self.eraser.metrics, job=job_id):
                    await self.eraser.delete(job_id, why=ErasureReason.EXPIRED)
                    deleted += 1
            left += len(expired) - deleted
            if deleted:
                log.info("expired jobs deleted", extra={"count": deleted})

    async def _is_orphaned(self, prefix: str, changed_at: int) -> bool:
        """Whether the files under *prefix* belong neither to a job nor to a request that is about to make one."""
        if await self.storage.jobs.get(prefix) is not None:
            return False
        abandoned = self.alone_since is not None and changed_at < self.alone_since  # by a killed server
        old = abandoned or now_ms() - changed_at > ORPHAN_MS
        return old or bool(await self.storage.upkeep.erasures(job_id=prefix, limit=1))
