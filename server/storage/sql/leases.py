"""Claims jobs, and writes what their workers report. Each write of a worker begins with the fence.

The fence reads the job's lease inside the write transaction and locks the row. So the lease stays valid until the
commit, and the statements after the fence may name the job by its id alone.
"""

import secrets
from collections.abc import Collection, Sequence
from typing import Unpack

from pipeline.timeline import Entry, Progress, StateChange
from server.model.jobs import LIVE_GRACE_MS, Cause, Job, JobError, JobFacts, Lease, Outcome, Renewal, State, step
from server.storage.sql.database import Transaction, marks
from server.storage.sql.endings import MAX_ATTEMPTS, cancel, end_job, fail, lapse, put_back
from server.storage.sql.fairness import remember_claimed
from server.storage.sql.rows import BATCH, LIVE, SqlRow, job_of, text_of
from server.storage.sql.timeline import append, append_where
from server.storage.sql.unreadable import set_aside, why_unreadable

HELD = "id = :id AND lease_id = :lease_id AND state = 'processing' AND lease_until > :now"
"""Whether the job's lease is valid. An expired lease is refused even before reap() has ended it."""

FENCE = f"SELECT * FROM jobs WHERE {HELD} FOR UPDATE"  # noqa: S608  made of constants

LONGEST_LEASE_MS = 10 * 60 * 1000  # one that seems to end later was granted before the clock was set back

UNFETCHED = "(blob IS NULL AND source_type = 'url')"
"""Whether the job's audio must be downloaded before it can be transcribed; written as in the index jobs_queue."""

QUEUE_BOUND_MS = 24 * 60 * 60 * 1000  # older jobs fail: the answer comes too late
CAUSES = {State.COMPLETED: Cause.FINISHED, State.FAILED: Cause.BROKE, State.CANCELED: Cause.CANCELED}


def claim(
    tx: Transaction,
    worker: str,
    *,
    environments: Sequence[str],
    unfetched: bool = False,
    passing_over: Collection[str] = (),
    lease_s: float,
) -> Lease | None:
    """Lease the next queued batch job to *worker* for *lease_s* seconds. Returns None if there is none.

    *environments*: in order of precedence. A later one gets its turn only if the earlier ones have no job.
    *unfetched*: True leases jobs whose audio is still at an address (source.type "url", no blob), False all others.
    *passing_over*: accounts whose jobs stay in the queue.

    The order is fair: by virtual time, then by id. An account's virtual time grows by the seconds of work that it
    causes, divided by its weight: the audio of each submitted job, the lease of each failed attempt (a counted release,
    an expired lease, an end other than COMPLETED), and what a completed job had beyond its stated length.
    """
    others = f" AND account NOT IN ({marks(passing_over)})" if passing_over else ""
    for environment in environments:
        query = (
            f"SELECT * FROM jobs WHERE state = 'queued' AND class = ? AND {UNFETCHED} = ? AND environment = ?"  # noqa: S608  made of constants
            f" AND run_after <= ?{others} ORDER BY virtual_time, id LIMIT 1 FOR UPDATE SKIP LOCKED"
        )
        while (row := tx.one(query, (BATCH, unfetched, environment, tx.now, *passing_over))) is not None:
            if not set_aside(tx, [row]):
                continue
            lease = _grant(tx, row, worker, lease_s, stage="downloading" if unfetched else "transcribing")
            remember_claimed(tx, row["virtual_time"])  # last, because every claim locks this row
            return lease
    return None


def claim_live(tx: Transaction, job_id: str, worker: str, *, lease_s: float) -> Lease | None:
    """Take this live job for the process to which its writer is connected.

    None if it is not a live job, has ended, or is still leased because another writer is connected.
    """
    row = _live(tx, job_id)
    if row is not None and row["state"] == State.PROCESSING and _is_expired(row, tx.now):
        lapse(tx, row)
        row = _live(tx, job_id)
    return None if row is None or row["state"] != State.QUEUED else _grant(tx, row, worker, lease_s)


def next_due(tx: Transaction) -> int | None:
    """When the first delayed job may be claimed."""
    row = tx.one(
        "SELECT min(run_after) AS due FROM jobs WHERE class = ? AND state = 'queued' AND run_after > ?", (BATCH, tx.now)
    )
    return None if row is None else row["due"]


