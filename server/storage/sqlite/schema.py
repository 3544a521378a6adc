"""The tables in SQLite: those of sql/schema.py, and one that wakes other processes. A change is a new script."""

from server.storage.sql.schema import CHANNELS, FIRST, LANGUAGES, PLAIN_OUTBOX, SANDBOX_SECRETS, SPEAKERS

CHANGES = """
    -- Who must be woken by a commit, also in other processes. A topic is a job's id, 'queue' or 'outbox'.
    CREATE TABLE changes (
        revision INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given twice, so a reader's mark stays good after a purge
        topic TEXT NOT NULL UNIQUE,
        at INTEGER NOT NULL
    );
    CREATE INDEX changes_at ON changes (at);
"""
OLDEST = 3
"""The number of the first script. Files with a lower number were written before the first release."""

MIGRATIONS = (CHANGES + FIRST, CHANNELS, SANDBOX_SECRETS, SPEAKERS, PLAIN_OUTBOX, LANGUAGES)
