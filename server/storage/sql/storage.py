"""The Storage, for SQLite and PostgreSQL alike."""

from server.keyed_limits import LocalRates
from server.model.accounts import SigningKeys
from server.storage.ports import BlobStore, Offers, RateCounter, Relay
from server.storage.sql.accounts import AccountStore, ChannelStore
from server.storage.sql.allowances import Counter
from server.storage.sql.database import Database
from server.storage.sql.jobs import JobStore
from server.storage.sql.outbox import Outbox
from server.storage.sql.timeline import Timelines
from server.storage.sql.upkeep import Upkeep


class Storage:
    """All stores over one database, open until close(), and the keys that this installation signs with.

    *rates*: None where one process serves all requests and counts them in memory.
    *offers*, *relay*: None where there are no other nodes.
    """

    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        signing_keys: SigningKeys,
        *,
        jobs: JobStore,
        rates: RateCounter | None = None,
        offers: Offers | None = None,
        relay: Relay | None = None,
    ) -> None:
        self.database, self._blobs = database, blobs
        self.blobs, self.signing_keys, self.jobs = blobs, signing_keys, jobs
        self.rates, self.offers, self.relay = rates or LocalRates(), offers, relay
        self.timelines = Timelines(database)
        self.accounts = AccountStore(database)
        self.channels = ChannelStore(database)
        self.counters = Counter(database)
        self.outbox = Outbox(database)
        self.upkeep = Upkeep(database)

    @property
    def leads(self) -> bool:
        """Whether this process does the sweeping for all processes that have this storage open.

        Usually one process does. If two do for a moment, they only do the same work twice.
        """
        return self.database.leads

    async def close(self) -> None:
        """Finish all writes, and release threads and files. No store may be used afterwards."""
        await self.database.close()
        await self._blobs.close()
