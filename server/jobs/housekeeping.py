"""Housekeeping: what is cleaned up in the background, and the loop that does it.

`chores_of()` in worker_process.py lists all chores: what is done, how often, and by which process.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from server.clock import now_ms
from server.faults import contain
from server.jobs.attempts import source_key
from server.jobs.erasing import Eraser
from server.jobs.probing import voices_key
from server.logs import log
from server.metrics import Metrics
from server.model.jobs import ErasureReason
from server.model.orders import AUDIO
from server.storage.ports import BlobStore
from server.storage.sql.jobs import JobStore
from server.storage.sql.storage import Storage
from server.waiting import set_within

REAP_S = 5.0
SWEEP_S = 600.0
TIDY_S = 5.0
LOOK_S = 5.0  # how often a process checks whether a chore has become its own
EXPIRED_AT_ONCE = 200
ORPHAN_MS = 24 * 3600 * 1000  # bytes without a job are deleted once they are this old


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
