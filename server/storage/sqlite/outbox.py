"""The Outbox. Messages are written in the commit that ends the job, so that none can be forgotten."""

import secrets
import time
from collections.abc import Sequence
from functools import partial
from urllib.parse import urlsplit

import orjson

from server.model.deliveries import Attempt, Crowding, Delivery
from server.model.ids import CHANCE_BYTES, Prefix, new_id
from server.model.jobs import Job, State
from server.storage.sqlite.database import Database, Row, Transaction

TOPIC = "outbox"
UNBOUNDED = 2**62
PLAIN = (
    "id",
    "webhook_id",
    "account",
    "environment",
    "event",
    "url",
    "host",
    "state",
    "created_at",
    "next_at",
    "tried",
)
"""Columns that are members of Delivery under the same name."""
EVENTS = {State.COMPLETED: "job.completed", State.FAILED: "job.failed"}  # a canceled job sends nothing


def enqueue(tx: Transaction, job: Job) -> None:
    """Add the ended job's webhook message, if its client chose the event. It is disabled if the address is."""
    event, url = EVENTS.get(job.state), job.order.webhook_url
    if url is None or event is None or event not in job.order.webhook_events:
        return
    off = _disabled(tx, job.account, url)
    tx.run(
        "INSERT INTO deliveries (id, webhook_id, job, account, environment, event, url, host, state, created_at,"
        " next_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            _id(Prefix.DELIVERY, tx),
            _id(Prefix.MESSAGE, tx),
            job.id,
            job.account,
            job.environment,
            event,
            url,
            urlsplit(url).netloc.lower(),
            "disabled" if off else "pending",
            tx.now,
            None if off else tx.now,
        ),
    )
    tx.announce(TOPIC)


def _id(prefix: Prefix, tx: Transaction) -> str:
    return new_id(prefix, ms=tx.now, chance=secrets.token_bytes(CHANCE_BYTES))


class SqliteOutbox:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim_due(
        self, *, limit: int, busy_s: float, wait_s: float = 0.0, crowding: Crowding | None = None
    ) -> list[Delivery]:
        ends = time.monotonic() + wait_s
        with self._database.watch(TOPIC) as watch:
            while True:
                room = {"limit": limit, **_room(crowding)}
                due, next_in_s = await self._database.write(partial(_claim_due, room=room, busy_s=busy_s))
                left = ends - time.monotonic()
                if due or left <= 0:
                    return due
                await watch.wait(left if next_in_s is None else min(left, next_in_s))

    async def record(self, delivery_id: str, attempt: Attempt, *, state: str) -> None:
        await self._database.write(lambda tx: _record(tx, delivery_id, attempt, state))

    async def of_job(self, job_id: str) -> list[Delivery]:
        def of_job(tx: Transaction) -> list[Delivery]:
            return _deliveries(tx, tx.all("SELECT * FROM deliveries WHERE job = ? ORDER BY id", (job_id,)))

        return await self._database.read(of_job)

    async def redeliver(self, job_id: str, delivery_id: str) -> Delivery | None:
        def redeliver(tx: Transaction) -> Delivery | None:
            rows = tx.all(
                "UPDATE deliveries SET state = 'pending', next_at = ?, tried = 0 WHERE id = ? AND job = ? RETURNING *",
                (tx.now, delivery_id, job_id),
            )
            if not rows:
                return None
            tx.announce(TOPIC)
            return _deliveries(tx, rows)[0]

        return await self._database.write(redeliver)

    async def next_due(self) -> int | None:
        return await self._database.read(_next_due)

    async def disable(self, account: str, url: str, *, reason: str) -> None:
        def disable(tx: Transaction) -> None:
            tx.run(
                "INSERT INTO addresses (account, url, disabled_at, reason) VALUES (?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET disabled_at = excluded.disabled_at, reason = excluded.reason",
                (account, url, tx.now, reason),
            )
            tx.run(
                "UPDATE deliveries SET state = 'disabled', next_at = NULL"
                " WHERE account = ? AND url = ? AND state = 'pending'",
                (account, url),
            )

        await self._database.write(disable)

    async def enable(self, account: str, url: str) -> None:
        await self._database.write(
            lambda tx: tx.run("DELETE FROM addresses WHERE account = ? AND url = ?", (account, url))
        )

    async def disabled(self, account: str, url: str) -> bool:
        return await self._database.read(lambda tx: _disabled(tx, account, url))

    async def exhausted(self, account: str, url: str, *, ok: bool) -> int:
        def count(tx: Transaction) -> int:
            row = tx.one(
                "INSERT INTO addresses (account, url, exhausted) VALUES (:account, :url, NOT :ok)"
                " ON CONFLICT DO UPDATE SET exhausted = CASE WHEN :ok THEN 0 ELSE exhausted + 1 END"
                " RETURNING exhausted",
                {"account": account, "url": url, "ok": ok},
            )
            assert row is not None
            return int(row["exhausted"])

        return await self._database.write(count)

    async def backlog(self) -> int:
        def backlog(tx: Transaction) -> int:
            (row,) = tx.all("SELECT count(*) AS waiting FROM deliveries WHERE state = 'pending'")
            return int(row["waiting"])

        return await self._database.read(backlog)


