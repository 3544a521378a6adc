"""The interface of a storage backend. job_store.py has the part for jobs and events.

Each backend is a folder here: sqlite/ is SQLite and files, postgres/ with s3/ is PostgreSQL and a bucket.

Instants are milliseconds since 1970 UTC.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from server.model.accounts import Account, ApiKey, Count, Quota, SigningKeys, WebhookSecret, WindowUse
from server.model.channels import Channel
from server.model.deliveries import AddressHealth, Attempt, Crowding, Delivery
from server.model.erasures import Erasure
from server.model.offers import Offer
from server.storage.job_store import EventLog, JobStore


class Sink(Protocol):
    """A blob that is being written."""

    async def write(self, *parts: bytes | memoryview) -> None:
        """Append the *parts* in their order. Raises DiskFull."""


class BlobStore(Protocol):
    """Named byte strings that never change. Keys are "job_.../name", so deleting a prefix deletes all blobs of a job.

    Every method raises BlobsAway while a backend on another machine cannot be reached.
    """

    @property
    def scratch(self) -> Path:
        """A private folder for files without a name, such as a recording that is not a blob yet."""

    def create(self, key: str, *, leave_reserve: bool = False) -> AbstractAsyncContextManager[Sink]:
        """Write a blob. It is stored durably at the end of the block; nothing is left of it if the block raises.

        *leave_reserve* is for incoming audio. With it, entering the block and every write raise DiskFull if the disk
        would have less free space than the backend reserves for its database and for outputs. The end of the block
        raises BlobExists if the key is taken. Raises ValueError if the key is not made of plain names. In a bucket, two
        writers of one key that end at the same moment may both succeed, so each writer needs a key of its own.
        """

    async def size(self, key: str) -> int | None: ...

    def read(self, key: str, start: int = 0, stop: int | None = None) -> AsyncGenerator[bytes]:
        """The bytes [start, stop) in pieces of at most 256 KiB. Raises NoSuchBlob with the first piece."""

    def local(self, key: str) -> AbstractAsyncContextManager[Path]:
        """A file with the blob's bytes while the block lasts. Its name says nothing about the content.

        A backend without files makes a copy in *scratch*. Raises NoSuchBlob, and DiskFull if the copy has no room.
        """

    async def delete(self, prefix: str) -> None:
        """Delete everything under *prefix*, if there is anything. "job_1" does not touch "job_12"."""

    async def prefixes(self) -> list[tuple[str, int]]:
        """Top-level prefixes, each with the instant of its last change. Used to find those that belong to no job.

        A backend that may have millions returns a part of them, and the next part at the next call.
        """


class AccountStore(Protocol):
    """Accounts and their API keys."""

    async def create_account(self, account: Account, key: ApiKey) -> None: ...
    async def add_key(self, key: ApiKey) -> None:
        """Store another key of an account. Raises TooManyKeys if the account has bounds.MAX_KEYS valid ones."""

    async def by_hash(self, digest: bytes) -> tuple[ApiKey, Account] | None:
        """The key with this SHA-256, and its account. The caller checks whether the key is revoked or expired."""

    async def account(self, account_id: str) -> Account | None: ...
    async def accounts(self) -> list[Account]: ...
    async def keys(self, account_id: str) -> list[ApiKey]: ...
    async def touch(self, key_id: str, at: int) -> None:
        """Record that the key was used at *at*. A backend may skip a use shortly after one that it recorded."""

    async def revoke(self, account_id: str, key_id: str, *, at: int) -> bool: ...
    async def rotate(self, account_id: str, key_id: str, *, new: ApiKey, old_expires_at: int) -> bool:
        """Add *new* and let the old key end at *old_expires_at*, in one commit. Returns False if that key is not valid.

        Raises TooManyKeys.
        """

    async def set_plan(self, account_id: str, plan: str, limits: Mapping[str, object] | None) -> bool: ...
    async def rotate_webhook_secret(self, account_id: str, environment: str, secret: WebhookSecret) -> bool: ...


class ChannelStore(Protocol):
    """The channels of accounts, and which live session each shows."""

    async def add(self, channel: Channel) -> Channel:
        """Store the channel. If the account has one of that name in that environment, return that instead.

        Raises TooManyChannels if it has bounds.MAX_CHANNELS there.
        """

    async def all(self, account: str, environment: str) -> list[Channel]:
        """The account's channels in that environment, by name."""

    async def get(self, channel_id: str) -> Channel | None: ...
    async def find_named(self, account: str, environment: str, name: str) -> Channel | None: ...
    async def show(self, channel_id: str, job_id: str) -> None:
        """Let the channel show the session *job_id*, unless it shows a newer one, whose id is higher."""

    async def delete(self, account: str, environment: str, channel_id: str) -> bool: ...


