"""Claims jobs, writes what their workers report, and ends their leases. Each write of a worker begins with the fence.

The fence reads the job's lease inside the write transaction and locks the row. So the lease stays valid until the
commit, and the statements after the fence may name the job by its id alone. A lease or a wait in the queue ends with
the end of the job, or the job goes back into the queue; step() checks each change.
"""

import math
import secrets
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Unpack

from pipeline.audio import seconds
from pipeline.documents.archive import index_terms
from pipeline.timeline import Entry, JobEnd, Progress, StateChange
from server.logs import log
from server.model.accounts import TRANSLATED_CHARACTERS
from server.model.jobs import (
    LIVE_GRACE_MS,
    Cause,
    ImpossibleStep,
    Job,
    JobError,
    JobFacts,
    Lease,
    Outcome,
    Renewal,
    State,
    returns_quota,
    step,
)
from server.model.orders import LiveOptions, Order, Source
from server.storage.sql.allowances import change, charge_attempt, charge_end, remember_claimed
from server.storage.sql.database import Transaction, marks
from server.storage.sql.listing import index_words
from server.storage.sql.outbox import enqueue
from server.storage.sql.rows import BATCH, LIVE, SqlRow, error_of, job_of, quotas_of, text_of
from server.storage.sql.timeline import append, append_where, end_of_words, has_words

HELD = "id = :id AND lease_id = :lease_id AND state = 'processing' AND lease_until > :now"
"""Whether the job's lease is valid. An expired lease is refused even before reap() has ended it."""

LONGEST_LEASE_MS = 10 * 60 * 1000  # one that seems to end later was granted before the clock was set back

UNFETCHED = "(blob IS NULL AND source_type = 'url')"
"""Whether the job's audio must be downloaded before it can be transcribed; written as in the index jobs_queue."""

QUEUE_BOUND_MS = 24 * 60 * 60 * 1000  # older jobs fail: the answer comes too late

CAUSES = {State.COMPLETED: Cause.FINISHED, State.FAILED: Cause.BROKE, State.CANCELED: Cause.CANCELED}


MAX_ATTEMPTS = 4  # that get no further, so that a file that crashes workers does not stop all of them

QUEUE_TOPIC = "queue"

AT_ONCE = 0  # run_after of a job without a delay; the present time would delay it if the clock were set back


class TranscriptChanged(Exception):
    """Somebody corrected the transcript after the outcome was made of it: make it again."""


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
            if not _set_aside(tx, [row]):
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
    # A lease that was granted while the clock was far ahead has run out too.
    if (
        row is not None
        and row["state"] == State.PROCESSING
        and not tx.now < row["lease_until"] <= tx.now + LONGEST_LEASE_MS
    ):
        _lapse(tx, row)
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
    return None if row is None else _end_job(tx, row, CAUSES[outcome.state], outcome)


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
        _fail(tx, row, Cause.BROKE, error)
    elif used_up:
        _lapse(tx, row)
    else:
        _put_back(tx, row, Cause.RELEASED, delay_ms=round(delay_s * 1000), counted=count, error=error)
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
    for row in _set_aside(tx, expired):
        _lapse(tx, row)
    too_old = _find_overdue(tx, limit - len(expired))
    for row in _set_aside(tx, too_old):
        error = JobError(code="queue_timeout", message="no worker was free for 24 hours", retryable=True)
        _fail(tx, row, Cause.TOO_OLD, error)
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
    for row in _set_aside(tx, held):
        _lapse(tx, row)
    return len(held)


def list_stale_live(tx: Transaction, *, limit: int) -> list[Job]:
    """Live jobs without a writer for longer than LIVE_GRACE_MS: claim them, and finish them with their words."""
    rows = tx.all(
        "SELECT * FROM jobs WHERE class = ? AND state = 'queued' AND (queued_at <= ? OR queued_at > ?)"
        " ORDER BY queued_at LIMIT ?",
        (LIVE, tx.now - LIVE_GRACE_MS, tx.now + LIVE_GRACE_MS, limit),  # the clock may have been set back
    )
    return [job_of(row) for row in rows if _why_unreadable(row) is None]  # reap() sets the others aside


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
    return tx.one(f"SELECT * FROM jobs WHERE {HELD} FOR UPDATE", _fence(tx, lease))  # noqa: S608  made of constants


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


