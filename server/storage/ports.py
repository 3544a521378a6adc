"""What the server asks of its storage. Each backend is a folder beside this file: sqlite/ is SQLite and files.

The promise: a job runs at least once, and its effects (state, usage, events, webhooks) happen exactly once. It rests on
the *fence*: every write of a worker names its lease, and is refused if the lease is no longer the job's. Only the
store's clock decides about leases.

Instants are milliseconds since 1970 UTC.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from server.model.accounts import Account, ApiKey, Count, Quota, SigningKeys, WebhookSecret, WindowUse
from server.model.channels import Channel
from server.model.deliveries import AddressHealth, Attempt, Crowding, Delivery
from server.model.erasures import Erasure, Why
from server.model.events import Event, NewEvent
from server.model.jobs import IdempotencyKey, Job, JobError, JobFilter, NewJob, Submitted
from server.model.leases import Lease, Renewal
from server.model.offers import Offer
from server.model.orders import Source
from server.model.outcomes import Artifact, Outcome


class JobStore(Protocol):
    """Jobs with their chunks and artifacts. Writes under a lease return False when it is lost: stop then."""

    async def begin(self, key: IdempotencyKey) -> str | None:
        """Reserve *key* while its request arrives. The fingerprint is not compared yet.

        None: the key is new, and reserved until submit() or abandon(). A job id: an earlier request made this job;
        submit() with the fingerprint tells whether this is its repetition. A reservation ends with the process that
        made it. Raises IdempotencyInProgress.
        """
        ...

    async def abandon(self, key: IdempotencyKey) -> None:
        """Free a key that begin() reserved if no job came of it."""
        ...

    async def check_room(
        self, account: str, environment: str, *, quotas: Sequence[Quota], max_active: int | None
    ) -> None:
        """Raise what submit() would raise now for a file with these bounds, so that no body is read in vain.

        Takes nothing and promises nothing: submit() judges again. Raises QuotaExceeded, ConcurrencyLimited, QueueFull.
        """
        ...

    async def submit(self, new: NewJob, *, idempotency: IdempotencyKey | None) -> Submitted:
        """Accept the job: row, quotas, first event and idempotency key in one commit; durable when this returns.

        A repetition returns the earlier job; the caller then deletes the bytes that came with *new*. Raises
        QuotaExceeded, ConcurrencyLimited, QueueFull, IdempotencyReused.
        """
        ...

    async def claim(
        self,
        worker: str,
        *,
        environments: Sequence[str],
        unfetched: bool = False,
        passing_over: Collection[str] = (),
        lease_s: float,
        wait_s: float = 0.0,
    ) -> Lease | None:
        """Take the next queued batch job; None if none came within *wait_s*.

        *unfetched* chooses between the jobs whose audio is still at an address (source.type "url", no blob) and all
        others. Jobs of a later environment are taken only where the earlier ones have none, and those of the accounts
        in *passing_over* not at all. Among the rest the order is fair: by virtual time, then by id. A submission costs
        its account the audio's seconds / weight of virtual time. So does an attempt that failed (a counted release, a
        lapsed lease, an end that is not COMPLETED), by the seconds of its lease, and a completed job that was longer
        than stated, by the difference.

        A submitted or released job ends the wait at once, also one of another process; a delayed one (NewJob.delay_s,
        release) when its time comes. A call that is cancelled leaves no lease behind.
        """
        ...

    async def claim_live(self, job_id: str, worker: str, *, lease_s: float) -> Lease | None:
        """Take this live job for the process that has its writer; also again after a lost or released lease.

        None if it is not a live job, has ended, or is still leased (a second writer).
        """
        ...

    async def checkpoint(
        self, lease: Lease, *, index: int, body: bytes, events: Sequence[NewEvent], progress: float, lease_s: float
    ) -> bool:
        """Store a chunk with its events and extend the lease, in one commit. *index*: the number of chunks before."""
        ...

    async def log(self, lease: Lease, events: Sequence[NewEvent]) -> list[Event] | None:
        """Append events under the lease; None if it is lost. Many logs may share one commit."""
        ...

    async def note(
        self,
        lease: Lease,
        *,
        stage: str | None = None,
        source: Source | None = None,
        duration_s: float | None = None,
        blob: str | None = None,
    ) -> bool:
        """Record what became known while working: stage, format, length, the blob of the fetched audio."""
        ...

    async def renew(self, lease: Lease, *, lease_s: float) -> Renewal: ...

    async def finish(self, lease: Lease, outcome: Outcome) -> bool:
        """End the job: state, artifacts, usage, quotas, outbox and last event in one commit.

        The allowance goes back where outcome.return_quota says so and nobody can have read a word: the job has no
        chunk, and its log has no event "word". The same holds wherever this store ends a job by itself.
        """
        ...

    async def release(self, lease: Lease, *, delay_s: float, error: JobError | None, count: bool) -> bool:
        """Put the job back. A job without attempts left fails.

        *count* False returns the attempt: at a shutdown, or when a download is done and note() has named its blob.
        """
        ...

    async def reap(self, *, limit: int) -> int:
        """End expired leases and jobs that waited for too long: back to the queue, or failed. Returns how many.

        A live job goes back without counting attempts: it waits for its writer, then stale_live() names it.
        """
        ...

    async def lapse(self, owner: str) -> int:
        """End the leases of dead workers, whose names begin with *owner*. Returns how many there were."""
        ...

    async def stale_live(self, *, limit: int) -> list[Job]:
        """Live jobs without a writer for longer than LIVE_GRACE_MS. Use claim_live() and finish what was heard."""
        ...

    async def get(self, job_id: str) -> Job | None: ...

    async def chunks(self, job_id: str) -> list[bytes]: ...

    async def artifact(self, job_id: str, kind: str) -> Artifact | None: ...

    async def find(self, which: JobFilter, *, limit: int) -> list[Job]: ...

    async def cancel(self, job_id: str) -> Job | None:
        """Cancel a queued job now, as finish() would; request it of a processing one. Returns the job afterwards."""
        ...

    async def delete(self, job_id: str, *, why: Why = Why.REQUESTED) -> str | None:
        """Remove record, chunks, events and deliveries, and record the erasure, in one commit.

        Returns the blob prefix to delete, None if there is no job. A worker that holds its lease finds it lost. The
        backend's own files may still hold bytes of it until Upkeep.scrub().
        """
        ...

    async def answered(self, job_id: str) -> None:
        """Note that the results of a job whose order keeps none were handed over in full."""
        ...

    async def passing(self, *, limit: int) -> list[Job]:
        """Jobs that have ended, whose order keeps no results, and whose results may be erased now.

        They were handed over, or there are none because the job did not complete, and no webhook of it is pending.
        """
        ...

    async def erase_outputs(self, job_id: str) -> str | None:
        """Erase the results of a job that passing() would name, and record the erasure, in one commit.

        Text, words, prompt, artifacts and the events with words go; the record, its metadata and its deliveries stay.
        Returns the blob prefix to delete; None if the job is not, or no longer, to be erased.
        """
        ...

    async def expired(self, *, limit: int) -> list[str]:
        """Ids of jobs whose retention is over."""
        ...

    async def spent(self, *, limit: int) -> list[str]:
        """Ids of jobs that have ended but whose audio may still be stored: delete it, then call audio_deleted()."""
        ...

    async def audio_deleted(self, job_ids: Sequence[str]) -> None: ...

    async def changed(self, seen: Job, *, timeout_s: float) -> Job | None:
        """The job as soon as it differs from *seen*, or as it is after *timeout_s*; None if it was deleted.

        Since the caller passes what it saw, no change is missed between looking and waiting.
        """
        ...

    async def counts(self) -> Mapping[str, int]:
        """Jobs per state, only queued and processing, for metrics."""
        ...


class EventLog(Protocol):
    """The events of every job, in order."""

    async def read(self, stream: str, *, after: int, limit: int) -> list[Event]: ...

    async def last(self, stream: str) -> int:
        """The highest number, 0 if the stream is empty or unknown."""
        ...

    def tail(self, stream: str, *, after: int) -> AsyncIterator[Event]:
        """Every event after number *after*, then those that come, without gaps or repetitions.

        Ends after the last event of a job, or when the job is deleted. Cancelling a wait for the next event, to send a
        keep-alive, loses nothing: ask again.
        """
        ...


class Sink(Protocol):
    """A blob that is being written."""

    async def write(self, *parts: bytes | memoryview) -> None:
        """Append the *parts* in their order. Raises DiskFull."""
        ...


class BlobStore(Protocol):
    """Named byte strings that never change. Keys are "job_.../name", so that a prefix deletes all of a job.

    Every method raises BlobsAway while a backend beyond this machine cannot be reached.
    """

    @property
    def scratch(self) -> Path:
        """A private folder for files without a name, such as a recording that is not a blob yet."""
        ...

    def create(self, key: str, *, leave_reserve: bool = False) -> AbstractAsyncContextManager[Sink]:
        """Write a blob. It exists, durably, when the block ends well; nothing is left of it if the block raises.

        *leave_reserve* is for audio that comes in: entering the block and every write raise DiskFull where the disk
        would be left with less free space than the backend keeps for its database and for outputs.
        Raises BlobExists at the end of the block if the key is taken, ValueError for a key that is not plain names.
        Two writers that end at the same moment may both succeed in a bucket; give each a name of its own.
        """
        ...

    async def size(self, key: str) -> int | None: ...

    def read(self, key: str, start: int = 0, stop: int | None = None) -> AsyncGenerator[bytes]:
        """The bytes [start, stop) in pieces of at most 256 KiB. Raises NoSuchBlob with the first piece."""
        ...

    def local(self, key: str) -> AbstractAsyncContextManager[Path]:
        """A real file with the blob's bytes while the block lasts. Its name does not reveal the content.

        A backend without files makes a copy in *scratch*. Raises NoSuchBlob; DiskFull if the copy has no room.
        """
        ...

    async def delete(self, prefix: str) -> None:
        """Delete everything under *prefix* ("job_1" does not touch "job_12"). It is fine if there is nothing."""
        ...

    async def prefixes(self) -> list[tuple[str, int]]:
        """Top-level prefixes with the instant of their last change, to find those that belong to no job.

        A backend that may hold millions returns some of them, and at the next call those that follow.
        """
        ...


class AccountStore(Protocol):
    """Accounts and their API keys."""

    async def create_account(self, account: Account, key: ApiKey) -> None: ...
    async def add_key(self, key: ApiKey) -> None:
        """Store another key of an account. Raises TooManyKeys if bounds.MAX_KEYS of the account work."""
        ...

    async def by_hash(self, digest: bytes) -> tuple[ApiKey, Account] | None:
        """The key and its account, also if it is revoked or expired: the caller decides."""
        ...

    async def account(self, account_id: str) -> Account | None: ...
    async def accounts(self) -> list[Account]: ...
    async def keys(self, account_id: str) -> list[ApiKey]: ...
    async def touch(self, key_id: str, at: int) -> None:
        """Remember the last use. It may be written late, and is lost in a crash."""
        ...

    async def revoke(self, account_id: str, key_id: str, *, at: int) -> bool: ...
    async def rotate(self, account_id: str, key_id: str, *, new: ApiKey, old_expires_at: int) -> bool:
        """Add *new* and end the old key at *old_expires_at*, in one commit; False without such a valid key.

        Raises TooManyKeys.
        """
        ...

    async def set_plan(self, account_id: str, plan: str, limits: Mapping[str, object] | None) -> bool: ...
    async def rotate_webhook_secret(self, account_id: str, environment: str, secret: WebhookSecret) -> bool: ...


class ChannelStore(Protocol):
    """The channels of accounts, and which live session each shows."""

    async def add(self, channel: Channel) -> Channel:
        """Store the channel, or return the one of that name that the account has in that environment.

        Raises TooManyChannels if it has bounds.MAX_CHANNELS there.
        """
        ...

    async def all(self, account: str, environment: str) -> list[Channel]:
        """The account's channels in that environment, by name."""
        ...

    async def get(self, channel_id: str) -> Channel | None: ...
    async def named(self, account: str, environment: str, name: str) -> Channel | None: ...
    async def show(self, channel_id: str, job_id: str) -> None:
        """Show this session there, unless one with a higher id, a newer one, is shown. Other ids change nothing."""
        ...

    async def delete(self, account: str, environment: str, channel_id: str) -> bool: ...


