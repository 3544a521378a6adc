"""The interface of a storage backend for jobs and their events. ports.py has the other interfaces.

A job runs at least once, and its effects (state, usage, events, webhooks) happen exactly once. This rests on the
*fence*: every write of a worker names its lease, and is refused if that lease has ended. Only the store's clock decides
when a lease ends.

Instants are milliseconds since 1970 UTC.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Protocol, Unpack

from server.model.accounts import Quota
from server.model.erasures import ErasureReason
from server.model.events import Event, NewEvent
from server.model.jobs import IdempotencyKey, Job, JobError, JobFilter, NewJob, Submitted
from server.model.leases import ClaimTerms, JobFacts, Lease, Renewal
from server.model.outcomes import Artifact, Outcome


class JobStore(Protocol):
    """Jobs with their chunks and artifacts. A write under a lost lease changes nothing and returns False or None."""

    async def begin(self, key: IdempotencyKey) -> str | None:
        """Reserve *key* until submit() or abandon(), or return the id of the job that an earlier request made with it.

        submit() compares the fingerprints, because the body has not arrived yet. A reservation ends with the process
        that made it. Raises IdempotencyInProgress while another request has reserved the key.
        """

    async def abandon(self, key: IdempotencyKey) -> None:
        """Free a key that begin() reserved, unless it has a job by now."""

    async def check_room(
        self, account: str, environment: str, *, quotas: Sequence[Quota], max_active: int | None
    ) -> None:
        """Raise what submit() would raise for any file now, so that the server need not read a body to refuse it.

        It reserves nothing: submit() checks again. Raises QuotaExceeded, ConcurrencyLimited, QueueFull.
        """

    async def submit(self, new: NewJob, *, idempotency: IdempotencyKey | None) -> Submitted:
        """Accept the job: store row, quotas, first event and idempotency key durably, in one commit.

        If the request is a repetition, the earlier job is returned, and the caller deletes the audio of *new*. Raises
        QuotaExceeded, ConcurrencyLimited, QueueFull, IdempotencyReused.
        """

    async def claim(self, worker: str, *, wait_s: float = 0.0, **terms: Unpack[ClaimTerms]) -> Lease | None:
        """Take the next queued batch job; None if none came within *wait_s*.

        *unfetched* True takes jobs whose audio is still at an address (source.type "url", no blob), False all others.
        Jobs of a later environment are taken only if the earlier ones have none. Accounts in *passing_over* are left
        out.

        Among the rest the order is fair: by virtual time, then by id. An account's virtual time grows by the seconds of
        work that it causes, divided by its weight. These are the audio of each submitted job, the lease of each failed
        attempt (a counted release, an expired lease, an end other than COMPLETED), and the audio of a completed job
        beyond its stated length.

        A submitted or released job ends the wait at once, even if another process submitted or released it. A delayed
        job (NewJob.delay_s, release) ends it when its time comes. A cancelled call leaves no lease behind.
        """

    async def claim_live(self, job_id: str, worker: str, *, lease_s: float) -> Lease | None:
        """Take this live job for the process to which its writer is connected.

        None if it is not a live job, has ended, or is still leased because another writer is connected.
        """

    async def checkpoint(
        self, lease: Lease, *, index: int, body: bytes, events: Sequence[NewEvent], progress: float, lease_s: float
    ) -> int | None:
        """Store a chunk with its events and extend the lease, in one commit. *index* counts chunks from 0.

        Returns the number of the log's last event; None if the lease is lost.
        """

    async def log(self, lease: Lease, events: Sequence[NewEvent]) -> int | None:
        """Append events under the lease. Returns the number of the last; None if the lease is lost.

        Many logs may share one commit.
        """

    async def note(self, lease: Lease, **facts: Unpack[JobFacts]) -> bool:
        """Record what became known while working: stage, format, length, the blob of the fetched audio."""

    async def renew(self, lease: Lease, *, lease_s: float) -> Renewal: ...

    async def finish(self, lease: Lease, outcome: Outcome) -> Job | None:
        """End the job: write state, artifacts, usage, quotas, outbox and last event in one commit. Returns the job.

        The account gets its allowance back if outcome.return_quota is set and no client can have read a word, which
        means that the job has no chunk and its log no "word" event. The same holds for jobs that reap() ends.
        """

    async def release(self, lease: Lease, *, delay_s: float, error: JobError | None, count: bool) -> bool:
        """Put the job back into the queue for *delay_s* seconds later. A job without attempts left fails instead.

        With *count* False the attempt does not count: at a shutdown, or after a download that succeeded.
        """

    async def reap(self, *, limit: int) -> int:
        """Put jobs with an expired lease back into the queue; fail those that waited for too long. Returns how many.

        A batch job without attempts left fails too. A live job always goes back, and waits for its writer.
        """

    async def lapse(self, owner: str) -> int:
        """End the leases of dead workers, whose names begin with *owner*. Returns how many there were."""

    async def list_stale_live(self, *, limit: int) -> list[Job]:
        """Live jobs without a writer for longer than LIVE_GRACE_MS: claim them, and finish them with their words."""

    async def get(self, job_id: str) -> Job | None: ...

    async def chunks(self, job_id: str) -> list[bytes]: ...

    async def artifact(self, job_id: str, kind: str) -> Artifact | None: ...

    async def find(self, which: JobFilter, *, limit: int) -> list[Job]: ...

    async def cancel(self, job_id: str) -> Job | None:
        """Cancel a queued job now, as finish() would; request it of a processing one. Returns the job afterwards."""

    async def delete(self, job_id: str, *, why: ErasureReason = ErasureReason.REQUESTED) -> str | None:
        """Remove record, chunks, events and deliveries, and record the erasure, in one commit.

        Returns the blob prefix to delete, None if there is no job. A worker on the job finds its lease lost. The
        backend's own files may still contain bytes of the job until Upkeep.scrub().
        """

    async def note_answered(self, job_id: str) -> None:
        """Note that the client has all results of a job whose order keeps none."""

    async def list_to_erase(self, *, limit: int) -> list[Job]:
        """Ended jobs whose order keeps no results, and whose results may be erased now.

        The client has the results, or the job did not complete and has none. No webhook of the job is pending.
        """

    async def erase_outputs(self, job_id: str) -> str | None:
        """Erase the results of a job that list_to_erase() would list, and record the erasure, in one commit.

        Text, words, prompt, artifacts and the events with words are deleted; the record, its metadata and its
        deliveries stay. Returns the blob prefix to delete; None if list_to_erase() would not list the job.
        """

    async def list_expired(self, *, limit: int) -> list[str]:
        """Ids of jobs whose retention is over."""

    async def list_with_audio(self, *, limit: int) -> list[str]:
        """Ids of ended jobs whose audio may still be stored: delete it, then call note_audio_deleted()."""

    async def note_audio_deleted(self, job_ids: Sequence[str]) -> None: ...

    async def wait_for_change(self, seen: Job, *, timeout_s: float) -> Job | None:
        """The job as soon as it differs from *seen*, or as it is after *timeout_s*; None if it was deleted."""

    async def counts(self) -> Mapping[str, int]:
        """Jobs per state, only queued and processing, for metrics."""


class EventLog(Protocol):
    """The events of every job, in order."""

    async def read(self, stream: str, *, after: int, limit: int) -> list[Event]: ...

    async def read_all(self, stream: str) -> list[Event]:
        """Every event so far, read page by page: a long session has tens of thousands."""

    async def last(self, stream: str) -> int:
        """The number of the last event; 0 if the stream is empty or unknown."""

    def tail(self, stream: str, *, after: int) -> AsyncGenerator[Event]:
        """Every event after number *after*, then new ones as they come, without gaps or repetitions.

        It ends after the last event of a job, or when the job is deleted. Events that this process commits come without
        being read back. While the database is away, it waits. Close it when it is not read to its end.
        """
