"""What the service asks of its storage. The embedded form (SQLite and files) stands beside this file.

The promise: a job runs at least once, its effects (state, usage, events, webhooks) happen exactly once. It rests on the
*fence*: every write of a worker names its lease, and a write under a lease that is no longer the job's is refused. The
one clock that judges leases is the store's.

Instants are milliseconds since 1970 UTC.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from server.jobs.states import Job, JobError, Order, Source, State

# --- errors: each says what the caller can do --------------------------------------------------------------------


class StorageError(Exception):
    """Base of all errors of storage."""


class QuotaExceeded(StorageError):
    """The account has used up a counted allowance. Wait until *resets_at*."""

    def __init__(self, name: str, *, limit: int, used: int, resets_at: int) -> None:
        super().__init__(f"{name}: {used} of {limit} used")
        self.name, self.limit, self.used, self.resets_at = name, limit, used, resets_at


class ConcurrencyLimited(StorageError):
    """The account has as many unfinished jobs as its plan allows. Wait for one to end."""

    def __init__(self, name: str, *, limit: int, used: int) -> None:
        super().__init__(f"{name}: {used} of {limit} in use")
        self.name, self.limit, self.used = name, limit, used


class QueueFull(StorageError):
    """The server has as many waiting jobs as it is willing to hold. Try again later."""


class IdempotencyReused(StorageError):
    """The Idempotency-Key was used before for another request."""


class IdempotencyInProgress(StorageError):
    """The first request with this Idempotency-Key is still arriving. Try again shortly."""


class DiskFull(StorageError):
    """No room left for what was to be written; nothing of it was kept."""


class StorageBusy(StorageError):
    """Another process has kept the storage for itself for too long; nothing was written. Try again."""


class BlobExists(StorageError):
    """A blob of that name is already there. Blobs never change: choose another name (workers put the epoch in it)."""


class NoSuchBlob(StorageError):
    """Nothing is stored under that key."""


class FolderInUse(StorageError):
    """Another server already works in this folder; the message is one sentence for the operator."""


# --- jobs --------------------------------------------------------------------------------------------------------

LIVE_GRACE_MS = 90_000  # the writer's 60 s to come (back), and 30 s for a server to restart


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """One counted allowance that accepting a job takes *amount* from. *limit* None counts without refusing."""

    name: str  # "transcriptions", "audio_seconds"
    window: str  # the calendar window's name: "2026-11" or "2026-11-20"
    limit: int | None
    amount: int
    resets_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job about to be accepted. Its audio is already durable under *blob* unless the source is a URL or live."""

    id: str
    account: str
    environment: str
    order: Order
    source: Source
    blob: str | None  # key in the BlobStore
    audio_s: float | None  # as probed; None when unknown
    weight: float = 1.0  # the plan's share in the queue's fairness
    retention_ms: int  # how long record and outputs are kept after the job ended
    quotas: tuple[Quota, ...] = ()
    most_active: int | None = None  # the plan's bound on unfinished jobs of this kind; None: unbounded
    state: State = State.QUEUED  # live sessions start as QUEUED too and are never claimed by batch workers
    warnings: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyKey:
    """(account, path, key) names the first request; *fingerprint* tells a repeat from another request."""

    account: str
    path: str
    key: str
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Submitted:
    job: Job
    replayed: bool  # True: the job of an earlier request with the same key; nothing was counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to work on a job until *until*. Everything a worker writes names it."""

    job: Job
    lease_id: str
    epoch: int
    until: int
    blob: str | None
    chunks: tuple[bytes, ...]  # bodies already checkpointed, in order: where to go on


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event about to be logged; its sequence number is given by the log."""

    type: str
    body: bytes  # JSON object without seq


@dataclass(frozen=True, slots=True)
class Event:
    stream: str
    seq: int  # 1, 2, 3, ... without holes
    at: int
    type: str
    body: bytes


class Renewal(StrEnum):
    OK = "ok"
    LOST = "lost"  # stop; write nothing, delete nothing
    CANCEL_REQUESTED = "cancel requested"  # finish with State.CANCELED


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One finished output file."""

    kind: str  # json | srt | vtt | txt | audio
    blob: str
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a job ended. Written with its usage, outbox rows and terminal event in one commit."""

    state: State  # a terminal one
    error: JobError | None = None
    duration_s: float | None = None
    language: str | None = None
    language_probability: float | None = None
    engine: str | None = None
    model: str | None = None
    text: str | None = None
    artifacts: tuple[Artifact, ...] = ()
    warnings: tuple[Mapping[str, str], ...] = ()
    return_quota: bool = False  # True: the allowance goes back (canceled while queued, our own fault)
    events: tuple[NewEvent, ...] = ()  # logged before the terminal event


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs of one account to list. Empty members do not filter."""

    account: str
    environment: str
    states: frozenset[State] = frozenset()
    created_after: int | None = None
    created_before: int | None = None
    source: str | None = None
    language: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    text: str | None = None  # case-insensitive substring
    descending: bool = True
    after: tuple[int, str] | None = None  # (created_at, id) of the last row of the page before