class Counter(Protocol):
    """Allowances per calendar window, of accounts and of addresses. Durable and atomic."""

    async def take(self, subject: str, quota: Quota) -> Count:
        """Take quota.amount if it fits, otherwise nothing."""
        ...

    async def give_back(self, subject: str, quota: Quota) -> None: ...

    async def used(self, subject: str, windows: Sequence[tuple[str, str]]) -> list[int]:
        """How much of each (name, window) is used."""
        ...


class Outbox(Protocol):
    """Webhook messages still to be sent. JobStore.finish() adds them, in its commit.

    At most MAX_PENDING_PER_URL deliveries to one address and MAX_PENDING_PER_ACCOUNT of one account are pending. A
    further one is stored as failed, with an attempt that says why it was not sent.
    """

    async def claim_due(
        self, *, limit: int, busy_s: float, wait_s: float = 0.0, crowding: Crowding | None = None
    ) -> list[Delivery]:
        """Pending deliveries whose time has come. Nobody else gets them for *busy_s*.

        Accounts take turns: each place goes to the account with the fewest on their way, of those to the one with the
        lowest number in crowding.turns, of those to the one whose delivery is the oldest. Of one account the oldest
        is sent first. Those that *crowding* has no room for are passed over and delay none behind them. Its numbers
        are read again whenever an attempt was recorded. Empty if none came due within *wait_s*. How long it takes
        depends on the number of accounts that have pending deliveries, not on how many each of them has.
        """
        ...

    async def record(self, delivery_id: str, attempt: Attempt, *, state: str) -> AddressHealth | None:
        """Log the attempt and count it for its address; returns the counts. None if the delivery was deleted.

        A pending delivery comes due again at attempt.next_attempt_at. A delivered one stays delivered, and only a
        success changes a disabled one.
        """
        ...

    async def postpone(self, delivery_id: str, *, until: int) -> None:
        """Make a pending delivery due at *until*, without an attempt."""
        ...

    async def of_job(self, job_id: str) -> list[Delivery]: ...
    async def redeliver(self, job_id: str, delivery_id: str) -> Delivery | None:
        """Make it due now, with its webhook_id and a fresh schedule; None if there is no such delivery.

        Raises QueueFull if too many deliveries are pending.
        """
        ...

    async def next_due(self) -> int | None:
        """When the earliest pending delivery comes due."""
        ...

    async def disable(self, account: str, url: str, *, reason: str) -> None:
        """Send nothing more to this address. Its pending deliveries become disabled."""
        ...

    async def enable(self, account: str, url: str) -> None: ...
    async def disabled(self, account: str, url: str) -> bool: ...
    async def backlog(self) -> int: ...


