"""Accepting a job: everything that may refuse it and everything that must come with it, in one transaction."""

from collections.abc import Sequence

from server.model.accounts import Count, Quota
from server.model.errors import ConcurrencyLimited, IdempotencyInProgress, IdempotencyReused, QueueFull, QuotaExceeded
from server.model.jobs import IdempotencyKey, NewJob, State, Submitted
from server.storage.sqlite import fairness
from server.storage.sqlite.counters import look, take
from server.storage.sqlite.database import Row, Transaction
from server.storage.sqlite.endings import QUEUE_TOPIC
from server.storage.sqlite.events import append, status_event
from server.storage.sqlite.rows import BATCH, LIVE, job_of, text_of

KEY_KEPT_MS = 24 * 60 * 60 * 1000


def begin(tx: Transaction, key: IdempotencyKey, boot: str) -> str | None:
    """Reserve *key* for this process and return None, or return the id of the job that it already made."""
    row = _key_row(tx, key)
    if row is not None and row["job"] is not None:
        return str(row["job"])
    if row is not None and row["boot"] == boot:
        raise IdempotencyInProgress("the first request with this Idempotency-Key is still arriving")
    _keep_key(tx, key, None, boot)  # also if a server that died had reserved it
    return None


def abandon(tx: Transaction, key: IdempotencyKey, boot: str) -> None:
    tx.run(
        "DELETE FROM idempotency WHERE account = ? AND path = ? AND key = ? AND job IS NULL AND boot = ?",
        (key.account, key.path, key.key, boot),
    )


def submit(tx: Transaction, new: NewJob, key: IdempotencyKey | None, boot: str, max_queued: int) -> Submitted:
    if key is not None:
        earlier = _key_row(tx, key)
        if earlier is not None and earlier["job"] is not None:
            if earlier["fingerprint"] != key.fingerprint:
                raise IdempotencyReused("this Idempotency-Key was used before for another request")
            return Submitted(job_of(_row(tx, earlier["job"])), replayed=True)
    for quota in new.quotas:  # first: of two reasons to refuse, this one does not pass within a minute
        _require(take(tx, new.account, quota), quota)
    _check_active(tx, new.account, new.environment, kind=_class(new), max_active=new.max_active, max_queued=max_queued)
    _insert(tx, new)
    if key is not None:
        _keep_key(tx, key, new.id, boot)
    append(tx, new.id, [status_event(State.QUEUED, 0.0)])
    tx.announce(QUEUE_TOPIC)
    return Submitted(job_of(_row(tx, new.id)), replayed=False)


def check_room(
    tx: Transaction,
    account: str,
    environment: str,
    *,
    quotas: Sequence[Quota],
    max_active: int | None,
    max_queued: int,
) -> None:
    """Raise what submit() would raise now for a file of this account. Takes nothing."""
    for quota in quotas:
        _require(look(tx, account, quota), quota)
    _check_active(tx, account, environment, kind=BATCH, max_active=max_active, max_queued=max_queued)


def _require(count: Count, quota: Quota) -> None:
    if not count.allowed:
        raise QuotaExceeded(quota.name, limit=count.limit or 0, used=count.used, resets_at=count.resets_at)


def _check_active(
    tx: Transaction, account: str, environment: str, *, kind: int, max_active: int | None, max_queued: int
) -> None:
    if kind == BATCH:
        (queued,) = tx.all("SELECT count(*) AS n FROM jobs WHERE state = 'queued' AND class = ?", (BATCH,))
        if queued["n"] >= max_queued:
            raise QueueFull(f"{queued['n']} jobs are waiting")
    if max_active is not None:
        (active,) = tx.all(
            "SELECT count(*) AS n FROM jobs"
            " WHERE account = ? AND environment = ? AND class = ? AND state IN ('queued', 'processing')",
            (account, environment, kind),
        )
        if active["n"] >= max_active:
            name = "live sessions" if kind == LIVE else "jobs"
            raise ConcurrencyLimited(name, limit=max_active, used=active["n"])


def _insert(tx: Transaction, new: NewJob) -> None:
    counted_s = fairness.counted_s(new.audio_s)
    virtual_time = fairness.enter(tx, new.account, counted_s / new.weight)
    tx.run(
        "INSERT INTO jobs (id, account, environment, class, state, options, source, blob, quotas, retention_ms,"
        " virtual_time, weight, counted_s, created_at, queued_at, run_after, duration_s, warnings, kept)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            new.id,
            new.account,
            new.environment,
            _class(new),
            State.QUEUED,
            text_of(new.order),
            text_of(new.source),
            new.blob,
            text_of(new.quotas),
            new.retention_ms,
            virtual_time,
            new.weight,
            counted_s,
            tx.now,
            tx.now,
            tx.now + round(new.delay_s * 1000),
            new.audio_s,
            text_of(new.warnings),
            new.order.kept,
        ),
    )
    tx.run_many(
        "INSERT INTO metadata (job, key, value) VALUES (?, ?, ?)",
        [(new.id, key, value) for key, value in new.order.metadata.items()],
    )


def _class(new: NewJob) -> int:
    return BATCH if new.order.live is None else LIVE


def _key_row(tx: Transaction, key: IdempotencyKey) -> Row | None:
    return tx.one(
        "SELECT * FROM idempotency WHERE account = ? AND path = ? AND key = ? AND created_at > ?",
        (key.account, key.path, key.key, tx.now - KEY_KEPT_MS),
    )


def _keep_key(tx: Transaction, key: IdempotencyKey, job_id: str | None, boot: str) -> None:
    tx.run(
        "INSERT OR REPLACE INTO idempotency (account, path, key, fingerprint, job, boot, created_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (key.account, key.path, key.key, key.fingerprint, job_id, boot, tx.now),
    )


def _row(tx: Transaction, job_id: str) -> Row:
    row = tx.one("SELECT * FROM jobs WHERE id = ?", (job_id,))
    assert row is not None, "a key's job is deleted with the key"
    return row
