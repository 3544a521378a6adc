"""Migrates the schema of a database. Every node does so at its start; `scribewire migrate` does only that."""

from collections.abc import Sequence

import psycopg
from psycopg import errors

from server.model.errors import StorageError
from server.storage.postgres.connecting import Connection, translate_error
from server.storage.postgres.schema import FIRST, MIGRATIONS, TO_TIMELINE, Migration
from server.storage.postgres.transaction import PostgresTransaction
from server.storage.sql.schema import AFTER_TAKEOVER
from server.storage.sql.takeover import take_over

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
        connection.execute(AFTER_TAKEOVER.encode(), prepare=False)
