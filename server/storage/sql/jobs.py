"""The JobStore: each call is one transaction, made of submission, leases, endings and listing."""

import asyncio
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from weakref import WeakValueDictionary

from server.model.accounts import Quota
from server.model.erasures import What, Why
from server.model.errors import StorageError
from server.model.events import Event, NewEvent
from server.model.jobs import TERMINAL, IdempotencyKey, Job, JobError, JobFilter, NewJob, State, Submitted
from server.model.leases import Lease, Renewal
from server.model.orders import Source
from server.model.outcomes import Artifact, Outcome
from server.storage.remembered import Remembered
from server.storage.sql import leases, listing, passing, submission
from server.storage.sql.database import Database, Transaction
from server.storage.sql.endings import QUEUE_TOPIC, cancel
from server.storage.sql.rows import job_of
from server.storage.sql.upkeep import note_erasure

MAX_QUEUED = 10_000  # waiting batch jobs of an environment; more are refused with QueueFull
MAX_ENDED_KEPT = 1000  # records of ended jobs in memory, which are asked for again and again by those who poll
ENDED_KEPT_S = 10.0
MAX_TEXT_KEPT = 20_000  # characters of the text of such a record
COUNTERS_KEPT_MS = 62 * 24 * 60 * 60 * 1000  # after their window, for the operator's questions