def checkpoint(
    tx: Transaction,
    lease: Lease,
    entries: Sequence[Entry],
    *,
    progress: float,
    lease_s: float,
) -> int | None:
    """Append what was recognised of a file and extend the lease, in one commit.

    The attempt got further than those before it, so that none of them counts towards the limit any more. Returns the
    number of the timeline's last event; None if the lease is lost.
    """
    row = _find_lease(tx, lease)
    if row is None:
        return None
    reached = max(row["progress"], min(progress, 1.0))
    _extend(tx, lease, lease_s)
    tx.run("UPDATE jobs SET progress = ?, stuck = 0 WHERE id = ?", (reached, lease.job.id))
    moved = [Progress(reached)] if reached > row["progress"] else []
    return append(tx, lease.job.id, [*entries, *moved])


def append_held(tx: Transaction, lease: Lease, entries: Sequence[Entry]) -> int | None:
    """Append *entries* under the lease. Returns the number of the timeline's last event; None if the lease is lost."""
    return append_where(tx, HELD, _fence(tx, lease), entries)


def note(tx: Transaction, lease: Lease, **facts: Unpack[JobFacts]) -> bool:
    """Record what became known while working: stage, format, length, the blob of the fetched audio."""
    if _find_lease(tx, lease) is None:
        return False
    source = facts.get("source")
    known = {**facts, "source": None if source is None else text_of(source)}
    tx.run(
        "UPDATE jobs SET stage = coalesce(?, stage), source = coalesce(?, source),"
        " duration_s = coalesce(?, duration_s), blob = coalesce(?, blob) WHERE id = ?",
        (*map(known.get, ("stage", "source", "duration_s", "blob")), lease.job.id),
    )
    tx.announce(lease.job.id)
    return True


def renew(tx: Transaction, lease: Lease, *, lease_s: float) -> Renewal:
    row = _find_lease(tx, lease)
    if row is None:
        return Renewal.LOST
    _extend(tx, lease, lease_s)
    return Renewal.OK if row["cancel_requested_at"] is None else Renewal.CANCEL_REQUESTED


def finish(tx: Transaction, lease: Lease, outcome: Outcome) -> Job | None:
    """End the job: write state, artifacts, usage, quotas, outbox and last event in one commit. Returns the job.

    The account gets its allowance back if outcome.return_quota is set and no client can have read a word, which
    means that its timeline has no words, and no mark of audio that is done. The same holds for jobs that reap() ends.
    """
    row = _find_lease(tx, lease)
    return None if row is None else end_job(tx, row, CAUSES[outcome.state], outcome)


def release(tx: Transaction, lease: Lease, *, delay_s: float, error: JobError | None, count: bool) -> bool:
    """Put the job back into the queue. A job without attempts left fails instead. Returns False if the lease is lost.

    *delay_s*: no worker gets the job before.
    *error*: why, for the job's record. None keeps the earlier one.
    *count*: False counts no attempt: at a shutdown, or after a download that succeeded.
    """
    row = _find_lease(tx, lease)
    if row is None:
        return False
    used_up = count and row["class"] == BATCH and row["stuck"] >= MAX_ATTEMPTS
    if used_up and error is not None and row["cancel_requested_at"] is None:
        fail(tx, row, Cause.BROKE, error)
    elif used_up:
        lapse(tx, row)
    else:
        put_back(tx, row, Cause.RELEASED, delay_ms=round(delay_s * 1000), counted=count, error=error)
    return True


def reap(tx: Transaction, *, limit: int) -> int:
    """Put jobs with an expired lease back into the queue; fail those that waited for too long. Returns how many.

    A batch job without attempts left fails too. A live job always goes back, and waits for its writer.
    """
    expired = tx.all(
        "SELECT * FROM jobs WHERE state = 'processing' AND (lease_until <= ? OR lease_until > ?)"
        " ORDER BY lease_until LIMIT ? FOR UPDATE SKIP LOCKED",
        (tx.now, tx.now + LONGEST_LEASE_MS, limit),
    )
    for row in set_aside(tx, expired):
        lapse(tx, row)
    too_old = _find_overdue(tx, limit - len(expired))
    for row in set_aside(tx, too_old):
        error = JobError(code="queue_timeout", message="no worker was free for 24 hours", retryable=True)
        fail(tx, row, Cause.TOO_OLD, error)
    return len(expired) + len(too_old)


def _find_overdue(tx: Transaction, limit: int) -> list[SqlRow]:
    before = tx.now - QUEUE_BOUND_MS
    found = tx.all(
        "SELECT * FROM jobs WHERE state = 'queued' AND class = ? AND queued_at <= ? LIMIT ? FOR UPDATE SKIP LOCKED",
        (BATCH, before, limit),
    )
    live = tx.all(
        "SELECT * FROM jobs WHERE state = 'queued' AND class = ? AND created_at <= ? LIMIT ? FOR UPDATE SKIP LOCKED",
        (LIVE, before, limit - len(found)),
    )
    return [*found, *live]


