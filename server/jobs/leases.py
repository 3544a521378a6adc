"""Writing under a lease. The worker of a file and a live session each hold a lease on their job.

The holder writes nothing once the lease may have ended by its own monotonic clock, and the store refuses every write
after another worker has taken the job. The lease of a live session can be claimed again after the database was away for
longer than the lease lasts.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar, Unpack

from pipeline.timeline import Entry
from server.model.errors import DiskFull, OutcomeUnknown, StorageBusy
from server.model.jobs import Job, JobError, JobFacts, Lease, LeaseLost, Outcome, Renewal, Verdict
from server.storage.sql.jobs import JobStore
from server.storage.waiting import patiently

T = TypeVar("T")
AWAY_S = 30.0  # how long a session waits for the database; its new words are kept in memory meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRules:
    """How long workers hold jobs, in seconds. storage/README.md explains how the numbers fit together."""

    claim_s: float = 5.0  # one wait for a job; much shorter than a lease, which counts from the start of the wait
    lease_s: float = 30.0
    renew_s: float = 10.0
    stall_s: float = 300.0  # without a finished chunk for this long, the engine is assumed to hang
    handback_s: float = 15.0  # how long a shutdown waits for the chunk in work
    retry_s: float = 1.0  # first delay after an error worth another attempt; doubles


class HeldLease:
    """Writes for one job. Every method raises LeaseLost, and writes nothing, once another worker may have the job.

    If the database is away or busy, the methods wait for it until the lease ends.
    """

    despite: ClassVar[tuple[type[Exception], ...]] = (StorageBusy,)  # errors after which a write is tried again

    def __init__(self, lease: Lease, jobs: JobStore, *, lease_s: float, requested_at: float) -> None:
        """*requested_at* is the monotonic time just before the store was asked for *lease*.

        The store starts to count a little later, so the lease lasts at least until *requested_at* + *lease_s*.
        """
        self.job = lease.job
        self.lease = lease
        self.until = requested_at + lease_s
        self.last_seq = lease.last_seq  # the number of the newest event
        self._jobs = jobs
        self._lease_s = lease_s

    @property
    def claimed_at(self) -> int:
        """When the store gave the lease, in milliseconds since 1970 UTC by the store's clock."""
        return self.lease.until - round(self._lease_s * 1000)

    def check(self) -> None:
        """Raise LeaseLost when another process may have the job by now."""
        if time.monotonic() >= self.until:
            raise LeaseLost

    async def renew(self) -> Renewal:
        """Extend the lease. LOST is returned, not raised, because callers act on it differently."""
        requested_at = time.monotonic()
        answer = await self._jobs.renew(self.lease, lease_s=self._lease_s)
        if answer is not Renewal.LOST:
            self.until = requested_at + self._lease_s
        return answer

    async def checkpoint(self, entries: Sequence[Entry], *, progress: float) -> None:
        """Append what was recognised of a file to its timeline, and renew the lease, in one commit."""
        lease_s, requested_at = self._lease_s, 0.0

        def keep(lease: Lease) -> Awaitable[int | None]:
            nonlocal requested_at
            requested_at = time.monotonic()
            return self._jobs.checkpoint(lease, entries, progress=progress, lease_s=lease_s)

        self.last_seq = await self._write(keep, timely=True)
        self.until = requested_at + lease_s

    async def append(self, entries: Sequence[Entry]) -> None:
        """Append *entries* to the job's timeline, in one commit."""
        self.last_seq = await self._write(lambda lease: self._jobs.append(lease, entries), timely=True)

    async def note(self, **facts: Unpack[JobFacts]) -> None:
        """See JobStore.note()."""
        await self._write(lambda lease: self._jobs.note(lease, **facts))

    async def finish(self, outcome: Outcome) -> Job:
        """See JobStore.finish()."""
        return await self._write(lambda lease: self._jobs.finish(lease, outcome))

    async def release(self, *, delay_s: float = 0.0, error: JobError | None = None) -> None:
        """Put the job back into the queue. Only a release with an *error* uses up one of its attempts."""
        await self._write(
            lambda lease: self._jobs.release(lease, delay_s=delay_s, error=error, count=error is not None)
        )

    async def _write(self, write: Callable[[Lease], Awaitable[T | None]], *, timely: bool = False) -> T:
        """Call *write* with the lease and return its answer. Raises LeaseLost if the answer is None or False.

        *write* is called again while the database is away, and once more if _regain() gets a lost lease back. LeaseLost
        is also raised if it is unknown whether a write succeeded. With *timely* nothing is written once the lease may
        have ended.
        """
        for attempt in ("first", "regained"):
            try:
                if timely:
                    self.check()
                done = await patiently(lambda: write(self.lease), check=self.check, despite=self.despite)
            except OutcomeUnknown as error:
                raise LeaseLost from error
            except LeaseLost:
                done = None
            if done is not None and done is not False:
                return done
            if attempt == "first" and not await self._regain():
                break
        raise LeaseLost

    async def _regain(self) -> bool:
        """Claim the job again after its lease was lost, if a subclass allows that. Returns whether it succeeded."""
        return False


