"""The tables in PostgreSQL: those of sql/schema.py, and some of its own. A change is a new Migration at the end.

Text is in collation "C", so that it is sorted by bytes as in SQLite.
"""

from dataclasses import dataclass

from server.storage.sql import schema


@dataclass(frozen=True, slots=True)
class Migration:
    """A change of the schema. Older programs can still work on a schema whose newer changes are all *additive*."""

    script: str
    additive: bool = True


WORDS = {
    "source TEXT NOT NULL,": "source TEXT NOT NULL, source_type TEXT"
    " GENERATED ALWAYS AS (source::json ->> 'type') STORED,",
    "json_extract(source, '$.type')": "source_type",
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


def _in_postgres(script: str) -> Migration:
    for word, ours in WORDS.items():
        script = script.replace(word, ours)
    return Migration(script)


SCRIPTS = (
    schema.FIRST + OWN,
    schema.CHANNELS,
    RATES,
    OFFERS,
    schema.SANDBOX_SECRETS,
    schema.SPEAKERS,
    schema.PLAIN_OUTBOX,
    schema.LANGUAGES,
)
MIGRATIONS = tuple(map(_in_postgres, SCRIPTS))