def lapse_all(tx: Transaction, owner: str) -> int:
    """End the leases of dead workers, whose names begin with *owner*. Returns how many there were."""
    held = tx.all(
        "SELECT * FROM jobs WHERE state = 'processing' AND substr(owner, 1, length(:owner)) = :owner FOR UPDATE",
        {"owner": owner},
    )
    for row in set_aside(tx, held):
        lapse(tx, row)
    return len(held)


def list_stale_live(tx: Transaction, *, limit: int) -> list[Job]:
    """Live jobs without a writer for longer than LIVE_GRACE_MS: claim them, and finish them with their words."""
    rows = tx.all(
        "SELECT * FROM jobs WHERE class = ? AND state = 'queued' AND (queued_at <= ? OR queued_at > ?)"
        " ORDER BY queued_at LIMIT ?",
        (LIVE, tx.now - LIVE_GRACE_MS, tx.now + LIVE_GRACE_MS, limit),  # the clock may have been set back
    )
    return [job_of(row) for row in rows if why_unreadable(row) is None]  # reap() sets the others aside


def request_cancel(tx: Transaction, job_id: str) -> Job | None:
    """Cancel a queued job now, as finish() would; request it of a processing one. Returns the job afterwards."""
    row = tx.one("SELECT * FROM jobs WHERE id = ? FOR UPDATE", (job_id,))
    if row is None:
        return None
    if row["state"] == State.QUEUED:
        cancel(tx, row, return_quota=is_unspent(row))
    elif row["state"] == State.PROCESSING and row["cancel_requested_at"] is None:
        tx.run("UPDATE jobs SET cancel_requested_at = ? WHERE id = ?", (tx.now, job_id))
        tx.announce(job_id)
    found = tx.one("SELECT * FROM jobs WHERE id = ?", (job_id,))
    return None if found is None else job_of(found)


def is_unspent(row: SqlRow) -> bool:
    """Whether cancelling the job may return its allowance: not if it is a live session that had a writer."""
    return row["started_at"] is None or row["class"] == BATCH


def _is_expired(row: SqlRow, now: int) -> bool:
    """Whether the lease of *row* has run out. One that was granted while the clock was far ahead counts as run out."""
    return not now < row["lease_until"] <= now + LONGEST_LEASE_MS


def _grant(tx: Transaction, row: SqlRow, worker: str, lease_s: float, *, stage: str | None = None) -> Lease:
    state = step(State(row["state"]), Cause.CLAIMED)
    until = tx.now + round(lease_s * 1000)
    (granted,) = tx.all(
        "UPDATE jobs SET state = ?, attempt = attempt + 1, stuck = stuck + 1, epoch = epoch + 1, lease_id = ?,"
        " owner = ?, lease_until = ?, stage = ?, claimed_at = ?, started_at = coalesce(started_at, ?)"
        " WHERE id = ? RETURNING *",
        (state, secrets.token_hex(16), worker, until, stage, tx.now, tx.now, row["id"]),
    )
    last_seq = append(tx, row["id"], [StateChange(state, row["progress"])])
    return Lease(
        job=job_of(granted),
        lease_id=granted["lease_id"],
        epoch=granted["epoch"],
        until=until,
        last_seq=last_seq,
    )


def _find_lease(tx: Transaction, lease: Lease) -> SqlRow | None:
    return tx.one(FENCE, _fence(tx, lease))


def _fence(tx: Transaction, lease: Lease) -> dict[str, object]:
    return {"id": lease.job.id, "lease_id": lease.lease_id, "now": tx.now}


def _extend(tx: Transaction, lease: Lease, lease_s: float) -> None:
    """Let the lease end in *lease_s* seconds. An end that is already later stays."""
    tx.run(
        "UPDATE jobs SET lease_until ="
        " CASE WHEN lease_until < :until OR lease_until > :longest THEN :until ELSE lease_until END WHERE id = :id",
        {"id": lease.job.id, "until": tx.now + round(lease_s * 1000), "longest": tx.now + LONGEST_LEASE_MS},
    )


def _live(tx: Transaction, job_id: str) -> SqlRow | None:
    return tx.one("SELECT * FROM jobs WHERE id = ? AND class = ? FOR UPDATE", (job_id, LIVE))
