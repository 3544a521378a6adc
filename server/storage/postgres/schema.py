"""The tables in PostgreSQL, those of sql/schema.py and some of its own, and how they are migrated.

Every node migrates them at its start; `scribewire migrate` does only that. Text is in collation "C", so that it is
sorted by bytes as in SQLite.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
from psycopg import errors

from server.model.errors import StorageError
from server.storage.postgres.connections import Connection, PostgresTransaction, translate_error
from server.storage.sql import schema
from server.storage.sql.migrate_0_1 import take_over

WORDS = {
    "INTEGER PRIMARY KEY AUTOINCREMENT": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    " WITHOUT ROWID": "",
    " TEXT": ' TEXT COLLATE "C"',
    " INTEGER": " BIGINT",
    " REAL": " DOUBLE PRECISION",
    " BLOB": " BYTEA",
}
"""SQLite's words and PostgreSQL's, replaced in this order."""


@dataclass(frozen=True, slots=True)
class Migration:
    """A change of the schema. Older programs can still work on a schema whose newer changes are all *additive*."""

    script: str
    additive: bool = True


def _in_postgres(script: str) -> str:
    for word, ours in WORDS.items():
        script = script.replace(word, ours)
    return script


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


MIGRATIONS = (Migration(_in_postgres(schema.NEWEST + OWN + RATES + OFFERS), additive=False),)
"""All tables, and the changes since. A script never changes; a change is a new Migration at the end."""

FIRST = 9
"""The number of the first one. The schema before had events and chunks, which it takes over."""

TO_TIMELINE = _in_postgres(SOURCE_TYPE + schema.TO_TIMELINE)

LOCK = 7_269_001
"""The advisory lock of migrations: nodes that start together migrate one after the other."""

VERSIONS = """
    CREATE TABLE IF NOT EXISTS schema_versions (
        version BIGINT PRIMARY KEY,
        additive BOOLEAN NOT NULL
    )
"""


def migrate(connection: Connection, migrations: Sequence[Migration] = MIGRATIONS) -> list[int]:
    """Apply the missing steps, each in a transaction of its own. Returns their numbers.

    Raises StorageError if this program is too old or too new for the database, or may not change its tables.
    """
    newest = FIRST + len(migrations) - 1
    try:
        if _version(connection, newest) >= newest:
            return []
        connection.execute("SELECT pg_advisory_lock(%s)", (LOCK,))
        try:
            connection.execute(VERSIONS)
            found = _version(connection, newest)  # another node may have been first
            steps = [(number, step) for number, step in enumerate(migrations, FIRST) if number > found]
            for number, step in steps:
                _apply(connection, number, step, takes_over=found == FIRST - 1 == number - 1)
            return [number for number, _ in steps]
        finally:
            if not connection.closed:
                connection.execute("SELECT pg_advisory_unlock(%s)", (LOCK,))
    except errors.InsufficientPrivilege as error:
        message = "the tables are not those of this version: run `scribewire migrate` as a user who may change them"
        raise StorageError(message) from error
    except psycopg.Error as error:
        raise translate_error(error) from error


def _version(connection: Connection, newest: int) -> int:
    """The number of the last step that was applied; 0 if there are no tables.

    Raises StorageError if they are too old, or if a newer program made a change that this one cannot use.
    """
    (found,) = connection.execute("SELECT to_regclass('schema_versions') IS NOT NULL AS made")
    if not found["made"]:
        return 0
    rows = connection.execute("SELECT version, additive FROM schema_versions ORDER BY version").fetchall()
    if breaking := [row["version"] for row in rows if row["version"] > newest and not row["additive"]]:
        raise StorageError(
            f"the database was changed by a newer version of this program (schema {breaking[-1]}): update this one"
        )
    version: int = max((row["version"] for row in rows), default=0)
    if 0 < version < FIRST - 1:
        raise StorageError(f"the tables are of a version that is too old (schema {version}): they cannot be used")
    return version


def _apply(connection: Connection, number: int, step: Migration, *, takes_over: bool) -> None:
    with connection.transaction():
        connection.execute("INSERT INTO schema_versions VALUES (%s, %s)", (number, step.additive))
        if not takes_over:
            connection.execute(step.script.encode(), prepare=False)
            return
        connection.execute(TO_TIMELINE.encode(), prepare=False)
        take_over(PostgresTransaction(connection, None))
        connection.execute(schema.AFTER_TAKEOVER.encode(), prepare=False)