class Upkeep(Protocol):
    """The record of erasures, and what keeps the storage from holding more than it should."""

    async def erasures(self, *, job_id: str | None = None, limit: int) -> list[Erasure]:
        """What was erased, of one job or of all, the newest first. Kept for ERASURES_KEPT_MS."""
        ...

    async def scrub(self) -> bool:
        """Wipe from the backend's own files what was erased since the last call: afterwards no byte of it is in them.

        Returns False if that was not possible just now: call it again soon. Blobs are not its concern.
        """
        ...

    async def forget_passed(self) -> None:
        """Delete what nobody asks for any more after minutes or a day: Idempotency-Keys, windows of allowances, notes
        of the backend itself. Cheap: call it every few seconds.
        """
        ...

    async def forget_old(self) -> int:
        """Delete what has passed the spans of model/erasures.py, and fairness that says nothing any more.

        That is: usage of ended jobs, the health of webhook addresses, keys that have ended, accounts without use, and
        old erasures. Returns how many rows.
        """
        ...


class RateCounter(Protocol):
    """Requests of the last minute, counted for all nodes together."""

    async def hit(self, subject: str, *, limit: int) -> WindowUse:
        """Count a request of *subject* if fewer than *limit* were counted within the last minute, to the second."""
        ...


class Offers(Protocol):
    """What the model offers, told by the nodes that have one to those that have none."""

    async def tell(self, offer: Offer) -> None:
        """Store *offer* in the place of the one that was told last."""
        ...

    async def last(self) -> Offer | None:
        """The offer that was told last; None if no node with a model has started yet."""
        ...


