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

VERSION, BEFORE = 9, 8
"""The number of this schema, and of the one before, which had events and chunks."""


def migrate(connection: sqlite3.Connection, path: Path, *, now: int) -> None:
    """Bring the tables to this version, in one transaction. Raises StorageError if they are of an unknown version."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise StorageError(f"{path} was written by a newer version of this program (schema {version})")
    if version not in (0, BEFORE, VERSION):
        raise StorageError(
            f"{path} was written by a version that is too old (schema {version}): open it with version 0.1 first"
        )
    try:
        if version == 0:
            connection.executescript(f"BEGIN IMMEDIATE;{CHANGES}{schema.NEWEST}")
        elif version == BEFORE:
            connection.executescript(f"BEGIN IMMEDIATE;{SOURCE_TYPE}{schema.TO_TIMELINE}")
            take_over(SqliteTransaction(connection, now))
            connection.executescript(schema.AFTER_TAKEOVER)
        if version != VERSION:
            connection.executescript(f"PRAGMA user_version = {VERSION};COMMIT;")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
