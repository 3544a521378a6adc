"""The RateCounter: one row per client, with the requests of each second of the last minute.

The table is unlogged and its commits wait for no disk. After a crash of the database all counts are zero.
"""

from functools import partial

import orjson

from server.model.accounts import WindowUse
from server.storage.postgres.database import PostgresDatabase
from server.storage.sql.database import Transaction

MINUTE_S = 60


class PostgresRates:
    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def hit(self, subject: str, *, limit: int) -> WindowUse:
        return await self._database.write(partial(_hit, subject=subject, limit=limit))


def _hit(tx: Transaction, *, subject: str, limit: int) -> WindowUse:
    tx.run("SET LOCAL synchronous_commit = off")
    row = tx.one(
        "INSERT INTO rates (subject, seconds, at) VALUES (?, '[]', ?)"
        " ON CONFLICT (subject) DO UPDATE SET at = excluded.at RETURNING seconds",
        (subject, tx.now),
    )
    assert row is not None
    second = tx.now // 1000
    seconds = [(at, n) for at, n in orjson.loads(row["seconds"]) if at > second - MINUTE_S]
    used = sum(n for _, n in seconds)
    allowed = used < limit
    if allowed:
        used += 1
        seconds = _count_in(seconds, second)
        tx.run("UPDATE rates SET seconds = ? WHERE subject = ?", (orjson.dumps(seconds).decode(), subject))
    return WindowUse("minute", limit, used, MINUTE_S, _free_at(seconds, used - limit, second), allowed)


def _count_in(seconds: list[tuple[int, int]], second: int) -> list[tuple[int, int]]:
    """*seconds* with one more request in *second*, or in a later one that another clock has counted."""
    if seconds and seconds[-1][0] >= second:
        last, n = seconds[-1]
        return [*seconds[:-1], (last, n + 1)]
    return [*seconds, (second, 1)]


def _free_at(seconds: list[tuple[int, int]], surplus: int, second: int) -> int:
    """When the next request fits (ms since 1970 UTC): after the oldest, and as many as are too many, are forgotten."""
    for at, n in seconds:
        surplus -= n
        if surplus < 0:
            return (at + MINUTE_S) * 1000
    return (second + MINUTE_S) * 1000
