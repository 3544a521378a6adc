"""The workers of a process: they claim jobs, a bounded number at a time, work on them and write how they ended."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from pipeline.batch import Batch
from pipeline.errors import DecodersBusy, PipelineError
from server.accounts.limits import Plans
from server.background import keep_running
from server.egress.fetch import FetchError
from server.jobs.attempts import (
    Canceled,
    DownloadAttempt,
    JobAttempt,
    RehearsedAttempt,
    Stopped,
    TranscriptionAttempt,
    WorkerTools,
)
from server.jobs.finishing import delete_if_gone, report_end
from server.jobs.leases import HeldLease, WorkerRules
from server.logs import log
from server.metrics import Metrics
from server.model.errors import BlobsAway, DiskFailed, DiskFull
from server.model.jobs import HandBack, Job, JobError, LeaseLost, Outcome, State, Verdict, returns_quota
from server.storage.sql.jobs import JobStore
from server.waiting import racing, set_within

DISK_FULL_DELAY_S = 30.0
BLOBS_AWAY_DELAY_S = 5.0
DECODERS_BUSY_DELAY_S = 5.0
MAX_DOWNLOADS = 32  # at the same time as the transcriptions: they wait for other servers and use no engine
MAX_DOWNLOADS_PER_ACCOUNT = 2


@dataclass(slots=True, kw_only=True)
class Pool:
    """Claims jobs while it has free places, and works on each job in a task of its own.

    One account has at most *per_account* of the *size* places. The sandbox has at most half of the places, and gets
    one only while no job of production waits.
    """

    owner: str  # the name in its leases
    jobs: JobStore
    rules: WorkerRules
    environments: Sequence[str]
    unfetched: bool  # True: it claims jobs whose audio must be downloaded; False: all others
    size: int
    per_account: int
    work: Callable[[HeldLease], Awaitable[None]]
    metrics: Metrics
    _working: dict[str, Job] = field(init=False, default_factory=dict)  # by lease
    _freed: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until *stopping* is set and the jobs in work have ended."""
        async with asyncio.TaskGroup() as tasks:
            while not stopping.is_set():
                try:
                    held = await self._next(stopping)
                except Exception:  # noqa: BLE001  a full disk or a busy database may be gone at the next claim
                    self.metrics.faults.labels("claiming").inc()
                    log.exception("claiming failed", extra={"worker": self.owner})
                    await set_within(stopping, self.rules.retry_s)
                    continue
                if held is not None:
                    self._working[held.lease.lease_id] = held.job
                    tasks.create_task(self._work_on(held, stopping), name=f"{self.owner} {held.job.id}")

    async def _next(self, stopping: asyncio.Event) -> HeldLease | None:
        """Claim the next job. None if there is none yet, if a place became free meanwhile, or at a stop: look again."""
        self._freed.clear()
        if len(self._working) >= self.size:
            async with racing(self._freed.wait(), stopping.wait()):
                return None
        async with racing(self._claim(), self._freed.wait(), stopping.wait()) as (claiming, *_):
            held: HeldLease | None = claiming.result() if claiming.done() else None
            return held

    async def _claim(self) -> HeldLease | None:
        requested_at = time.monotonic()
        in_work = Counter(job.account for job in self._working.values())
        lease = await self.jobs.claim(
            self.owner,
            environments=self._open_environments(),
            unfetched=self.unfetched,
            passing_over=[account for account, count in in_work.items() if count >= self.per_account],
            lease_s=self.rules.lease_s,
            wait_s=self.rules.claim_s,
        )
        if lease is None:
            return None
        return HeldLease(lease, self.jobs, lease_s=self.rules.lease_s, requested_at=requested_at)

    def _open_environments(self) -> list[str]:
        """The environments whose jobs may be claimed now, production first."""
        sandboxed = sum(job.environment == "sandbox" for job in self._working.values())
        full = sandboxed >= max(1, self.size // 2)
        return [name for name in sorted(self.environments) if not (full and name == "sandbox")]

    async def _work_on(self, held: HeldLease, stopping: asyncio.Event) -> None:
        try:
            await self.work(held)
        except Exception:  # noqa: BLE001  an error of one job must not end the pool
            self.metrics.faults.labels("job").inc()
            log.exception("worker failed", extra={"worker": self.owner, "job": held.job.id})
            await set_within(stopping, self.rules.retry_s)
        finally:
            del self._working[held.lease.lease_id]
            self._freed.set()


@dataclass(slots=True, kw_only=True)
class Workers:
    """Transcribes *count* jobs at a time and downloads the audio of others."""

    name: str
    tools: WorkerTools
    batches: Mapping[str, Batch]  # by environment
    plans: Plans
    metrics: Metrics
    count: int
    closing: asyncio.Event  # set when the process stops: no job is claimed any more

    async def run(self) -> None:
        """Work until *closing* is set. Then finish the current chunks and return the jobs to the queue."""
        async with asyncio.TaskGroup() as tasks:
            for pool in self._pools() if self.count else ():
                work = partial(pool.run, self.closing)
                keeping = keep_running(pool.owner, work, metrics=self.metrics, stopping=self.closing)
                tasks.create_task(keeping, name=pool.owner)

    def _pools(self) -> list[Pool]:
        kinds = (
            ("files", self._transcribe, self.count, max(1, self.count // 2)),
            ("downloads", self._download, MAX_DOWNLOADS, MAX_DOWNLOADS_PER_ACCOUNT),
        )
        return [
            Pool(
                owner=f"{self.name}/{name}",
                jobs=self.tools.storage.jobs,
                rules=self.tools.rules,
                environments=list(self.batches),
                unfetched=name == "downloads",
                size=size,
                per_account=per_account,
                work=work,
                metrics=self.metrics,
            )
            for name, work, size, per_account in kinds
        ]

    async def _transcribe(self, held: HeldLease) -> None:
        plan, batch = await self.plans.of_job(held.job), self.batches[held.job.environment]
        began = time.monotonic()
        kind = TranscriptionAttempt if held.job.order.scenario is None else RehearsedAttempt
        if await self._work(kind(held, self.tools, plan, batch)):
            self.metrics.job_run.observe(time.monotonic() - began)

    async def _download(self, held: HeldLease) -> None:
        await self._work(DownloadAttempt(held, self.tools, await self.plans.of_job(held.job)))

    async def _work(self, attempt: JobAttempt) -> bool:
        """Make the attempt and write how it ended. Returns False if the lease was lost meanwhile."""
        held, job = attempt.held, attempt.held.job
        if job.started_at is not None and job.epoch == 1:
            self.metrics.job_wait.observe((job.started_at - job.created_at) / 1000)
        try:
            await self._end_attempt(held, await self._outcome(attempt))
        except LeaseLost:
            self.metrics.leases_lost.inc()
            log.warning("lease lost", extra={"job": job.id, "attempt": job.attempt})
            await delete_if_gone(job.id, self.tools.storage.jobs, self.tools.storage.blobs)
            return False
        return True

    async def _outcome(self, attempt: JobAttempt) -> Outcome | HandBack:
        async with racing(attempt.work(), attempt.keeper.keep(), self.closing.wait()) as (work, keep, _):
            if not work.done() and not keep.done():
                attempt.stop()
                await asyncio.wait({work, keep}, timeout=attempt.patience_s, return_when=asyncio.FIRST_COMPLETED)
        rules, job = self.tools.rules, attempt.held.job
        if not work.cancelled():
            failed: Outcome | HandBack | None = after_error(work.exception(), rules, job)
            return failed or work.result()
        if keep.cancelled():
            return after_verdict(Verdict.SHUTDOWN)
        return after_error(keep.exception(), rules, job) or after_verdict(keep.result())

    async def _end_attempt(self, held: HeldLease, ending: Outcome | HandBack) -> None:
        if isinstance(ending, HandBack):
            log.info("job handed back", extra={"job": held.job.id, "reason": ending.reason})
            if ending.reason == "internal":
                self.metrics.faults.labels("job").inc()
            await held.release(delay_s=ending.delay_s, error=ending.error)
            job = await self.tools.storage.jobs.get(held.job.id)
            if job is not None and job.terminal:  # no attempt was left
                report_end(job, self.metrics)
        else:
            await self.tools.finisher.finish(held, ending)


def after_verdict(verdict: Verdict) -> Outcome | HandBack:
    """What an early stop because of *verdict* means for the job. Raises LeaseLost if another worker may have it."""
    match verdict:
        case Verdict.CANCELED:
            return Outcome(state=State.CANCELED)
        case Verdict.SHUTDOWN:
            return HandBack("shutdown")
        case Verdict.LEASE_LOST | Verdict.STALLED:
            raise LeaseLost


def after_error(error: BaseException | None, rules: WorkerRules, job: Job) -> Outcome | HandBack | None:
    """What the attempt's exception means for *job*; None if there was none. A LeaseLost is raised again."""
    again_s = rules.retry_s * 2 ** (job.attempt - 1)
    match error:
        case None:
            return None
        case LeaseLost():
            raise error
        case Stopped():
            return HandBack("shutdown")
        case Canceled():
            return Outcome(state=State.CANCELED)
        case DiskFull():
            log.error("disk full", extra={"job": job.id})
            return HandBack("disk_full", delay_s=DISK_FULL_DELAY_S)
        case BlobsAway() if not isinstance(error, DiskFailed):  # the disk may fail for this job's file alone
            log.error("bucket away", extra={"job": job.id})
            return HandBack("bucket_away", delay_s=BLOBS_AWAY_DELAY_S)
        case DecodersBusy():
            return HandBack("decoders_busy", delay_s=DECODERS_BUSY_DELAY_S)
        case PipelineError() | FetchError():
            failure = JobError(code=error.code, message=str(error), retryable=error.retryable)
            if error.retryable:
                return HandBack(error.code, delay_s=again_s, error=failure)
            return Outcome(state=State.FAILED, error=failure, return_quota=returns_quota(error.code))
        case _:
            log.error("job broke", exc_info=error, extra={"job": job.id})
            failure = JobError(code="internal", message="the server failed; it has been logged", retryable=True)
            return HandBack(failure.code, delay_s=again_s, error=failure)
