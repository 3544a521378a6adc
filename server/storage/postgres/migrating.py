"""Migrates the schema of a database. Every node does so at its start; `scribewire migrate` does only that."""

import psycopg
from psycopg import errors

from server.model.errors import StorageError
from server.storage.postgres.connecting import Connection, translate_error
from server.storage.postgres.schema import NEWEST, TO_TIMELINE
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
VERSION, BEFORE = 9, 8
"""The number of this schema, and of the one before, which had events and chunks."""


def migrate(connection: Connection) -> list[int]:
    """Bring the tables to this version. Returns the numbers of the steps that were made.

    Raises StorageError if the tables are of an unknown version, or if this role may not change them.
    """
    try:
        if (found := _version(connection)) == VERSION:
            return []
        connection.execute("SELECT pg_advisory_lock(%s)", (LOCK,))
        try:
            found = _version(connection)  # another node may have been first
            if found != VERSION:
                with connection.transaction():
                    _step(connection, found)
            return [VERSION] if found != VERSION else []
        finally:
            if not connection.closed:
                connection.execute("SELECT pg_advisory_unlock(%s)", (LOCK,))
    except errors.InsufficientPrivilege as error:
        message = "the tables are not those of this version: run `scribewire migrate` as a user who may change them"
        raise StorageError(message) from error
    except psycopg.Error as error:
        raise translate_error(error) from error


def _version(connection: Connection) -> int:
    """The version of the tables: 0 if there are none, this one also if a newer program only added to it.

    Raises StorageError if this program cannot use them.
    """
    (found,) = connection.execute("SELECT to_regclass('schema_versions') IS NOT NULL AS made")
    if not found["made"]:
        return 0
    rows = connection.execute("SELECT version, additive FROM schema_versions ORDER BY version").fetchall()
    if breaking := [row["version"] for row in rows if row["version"] > VERSION and not row["additive"]]:
        raise StorageError(
            f"the database was changed by a newer version of this program (schema {breaking[-1]}): update this one"
        )
    newest = max((row["version"] for row in rows), default=0)
    if newest not in (0, BEFORE) and newest < VERSION:
        raise StorageError(
            f"the tables are of a version that is too old (schema {newest}): let version 0.1 migrate them first"
        )
    return min(newest, VERSION)


def _step(connection: Connection, found: int) -> None:
    connection.execute(VERSIONS)
    if found == BEFORE:
        connection.execute(TO_TIMELINE.encode(), prepare=False)
        take_over(PostgresTransaction(connection, None))
        connection.execute(AFTER_TAKEOVER.encode(), prepare=False)
    else:
        connection.execute(NEWEST.encode(), prepare=False)
    connection.execute("INSERT INTO schema_versions (version, additive) VALUES (%s, false)", (VERSION,))
