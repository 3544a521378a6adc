"""The tables in PostgreSQL: those of sql/schema.py, and some of its own.

Text is in collation "C", so that it is sorted by bytes as in SQLite.
"""

from dataclasses import dataclass

from server.storage.sql import schema

WORDS = {
    "INTEGER PRIMARY KEY AUTOINCREMENT": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    " WITHOUT ROWID": "",
    " TEXT": ' TEXT COLLATE "C"',
    " INTEGER": " BIGINT",
    " REAL": " DOUBLE PRECISION",
    " BLOB": " BYTEA",
}
"""SQLite's words and PostgreSQL's, replaced in this order."""

OWN = """
    ALTER TABLE jobs SET (fillfactor = 80);  -- rows are changed in place: leases are renewed,
    ALTER TABLE fairness SET (fillfactor = 50);  -- and these are counted up
    ALTER TABLE counters SET (fillfactor = 50);

    CREATE TABLE commits (                -- of the last hour: tells whether a transaction was committed
        id TEXT PRIMARY KEY,
        at INTEGER NOT NULL
    );
    CREATE INDEX commits_age ON commits (at);

    CREATE TABLE nodes (                  -- processes that have this database open
        boot TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        seen_at INTEGER NOT NULL
    );

    CREATE TABLE secrets (                -- sign links and tokens
        kid TEXT PRIMARY KEY,
        secret BLOB NOT NULL,
        created_at INTEGER NOT NULL
    );
"""

RATES = """
    CREATE UNLOGGED TABLE rates (         -- requests of the last minute
        subject TEXT PRIMARY KEY,
        seconds TEXT NOT NULL,
        at INTEGER NOT NULL
    ) WITH (fillfactor = 50);
"""

OFFERS = """
    CREATE TABLE offers (                 -- of the node with a model that was the last to start
        environment TEXT PRIMARY KEY,
        offer TEXT NOT NULL
    );
"""


SOURCE_TYPE = """
    ALTER TABLE jobs ALTER COLUMN source_type DROP EXPRESSION;
    ALTER TABLE jobs ALTER COLUMN source_type SET NOT NULL;
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """A change of the schema. Older programs can still work on a schema whose newer changes are all *additive*."""

    script: str
    additive: bool = True


def _in_postgres(script: str) -> str:
    for word, ours in WORDS.items():
        script = script.replace(word, ours)
    return script


MIGRATIONS = (Migration(_in_postgres(schema.NEWEST + OWN + RATES + OFFERS), additive=False),)
"""All tables, and the changes since. A script never changes; a change is a new Migration at the end."""

FIRST = 9
"""The number of the first one. The schema before had events and chunks, which it takes over."""

TO_TIMELINE = _in_postgres(SOURCE_TYPE + schema.TO_TIMELINE)
