"""Compares the JobStore with a small model: any workers, which lose any leases, in any order."""

import asyncio
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pipeline.timeline import unpack
from server.model.events import render
from server.model.jobs import Job, JobError, Lease, Outcome, Renewal, State
from server.storage.sql.database import Transaction
from server.storage.sql.leases import MAX_ATTEMPTS
from server.storage.sql.rows import job_of
from tests.server.storing import (
    BACKENDS,
    CANCELED,
    HOUR,
    LEASE_S,
    WORD,
    ManualClock,
    checkpoint,
    completion,
    failure,
    quota,
    submit,
    types_of,
)

ERROR = JobError(code="engine_error", message="again", retryable=True)


@dataclass
class Expected:
    """What a job must look like to its readers."""

    live: bool
    hook: bool
    state: State = State.QUEUED
    attempt: int = 0
    stuck: int = 0  # attempts since it got further
    run_after: int = 0
    lease_id: str | None = None
    lease_until: int = 0
    cancel: bool = False
    started: bool = False
    progress: float = 0.0
    parts: int = 0
    told: bool = False  # a part or a word
    charged: bool = True
    sent: set[str] = field(default_factory=set)

    @property
    def untouched(self) -> bool:
        return not self.told and not (self.live and self.started)

    def holds(self, lease: Lease, now: int) -> bool:
        return self.state is State.PROCESSING and self.lease_id == lease.lease_id and self.lease_until > now

    def ends(self, state: State, *, returned: bool = False) -> None:
        self.state, self.lease_id = state, None
        self.charged = self.told or not returned
        if state is State.COMPLETED:
            self.progress = 1.0
        if state is not State.CANCELED and self.hook:
            self.sent = {f"job.{state}"}

    def back(self, *, failing: bool, now: int, delay_ms: int = 0) -> None:
        if self.cancel:
            self.ends(State.CANCELED)
        elif failing and not self.live and self.stuck >= MAX_ATTEMPTS:
            self.ends(State.FAILED, returned=True)
        else:
            self.state, self.lease_id, self.run_after = State.QUEUED, None, now + delay_ms


MAX_JOBS = 3  # so few that much happens to each
MEMORY = Path("/dev/shm")  # a file system without a disk to wait for, because there are many thousand commits
NUMBERS = st.integers(0, 20)


def any_lease(machine: "StoreAndModel") -> bool:
    return bool(machine.leases)


def any_job(machine: "StoreAndModel") -> bool:
    return bool(machine.expected)


def look(tx: Transaction, job_id: str) -> tuple[Job, int, list[str], list[tuple[int, str]]]:
    """Return the job, how many parts of it are done, its webhook events and the numbers in its timeline."""
    (job,) = tx.all("SELECT * FROM jobs WHERE id = ?", (job_id,))
    sent = tx.all("SELECT event FROM deliveries WHERE job = ? ORDER BY event", (job_id,))
    rows = tx.all("SELECT seq, number, kind, body FROM timeline WHERE job = ? ORDER BY seq, number", (job_id,))
    assert [row["number"] for row in rows] == [*range(1, len(rows) + 1)]
    events = [(row["seq"], event.type) for row in rows for event in render(unpack(row["body"]))]
    return (
        job_of(job),
        sum(row["kind"] == "d" for row in rows),
        [row["event"] for row in sent],
        events,
    )