DUE = """
    WITH due AS (
        SELECT id, account, next_at,
            row_number() OVER (PARTITION BY host ORDER BY next_at, id)
                + coalesce((SELECT value FROM json_each(:hosts) WHERE key = host), 0) AS place
        FROM deliveries WHERE state = 'pending' AND next_at <= :now
    ), fitting AS (
        SELECT id, next_at,
            row_number() OVER (PARTITION BY account ORDER BY next_at, id)
                + coalesce((SELECT value FROM json_each(:accounts) WHERE key = account), 0) AS place
        FROM due WHERE place <= :per_host
    )
    SELECT id FROM fitting WHERE place <= :per_account ORDER BY next_at, id LIMIT :limit
"""
"""What a host has no room for is out before an account's are counted: its dead hosts hold up no other of its hosts."""


def _room(crowding: Crowding | None) -> dict[str, object]:
    """The parameters of DUE. Read in the event loop, where the numbers change."""
    if crowding is None:
        return {"per_host": UNBOUNDED, "per_account": UNBOUNDED, "hosts": "{}", "accounts": "{}"}
    return {
        "per_host": crowding.per_host,
        "per_account": crowding.per_account,
        "hosts": orjson.dumps(dict(crowding.hosts)).decode(),
        "accounts": orjson.dumps(dict(crowding.accounts)).decode(),
    }


def _claim_due(tx: Transaction, *, room: dict[str, object], busy_s: float) -> tuple[list[Delivery], float | None]:
    """The due deliveries that there is room for, and the seconds until the next one comes due."""
    rows = tx.all(DUE, {"now": tx.now, **room})
    busy_until = tx.now + round(busy_s * 1000)
    claimed = [
        row
        for due in rows
        for row in tx.all("UPDATE deliveries SET next_at = ? WHERE id = ? RETURNING *", (busy_until, due["id"]))
    ]
    # Deliveries that are due but had no room wait for a record, not for a time.
    later = tx.one("SELECT min(next_at) AS at FROM deliveries WHERE state = 'pending' AND next_at > ?", (tx.now,))
    next_at = None if later is None else later["at"]
    return _deliveries(tx, claimed), None if next_at is None else (next_at - tx.now) / 1000


def _record(tx: Transaction, delivery_id: str, attempt: Attempt, state: str) -> None:
    moved = tx.run(
        "UPDATE deliveries SET tried = tried + 1,"
        " next_at = CASE WHEN state = 'pending' OR :state = 'delivered' THEN :next_at ELSE next_at END,"
        " state = CASE WHEN state = 'pending' OR :state = 'delivered' THEN :state ELSE state END WHERE id = :id",
        {"id": delivery_id, "state": state, "next_at": attempt.next_attempt_at if state == "pending" else None},
    )
    if not moved:
        return  # deleted with its job while the message was on its way
    tx.run(
        # Two senders may use the same number, if one was taken for dead: the log keeps both attempts.
        "INSERT INTO attempts (delivery, n, at, status_code, duration_ms, error, next_attempt_at) SELECT"
        " ?, max(?, 1 + coalesce((SELECT max(n) FROM attempts WHERE delivery = ?), 0)), ?, ?, ?, ?, ?",
        (
            delivery_id,
            attempt.n,
            delivery_id,
            attempt.at,
            attempt.status_code,
            attempt.duration_ms,
            attempt.error,
            attempt.next_attempt_at,
        ),
    )
    tx.announce(TOPIC)


def _next_due(tx: Transaction) -> int | None:
    (row,) = tx.all("SELECT min(next_at) AS next_at FROM deliveries WHERE state = 'pending'")
    return None if row["next_at"] is None else int(row["next_at"])


def _disabled(tx: Transaction, account: str, url: str) -> bool:
    found = tx.one("SELECT 1 FROM addresses WHERE account = ? AND url = ? AND disabled_at IS NOT NULL", (account, url))
    return found is not None


def _deliveries(tx: Transaction, rows: Sequence[Row]) -> list[Delivery]:
    return [
        _delivery(row, tx.all("SELECT * FROM attempts WHERE delivery = ? ORDER BY n", (row["id"],))) for row in rows
    ]


def _delivery(row: Row, attempts: Sequence[Row]) -> Delivery:
    return Delivery(
        job_id=row["job"],
        attempts=tuple(Attempt(**{name: attempt[name] for name in Attempt.__slots__}) for attempt in attempts),
        **{name: row[name] for name in PLAIN},
    )
