"""Opens the storage of a cluster: PostgreSQL and any BlobStore."""

import secrets

from server.model.accounts import SigningKeys
from server.storage.ports import BlobStore
from server.storage.postgres.connecting import Connection, connect, parameters, translating
from server.storage.postgres.database import Clock, PostgresDatabase
from server.storage.postgres.listening import DEAD_MS
from server.storage.postgres.migrating import migrate
from server.storage.postgres.nodes import PostgresOffers, PostgresRates, PostgresRelay
from server.storage.sql.database import Transaction
from server.storage.sql.jobs import MAX_QUEUED, JobStore
from server.storage.sql.storage import Storage

SECRET_BYTES = 32


def open_storage(
    url: str,
    blobs: BlobStore,
    *,
    name: str,
    clock: Clock | None = None,
    notify: bool = True,
    max_queued: int = MAX_QUEUED,
) -> Storage:
    """Open the storage in the database of *url*, and make or migrate its tables. Any number of nodes may do so at once.

    It blocks. Raises StorageAway, StorageError.

    *name*: of this process, in leases and logs.
    *clock*: milliseconds since 1970 UTC, for tests. Without it the database's clock counts.
    *notify*: False announces no commits, so that waiting tasks look once a second.
    *max_queued*: the most files that may wait.
    """
    conninfo = parameters(url, name=name)
    with connect(conninfo) as connection, translating():
        migrate(connection)
        keys = _signing_keys(connection)
    database = PostgresDatabase(conninfo, name=name, clock=clock, notify=notify)
    return Storage(
        database,
        blobs,
        keys,
        jobs=JobStore(database, max_queued=max_queued, boot=database.boot, is_alive=_is_alive),
        rates=PostgresRates(database),
        offers=PostgresOffers(database),
        relay=PostgresRelay(database) if notify else None,
    )


def update(url: str) -> list[int]:
    """Migrate the tables in the database of *url*. Returns the numbers of the steps. Raises StorageError."""
    with connect(parameters(url, name="migrate")) as connection:
        return migrate(connection)


def _is_alive(tx: Transaction, boot: str) -> bool:
    row = tx.one("SELECT 1 AS yes FROM nodes WHERE boot = ? AND seen_at > ?", (boot, tx.now - DEAD_MS))
    return row is not None


def _signing_keys(connection: Connection) -> SigningKeys:
    """The keys that all nodes sign with. The first node makes one; the newest is the current one."""
    connection.execute(
        "INSERT INTO secrets (kid, secret, created_at) VALUES ('1', %s, 0) ON CONFLICT (kid) DO NOTHING",
        (secrets.token_bytes(SECRET_BYTES),),
    )
    rows = connection.execute("SELECT kid, secret FROM secrets ORDER BY created_at, kid").fetchall()
    return SigningKeys({row["kid"]: bytes(row["secret"]) for row in rows}, rows[-1]["kid"])