class Counter(Protocol):
    """Counts what accounts and addresses use of their allowances in each calendar window. Durable and atomic."""

    async def take(self, subject: str, quota: Quota) -> Count:
        """Take quota.amount if it fits, otherwise nothing."""

    async def give_back(self, subject: str, quota: Quota) -> None: ...

    async def amounts_used(self, subject: str, windows: Sequence[tuple[str, str]]) -> list[int]:
        """How much of each (name, window) is used."""


class Outbox(Protocol):
    """Webhook messages that must be sent. JobStore.finish() adds them, in its commit.

    At most MAX_PENDING_PER_URL deliveries to one address and MAX_PENDING_PER_ACCOUNT of one account are pending. A
    further one is stored as failed, with an attempt that says why it was not sent.
    """

    async def claim_due(
        self, *, limit: int, busy_s: float, wait_s: float = 0.0, crowding: Crowding | None = None
    ) -> list[Delivery]:
        """At most *limit* pending deliveries whose time has come; empty if none came due within *wait_s*.

        For *busy_s* seconds no other call returns them. Accounts take turns: the next delivery is that of the account
        with the fewest under way, among equals of that with the lowest number in crowding.turns, then of that with the
        oldest delivery. Each account's oldest is sent first. Deliveries that *crowding* has no room for are left out
        and delay no others; its numbers are read again whenever an attempt was recorded. The time of a call depends on
        the number of accounts with pending deliveries, not on how many each of them has.
        """

    async def record(self, delivery_id: str, attempt: Attempt, *, state: str) -> AddressHealth | None:
        """Store the attempt, count it for its address, and return the counts. None if the delivery was deleted.

        A pending delivery takes *state*, and is due again at attempt.next_attempt_at if that is "pending". A delivery
        in another state changes only if this attempt delivered it.
        """

    async def postpone(self, delivery_id: str, *, until: int) -> None:
        """Make a pending delivery due at *until*, without an attempt."""

    async def of_job(self, job_id: str) -> list[Delivery]: ...
    async def redeliver(self, job_id: str, delivery_id: str) -> Delivery | None:
        """Make the delivery due now, with a new schedule of attempts. None if there is no such delivery.

        Raises QueueFull if too many deliveries are pending.
        """

    async def disable(self, account: str, url: str, *, reason: str) -> None:
        """Send nothing more to this address. Its pending deliveries become disabled."""

    async def enable(self, account: str, url: str) -> None: ...
    async def is_disabled(self, account: str, url: str) -> bool: ...
    async def backlog(self) -> int: ...


class Upkeep(Protocol):
    """The record of erasures, and the deletion of what the storage need not keep any longer."""

    async def erasures(self, *, job_id: str | None = None, limit: int) -> list[Erasure]:
        """The erasures of one job or of all, the newest first. They are kept for ERASURES_KEPT_MS."""

    async def scrub(self) -> bool:
        """Overwrite what was erased since the last call in the backend's own files, so that no byte of it is left.

        Returns False if that was not possible at the moment; call it again soon. It does not touch blobs.
        """

    async def forget_passed(self) -> None:
        """Delete what is needed for a short time only: Idempotency-Keys, windows of allowances, marks of commits.

        It is cheap; call it every few seconds.
        """

    async def forget_old(self) -> int:
        """Delete what is older than model/erasures.py allows, and return the number of rows.

        These are the usage of ended jobs, the health of webhook addresses, ended keys, unused accounts, the record of
        erasures, and virtual times that the queue has passed.
        """


class RateCounter(Protocol):
    """Requests of the last minute, counted for all nodes together; in memory if one process has the storage alone."""

    async def hit(self, subject: str, *, limit: int) -> WindowUse:
        """Count a request of *subject* if fewer than *limit* were counted within the last minute, to the second."""


class Offers(Protocol):
    """The offer of the model. Nodes with a model publish it for nodes without one."""

    async def publish(self, offer: Offer) -> None:
        """Store *offer* in place of the last one."""

    async def last(self) -> Offer | None:
        """The last offer; None if no node with a model has started yet."""


class Relay(Protocol):
    """Messages to the other nodes that have this storage open. Any may get lost; none is stored."""

    async def send(self, message: bytes) -> None:
        """Send *message*. It is dropped while the database is away, or if it is too long."""

    def listen(self, handle: Callable[[bytes], None]) -> None:
        """Call *handle* in the running event loop with each message of another node from now on."""


class Storage(Protocol):
    """All stores of one backend, open until close(), and the keys that this installation signs with."""

    jobs: JobStore
    events: EventLog
    accounts: AccountStore
    channels: ChannelStore
    counters: Counter
    outbox: Outbox
    blobs: BlobStore
    upkeep: Upkeep
    signing_keys: SigningKeys
    rates: RateCounter
    offers: Offers | None  # None: there are no other nodes
    relay: Relay | None  # None: there are no other nodes

    @property
    def leads(self) -> bool:
        """Whether this process does the sweeping for all processes that have this storage open.

        Usually one process does. If two do for a moment, they only do the same work twice.
        """

    async def close(self) -> None:
        """Finish all writes, and release threads and files. No store may be used afterwards."""