class JobStore(Protocol):
    """Jobs with their chunks and artifacts. Lease writes answer False when the lease is lost: stop then."""

    async def begin(self, key: IdempotencyKey) -> str | None:
        """Reserve *key* while its request arrives; the fingerprint is not looked at.

        None: new, and reserved until submit() or abandon(). A job id: an earlier request made this job; submit() with
        the fingerprint tells whether this is its repeat. A reservation ends with the process that made it. Raises
        IdempotencyInProgress.
        """
        ...

    async def abandon(self, key: IdempotencyKey) -> None:
        """Free a key that begin() reserved and that came to no job."""
        ...

    async def submit(self, new: NewJob, *, idempotency: IdempotencyKey | None) -> Submitted:
        """Accept the job: row, quotas, first event and idempotency key in one commit; durable when this returns.

        A replay answers the earlier job: the bytes that came with *new* are the caller's to delete. Raises
        QuotaExceeded, ConcurrencyLimited, QueueFull, IdempotencyReused.
        """
        ...

    async def claim(
        self, worker: str, *, environments: Sequence[str], lease_s: float, wait_s: float = 0.0
    ) -> Lease | None:
        """Take the next queued batch job in fair order (virtual time, id); None when none came due within *wait_s*.

        A submitted job ends the wait at once, also one of another process; a delayed one (release) when it comes due.
        """
        ...

    async def claim_live(self, job_id: str, worker: str, *, lease_s: float) -> Lease | None:
        """Take this live job for the process that holds its socket; also again after a lost or released lease.

        None when it is not a live job, is over, or another lease on it still runs (a second writer).
        """
        ...

    async def checkpoint(
        self, lease: Lease, *, index: int, body: bytes, events: Sequence[NewEvent], progress: float, lease_s: float
    ) -> bool:
        """Heartbeat, chunk and its events in one commit. *index*: how many chunks there are before this one."""
        ...

    async def log(self, lease: Lease, events: Sequence[NewEvent]) -> list[Event] | None:
        """Append events under the lease; None when it is lost. Many logs may share one commit."""
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
        """Record what became known while working: stage, format, length, where the fetched audio lies."""
        ...

    async def renew(self, lease: Lease, *, lease_s: float) -> Renewal: ...

    async def finish(self, lease: Lease, outcome: Outcome) -> bool:
        """State, artifacts, usage, quota settlement, outbox, terminal event in one commit."""
        ...

    async def release(self, lease: Lease, *, delay_s: float, error: JobError | None, count: bool) -> bool:
        """Put the job back; *count* False gives the attempt back (shutdown). Fails it when attempts are used up."""
        ...

    async def reap(self, *, limit: int) -> int:
        """Expired leases go back to the queue or fail; jobs older than the queue's bound fail. How many changed.

        A live job goes back without counting attempts: it waits for its writer, then stale_live() names it.
        """
        ...

    async def lapse(self, owner: str) -> int:
        """The leases of workers whose name begins with *owner*, known to be dead, run out now. How many there were."""
        ...

    async def stale_live(self, *, limit: int) -> list[Job]:
        """Live jobs without a writer for longer than LIVE_GRACE_MS: claim_live() them and finish what was heard."""
        ...

    async def get(self, job_id: str) -> Job | None: ...

    async def chunks(self, job_id: str) -> list[bytes]: ...

    async def artifact(self, job_id: str, kind: str) -> Artifact | None: ...

    async def find(self, which: JobFilter, *, limit: int) -> list[Job]: ...

    async def cancel(self, job_id: str) -> Job | None:
        """Queued: canceled now, quota returned. Processing: requested. Otherwise unchanged. The job afterwards."""
        ...

    async def delete(self, job_id: str) -> str | None:
        """Remove record, chunks, events, deliveries; answers the blob prefix to delete, None when there is no job.

        A worker that holds its lease finds it lost.
        """
        ...

    async def expired(self, *, limit: int) -> list[str]:
        """Ids of jobs whose retention is over."""
        ...

    async def spent(self, *, limit: int) -> list[str]:
        """Ids of jobs that are over and whose audio may still be stored: delete it, then call audio_deleted()."""
        ...

    async def audio_deleted(self, job_ids: Sequence[str]) -> None: ...

    async def changed(self, seen: Job, *, timeout_s: float) -> Job | None:
        """The job as soon as it differs from *seen*, or as it is after *timeout_s*; None when it was deleted.

        Taking what the caller saw leaves no gap between looking and waiting.
        """
        ...

    async def counts(self) -> Mapping[str, int]:
        """Jobs per state, for metrics: only queued and processing."""
        ...


