"""The jobs. Each call is one transaction, whose statements are in the other files of this folder.

A job runs at least once, and its effects (state, usage, events, webhooks) happen exactly once. This rests on the
*fence*: every write of a worker names its lease, and is refused if that lease has ended. Only the store's clock decides
when a lease ends. Instants are milliseconds since 1970 UTC.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Unpack

from pipeline.timeline import Correction, Translation
from server.keyed_limits import KeyedTurns
from server.model.accounts import Quota
from server.model.errors import StorageError
from server.model.jobs import (
    TERMINAL,
    Artifact,
    ClaimTerms,
    ErasedPart,
    ErasureReason,
    IdempotencyKey,
    Job,
    JobFilter,
    Lease,
    NewJob,
    State,
    Submitted,
)
from server.storage.sql import leases, listing, submission, upkeep
from server.storage.sql.database import (
    Database,
    SqlStore,
    Transaction,
    lookup_method,
    marks,
    read_method,
    wait_for_due,
    write_method,
)
from server.storage.sql.leases import QUEUE_TOPIC, cancel
from server.storage.sql.outbox import enqueue
from server.storage.sql.rows import JOB_COLUMNS, job_of, read_row
from server.storage.sql.timeline import append

MAX_QUEUED = 10_000  # waiting batch jobs of an environment; more are refused with QueueFull


def _get(tx: Transaction, job_id: str) -> Job | None:
    row = tx.one(f"SELECT {JOB_COLUMNS} FROM jobs WHERE id = ?", (job_id,))  # noqa: S608  a constant
    return None if row is None else job_of(row)


def _correct(tx: Transaction, job_id: str, entry: Correction, *, text: str | None, terms: Collection[str]) -> bool:
    """Append a correction. Returns False if another one came first, or the job has ended or gone: read again.

    The *text* of a finished job, and the *terms* by which the archive finds it, become those after the correction.
    """
    row = tx.one(f"SELECT {JOB_COLUMNS} FROM jobs WHERE id = ? FOR UPDATE", (job_id,))  # noqa: S608  a constant
    if row is None or row["revision"] != entry.revision - 1:
        return False
    job = job_of(row)
    if (job.state is State.COMPLETED) != (text is not None):
        return False
    tx.run("UPDATE jobs SET revision = ? WHERE id = ?", (entry.revision, job_id))
    append(tx, job_id, [entry])
    if job.state is State.COMPLETED:
        tx.run("UPDATE jobs SET text = ? WHERE id = ?", (text, job_id))
        listing.index_words(tx, account=job.account, environment=job.environment, job_id=job_id, terms=terms)
    enqueue(tx, job, "job.corrected")
    return True


def _translate(tx: Transaction, job_id: str, entry: Translation) -> None:
    """Append the translation of corrected words, in place of an earlier one, unless the job is gone."""
    if tx.one("SELECT 1 FROM jobs WHERE id = ? AND erased_at IS NULL FOR UPDATE", (job_id,)) is not None:
        append(tx, job_id, [entry])


def _list_canceled(tx: Transaction, job_ids: Collection[str]) -> list[str]:
    """Those of *job_ids* that are to be canceled or were deleted."""
    rows = tx.all(f"SELECT id FROM jobs WHERE id IN ({marks(job_ids)}) AND cancel_requested_at IS NULL", (*job_ids,))  # noqa: S608  marks only
    going_on = {row["id"] for row in rows}
    return [job_id for job_id in job_ids if job_id not in going_on]


def _artifact(tx: Transaction, job_id: str, kind: str) -> Artifact | None:
    row = tx.one("SELECT * FROM artifacts WHERE job = ? AND kind = ?", (job_id, kind))
    return None if row is None else read_row(Artifact, row)


def _list_with_audio(tx: Transaction, *, limit: int) -> list[str]:
    """Ids of ended jobs whose audio may still be stored: delete it, then call note_audio_deleted()."""
    rows = tx.all("SELECT id FROM jobs WHERE finished_at IS NOT NULL AND blob IS NOT NULL LIMIT ?", (limit,))
    return [row["id"] for row in rows]


def _find_expired(tx: Transaction, *, limit: int) -> list[str]:
    """Ids of jobs whose retention is over."""
    rows = tx.all("SELECT id FROM jobs WHERE expires_at <= ? ORDER BY expires_at LIMIT ?", (tx.now, limit))
    return [row["id"] for row in rows]


def _note_audio_deleted(tx: Transaction, job_ids: Sequence[str]) -> None:
    tx.run_many("UPDATE jobs SET blob = NULL WHERE id = ?", [(job_id,) for job_id in job_ids])


def _counts(tx: Transaction) -> Mapping[str, int]:
    """Jobs per state, only queued and processing, for metrics."""
    rows = tx.all("SELECT state, count(*) AS n FROM jobs WHERE state IN ('queued', 'processing') GROUP BY state")
    found = {row["state"]: row["n"] for row in rows}
    return {state.value: found.get(state, 0) for state in (State.QUEUED, State.PROCESSING)}


class JobStore(SqlStore):
    """Jobs with their artifacts. A write under a lost lease changes nothing and returns False."""

    def __init__(
        self,
        database: Database,
        *,
        max_queued: int = MAX_QUEUED,
        boot: str | None = None,
        is_alive: submission.Liveness = lambda _tx, _boot: False,
    ) -> None:
        """*boot* names this process in its reservations; *is_alive* says whether the process of that name is alive."""
        super().__init__(database)
        self._most_queued = max_queued
        self._boot = boot or secrets.token_hex(8)
        self._is_alive = is_alive
        self._searching = asyncio.Semaphore(1)  # a search may read everything that an account has
        self._turns = KeyedTurns()  # of accounts that search

    # --- acceptance ---

    async def begin(self, key: IdempotencyKey) -> str | None:
        return await self.database.write(lambda tx: submission.begin(tx, key, self._boot, self._is_alive))

    async def abandon(self, key: IdempotencyKey) -> None:
        await self.database.write(lambda tx: submission.abandon(tx, key, self._boot))

    async def submit(self, new: NewJob, *, idempotency: IdempotencyKey | None) -> Submitted:
        return await self.database.write(
            lambda tx: submission.submit(tx, new, idempotency, self._boot, self._most_queued)
        )

    async def check_capacity(
        self, account: str, environment: str, *, quotas: Sequence[Quota], max_active: int | None
    ) -> None:
        await self.database.read(
            lambda tx: submission.check_capacity(
                tx, account, environment, quotas=quotas, max_active=max_active, max_queued=self._most_queued
            )
        )

    # --- leases ---

    async def claim(self, worker: str, *, wait_s: float = 0.0, **terms: Unpack[ClaimTerms]) -> Lease | None:
        """Lease the next queued batch job, as leases.claim() chooses it. Returns None if none came within *wait_s*.

        A job that any process submits or releases ends the wait at once, a delayed one (NewJob.delay_s, release) when
        its time comes. A cancelled call leaves no lease behind.
        """
        take = partial(leases.claim, worker=worker, **terms)
        return await wait_for_due(self.database, QUEUE_TOPIC, wait_s, lambda: self._claim(take))

    async def _claim(self, take: Callable[[Transaction], Lease | None]) -> tuple[Lease | None, float | None]:
        """The lease, or the seconds until a delayed job comes due."""

        def claim(tx: Transaction) -> tuple[Lease | None, float | None]:
            lease = take(tx)
            due = None if lease is not None else leases.next_due(tx)
            return lease, None if due is None else (due - tx.now) / 1000

        claiming = asyncio.ensure_future(self.database.write(claim))
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:  # a lease without a holder would block its job until it expires
            with suppress(StorageError):  # then nothing was claimed, or the lease expires by itself
                lease, _ = await claiming
                if lease is not None:
                    await self.release(lease, delay_s=0.0, error=None, count=False)
            raise

    claim_live = write_method(leases.claim_live)
    checkpoint = write_method(leases.checkpoint, together=True)
    append = write_method(leases.append_held, together=True)
    translate = write_method(_translate)
    note = write_method(leases.note)
    renew = write_method(leases.renew, together=True)
    finish = write_method(leases.finish)
    release = write_method(leases.release)
    reap = write_method(leases.reap)
    lapse = write_method(leases.lapse_all)
    list_stale_live = read_method(leases.list_stale_live)

    # --- reading ---

    get = lookup_method(_get)
    list_canceled = read_method(_list_canceled)
    artifact = lookup_method(_artifact)
    list_with_audio = read_method(_list_with_audio)
    list_expired = read_method(_find_expired)
    list_to_erase = read_method(upkeep.list_to_erase)
    counts = read_method(_counts)

    async def find(self, which: JobFilter, *, limit: int) -> list[Job]:
        if which.query is None and which.name is None:
            return await self.database.read(lambda tx: listing.find(tx, which, limit))
        async with self._turns.turn(which.account), self._searching:
            return await self.database.read(lambda tx: listing.find(tx, which, limit))

    async def wait_for_change(self, seen: Job, *, timeout_s: float) -> Job | None:
        """The job as soon as it differs from *seen*, or as it is after *timeout_s*; None if it was deleted."""
        ends = time.monotonic() + timeout_s
        with self.database.watch(seen.id) as watch:
            while True:
                job = await self.get(seen.id)
                left = ends - time.monotonic()
                if job != seen or left <= 0:
                    return job
                await watch.wait(left)

    # --- ending from outside ---

    note_audio_deleted = write_method(_note_audio_deleted)
    cancel = write_method(leases.request_cancel)
    note_answered = write_method(upkeep.note_answered)
    erase_outputs = write_method(upkeep.erase_outputs)
    correct = write_method(_correct)

    async def delete(self, job_id: str, *, why: ErasureReason = ErasureReason.REQUESTED) -> str | None:
        """Remove record, timeline and deliveries, and record the erasure, in one commit.

        Returns the blob prefix to delete, None if there is no job. A worker on the job finds its lease lost. The
        backend's own files may still contain bytes of the job until Upkeep.scrub().
        """

        def delete(tx: Transaction) -> str | None:
            row = tx.one("SELECT * FROM jobs WHERE id = ? FOR UPDATE", (job_id,))
            if row is None:
                return None
            if State(row["state"]) not in TERMINAL:  # its usage counts like that of a canceled job
                cancel(tx, row, return_quota=leases.is_unspent(row))
            tx.run("DELETE FROM jobs WHERE id = ?", (job_id,))
            upkeep.note_erasure(tx, job_id, ErasedPart.JOB, why)
            tx.announce(job_id)
            return job_id

        return await self.database.write(delete)
