"""Accepts a job in one transaction: checks everything that may refuse it, and stores what belongs to it."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from pipeline.timeline import StateChange
from server.model.accounts import Quota
from server.model.errors import ConcurrencyLimited, IdempotencyInProgress, IdempotencyReused, QueueFull
from server.model.jobs import IdempotencyKey, NewJob, State, Submitted
from server.storage.sql.allowances import counted_s, enter_queue, look, spend
from server.storage.sql.database import Transaction, insert, select_number
from server.storage.sql.leases import AT_ONCE, QUEUE_TOPIC
from server.storage.sql.rows import BATCH, LIVE, SqlRow, job_of, order_of, text_of
from server.storage.sql.timeline import append

Liveness: TypeAlias = Callable[[Transaction, str], bool]
"""Whether the process of this name is alive and has this storage open."""

KEY_KEPT_MS = 24 * 60 * 60 * 1000


def begin(tx: Transaction, key: IdempotencyKey, boot: str, is_alive: Liveness) -> str | None:
    """Reserve *key* until submit() or abandon(), or return the id of the job that an earlier request made with it.

    submit() compares the fingerprints, because the body has not arrived yet. A reservation ends with the process
    that made it. Raises IdempotencyInProgress while another request has reserved the key.
    """
    row = _lock_key(tx, key)
    if row["job"] is not None:
        return str(row["job"])
    if row["boot"] == boot or is_alive(tx, row["boot"]):
        raise IdempotencyInProgress("the first request with this Idempotency-Key is still arriving")
    _keep_key(tx, key, None, boot)  # also if a server that died had reserved it
    return None


def abandon(tx: Transaction, key: IdempotencyKey, boot: str) -> None:
    """Free a key that begin() reserved, unless it has a job by now."""
    tx.run(
        "DELETE FROM idempotency WHERE account = ? AND path = ? AND key = ? AND job IS NULL AND boot = ?",
        (key.account, key.path, key.key, boot),
    )


def submit(tx: Transaction, new: NewJob, key: IdempotencyKey | None, boot: str, max_queued: int) -> Submitted:
    """Accept the job: store row, quotas, first event and idempotency key durably, in one commit.

    If the request is a repetition, the earlier job is returned, and the caller deletes the audio of *new*. Raises
    QuotaExceeded, ConcurrencyLimited, QueueFull, IdempotencyReused.
    """
    if key is not None:
        earlier = _lock_key(tx, key)
        if earlier["job"] is not None:
            if earlier["fingerprint"] != key.fingerprint:
                raise IdempotencyReused("this Idempotency-Key was used before for another request")
            return Submitted(job_of(_row(tx, earlier["job"])), replayed=True)
    for quota in new.quotas:  # first: of two reasons to refuse, this one does not pass within a minute
        spend(tx, new.account, quota).check(quota.name)
    # The account's place in the queue stays locked until the commit, so that nobody else counts its jobs meanwhile.
    virtual_time = enter_queue(tx, new.account, counted_s(new.audio_s) / new.weight)
    _check_queue(tx, new.environment, kind=_class(new), max_queued=max_queued)
    if new.order.live is not None:
        _check_live(tx, new)
    else:
        _check_active(tx, new.account, new.environment, max_active=new.max_active)
    _insert(tx, new, virtual_time)
    if key is not None:
        _keep_key(tx, key, new.id, boot)
    append(tx, new.id, [StateChange(State.QUEUED)])
    tx.announce(QUEUE_TOPIC)
    return Submitted(job_of(_row(tx, new.id)), replayed=False)


def check_capacity(
    tx: Transaction, account: str, environment: str, *, quotas: Sequence[Quota], max_active: int | None, max_queued: int
) -> None:
    """Raise what submit() would raise for any file now, so that the server need not read a body to refuse it.

    It reserves nothing: submit() checks again. Raises QuotaExceeded, ConcurrencyLimited, QueueFull.
    """
    for quota in quotas:
        look(tx, account, quota).check(quota.name)
    _check_queue(tx, environment, kind=BATCH, max_queued=max_queued)
    _check_active(tx, account, environment, max_active=max_active)


def _check_queue(tx: Transaction, environment: str, *, kind: int, max_queued: int) -> None:
    """Raise QueueFull if the environment has *max_queued* waiting files. The sandbox takes no place from production."""
    if kind == BATCH:
        waiting = "SELECT count(*) AS n FROM jobs WHERE state = 'queued' AND class = ? AND environment = ?"
        if (queued := select_number(tx, waiting, (BATCH, environment))) >= max_queued:
            raise QueueFull(f"{queued} jobs are waiting")


def _check_active(tx: Transaction, account: str, environment: str, *, max_active: int | None) -> None:
    """Raise ConcurrencyLimited if the account has as many unfinished files as its plan allows."""
    if max_active is None:
        return
    active = select_number(
        tx,
        "SELECT count(*) AS n FROM jobs"
        " WHERE account = ? AND environment = ? AND class = ? AND state IN ('queued', 'processing')",
        (account, environment, BATCH),
    )
    if active >= max_active:
        raise ConcurrencyLimited("jobs", limit=max_active, used=active)


def _check_live(tx: Transaction, new: NewJob) -> None:
    """Raise ConcurrencyLimited if the account may open no further session. Each channel of a session counts as one."""
    if new.max_active is None:
        return
    rows = tx.all(
        "SELECT options FROM jobs"
        " WHERE account = ? AND environment = ? AND class = ? AND state IN ('queued', 'processing')",
        (new.account, new.environment, LIVE),
    )
    used = sum(order_of(row["options"]).counted_sessions for row in rows)
    if used + new.order.counted_sessions > new.max_active:
        raise ConcurrencyLimited("live sessions", limit=new.max_active, used=used)


def _insert(tx: Transaction, new: NewJob, virtual_time: float) -> None:
    columns = {
        "id": new.id,
        "account": new.account,
        "environment": new.environment,
        "class": _class(new),
        "state": State.QUEUED,
        "options": text_of(new.order),
        "source": text_of(new.source),
        "source_type": new.source.type,
        "blob": new.blob,
        "quotas": text_of(new.quotas),
        "retention_ms": new.retention_ms,
        "virtual_time": virtual_time,
        "weight": new.weight,
        "counted_s": counted_s(new.audio_s),
        "created_at": tx.now,
        "queued_at": tx.now,
        "run_after": tx.now + round(new.delay_s * 1000) if new.delay_s else AT_ONCE,
        "duration_s": new.audio_s,
        "warnings": text_of(new.warnings),
        "kept": int(new.order.keeps_results),
    }
    insert(tx, "jobs", **columns)
    tx.run_many(
        "INSERT INTO metadata (job, key, value) VALUES (?, ?, ?)",
        [(new.id, key, value) for key, value in new.order.metadata.items()],
    )


def _class(new: NewJob) -> int:
    return BATCH if new.order.live is None else LIVE


def _lock_key(tx: Transaction, key: IdempotencyKey) -> SqlRow:
    """Lock the key's row and return it. If it is missing or has expired, make a new one with an empty `boot`."""
    row = tx.one(
        "INSERT INTO idempotency (account, path, key, fingerprint, job, boot, created_at)"
        " VALUES (?, ?, ?, ?, NULL, '', ?)"
        " ON CONFLICT (account, path, key) DO UPDATE SET account = excluded.account RETURNING *",
        (key.account, key.path, key.key, key.fingerprint, tx.now),
    )
    assert row is not None
    if row["created_at"] > tx.now - KEY_KEPT_MS:
        return row
    tx.run("DELETE FROM idempotency WHERE account = ? AND path = ? AND key = ?", (key.account, key.path, key.key))
    return _lock_key(tx, key)


def _keep_key(tx: Transaction, key: IdempotencyKey, job_id: str | None, boot: str) -> None:
    """Write the process *boot* that reads the request, or the job that it made, into the key's row."""
    tx.run(
        "UPDATE idempotency SET fingerprint = ?, job = ?, boot = ?, created_at = ?"
        " WHERE account = ? AND path = ? AND key = ?",
        (key.fingerprint, job_id, boot, tx.now, key.account, key.path, key.key),
    )


def _row(tx: Transaction, job_id: str) -> SqlRow:
    row = tx.one("SELECT * FROM jobs WHERE id = ?", (job_id,))
    assert row is not None, "a key's job is deleted with the key"
    return row
