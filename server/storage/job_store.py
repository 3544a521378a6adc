"""What the server asks of its storage about jobs and their events. ports.py has the other stores.

The promise: a job runs at least once, and its effects (state, usage, events, webhooks) happen exactly once. It rests on
the *fence*: every write of a worker names its lease, and is refused if the lease is no longer the job's. Only the
store's clock decides about leases.

Instants are milliseconds since 1970 UTC.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Protocol

from server.model.accounts import Quota
from server.model.erasures import ErasureReason
from server.model.events import Event, NewEvent
from server.model.jobs import IdempotencyKey, Job, JobError, JobFilter, NewJob, Submitted
from server.model.leases import Lease, Renewal
from server.model.orders import Source
from server.model.outcomes import Artifact, Outcome


class JobStore(Protocol):
    """Jobs with their chunks and artifacts. Writes under a lease return False when it is lost: stop then."""

    async def begin(self, key: IdempotencyKey) -> str | None:
        """Reserve *key* while its request arrives. The fingerprint is not compared yet.

        Returns None if the key is new: it is reserved until submit() or abandon(). Returns a job's id if an earlier
        request made this job; submit() compares the fingerprints then. A reservation ends with the process that made
        it. Raises IdempotencyInProgress.
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

    async def delete(self, job_id: str, *, why: ErasureReason = ErasureReason.REQUESTED) -> str | None:
        """Remove record, chunks, events and deliveries, and record the erasure, in one commit.

        Returns the blob prefix to delete, None if there is no job. A worker that holds its lease finds it lost. The
        backend's own files may still hold bytes of it until Upkeep.scrub().
        """
        ...

    async def note_answered(self, job_id: str) -> None:
        """Note that the results of a job whose order keeps none were handed over in full."""
        ...

    async def to_erase(self, *, limit: int) -> list[Job]:
        """Jobs that have ended, whose order keeps no results, and whose results may be erased now.

        They were handed over, or there are none because the job did not complete, and no webhook of it is pending.
        """
        ...

    async def erase_outputs(self, job_id: str) -> str | None:
        """Erase the results of a job that to_erase() would name, and record the erasure, in one commit.

        Text, words, prompt, artifacts and the events with words go; the record, its metadata and its deliveries stay.
        Returns the blob prefix to delete; None if the job is not, or no longer, to be erased.
        """
        ...

    async def list_expired(self, *, limit: int) -> list[str]:
        """Ids of jobs whose retention is over."""
        ...

    async def spent(self, *, limit: int) -> list[str]:
        """Ids of jobs that have ended but whose audio may still be stored: delete it, then call audio_deleted()."""
        ...

    async def audio_deleted(self, job_ids: Sequence[str]) -> None: ...

    async def wait_for_change(self, seen: Job, *, timeout_s: float) -> Job | None:
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
