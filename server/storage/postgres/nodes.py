"""What the nodes of a cluster share: the model's offer, the number of requests in the last minute, and messages."""

import asyncio
import base64
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict

import orjson
from msgspec.json import decode

from server.model.accounts import WindowUse
from server.model.errors import StorageError
from server.model.offers import Offer
from server.storage.postgres.committing import MAX_PAYLOAD_BYTES
from server.storage.postgres.database import PostgresDatabase
from server.storage.postgres.listening import RELAY_CHANNEL
from server.storage.sql.database import SqlStore, Transaction, write_method

ENVIRONMENT = "production"  # the sandbox offers the same on every node
MINUTE_S = 60
MAX_MESSAGE_BYTES = (MAX_PAYLOAD_BYTES - 100) * 3 // 4  # a notification is text


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
