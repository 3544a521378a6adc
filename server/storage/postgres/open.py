"""Opens the storage of a cluster: PostgreSQL, any BlobStore, and what the nodes share.

They share the offer of the model, the number of requests in the last minute, and messages.
"""

import asyncio
import base64
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict

import orjson
from msgspec.json import decode

from server.model.accounts import SigningKeys, WindowUse
from server.model.errors import StorageError
from server.model.offers import Offer
from server.storage.ports import BlobStore
from server.storage.postgres.commits import DEAD_MS, MAX_PAYLOAD_BYTES, RELAY_CHANNEL
from server.storage.postgres.connections import Connection, connect, parameters, translating
from server.storage.postgres.database import Clock, PostgresDatabase
from server.storage.postgres.schema import migrate
from server.storage.sql.database import SqlStore, Transaction, write_method
from server.storage.sql.jobs import MAX_QUEUED, JobStore
from server.storage.sql.storage import Storage

SECRET_BYTES = 32
ENVIRONMENT = "production"  # the sandbox offers the same on every node
MINUTE_S = 60
MAX_MESSAGE_BYTES = (MAX_PAYLOAD_BYTES - 100) * 3 // 4  # a notification is text


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


class PostgresOffers:
    """The Offers: one row, written by each node with a model as it starts."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def publish(self, offer: Offer) -> None:
        text = orjson.dumps(asdict(offer), default=sorted).decode()  # sets become lists
        sql = (
            "INSERT INTO offers (environment, offer) VALUES (?, ?)"
            " ON CONFLICT (environment) DO UPDATE SET offer = excluded.offer"
        )
        await self._database.write(lambda tx: tx.run(sql, (ENVIRONMENT, text)))

    async def last(self) -> Offer | None:
        row = await self._database.read(
            lambda tx: tx.one("SELECT offer FROM offers WHERE environment = ?", (ENVIRONMENT,))
        )
        return None if row is None else offer_of(row["offer"])


def offer_of(text: str) -> Offer:
    """Read the offer that publish() wrote, perhaps on a node of another version: unknown members are ignored."""
    return decode(text, type=Offer)


def _hit(tx: Transaction, subject: str, *, limit: int) -> WindowUse:
    tx.run("SET LOCAL synchronous_commit = off")
    row = tx.one(
        "INSERT INTO rates (subject, seconds, at) VALUES (?, '[]', ?)"
        " ON CONFLICT (subject) DO UPDATE SET at = excluded.at RETURNING seconds",
        (subject, tx.now),
    )
    assert row is not None
    second = tx.now // 1000
    seconds = [(at, n) for at, n in orjson.loads(row["seconds"]) if abs(second - at) < MINUTE_S]
    used = sum(n for _, n in seconds)
    allowed = used < limit
    if allowed:
        used += 1
        seconds = _count_in(seconds, second)
        tx.run("UPDATE rates SET seconds = ? WHERE subject = ?", (orjson.dumps(seconds).decode(), subject))
    return WindowUse("minute", limit, used, MINUTE_S, _free_at(seconds, used - limit, second), allowed)


def _count_in(seconds: list[tuple[int, int]], second: int) -> list[tuple[int, int]]:
    """*seconds* with one more request in *second*, or in the last one if another node's clock is ahead."""
    if seconds and seconds[-1][0] >= second:
        last, n = seconds[-1]
        return [*seconds[:-1], (last, n + 1)]
    return [*seconds, (second, 1)]


def _free_at(seconds: list[tuple[int, int]], surplus: int, second: int) -> int:
    """When the next request fits (ms since 1970 UTC): once the oldest *surplus* + 1 requests are a minute old."""
    for at, n in seconds:
        surplus -= n
        if surplus < 0:
            return (at + MINUTE_S) * 1000
    return (second + MINUTE_S) * 1000


class PostgresRates(SqlStore):
    """The RateCounter: one row per client, with the requests of each second of the last minute.

    The table is unlogged and its commits do not wait for the disk, so a crash of the database sets all counts to zero.
    """

    hit = write_method(_hit)


class PostgresRelay:
    """The Relay: notifications on a channel of their own, which NotificationListener receives."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._handles: list[Callable[[bytes], None]] = []

    async def send(self, message: bytes) -> None:
        if len(message) > MAX_MESSAGE_BYTES or not self._database.answers:
            return
        text = f"{self._database.boot} {base64.b64encode(message).decode()}"
        with suppress(StorageError):  # as with any message that gets lost
            await self._database.read(lambda tx: tx.one("SELECT pg_notify(?, ?)", (RELAY_CHANNEL, text)))

    def listen(self, handle: Callable[[bytes], None]) -> None:
        if handle in self._handles:
            return
        self._handles.append(handle)
        loop = asyncio.get_running_loop()

        def handle_later(text: str) -> None:
            loop.call_soon_threadsafe(handle, base64.b64decode(text))

        self._database.listen(handle_later)