class Relay(Protocol):
    """Messages to the other nodes that have this storage open. Any may get lost; none is stored."""

    @property
    def max_bytes(self) -> int:
        """A longer message is not sent."""
        ...

    async def send(self, message: bytes) -> None:
        """Send *message*. Nothing happens while the database is away."""
        ...

    def listen(self, handle: Callable[[bytes], None]) -> None:
        """Call *handle* in the running event loop with each message of another node from now on."""
        ...


class Storage(Protocol):
    """All stores of one backend, open until close(), and the keys that this installation signs with."""

    @property
    def jobs(self) -> JobStore: ...
    @property
    def events(self) -> EventLog: ...
    @property
    def accounts(self) -> AccountStore: ...
    @property
    def channels(self) -> ChannelStore: ...
    @property
    def counters(self) -> Counter: ...
    @property
    def outbox(self) -> Outbox: ...
    @property
    def blobs(self) -> BlobStore: ...
    @property
    def upkeep(self) -> Upkeep: ...
    @property
    def signing_keys(self) -> SigningKeys: ...
    @property
    def leads(self) -> bool:
        """Whether this process is the one that sweeps, of all that have this storage open. At most one is at a time,
        as far as the database can tell; two would only do the same work twice.
        """
        ...

    @property
    def rates(self) -> RateCounter | None:
        """None if one process serves all requests, and counts them in memory."""
        ...

    @property
    def offers(self) -> Offers | None:
        """None if there are no other nodes."""
        ...

    @property
    def relay(self) -> Relay | None:
        """None if there are no other nodes."""
        ...

    async def close(self) -> None:
        """Finish what was handed over and release threads and files. No store may be used afterwards."""
        ...