def _end_job(tx: Transaction, row: SqlRow, cause: Cause, outcome: Outcome) -> Job:
    """End the job of *row* in this transaction, as JobStore.finish() describes. Returns the job afterwards.

    Raises ImpossibleStep unless *cause* leads from the row's state to the outcome's.
    """
    state = step(State(row["state"]), cause)
    if state is not outcome.state:
        raise ImpossibleStep(f"{cause} leads to {state}, not to {outcome.state}")
    if state is State.COMPLETED and outcome.revision != row["revision"]:
        raise TranscriptChanged
    duration_s = row["duration_s"] if outcome.duration_s is None else outcome.duration_s
    heard_s = duration_s if outcome.heard_s is None else outcome.heard_s
    wordless = state is State.COMPLETED and outcome.text == ""  # a recording without speech takes nothing
    returned = wordless or (outcome.return_quota and not has_words(tx, row["id"]))
    warnings = [*job_of(row).warnings]
    warnings += [warning for warning in outcome.warnings if warning not in warnings]
    tx.run(
        "UPDATE jobs SET state = :state, finished_at = :now, expires_at = :now + retention_ms, lease_id = NULL,"
        " owner = NULL, lease_until = NULL, stage = NULL, progress = CASE WHEN :whole THEN 1 ELSE progress END,"
        " duration_s = :duration_s, language = :language, language_probability = :language_probability,"
        " languages = :languages, engine = :engine, model = :model, text = :text, speakers = :speakers,"
        " error = :error, warnings = :warnings, blob = :blob"
        " WHERE id = :id",
        {
            "id": row["id"],
            "state": state,
            "now": tx.now,
            "whole": state is State.COMPLETED,
            "duration_s": duration_s,
            "language": outcome.language,
            "language_probability": outcome.language_probability,
            "languages": text_of(outcome.languages) if outcome.languages else None,
            "engine": outcome.engine,
            "model": outcome.model,
            "text": outcome.text,
            "speakers": None if outcome.speakers is None else text_of(outcome.speakers),
            "error": None if outcome.error is None else text_of(outcome.error),
            "warnings": text_of(warnings),
            # without audio there may be recordings of known speakers, which list_with_audio() has to find
            "blob": row["id"] if row["blob"] is None and row["class"] == BATCH else row["blob"],
        },
    )
    tx.run_many(
        "INSERT INTO artifacts (job, kind, blob, sha256, bytes) VALUES (?, ?, ?, ?, ?)",
        [(row["id"], made.kind, made.blob, made.sha256, made.bytes) for made in outcome.artifacts],
    )
    _settle(tx, row, heard_s, outcome.translated_characters, returned=returned)
    charge_end(tx, row, state, heard_s)
    used_s = 0.0 if returned else heard_s or 0.0
    tx.run(
        "INSERT INTO usage (job, account, environment, state, audio_s, model, finished_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (row["id"], row["account"], row["environment"], state, used_s, outcome.model, tx.now),
    )
    append(tx, row["id"], [*outcome.entries, JobEnd(state)])
    if outcome.text and row["kept"]:
        where = {"account": row["account"], "environment": row["environment"], "job_id": row["id"]}
        index_words(tx, **where, terms=index_terms(outcome.text))
    ended = tx.one("SELECT * FROM jobs WHERE id = ?", (row["id"],))
    assert ended is not None
    job = job_of(ended)
    enqueue(tx, job)
    return job


def _settle(tx: Transaction, row: SqlRow, heard_s: float | None, characters: int, *, returned: bool) -> None:
    """Give the reserved allowance back, or adjust it to the audio and the translated *characters* that were used."""
    for quota in quotas_of(row["quotas"]):
        if returned:
            change(tx, row["account"], quota, -quota.amount)
        elif quota.name == "audio_seconds" and heard_s is not None:
            change(tx, row["account"], quota, math.ceil(heard_s) - quota.amount)
        elif quota.name == TRANSLATED_CHARACTERS:
            change(tx, row["account"], quota, characters)


