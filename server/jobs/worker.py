"""The workers of a process: they claim jobs, run them and write how they ended."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.errors import PipelineError
from server.accounts.plans import Plans
from server.egress.fetch import FetchError
from server.jobs.ended import report_end
from server.jobs.leases import HeldLease
from server.jobs.running import Running, Stopped, Tools, Transcriber, WorkerRules, source_key
from server.jobs.sandbox import Canceled
from server.logs import log
from server.metrics import Metrics
from server.model.errors import DiskFull
from server.model.jobs import Job, JobError, State, returns_quota
from server.model.leases import Lease, LeaseLost, Verdict
from server.model.outcomes import Outcome
from server.waiting import racing, set_within


@dataclass(slots=True, kw_only=True)
class Workers:
    """*count* loops that claim jobs from the queue, and one that puts back the jobs of dead workers."""

    name: str
    tools: Tools
    batches: Mapping[str, Transcriber]  # by environment
    plans: Plans
    metrics: Metrics
    count: int
    _stopping: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    async def run(self) -> None:
        """Work until stop() is called and the jobs in progress are finished or handed back."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tidy(), name="tidy")
            for number in range(self.count):
                tasks.create_task(self._loop(f"{self.name}/{number}"), name=f"worker {number}")

    def stop(self) -> None:
        """Claim nothing more; finish the current chunks, then hand the jobs back."""
        self._stopping.set()

    async def _loop(self, worker: str) -> None:
        while not self._stopping.is_set():
            asked = time.monotonic()
            try:
                lease = await self._claim(worker)
                if lease is not None:
                    await self._work(HeldLease(lease, self.tools.jobs, lease_s=self.tools.rules.lease_s, asked=asked))
            except Exception:  # noqa: BLE001  one job's surprise must not end the loop for all others
                log.exception("worker failed", extra={"worker": worker})
                await self._pause(self.tools.rules.retry_s)

    async def _claim(self, worker: str) -> Lease | None:
        """The next job; None if there is none for a while, or when this process stops."""
        claim = self.tools.jobs.claim(
            worker, environments=list(self.batches), lease_s=self.tools.rules.lease_s, wait_s=self.tools.rules.claim_s
        )
        async with racing(claim, self._stopping.wait()) as (claiming, _):
            lease: Lease | None = claiming.result() if claiming.done() else None
            return lease

    async def _tidy(self) -> None:
        while not self._stopping.is_set():
            try:
                if reaped := await self.tools.jobs.reap(limit=100):
                    self.metrics.leases_lost.inc(reaped)
                    log.warning("jobs reaped", extra={"count": reaped})
                await self._delete_spent_audio()
            except Exception:  # noqa: BLE001  the next round may succeed
                log.exception("tidying failed")
            await self._pause(self.tools.rules.reap_s)

    async def _delete_spent_audio(self) -> None:
        """Delete the audio of jobs that have ended, however they ended."""
        while spent := await self.tools.jobs.spent(limit=100):
            for job_id in spent:
                await self.tools.blobs.delete(source_key(job_id))
            await self.tools.jobs.audio_deleted(spent)

    async def _pause(self, pause_s: float) -> None:
        await set_within(self._stopping, pause_s)

    async def _work(self, held: HeldLease) -> None:
        """Run the job of *held* and write how it ended, unless the lease was lost on the way."""
        job, began = held.job, time.monotonic()
        if job.started_at is not None and job.attempt <= 1:
            self.metrics.job_wait.observe((job.started_at - job.created_at) / 1000)
        plan = await self.plans.of_id(job.account, environment=job.environment)
        running = Running(held, tools=self.tools, batch=self.batches[job.environment], plan=plan)
        try:
            await self._end(held, await self._outcome(running))
        except LeaseLost:
            self.metrics.leases_lost.inc()
            log.warning("lease lost", extra={"job": job.id, "attempt": job.attempt})
        else:
            self.metrics.job_run.observe(time.monotonic() - began)

    async def _outcome(self, running: Running) -> "Outcome | _HandBack":
        async with racing(running.transcribe(), running.keep(), self._stopping.wait()) as (work, keep, _):
            if not work.done() and not keep.done():
                running.stop_after_chunk()
                await asyncio.wait(
                    {work, keep}, timeout=self.tools.rules.handback_s, return_when=asyncio.FIRST_COMPLETED
                )
        if not work.cancelled():
            failed: Outcome | _HandBack | None = _after_error(work.exception(), self.tools.rules, running.job)
            return failed or work.result()
        if keep.cancelled():
            return _after_verdict(Verdict.SHUTDOWN)
        return _after_error(keep.exception(), self.tools.rules, running.job) or _after_verdict(keep.result())

    async def _end(self, held: HeldLease, ending: "Outcome | _HandBack") -> None:
        if isinstance(ending, _HandBack):
            reason = ending.error.code if ending.error else "shutdown"
            log.info("job handed back", extra={"job": held.job.id, "reason": reason})
            await held.release(delay_s=ending.delay_s, error=ending.error)
        else:
            await held.finish(ending)
        job = await self.tools.jobs.get(held.job.id)
        if job is not None and job.terminal:
            report_end(job, self.metrics)


@dataclass(frozen=True, slots=True)
class _HandBack:
    """The job goes back to the queue, for another attempt if *error* says why, otherwise because the server stops."""

    delay_s: float = 0.0
    error: JobError | None = None


def _after_verdict(verdict: Verdict) -> Outcome | _HandBack:
    match verdict:
        case Verdict.CANCELED:
            return Outcome(state=State.CANCELED)
        case Verdict.SHUTDOWN:
            return _HandBack()
        case Verdict.LEASE_LOST | Verdict.STALLED:
            raise LeaseLost


def _after_error(error: BaseException | None, rules: WorkerRules, job: Job) -> Outcome | _HandBack | None:
    """What an exception means for the job; None if there was none."""
    again_s = rules.retry_s * 2 ** (job.attempt - 1)
    match error:
        case None:
            return None
        case LeaseLost():
            raise error
        case Stopped():
            return _HandBack()
        case Canceled():
            return Outcome(state=State.CANCELED)
        case DiskFull():
            log.error("disk full", extra={"job": job.id})
            return _HandBack(delay_s=30.0)
        case PipelineError() | FetchError():
            failure = JobError(code=error.code, message=str(error), retryable=error.retryable)
            if error.retryable:
                return _HandBack(again_s, failure)
            return Outcome(state=State.FAILED, error=failure, return_quota=returns_quota(error.code))
        case _:
            log.error("job broke", exc_info=error, extra={"job": job.id})
            return _HandBack(
                again_s, JobError(code="internal", message="the server failed; it has been logged", retryable=True)
            )
