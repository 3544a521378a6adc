"""Opens connections to a SQLite file, and translates SQLite's errors."""

import os
import sqlite3
from contextlib import ExitStack, suppress
from pathlib import Path

from server.logs import log
from server.model.errors import DiskFull, StorageAway, StorageBusy, StorageError
from server.storage.scratch import PRIVATE_FILE

BUSY_S = 10.0  # how long another process may hold the write lock; far less than a lease
WAL_BYTES_KEPT = 64 * 1024 * 1024  # a longer log is truncated once its pages are in the database
DISK_FULL_ERRORS = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE})
DISK_FAILED = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY})


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