class SqlJobs:
    def __init__(
        self,
        database: Database,
        *,
        max_queued: int = MAX_QUEUED,
        boot: str | None = None,
        is_alive: submission.Liveness = lambda _tx, _boot: False,
    ) -> None:
        """*boot* names this process in its reservations, which end with it; *is_alive* tells whether others live."""
        self._database = database
        self._most_queued = max_queued
        self._boot = boot or secrets.token_hex(8)
        self._is_alive = is_alive
        self._searching = asyncio.Semaphore(1)  # a search reads everything that an account has, which takes seconds
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()  # of accounts that search
        self._ended: Remembered[Job | None] = Remembered(database.version, max_kept=MAX_ENDED_KEPT, kept_s=ENDED_KEPT_S)

    # --- acceptance ---

    async def begin(self, key: IdempotencyKey) -> str | None:
        return await self._database.write(lambda tx: submission.begin(tx, key, self._boot, self._is_alive))

    async def abandon(self, key: IdempotencyKey) -> None:
        await self._database.write(lambda tx: submission.abandon(tx, key, self._boot))

    async def submit(self, new: NewJob, *, idempotency: IdempotencyKey | None) -> Submitted:
        return await self._database.write(
            lambda tx: submission.submit(tx, new, idempotency, self._boot, self._most_queued)
        )

    async def check_room(
        self, account: str, environment: str, *, quotas: Sequence[Quota], max_active: int | None
    ) -> None:
        await self._database.read(
            lambda tx: submission.check_room(
                tx, account, environment, quotas=quotas, max_active=max_active, max_queued=self._most_queued
            )
        )

    # --- leases ---

    async def claim(
        self,
        worker: str,
        *,
        environments: Sequence[str],
        unfetched: bool = False,
        passing_over: Collection[str] = (),
        lease_s: float,
        wait_s: float = 0.0,
    ) -> Lease | None:
        ends = time.monotonic() + wait_s
        take = partial(
            leases.claim,
            worker=worker,
            environments=environments,
            unfetched=unfetched,
            passing_over=passing_over,
            lease_s=lease_s,
        )
        with self._database.watch(QUEUE_TOPIC) as watch:
            while True:
                lease, due_in_s = await self._claim(take)
                left = ends - time.monotonic()
                if lease is not None or left <= 0:
                    return lease
                await watch.wait(left if due_in_s is None else min(left, due_in_s))

    async def _claim(self, take: Callable[[Transaction], Lease | None]) -> tuple[Lease | None, float | None]:
        """The lease, or the seconds until a delayed job comes due."""

        def claim(tx: Transaction) -> tuple[Lease | None, float | None]:
            lease = take(tx)
            due = None if lease is not None else leases.next_due(tx)
            return lease, None if due is None else (due - tx.now) / 1000

        claiming = asyncio.ensure_future(self._database.write(claim))
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:  # a lease without a holder would block its job until it expires
            with suppress(StorageError):  # then nothing was claimed, or the lease expires by itself
                lease, _ = await claiming
                if lease is not None:
                    await self.release(lease, delay_s=0.0, error=None, count=False)
            raise

    async def claim_live(self, job_id: str, worker: str, *, lease_s: float) -> Lease | None:
        return await self._database.write(lambda tx: leases.claim_live(tx, job_id, worker, lease_s))

    async def checkpoint(
        self, lease: Lease, *, index: int, body: bytes, events: Sequence[NewEvent], progress: float, lease_s: float
    ) -> bool:
        return await self._database.write_together(
            partial(
                leases.checkpoint,
                lease=lease,
                index=index,
                body=body,
                events=events,
                progress=progress,
                lease_s=lease_s,
            )
        )

    async def log(self, lease: Lease, events: Sequence[NewEvent]) -> list[Event] | None:
        return await self._database.write_together(lambda tx: leases.log(tx, lease, events))

    async def note(
        self,
        lease: Lease,
        *,
        stage: str | None = None,
        source: Source | None = None,
        duration_s: float | None = None,
        blob: str | None = None,
    ) -> bool:
        return await self._database.write(
            partial(leases.note, lease=lease, stage=stage, source=source, duration_s=duration_s, blob=blob)
        )

    async def renew(self, lease: Lease, *, lease_s: float) -> Renewal:
        return await self._database.write_together(lambda tx: leases.renew(tx, lease, lease_s))

    async def finish(self, lease: Lease, outcome: Outcome) -> bool:
        return await self._database.write(lambda tx: leases.finish(tx, lease, outcome))

    async def release(self, lease: Lease, *, delay_s: float, error: JobError | None, count: bool) -> bool:
        return await self._database.write(
            lambda tx: leases.release(tx, lease, delay_s=delay_s, error=error, count=count)
        )

    async def reap(self, *, limit: int) -> int:
        """Also forgets what nobody asks for any more: old keys and windows."""

        def reap(tx: Transaction) -> int:
            tx.tidy()
            tx.run("DELETE FROM idempotency WHERE created_at < ?", (tx.now - submission.KEY_KEPT_MS,))
            tx.run("DELETE FROM counters WHERE resets_at < ?", (tx.now - COUNTERS_KEPT_MS,))
            return leases.reap(tx, limit)

        return await self._database.write(reap)

    async def lapse(self, owner: str) -> int:
        return await self._database.write(lambda tx: leases.lapse_of(tx, owner))

    async def stale_live(self, *, limit: int) -> list[Job]:
        return await self._database.read(lambda tx: [job_of(row) for row in leases.stale_live(tx, limit)])

    # --- looking ---

    async def get(self, job_id: str) -> Job | None:
        def get(tx: Transaction) -> Job | None:
            row = tx.one("SELECT * FROM jobs WHERE id = ?", (job_id,))
            return None if row is None else job_of(row)

        return await self._ended.get(job_id, job_id, lambda: self._database.read(get), keep=_stays)

    async def chunks(self, job_id: str) -> list[bytes]:
        return await self._database.read(lambda tx: list(leases.chunks(tx, job_id)))

    async def artifact(self, job_id: str, kind: str) -> Artifact | None:
        def artifact(tx: Transaction) -> Artifact | None:
            row = tx.one("SELECT * FROM artifacts WHERE job = ? AND kind = ?", (job_id, kind))
            if row is None:
                return None
            return Artifact(kind=row["kind"], blob=row["blob"], sha256=row["sha256"], bytes=row["bytes"])

        return await self._database.read(artifact)

    async def find(self, which: JobFilter, *, limit: int) -> list[Job]:
        if which.text is None:
            return await self._database.read(lambda tx: listing.find(tx, which, limit))
        turn = self._turns.setdefault(which.account, asyncio.Semaphore(1))
        async with turn, self._searching:
            return await self._database.read(lambda tx: listing.find(tx, which, limit))

    async def spent(self, *, limit: int) -> list[str]:
        def spent(tx: Transaction) -> list[str]:
            rows = tx.all("SELECT id FROM jobs WHERE finished_at IS NOT NULL AND blob IS NOT NULL LIMIT ?", (limit,))
            return [row["id"] for row in rows]

        return await self._database.read(spent)

    async def audio_deleted(self, job_ids: Sequence[str]) -> None:
        await self._database.write(
            lambda tx: tx.run_many("UPDATE jobs SET blob = NULL WHERE id = ?", [(job_id,) for job_id in job_ids])
        )

    async def changed(self, seen: Job, *, timeout_s: float) -> Job | None:
        ends = time.monotonic() + timeout_s
        with self._database.watch(seen.id) as watch:
            while True:
                job = await self.get(seen.id)
                left = ends - time.monotonic()
                if job != seen or left <= 0:
                    return job
                await watch.wait(left)

    async def counts(self) -> Mapping[str, int]:
        def counts(tx: Transaction) -> Mapping[str, int]:
            rows = tx.all(
                "SELECT state, count(*) AS n FROM jobs WHERE state IN ('queued', 'processing') GROUP BY state"
            )
            found = {row["state"]: row["n"] for row in rows}
            return {state.value: found.get(state, 0) for state in (State.QUEUED, State.PROCESSING)}

        return await self._database.read(counts)

    # --- ending from outside ---

    async def cancel(self, job_id: str) -> Job | None:
        def request(tx: Transaction) -> Job | None:
            row = leases.request_cancel(tx, job_id)
            return None if row is None else job_of(row)

        return await self._database.write(request)

    async def delete(self, job_id: str, *, why: Why = Why.REQUESTED) -> str | None:
        def delete(tx: Transaction) -> str | None:
            row = tx.one("SELECT * FROM jobs WHERE id = ? FOR UPDATE", (job_id,))
            if row is None:
                return None
            if State(row["state"]) not in TERMINAL:  # its usage counts like that of a canceled job
                cancel(tx, row, return_quota=leases.unspent(row))
            tx.run("DELETE FROM jobs WHERE id = ?", (job_id,))
            note_erasure(tx, job_id, What.JOB, why)
            tx.announce(job_id)
            return job_id

        self._ended.forget(job_id)
        return await self._database.write(delete)

    async def answered(self, job_id: str) -> None:
        await self._database.write(lambda tx: passing.answered(tx, job_id))

    async def passing(self, *, limit: int) -> list[Job]:
        return await self._database.read(lambda tx: [job_of(row) for row in passing.passing(tx, limit)])

    async def erase_outputs(self, job_id: str) -> str | None:
        return await self._database.write(lambda tx: passing.erase_outputs(tx, job_id))

    async def expired(self, *, limit: int) -> list[str]:
        def expired(tx: Transaction) -> list[str]:
            rows = tx.all("SELECT id FROM jobs WHERE expires_at <= ? ORDER BY expires_at LIMIT ?", (tx.now, limit))
            return [row["id"] for row in rows]

        return await self._database.read(expired)


def _stays(job: Job | None) -> bool:
    """Whether the record may be kept in memory: it will hardly change, and it is small."""
    return job is not None and job.terminal and job.order.kept and len(job.text or "") <= MAX_TEXT_KEPT