class StoreAndModel(RuleBasedStateMachine):
    backend = "sqlite"

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self.loop = asyncio.Runner()
        self.clock = ManualClock()
        self.store = BACKENDS[self.backend].new_storage(self.folder, self.clock)
        self.expected: dict[str, Expected] = {}
        self.deleted_charges = 0
        self.leases: list[Lease] = []  # every lease so far, because each may be used late

    # --- what clients do ---

    @precondition(lambda self: len(self.expected) < MAX_JOBS)
    @rule(live=st.booleans(), hook=st.booleans())
    def submit(self, *, live: bool, hook: bool) -> None:
        job_id = self.loop.run(submit(self.store, live=live, hook=hook, quotas=(quota(limit=None),)))
        self.expected[job_id] = Expected(live, hook)

    @precondition(any_job)
    @rule(number=NUMBERS, delete=st.booleans())
    def give_up(self, number: int, *, delete: bool) -> None:
        job_id, job = self.job(number)
        if delete:
            assert self.loop.run(self.store.jobs.delete(job_id)) == job_id
            del self.expected[job_id]
            if job.state in (State.QUEUED, State.PROCESSING):
                job.charged = not job.untouched
            self.deleted_charges += job.charged
            return
        self.loop.run(self.store.jobs.cancel(job_id))
        if job.state is State.QUEUED:
            job.ends(State.CANCELED, returned=job.untouched)
        elif job.state is State.PROCESSING:
            job.cancel = True

    def job(self, number: int) -> tuple[str, Expected]:
        return list(self.expected.items())[number % len(self.expected)]

    # --- what workers do ---

    @precondition(lambda self: any(job.state is State.QUEUED for job in self.expected.values()))
    @rule()
    def claim(self) -> None:
        now = self.clock()
        claimable = {
            job_id
            for job_id, job in self.expected.items()
            if job.state is State.QUEUED and not job.live and job.run_after <= now
        }
        lease = self.loop.run(self.store.jobs.claim("w", environments=["production"], lease_s=LEASE_S))
        assert (lease is not None) == bool(claimable)
        if lease is not None:
            assert lease.job.id in claimable
            self.grant(lease)

    @precondition(any_job)
    @rule(number=NUMBERS)
    def claim_live(self, number: int) -> None:
        job_id, job = self.job(number)
        now = self.clock()
        lease = self.loop.run(self.store.jobs.claim_live(job_id, "w", lease_s=LEASE_S))
        if job.live and job.state is State.PROCESSING and job.lease_until <= now:
            job.back(failing=True, now=now)
        assert (lease is not None) == (job.live and job.state is State.QUEUED)
        if lease is not None:
            self.grant(lease)

    def grant(self, lease: Lease) -> None:
        job = self.expected[lease.job.id]
        job.state, job.lease_id, job.lease_until = State.PROCESSING, lease.lease_id, lease.until
        job.attempt += 1
        job.stuck += 1
        job.started = True
        assert lease.job.attempt == job.attempt
        self.leases.append(lease)

    def pick(self, number: int, *, late: bool) -> tuple[Lease, Expected | None]:
        """Return any lease, or a valid one if there is one, and its job if it is valid."""
        good = [lease for lease in self.leases if self.expected_job_of(lease)]
        among = self.leases if late or not good else good
        lease = among[number % len(among)]
        return lease, self.expected_job_of(lease)

    def expected_job_of(self, lease: Lease) -> Expected | None:
        job = self.expected.get(lease.job.id)
        return job if job is not None and job.holds(lease, self.clock()) else None

    @precondition(any_lease)
    @rule(number=NUMBERS, late=st.booleans(), progress=st.floats(0, 1.5))
    def checkpoint(self, number: int, *, late: bool, progress: float) -> None:
        lease, job = self.pick(number, late=late)
        index = job.parts if job else 99
        assert self.loop.run(checkpoint(self.store, lease, index, progress)) == (job is not None)
        if job:
            job.parts += 1
            job.stuck = 0
            job.told = True
            job.progress = max(job.progress, min(progress, 1.0))
            job.lease_until = self.clock() + 30_000

    @precondition(any_lease)
    @rule(number=NUMBERS, late=st.booleans())
    def log_and_renew(self, number: int, *, late: bool) -> None:
        lease, job = self.pick(number, late=late)
        logged = self.loop.run(self.store.jobs.append(lease, [WORD, WORD]))
        assert (logged is not None) == (job is not None)
        answer = Renewal.LOST if job is None else Renewal.CANCEL_REQUESTED if job.cancel else Renewal.OK
        assert self.loop.run(self.store.jobs.renew(lease, lease_s=LEASE_S)) is answer
        if job:
            job.told = True
            job.lease_until = self.clock() + 30_000

    @precondition(any_lease)
    @rule(
        number=NUMBERS,
        late=st.booleans(),
        count=st.booleans(),
        delay_s=st.sampled_from([0.0, 20.0]),
        error=st.sampled_from([None, ERROR]),
    )
    def release(self, number: int, *, late: bool, count: bool, delay_s: float, error: JobError | None) -> None:
        lease, job = self.pick(number, late=late)
        released = self.loop.run(self.store.jobs.release(lease, delay_s=delay_s, error=error, count=count))
        assert released == (job is not None)
        if job:
            job.back(failing=count, now=self.clock(), delay_ms=round(delay_s * 1000))
            job.attempt -= not count
            job.stuck = max(0, job.stuck - (not count))

    @precondition(any_lease)
    @rule(number=NUMBERS, late=st.booleans(), outcome=st.sampled_from([completion(), failure(), CANCELED]))
    def finish(self, number: int, *, late: bool, outcome: Outcome) -> None:
        lease, job = self.pick(number, late=late)
        assert (self.loop.run(self.store.jobs.finish(lease, outcome)) is not None) == (job is not None)
        if job:
            job.ends(outcome.state)

    @precondition(any_job)
    @rule(times=st.integers(1, 4), dies=st.booleans())
    def attempts_fail(self, times: int, *, dies: bool) -> None:
        """Every worker that claims the job dies, or gives it back with an error."""
        for _ in range(times):
            before = len(self.leases)
            self.claim()
            if len(self.leases) == before:
                return
            if dies:
                self.time_passes(s=30, reaping=True)
            elif self.expected_job_of(self.leases[-1]):
                self.release(len(self.leases) - 1, late=True, count=True, delay_s=0.0, error=ERROR)

    # --- time ---

    @precondition(any_lease)
    @rule(s=st.sampled_from([1, 20, 29, 30, 31]), reaping=st.booleans())
    def time_passes(self, *, s: int, reaping: bool) -> None:
        self.clock.advance(s=s)
        if not reaping:
            return
        now = self.clock()
        expired = [job for job in self.expected.values() if job.state is State.PROCESSING and job.lease_until <= now]
        assert self.loop.run(self.store.jobs.reap(limit=1000)) == len(expired)
        for job in expired:
            job.back(failing=True, now=now)

    @invariant()
    def every_job_is_as_expected(self) -> None:
        self.loop.run(self.compare())

    async def compare(self) -> None:
        seen = await self.store.database.read(lambda tx: {job_id: look(tx, job_id) for job_id in self.expected})
        for job_id, expected in self.expected.items():
            job, parts, sent, events = seen[job_id]
            assert (job.state, job.progress) == (expected.state, expected.progress)
            assert parts == expected.parts
            assert sent == sorted(expected.sent)
            assert [seq for seq, _ in events] == list(range(1, len(events) + 1))
            ends = [kind for _, kind in events if kind == f"job.{job.state}"]
            assert ends == ([events[-1][1]] if job.terminal else [])
        (used,) = await self.store.counters.amounts_used("acct_1", [("transcriptions", "2026-11")])
        assert used == self.deleted_charges + sum(job.charged for job in self.expected.values())

    def teardown(self) -> None:
        try:
            self.loop.run(self.everything_ends())
        finally:
            self.loop.run(self.store.close())
            self.loop.close()
            shutil.rmtree(self.folder)

    async def everything_ends(self) -> None:
        """From any state, working workers and time bring every job to one end."""
        for _ in range(2):  # a job that still ran is reaped, then waits for a day
            self.clock.advance(ms=24 * HOUR)
            await self.store.jobs.reap(limit=1000)
        for job_id in self.expected:
            job = await self.store.jobs.get(job_id)
            assert job.terminal
            kinds = await types_of(self.store, job_id)
            assert sum(kind in ("job.completed", "job.failed", "job.canceled") for kind in kinds) == 1
            usage = await self.store.database.read(
                lambda tx, job_id=job_id: tx.all("SELECT state FROM usage WHERE job = ?", (job_id,))
            )
            assert [row["state"] for row in usage] == [job.state]
            assert len(await self.store.outbox.of_job(job_id)) <= 1


class PostgresAndModel(StoreAndModel):
    backend = "postgres"


TestStoreAndModel = StoreAndModel.TestCase
TestStoreAndModel.settings = settings(max_examples=50, stateful_step_count=50)
TestPostgresAndModel = PostgresAndModel.TestCase
TestPostgresAndModel.settings = settings(max_examples=15, stateful_step_count=50, deadline=None)
