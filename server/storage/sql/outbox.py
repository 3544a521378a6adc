"""The Outbox. Messages are written in the commit that ends the job, so that none can get lost."""

import secrets
from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import asdict, fields, replace
from functools import partial

from server.model import deliveries
from server.model.deliveries import Attempt, Crowding, Delivery
from server.model.errors import QueueFull
from server.model.ids import CHANCE_BYTES, Prefix, new_id
from server.model.jobs import Job, State
from server.storage.sql.database import (
    SqlStore,
    Transaction,
    insert,
    marks,
    read_method,
    select_number,
    wait_for_due,
    write_method,
)
from server.storage.sql.rows import UNBOUNDED, SqlRow, read_row

TOPIC = "outbox"
PLAIN = tuple(member.name for member in fields(Delivery) if member.name not in ("job_id", "attempts"))
"""Columns that are members of Delivery under the same name."""
PAGE = 100  # due deliveries that one claim looks at
DUE = """
    SELECT id, account, host FROM deliveries
    WHERE state = 'pending' AND next_at <= ? AND host NOT IN ({hosts}) AND account NOT IN ({accounts})
    ORDER BY next_at, id LIMIT ?
"""
CLAIM = """
    UPDATE deliveries SET next_at = ? WHERE id IN (
        SELECT id FROM deliveries WHERE id = ? AND state = 'pending' AND next_at <= ? FOR UPDATE SKIP LOCKED
    ) RETURNING *
"""
"""Claims a due delivery by moving its time, unless another process is claiming it."""

EVENTS = {State.COMPLETED: "job.completed", State.FAILED: "job.failed"}  # a canceled job sends nothing


def enqueue(tx: Transaction, job: Job, event: str | None = None) -> None:
    """Add the webhook message of *event*, by default the ended job's, if its client chose the event.

    Its state is "disabled" if its address is disabled, and "failed" if too many deliveries are pending. redeliver() can
    send it later. A correction takes the place of the message about the one before: bodies have the newest revision.
    """
    event, url = event or EVENTS.get(job.state), job.order.webhook_url
    if url is None or event is None or event not in job.order.webhook_events:
        return
    tx.run("DELETE FROM deliveries WHERE job = ? AND event = ? AND url = ?", (job.id, event, url))
    off = _is_disabled(tx, job.account, url)
    full = None if off else _refusal(tx, job.account, url)
    state = "disabled" if off else "pending" if full is None else "failed"
    delivery_id = _id(Prefix.DELIVERY, tx)
    insert(
        tx,
        "deliveries",
        id=delivery_id,
        webhook_id=_id(Prefix.MESSAGE, tx),
        job=job.id,
        account=job.account,
        environment=job.environment,
        event=event,
        url=url,
        host=deliveries.host_of(url),
        state=state,
        created_at=tx.now,
        next_at=tx.now if state == "pending" else None,
    )
    if full is not None:
        why = f"not sent: {full}"
        never = Attempt(n=1, at=tx.now, status_code=None, duration_ms=0, error=why, next_attempt_at=None)
        _log_attempt(tx, delivery_id, never)
    tx.announce(TOPIC)


def _refusal(tx: Transaction, account: str, url: str) -> str | None:
    """Why no further delivery to this address may wait; None if one may."""
    if _count_pending(tx, "account = ? AND url = ?", account, url) >= deliveries.MAX_PENDING_PER_URL:
        return f"{deliveries.MAX_PENDING_PER_URL} deliveries to this address are waiting"
    if _count_pending(tx, "account = ?", account) >= deliveries.MAX_PENDING_PER_ACCOUNT:
        return f"{deliveries.MAX_PENDING_PER_ACCOUNT} deliveries of this account are waiting"
    return None


def _count_pending(tx: Transaction, condition: str, *values: str) -> int:
    sql = f"SELECT count(*) AS n FROM deliveries WHERE state = 'pending' AND {condition}"  # noqa: S608  constants above
    return select_number(tx, sql, values)


def _id(prefix: Prefix, tx: Transaction) -> str:
    return new_id(prefix, ms=tx.now, chance=secrets.token_bytes(CHANCE_BYTES))


