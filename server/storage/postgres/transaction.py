"""One transaction in PostgreSQL, which translates the shared statements."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from psycopg import Cursor
from psycopg.rows import DictRow

from server.model.events import Event
from server.storage.postgres.connecting import Connection
from server.storage.sql.database import Parameters
from server.storage.sql.rows import SqlRow
from server.storage.watching import Announced, announce

NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now"
COMMITS_KEPT_MS = 60 * 60 * 1000  # nobody looks for a commit for longer than some seconds
NODES_KEPT_MS = 10 * 60 * 1000
RATES_KEPT_MS = 2 * 60 * 1000
WORDS = re.compile(r"'[^']*'|\?|(?<!:):(\w+)|%")


class PostgresTransaction:
    """The Transaction of this database. It asks the database for *now* when that is first needed."""

    __slots__ = ("_cursor", "_now", "announced", "wrote")

    def __init__(self, connection: Connection, now: int | None) -> None:
        self._cursor: Cursor[DictRow] = connection.cursor()
        self._now = now
        self.announced: Announced = {}
        self.wrote = False

    @property
    def now(self) -> int:
        if self._now is None:
            (row,) = self._cursor.execute(NOW)
            self._now = int(row["now"])
        return self._now

    def run(self, sql: str, parameters: Parameters = ()) -> int:
        self.wrote = True
        return self._cursor.execute(_in_postgres(sql), parameters).rowcount

    def run_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        self.wrote = True
        if len(rows) == 1:
            self._cursor.execute(_in_postgres(sql), rows[0])
        elif rows:
            self._cursor.executemany(_in_postgres(sql), rows)

    def one(self, sql: str, parameters: Parameters = ()) -> SqlRow | None:
        return self._execute(sql, parameters).fetchone()

    def all(self, sql: str, parameters: Parameters = ()) -> list[DictRow]:
        return self._execute(sql, parameters).fetchall()

    def announce(self, topic: str, events: Sequence[Event] = ()) -> None:
        announce(self.announced, topic, events)

    def forget_passed(self) -> None:
        """Delete marks of commits whose outcome is known, ended processes, and clients without recent requests."""
        self.run("DELETE FROM commits WHERE at < ?", (self.now - COMMITS_KEPT_MS,))
        self.run("DELETE FROM nodes WHERE seen_at < ?", (self.now - NODES_KEPT_MS,))
        self.run("DELETE FROM rates WHERE at < ?", (self.now - RATES_KEPT_MS,))

    def _execute(self, sql: str, parameters: Parameters) -> Cursor[DictRow]:
        self.wrote = self.wrote or not sql.lstrip().startswith(("SELECT", "WITH"))
        return self._cursor.execute(_in_postgres(sql), parameters)


@lru_cache(maxsize=1024)
def _in_postgres(sql: str) -> Any:
    """Translate the parameters of a statement for psycopg."""
    return WORDS.sub(_word, sql)


def _word(found: "re.Match[str]") -> str:
    word = found.group()
    if word == "?":
        return "%s"
    return f"%({found.group(1)})s" if found.group(1) else word.replace("%", "%%")
