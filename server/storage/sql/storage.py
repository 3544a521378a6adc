"""The Storage, for SQLite and PostgreSQL alike."""

from typing import Protocol

from server.keyed_limits import LocalRates
from server.model.accounts import SigningKeys
from server.storage.ports import BlobStore, Offers, RateCounter, Relay, Storage
from server.storage.sql.accounts import SqlAccounts
from server.storage.sql.channels import SqlChannels
from server.storage.sql.counters import SqlCounter
from server.storage.sql.database import Database
from server.storage.sql.events import SqlEvents
from server.storage.sql.jobs import SqlJobs
from server.storage.sql.outbox import SqlOutbox
from server.storage.sql.upkeep import SqlUpkeep


class ClosableBlobs(BlobStore, Protocol):
    """A BlobStore that the storage closes."""

    async def close(self) -> None: ...


class SqlStorage(Storage):
    def __init__(
        self,
        database: Database,
        blobs: ClosableBlobs,
        signing_keys: SigningKeys,
        *,
        jobs: SqlJobs,
        rates: RateCounter | None = None,
        offers: Offers | None = None,
        relay: Relay | None = None,
    ) -> None:
        self._database, self._blobs = database, blobs
        self.blobs, self.signing_keys, self.jobs = blobs, signing_keys, jobs
        self.rates, self.offers, self.relay = rates or LocalRates(), offers, relay
        self.events = SqlEvents(database)
        self.accounts = SqlAccounts(database)
        self.channels = SqlChannels(database)
        self.counters = SqlCounter(database)
        self.outbox = SqlOutbox(database)
        self.upkeep = SqlUpkeep(database)

    @property
    def leads(self) -> bool:
        return self._database.leads

    async def close(self) -> None:
        await self._database.close()
        await self._blobs.close()