def _snapshot(crowding: Crowding | None) -> Crowding:
    """A copy of *crowding*, made in the event loop, where its numbers change."""
    if crowding is None:
        return Crowding(per_host=UNBOUNDED, per_account=UNBOUNDED)
    return replace(crowding, hosts=dict(crowding.hosts), accounts=dict(crowding.accounts))


def _choose(tx: Transaction, crowding: Crowding, limit: int) -> list[str]:
    """The ids of at most *limit* due deliveries that *crowding* admits, the oldest first."""
    hosts, accounts = Counter(crowding.hosts), Counter(crowding.accounts)
    full_hosts = ["", *(host for host, n in hosts.items() if n >= crowding.per_host)]
    full_accounts = ["", *(account for account, n in accounts.items() if n >= crowding.per_account)]
    sql = DUE.format(hosts=marks(full_hosts), accounts=marks(full_accounts))
    chosen: list[str] = []
    for row in tx.all(sql, (tx.now, *full_hosts, *full_accounts, PAGE)):
        fits = hosts[row["host"]] < crowding.per_host and accounts[row["account"]] < crowding.per_account
        if fits and len(chosen) < limit:
            chosen.append(row["id"])
            hosts[row["host"]] += 1
            accounts[row["account"]] += 1
    return chosen


def _claim_due(
    tx: Transaction, *, crowding: Crowding, limit: int, busy_s: float
) -> tuple[list[Delivery], float | None]:
    """Claim the due deliveries that *crowding* admits. Also returns the seconds until the next one comes due."""
    busy_until = tx.now + round(busy_s * 1000)
    claimed = [row for due in _choose(tx, crowding, limit) for row in tx.all(CLAIM, (busy_until, due, tx.now))]
    # Deliveries that are due but were not admitted wait until an attempt is recorded, not for a time.
    later = tx.one("SELECT min(next_at) AS at FROM deliveries WHERE state = 'pending' AND next_at > ?", (tx.now,))
    next_at = None if later is None else later["at"]
    return _deliveries(tx, claimed), None if next_at is None else (next_at - tx.now) / 1000


def _record(tx: Transaction, delivery_id: str, attempt: Attempt, *, state: str) -> int:
    """Store the attempt, and return how many deliveries to its address have used up their attempts in a row.

    A pending delivery takes *state*, and is due again at attempt.next_attempt_at if that is "pending". A delivery
    in another state changes only if this attempt delivered it.
    """
    rows = tx.all(
        "UPDATE deliveries SET tried = tried + 1,"
        " next_at = CASE WHEN state = 'pending' OR :state = 'delivered' THEN :next_at ELSE next_at END,"
        " state = CASE WHEN state = 'pending' OR :state = 'delivered' THEN :state ELSE state END WHERE id = :id"
        " RETURNING account, url",
        {"id": delivery_id, "state": state, "next_at": attempt.next_attempt_at if state == "pending" else None},
    )
    if not rows:
        return 0  # deleted with its job while the message was on its way
    _log_attempt(tx, delivery_id, attempt)
    tx.announce(TOPIC)
    return _count_exhausted(tx, rows[0], attempt, exhausted=state == "failed")


def _log_attempt(tx: Transaction, delivery_id: str, attempt: Attempt) -> None:
    # Two senders may use the same number, if one was taken for dead. Both attempts are kept.
    last = select_number(tx, "SELECT coalesce(max(n), 0) AS n FROM attempts WHERE delivery = ?", (delivery_id,))
    insert(tx, "attempts", delivery=delivery_id, **asdict(replace(attempt, n=max(attempt.n, last + 1))))


def _count_exhausted(tx: Transaction, address: SqlRow, attempt: Attempt, *, exhausted: bool) -> int:
    """Count the deliveries in a row that have used up their attempts. Only addresses with one have a row."""
    named = {"account": address["account"], "url": address["url"], "now": tx.now}
    if attempt.error is None:
        tx.run("UPDATE addresses SET exhausted = 0, changed_at = :now WHERE account = :account AND url = :url", named)
    elif exhausted:
        return select_number(
            tx,
            "INSERT INTO addresses (account, url, exhausted, changed_at) VALUES (:account, :url, 1, :now)"
            " ON CONFLICT (account, url) DO UPDATE SET exhausted = addresses.exhausted + 1, changed_at = :now"
            " RETURNING exhausted AS n",
            named,
        )
    return 0


