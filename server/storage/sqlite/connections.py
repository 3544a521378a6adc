"""Connections to a SQLite file and their transactions: makes or migrates its tables, translates SQLite's errors."""

import os
import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from server.logs import log
from server.model.errors import DiskFull, StorageAway, StorageBusy, StorageError
from server.model.events import Event
from server.storage.scratch import PRIVATE_FILE
from server.storage.sql import schema
from server.storage.sql.migrate_0_1 import take_over
from server.storage.sql.rows import SqlRow
from server.storage.waiting import Announced, announce

BUSY_S = 10.0  # how long another process may hold the write lock; far less than a lease
WAL_BYTES_KEPT = 64 * 1024 * 1024  # a longer log is truncated once its pages are in the database
DISK_FULL_ERRORS = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE})
DISK_FAILED = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY})
CHANGES_KEPT_MS = 60 * 60 * 1000  # other processes read them within a second

CHANGES = """
    -- Who must be woken by a commit, also in other processes. A topic is a job's id, 'queue' or 'outbox'.
    CREATE TABLE changes (
        revision INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given twice, so a reader's mark stays good after a purge
        topic TEXT NOT NULL UNIQUE,
        at INTEGER NOT NULL
    );
    CREATE INDEX changes_at ON changes (at);
"""

SOURCE_TYPE = """
    ALTER TABLE jobs ADD COLUMN source_type TEXT NOT NULL DEFAULT '';
    UPDATE jobs SET source_type = json_extract(source, '$.type');
"""

MIGRATIONS = (CHANGES + schema.NEWEST,)
"""All tables, and the changes since. A script never changes; a change is a new one at the end."""

FIRST = 9
"""The number of the first script. The schema before had events and chunks, which it takes over."""


def create_private(path: Path) -> None:
    """Create the file, which only this user may read, if it is new."""
    # Only if it is new: closing a descriptor of an open database file would drop SQLite's locks on it (POSIX).
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE))


def connect(path: Path, *, busy_s: float | None = None) -> sqlite3.Connection:
    """Open the file. *busy_s*: the longest wait for its lock; None: BUSY_S. Raises sqlite3.Error, StorageError."""
    # Each connection is used by one thread; only close() touches it from another, after that thread has ended.
    limit_s = BUSY_S if busy_s is None else busy_s
    connection = sqlite3.connect(path, timeout=limit_s, isolation_level=None, check_same_thread=False)
    with ExitStack() as stack:
        stack.callback(connection.close)
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StorageError(
                f"{path.parent} must be on a local disk: SQLite answers journal mode {mode} there, not wal"
            )
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA secure_delete = ON")  # overwrite what is deleted
        connection.execute("PRAGMA temp_store = MEMORY")  # no rows in temporary files
        connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
        stack.pop_all()
    return connection


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Open the file as connect() does, for reading alone."""
    connection = connect(path)
    connection.execute("PRAGMA query_only = ON")
    return connection


def translate(error: Exception, place: str = "database") -> Exception:
    """Return what callers of the database get for an error of SQLite at *place*; any other error as it is."""
    if not isinstance(error, sqlite3.Error):
        return error
    code = getattr(error, "sqlite_errorcode", 0)  # extended: the low byte is the kind
    if code in DISK_FULL_ERRORS:
        return DiskFull("no space left on the disk of the data folder")
    kind = code & 0xFF
    failure: StorageError
    if kind == sqlite3.SQLITE_BUSY:
        failure = StorageBusy("the database is busy; try again")
    elif kind in DISK_FAILED:  # the disk, or no more files can be opened: the next attempt may succeed
        log.error("the database's files failed", extra={"error": str(error)})
        failure = StorageAway(f"{place}: {error}")
    else:
        failure = StorageError(f"{place}: {error}")
    failure.__cause__ = error
    return failure


class SqliteTransaction:
    """The Transaction of this database. It takes the shared statements as they are, without row locks."""

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


def migrate(connection: sqlite3.Connection, path: Path, *, now: int) -> None:
    """Make the tables, or bring them to the newest schema. Raises StorageError if their version is not known."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version >= FIRST + len(MIGRATIONS):
        raise StorageError(f"{path} was written by a newer version of this program (schema {version})")
    if 0 < version < FIRST - 1:
        raise StorageError(f"{path} was written by a version that is too old (schema {version}): it cannot be used")
    for number, script in enumerate(MIGRATIONS, FIRST):
        if number <= version:
            continue
        done = f"PRAGMA user_version = {number};COMMIT;"
        try:
            if version == FIRST - 1 == number - 1:
                connection.executescript(f"BEGIN IMMEDIATE;{SOURCE_TYPE}{schema.TO_TIMELINE}")
                take_over(SqliteTransaction(connection, now))
                for statement in f"{schema.AFTER_TAKEOVER}{done}".split(";"):
                    connection.execute(statement)  # executescript() would commit first
            else:
                connection.executescript(f"BEGIN IMMEDIATE;{script};{done}")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
