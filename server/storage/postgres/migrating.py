"""Migrates the schema of a database. Every node does so at its start; `scribewire migrate` does only that."""

from collections.abc import Sequence

import psycopg
from psycopg import errors

from server.model.errors import StorageError
from server.storage.postgres.connecting import Connection, translate_error
from server.storage.postgres.schema import MIGRATIONS, Migration

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

    Raises StorageError if this program is too old for the database, or may not change its tables.
    """
    try:
        if _is_current(connection, migrations):
            return []
        connection.execute("SELECT pg_advisory_lock(%s)", (LOCK,))
        try:
            connection.execute(VERSIONS)
            return [number for number, step in enumerate(migrations, 1) if _apply(connection, number, step)]
        finally:
            if not connection.closed:
                connection.execute("SELECT pg_advisory_unlock(%s)", (LOCK,))
    except errors.InsufficientPrivilege as error:
        message = "the tables are not those of this version: run `scribewire migrate` as a user who may change them"
        raise StorageError(message) from error
    except psycopg.Error as error:
        raise translate_error(error) from error


def _is_current(connection: Connection, migrations: Sequence[Migration]) -> bool:
    """Whether no step is missing. Raises StorageError if a newer program made a change that this one cannot use."""
    (found,) = connection.execute("SELECT to_regclass('schema_versions') IS NOT NULL AS made")
    if not found["made"]:
        return False
    rows = connection.execute("SELECT version, additive FROM schema_versions ORDER BY version").fetchall()
    if breaking := [row["version"] for row in rows if row["version"] > len(migrations) and not row["additive"]]:
        raise StorageError(
            f"the database was changed by a newer version of this program (schema {breaking[-1]}): update this one"
        )
    return len(rows) >= len(migrations)


def _apply(connection: Connection, number: int, step: Migration) -> bool:
    """Apply the step unless it was applied before."""
    with connection.transaction():
        new = connection.execute(
            "INSERT INTO schema_versions (version, additive) VALUES (%s, %s) ON CONFLICT DO NOTHING RETURNING version",
            (number, step.additive),
        ).fetchone()
        if new is not None:
            connection.execute(step.script.encode(), prepare=False)
    return new is not None