def _is_disabled(tx: Transaction, account: str, url: str) -> bool:
    found = tx.one("SELECT 1 FROM addresses WHERE account = ? AND url = ? AND disabled_at IS NOT NULL", (account, url))
    return found is not None


def _deliveries(tx: Transaction, rows: Sequence[SqlRow]) -> list[Delivery]:
    return [
        _delivery(row, tx.all("SELECT * FROM attempts WHERE delivery = ? ORDER BY n", (row["id"],))) for row in rows
    ]


def _delivery(row: SqlRow, attempts: Sequence[SqlRow]) -> Delivery:
    return Delivery(
        job_id=row["job"],
        attempts=tuple(read_row(Attempt, attempt) for attempt in attempts),
        **{name: row[name] for name in PLAIN},
    )


def _of_job(tx: Transaction, job_id: str) -> list[Delivery]:
    return _deliveries(tx, tx.all("SELECT * FROM deliveries WHERE job = ? ORDER BY id", (job_id,)))


def _redeliver(tx: Transaction, job_id: str, delivery_id: str) -> Delivery | None:
    """Make the delivery due now, with a new schedule of attempts. None if there is no such delivery.

    Raises QueueFull if too many deliveries are pending.
    """
    row = tx.one("SELECT * FROM deliveries WHERE id = ? AND job = ? FOR UPDATE", (delivery_id, job_id))
    if row is None:
        return None
    if row["state"] != "pending" and (full := _refusal(tx, row["account"], row["url"])) is not None:
        raise QueueFull(full)
    rows = tx.all(
        "UPDATE deliveries SET state = 'pending', next_at = ?, tried = 0 WHERE id = ? AND job = ? RETURNING *",
        (tx.now, delivery_id, job_id),
    )
    tx.announce(TOPIC)
    return _deliveries(tx, rows)[0]


def _disable(tx: Transaction, account: str, url: str, *, reason: str) -> None:
    """Send nothing more to this address. Its pending deliveries become disabled."""
    tx.run(
        "INSERT INTO addresses (account, url, disabled_at, reason, changed_at) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (account, url) DO UPDATE SET disabled_at = excluded.disabled_at,"
        " reason = excluded.reason, changed_at = excluded.changed_at",
        (account, url, tx.now, reason, tx.now),
    )
    tx.run(
        "UPDATE deliveries SET state = 'disabled', next_at = NULL WHERE account = ? AND url = ? AND state = 'pending'",
        (account, url),
    )


def _enable(tx: Transaction, account: str, url: str) -> None:
    tx.run("DELETE FROM addresses WHERE account = ? AND url = ?", (account, url))


def _backlog(tx: Transaction) -> int:
    return select_number(tx, "SELECT count(*) AS n FROM deliveries WHERE state = 'pending'")


class Outbox(SqlStore):
    """Webhook messages that must be sent. JobStore.finish() adds them, in its commit.

    At most MAX_PENDING_PER_URL deliveries to one address and MAX_PENDING_PER_ACCOUNT of one account are pending. A
    further one is stored as failed, with an attempt that says why it was not sent.
    """

    async def claim_due(
        self, *, limit: int, busy_s: float, wait_s: float = 0.0, crowding: Crowding | None = None
    ) -> list[Delivery]:
        """Claim pending deliveries whose time has come, the oldest first.

        *limit*: the most deliveries.
        *busy_s*: for so many seconds no other call returns them.
        *wait_s*: the wait for the first; after it the list is empty.
        *crowding*: what is under way. Deliveries beyond its limits are left out and delay no others. Its numbers are
        read again whenever an attempt was recorded.
        """

        def claim() -> Awaitable[tuple[list[Delivery], float | None]]:
            return self.database.write(partial(_claim_due, crowding=_snapshot(crowding), limit=limit, busy_s=busy_s))

        return await wait_for_due(self.database, TOPIC, wait_s, claim)

    record = write_method(_record)
    of_job = read_method(_of_job)
    redeliver = write_method(_redeliver)
    disable = write_method(_disable)
    enable = write_method(_enable)
    is_disabled = read_method(_is_disabled)
    backlog = read_method(_backlog)
