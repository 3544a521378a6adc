"""Makes the tables of a new file, or takes over the file of the version before this one."""

import sqlite3
from pathlib import Path

from server.model.errors import StorageError
from server.storage.sql import schema
from server.storage.sql.takeover import take_over
from server.storage.sqlite.transaction import SqliteTransaction

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


def migrate(connection: sqlite3.Connection, path: Path, *, now: int) -> None:
    """Bring the tables to the newest schema. Raises StorageError if they are of a version that is not known."""
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