class EventLog(Protocol):
    async def read(self, stream: str, *, after: int, limit: int) -> list[Event]: ...

    async def last(self, stream: str) -> int:
        """The highest sequence number, 0 when the stream is empty or unknown."""
        ...

    def tail(self, stream: str, *, after: int) -> AsyncIterator[Event]:
        """Everything after *after*, then what comes. No hole, no repeat. Ends when nothing more can come.

        That is after the terminal event, or when the job is deleted. Cancelling a wait for the next event (wait_for,
        to send a keep-alive) loses nothing: ask again.
        """
        ...


# --- bytes -------------------------------------------------------------------------------------------------------


class Sink(Protocol):
    async def write(self, data: bytes) -> None:
        """Raises DiskFull."""
        ...


class BlobStore(Protocol):
    """Named byte strings that never change. Keys are "job_.../name": a job's prefix deletes all that is its own."""

    def create(self, key: str) -> AbstractAsyncContextManager[Sink]:
        """The blob exists, durably, when the block ends well; nothing is left of it when the block raises.

        Raises BlobExists when the block ends and the key is taken, ValueError for a key that is not plain names.
        """
        ...

    async def size(self, key: str) -> int | None: ...

    def read(self, key: str, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        """The bytes [start, stop) in pieces of at most 256 KiB. Raises NoSuchBlob with the first piece."""
        ...

    def local(self, key: str) -> AbstractContextManager[Path]:
        """A real file with the blob's bytes for as long as the block lasts. Its name tells nothing of its content.

        Raises NoSuchBlob.
        """
        ...

    async def delete(self, prefix: str) -> None:
        """Nothing is stored under *prefix* or below it ("job_1" does not touch "job_12"); well if nothing was."""
        ...

    async def prefixes(self) -> list[tuple[str, int]]:
        """Top-level prefixes with the instant of their last change; to sweep what belongs to no job."""
        ...


# --- accounts ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSecret:
    current: str  # whsec_...
    created_at: int
    previous: str | None = None
    previous_expires_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    id: str
    plan: str
    created_at: int
    webhook_secret: WebhookSecret
    limits: Mapping[str, object] = field(default_factory=dict)  # overrides of the plan's numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    id: str
    account: str
    environment: str
    name: str | None
    hash: bytes  # SHA-256 of the key
    prefix: str
    last4: str
    created_at: int
    last_used_at: int | None = None
    expires_at: int | None = None
    revoked_at: int | None = None


class AccountStore(Protocol):
    async def create_account(self, account: Account, key: ApiKey) -> None: ...
    async def add_key(self, key: ApiKey) -> None: ...
    async def by_hash(self, digest: bytes) -> tuple[ApiKey, Account] | None:
        """The key and its account, revoked and expired ones included: the caller judges."""
        ...

    async def account(self, account_id: str) -> Account | None: ...
    async def accounts(self) -> list[Account]: ...
    async def keys(self, account_id: str) -> list[ApiKey]: ...
    async def touch(self, key_id: str, at: int) -> None:
        """Remember the last use; may be written late and is lost with a crash."""
        ...

    async def revoke(self, account_id: str, key_id: str, *, at: int) -> bool: ...
    async def rotate(self, account_id: str, key_id: str, *, new: ApiKey, old_expires_at: int) -> bool:
        """Add *new* and end the old key at *old_expires_at*, one commit; False when there is no such living key."""
        ...

    async def set_plan(self, account_id: str, plan: str, limits: Mapping[str, object] | None) -> bool: ...
    async def rotate_webhook_secret(self, account_id: str, secret: WebhookSecret) -> bool: ...


# --- counting ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Count:
    """What a counted allowance stands at after the call."""

    allowed: bool
    used: int
    limit: int | None
    resets_at: int


class Counter(Protocol):
    """Calendar-window allowances, durable and atomic: of accounts and of addresses."""

    async def take(self, subject: str, quota: Quota) -> Count:
        """Take quota.amount if it fits; nothing is taken when it does not."""
        ...

    async def give_back(self, subject: str, quota: Quota) -> None: ...

    async def used(self, subject: str, windows: Sequence[tuple[str, str]]) -> list[int]:
        """How much of each (name, window) is used."""
        ...


# --- webhooks ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    n: int
    at: int
    status_code: int | None
    duration_ms: int
    error: str | None
    next_attempt_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One webhook message to one address, with its history."""

    id: str  # dlv_...
    webhook_id: str  # msg_..., equal on every attempt and redelivery
    job_id: str
    account: str
    environment: str
    event: str
    url: str
    host: str  # of the url, with its port
    state: str  # pending | delivered | failed | disabled
    created_at: int
    next_at: int | None
    tried: int = 0  # attempts of the present schedule; redeliver() starts a new one, *attempts* keeps them all
    attempts: tuple[Attempt, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowding:
    """How many deliveries may be on their way to one host, and of one account; and how many are, as of now."""

    per_host: int
    per_account: int
    hosts: Mapping[str, int] = field(default_factory=dict)
    accounts: Mapping[str, int] = field(default_factory=dict)


class Outbox(Protocol):
    """Webhook messages still to be sent. Rows are made by JobStore.finish, in its commit."""

    async def claim_due(
        self, *, limit: int, busy_s: float, wait_s: float = 0.0, crowding: Crowding | None = None
    ) -> list[Delivery]:
        """Pending deliveries whose time has come, oldest first; each is nobody else's for *busy_s*.

        Those that *crowding* has no room for are passed over and hold up none behind them. Its numbers are looked at
        again whenever something was recorded. Empty when none came due within *wait_s*.
        """
        ...

    async def record(self, delivery_id: str, attempt: Attempt, *, state: str) -> None:
        """Log the attempt; pending rows come due again at attempt.next_attempt_at.

        A delivered row stays delivered, and a disabled one is only changed by a success.
        """
        ...

    async def of_job(self, job_id: str) -> list[Delivery]: ...
    async def redeliver(self, job_id: str, delivery_id: str) -> Delivery | None:
        """Make it due now with its webhook_id and a fresh schedule; None when there is no such delivery."""
        ...

    async def next_due(self) -> int | None:
        """When the earliest pending delivery comes due."""
        ...

    async def disable(self, account: str, url: str, *, reason: str) -> None:
        """Send nothing more to this address; its pending deliveries become disabled."""
        ...

    async def enable(self, account: str, url: str) -> None: ...
    async def disabled(self, account: str, url: str) -> bool: ...
    async def exhausted(self, account: str, url: str, *, ok: bool) -> int:
        """Count consecutive exhausted deliveries (*ok* resets to 0); the count afterwards."""
        ...

    async def backlog(self) -> int: ...