def cancel(tx: Transaction, row: SqlRow, *, return_quota: bool) -> None:
    """Cancel the job. A live session counts up to its last word: its own process knows more, but is not asked."""
    outcome = Outcome(state=State.CANCELED, return_quota=return_quota)
    if row["class"] == LIVE and row["duration_s"] is None and (spoken_s := seconds(end_of_words(tx, row["id"]))):
        outcome = replace(outcome, duration_s=spoken_s, heard_s=spoken_s * job_of(row).order.counted_sessions)
    _end_job(tx, row, Cause.CANCELED, outcome)


def _fail(tx: Transaction, row: SqlRow, cause: Cause, error: JobError) -> None:
    _end_job(tx, row, cause, Outcome(state=State.FAILED, error=error, return_quota=returns_quota(error.code)))


def _lapse(tx: Transaction, row: SqlRow) -> None:
    """End an expired lease. The job goes back into the queue, or ends if it was canceled or has no attempt left."""
    if row["class"] == BATCH and row["stuck"] >= MAX_ATTEMPTS and row["cancel_requested_at"] is None:
        last = None if row["last_error"] is None else error_of(row["last_error"])
        message = f"the engine stopped answering; {row['attempt']} attempts were made"
        message += f", an earlier one said: {last.message}" if last else ""
        _fail(tx, row, Cause.BROKE, JobError(code="engine_error", message=message, retryable=True))
    else:
        _put_back(tx, row, Cause.LEASE_LOST, delay_ms=0, counted=True, error=None)


def _put_back(
    tx: Transaction, row: SqlRow, cause: Cause, *, delay_ms: int, counted: bool, error: JobError | None
) -> None:
    """Queue the job of *row* again. A job with a requested cancel is canceled instead.

    *delay_ms*: no worker gets the job before.
    *counted*: True counts the attempt as failed and charges the account for its time.
    *error*: why, for the job's record. None keeps the earlier one.
    """
    if row["cancel_requested_at"] is not None:
        cancel(tx, row, return_quota=False)
        return
    state = step(State(row["state"]), cause)
    cost = charge_attempt(tx, row) if counted and row["class"] == BATCH else 0.0
    tx.run(
        "UPDATE jobs SET state = :state, queued_at = :now, run_after = :run_after,"
        " attempt = attempt - :uncounted, stuck = CASE WHEN stuck > 0 THEN stuck - :uncounted ELSE 0 END,"
        " virtual_time = virtual_time + :cost, lease_id = NULL,"
        " owner = NULL, lease_until = NULL, stage = NULL, last_error = coalesce(:error, last_error) WHERE id = :id",
        {
            "id": row["id"],
            "state": state,
            "now": tx.now,
            "run_after": tx.now + delay_ms if delay_ms else AT_ONCE,
            "uncounted": int(not counted),
            "cost": cost,
            "error": None if error is None else text_of(error),
        },
    )
    append(tx, row["id"], [StateChange(state, row["progress"])])
    tx.announce(QUEUE_TOPIC)


def _why_unreadable(row: SqlRow) -> str | None:
    """Why a row of the job table cannot be read; None if it can."""
    try:
        job_of(row)
        quotas_of(row["quotas"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _set_aside(tx: Transaction, rows: Iterable[SqlRow]) -> list[SqlRow]:
    """Return the *rows* that can be read, and fail the jobs of all others: queued or processing, and locked here.

    One damaged row must not stop the work on all others.
    What was ordered with such a job is lost, its webhook and its place in the allowance too.
    """
    readable: list[SqlRow] = []
    for row in rows:
        if (why := _why_unreadable(row)) is None:
            readable.append(row)
            continue
        log.error("job cannot be read", extra={"job": row["id"], "error": why})
        live = row["class"] == LIVE
        tx.run(
            "UPDATE jobs SET options = ?, source = ?, source_type = ?, warnings = '[]', quotas = '[]', error = NULL,"
            " languages = NULL, speakers = NULL WHERE id = ?",
            (
                text_of(Order(live=LiveOptions() if live else None)),
                text_of(Source(type="live" if live else "upload")),
                "live" if live else "upload",
                row["id"],
            ),
        )
        (mended,) = tx.all("SELECT * FROM jobs WHERE id = ?", (row["id"],))
        error = JobError(code="internal", message="the stored job cannot be read", retryable=False)
        _fail(tx, mended, Cause.UNREADABLE, error)
    return readable
