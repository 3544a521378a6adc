"""One transaction in SQLite, which takes the shared statements as they are, without row locks."""

import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from server.model.events import Event
from server.storage.sql.rows import SqlRow
from server.storage.watching import Announced, announce

CHANGES_KEPT_MS = 60 * 60 * 1000  # other processes read them within a second


class SqliteTransaction:
    """The Transaction of this database."""

    __slots__ = ("_connection", "announced", "now")

    def __init__(self, connection: sqlite3.Connection, now: int) -> None:
        self._connection = connection
        self.now = now
        self.announced: Announced = {}

    def run(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> int:
        return self._connection.execute(sql, parameters).rowcount

    def run_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        self._connection.executemany(sql, rows)

    def one(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> SqlRow | None:
        cursor = self._connection.execute(_without_locks(sql), parameters)
        row = cursor.fetchone()
        return None if row is None else dict(zip(_columns(cursor), row, strict=True))

    def all(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[SqlRow]:
        cursor = self._connection.execute(_without_locks(sql), parameters)
        names = _columns(cursor)
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def announce(self, topic: str, events: Sequence[Event] = ()) -> None:
        if topic not in self.announced:
            self.run("INSERT OR REPLACE INTO changes (topic, at) VALUES (?, ?)", (topic, self.now))
        announce(self.announced, topic, events)

    def forget_passed(self) -> None:
        """Delete announcements that every process has read by now."""
        self.run("DELETE FROM changes WHERE at < ?", (self.now - CHANGES_KEPT_MS,))


@lru_cache(maxsize=1024)
def _without_locks(sql: str) -> str:
    """*sql* without row locks, which SQLite does not have: only one transaction at a time may write."""
    return sql.replace(" FOR UPDATE SKIP LOCKED", "").replace(" FOR UPDATE", "")


def _columns(cursor: sqlite3.Cursor) -> list[str]:
    return [column[0] for column in cursor.description]