class SessionLease(HeldLease):
    """A HeldLease that is claimed again if it expired and no other process has had the job since.

    If another process has had the job, LeaseLost is raised, and the session ends here. The lease waits for space on a
    full disk as it waits for the database.
    """

    despite = (StorageBusy, DiskFull)

    def __init__(self, lease: Lease, jobs: JobStore, *, worker: str, lease_s: float, requested_at: float) -> None:
        super().__init__(lease, jobs, lease_s=lease_s, requested_at=requested_at)
        self._worker = worker

    def check(self) -> None:
        """Raise LeaseLost when the database has been away for too long."""
        if time.monotonic() >= self.until - self._lease_s + max(AWAY_S, self._lease_s):
            raise LeaseLost

    async def renew(self) -> Renewal:
        answer = await super().renew()
        return Renewal.OK if answer is Renewal.LOST and await self._regain() else answer

    async def _regain(self) -> bool:
        requested_at = time.monotonic()
        lease = await patiently(
            lambda: self._jobs.claim_live(self.job.id, self._worker, lease_s=self._lease_s),
            check=self.check,
            despite=self.despite,
        )
        if lease is None:
            return False
        if lease.epoch != self.lease.epoch + 1:  # another process had the job and may have written more words
            await self._jobs.release(lease, delay_s=0.0, error=None, count=False)
            return False
        self.lease, self.until, self.last_seq = lease, requested_at + self._lease_s, lease.last_seq
        return True


class LeaseKeeper:
    """Renews the lease of a job while work on it makes progress."""

    def __init__(self, held: HeldLease, jobs: JobStore, rules: WorkerRules) -> None:
        self._held = held
        self._jobs = jobs
        self._rules = rules
        self._moved_at = time.monotonic()

    def note_progress(self) -> None:
        """Note that a part of the work was finished just now, so it does not hang."""
        self._moved_at = time.monotonic()

    async def keep(self) -> Verdict:
        """Renew the lease while the work may continue. Returns the reason why the work must end early."""
        try:  # while the database is away, the lease may still last
            return await patiently(self._keep, check=self._held.check, repeatable=True)
        except LeaseLost:
            return Verdict.LEASE_LOST

    async def _keep(self) -> Verdict:
        rules, seen = self._rules, self._held.job
        while True:
            wait_s = self._held.until - rules.lease_s + rules.renew_s - time.monotonic()
            if wait_s <= 0:
                if time.monotonic() - self._moved_at > rules.stall_s:
                    return Verdict.STALLED
                match await self._held.renew():
                    case Renewal.LOST:
                        return Verdict.LEASE_LOST
                    case Renewal.CANCEL_REQUESTED:
                        return Verdict.CANCELED
                continue
            now = await self._jobs.wait_for_change(seen, timeout_s=wait_s)
            if now is None or now.epoch != self._held.lease.epoch:
                return Verdict.LEASE_LOST
            if now.cancel_requested_at is not None:
                return Verdict.CANCELED
            seen = now
