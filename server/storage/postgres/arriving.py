"""Prepares a database for the data of an installation that used SQLite, for `scribewire move`."""

from server.model.accounts import SigningKeys
from server.model.errors import StorageError
from server.storage.postgres.connecting import Connection, connect, parameters
from server.storage.postgres.database import PostgresDatabase
from server.storage.postgres.listening import DEAD_MS
from server.storage.postgres.migrating import migrate
from server.storage.postgres.transaction import NOW

NAME = "move"


def open_for_move(url: str, keys: SigningKeys) -> PostgresDatabase:
    """Open the database of *url* and store *keys* in it, to sign with from now on. It blocks.

    Raises StorageAway, and StorageError if a node uses the database.
    """
    conninfo = parameters(url, name=NAME)
    with connect(conninfo) as connection:
        migrate(connection)
        _refuse_if_used(connection)
        _adopt(connection, keys)
    return PostgresDatabase(conninfo, name=NAME, notify=False)


async def end_move(database: PostgresDatabase) -> None:
    """Let later erasures get higher numbers than the erasures that were moved."""
    last = await database.read(lambda tx: tx.one("SELECT coalesce(max(number), 0) AS last FROM erasures"))
    assert last is not None
    restart = f"ALTER TABLE erasures ALTER COLUMN number RESTART WITH {int(last['last']) + 1}"
    await database.write(lambda tx: tx.run(restart))


def _refuse_if_used(connection: Connection) -> None:
    alive = connection.execute(
        f"SELECT name FROM nodes WHERE name <> %s AND seen_at > ({NOW}) - %s",  # noqa: S608  a constant
        (NAME, DEAD_MS),
    ).fetchone()
    if alive is not None:
        raise StorageError(f"the node {alive['name']} works in that database: stop all nodes first")


def _adopt(connection: Connection, keys: SigningKeys) -> None:
    """Store *keys*, with which earlier links and tokens were signed. The current one gets the latest created_at."""
    order = sorted(keys.secrets, key=lambda kid: (kid == keys.current, kid))
    for created_at, kid in enumerate(order, 1):
        connection.execute(
            "INSERT INTO secrets (kid, secret, created_at) VALUES (%s, %s, %s)"
            " ON CONFLICT (kid) DO UPDATE SET secret = excluded.secret, created_at = excluded.created_at",
            (kid, keys.secrets[kid], created_at),
        )
