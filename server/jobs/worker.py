"""Jobs get done here: claim, run, and write how it ended. One Workers object per process."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.errors import PipelineError
from server.accounts.plans import Plans
from server.egress.fetch import Fetcher, FetchError
from server.jobs.probing import Prober
from server.jobs.running import LeaseLost, Running, Stopped, Transcriber, Verdict, WorkerRules, source_key
from server.jobs.sandbox import Canceled
from server.logs import log
from server.metrics import Metrics
from server.model.errors import DiskFull
from server.model.jobs import Job, JobError, State, returns_quota
from server.model.leases import Lease
from server.model.outcomes import Outcome
from server.storage.ports import BlobStore, JobStore
from server.waiting import set_within


class Workers:
    """*count* loops that take turns at the queue, and one that reaps what dead workers left."""

    def __init__(
        self,
        *,
        name: str,
        jobs: JobStore,
        blobs: BlobStore,
        batches: Mapping[str, Transcriber],  # by environment
        plans: Plans,
        fetcher: Fetcher,
        prober: Prober,
        metrics: Metrics,
        rules: WorkerRules,
        count: int,
    ) -> None:
        self._name = name
        self._jobs = jobs
        self._blobs = blobs
        self._batches = batches
        self._plans = plans
        self._fetcher = fetcher
        self._prober = prober
        self._metrics = metrics
        self._rules = rules
        self._count = count
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Work until stop() was called and the jobs in hand are finished or handed back."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tidy(), name="tidy")
            for number in range(self._count):
                tasks.create_task(self._loop(f"{self._name}/{number}"), name=f"worker {number}")

    def stop(self) -> None:
        """Claim nothing more; finish the chunks in work, then hand the jobs back."""
        self._stopping.set()

    async def _loop(self, worker: str) -> None:
        while not self._stopping.is_set():
            asked = time.monotonic()
            try:
                lease = await self._claimed(worker)
                if lease is not None:
                    await self._work(lease, held_until=asked + self._rules.lease_s)
            except Exception:  # noqa: BLE001  one job's surprise must not end the loop for all others
                log.exception("worker failed", extra={"worker": worker})
                await self._pause(self._rules.retry_s)

    async def _claimed(self, worker: str) -> Lease | None:
        """The next job; None when there is none for a while, or none is wanted any more."""
        claim = asyncio.create_task(
            self._jobs.claim(
                worker, environments=list(self._batches), lease_s=self._rules.lease_s, wait_s=self._rules.claim_s
            )
        )
        stop = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({claim, stop}, return_when=asyncio.FIRST_COMPLETED)
            return claim.result() if claim.done() else None
        finally:
            for task in (claim, stop):
                await _ended(task)

    async def _tidy(self) -> None:
        while not self._stopping.is_set():
            try:
                if reaped := await self._jobs.reap(limit=100):
                    self._metrics.leases_lost.inc(reaped)
                    log.warning("jobs reaped", extra={"count": reaped})
                await self._delete_spent_audio()
            except Exception:  # noqa: BLE001  the next round may succeed
                log.exception("tidying failed")
            await self._pause(self._rules.reap_s)

    async def _delete_spent_audio(self) -> None:
        """Nobody keeps the audio of a job that is over, however it ended and whoever died meanwhile."""
        while spent := await self._jobs.spent(limit=100):
            for job_id in spent:
                await self._blobs.delete(source_key(job_id))
            await self._jobs.audio_deleted(spent)

    async def _pause(self, pause_s: float) -> None:
        await set_within(self._stopping, pause_s)

    async def _work(self, lease: Lease, *, held_until: float) -> None:
        """Run the job of *lease* and write how it ended, unless the lease was lost on the way.

        It is surely ours until *held_until* of the monotonic clock: the store counts from a later moment.
        """
        began = time.monotonic()
        if lease.job.started_at is not None and lease.job.attempt <= 1:
            self._metrics.job_wait.observe((lease.job.started_at - lease.job.created_at) / 1000)
        running = Running(
            lease,
            jobs=self._jobs,
            blobs=self._blobs,
            batch=self._batches[lease.job.environment],
            plan=await self._plans.of_id(lease.job.account, environment=lease.job.environment),
            fetcher=self._fetcher,
            prober=self._prober,
            rules=self._rules,
            held_until=held_until,
        )
        try:
            await self._end(lease, await self._outcome(running))
        except LeaseLost:
            self._metrics.leases_lost.inc()
            log.warning("lease lost", extra={"job": lease.job.id, "attempt": lease.job.attempt})
        else:
            self._metrics.job_run.observe(time.monotonic() - began)

    async def _outcome(self, running: Running) -> "Outcome | _HandBack":
        work = asyncio.create_task(running.transcribe(), name=f"job {running.job.id}")
        keep = asyncio.create_task(running.keep(), name=f"lease {running.job.id}")
        stop = asyncio.create_task(self._stopping.wait(), name="stop")
        try:
            await asyncio.wait({work, keep, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and not keep.done():
                running.stop_after_chunk()
                await asyncio.wait({work, keep}, timeout=self._rules.handback_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, keep, stop):
                await _ended(task)
        if not work.cancelled():
            return _told(work.exception(), self._rules, running.job) or work.result()
        if keep.cancelled():
            return _judged(Verdict.SHUTDOWN)
        return _told(keep.exception(), self._rules, running.job) or _judged(keep.result())

    async def _end(self, lease: Lease, ending: "Outcome | _HandBack") -> None:
        if isinstance(ending, _HandBack):
            log.info(
                "job handed back",
                extra={"job": lease.job.id, "reason": ending.error.code if ending.error else "shutdown"},
            )
            if not await self._jobs.release(
                lease, delay_s=ending.delay_s, error=ending.error, count=ending.error is not None
            ):
                raise LeaseLost
        elif not await self._jobs.finish(lease, ending):
            raise LeaseLost
        job = await self._jobs.get(lease.job.id)
        if job is not None and job.terminal:
            self._remember(job)

    def _remember(self, job: Job) -> None:
        code = job.error.code if job.error else None
        audio_s = job.duration_s if job.state is State.COMPLETED else None
        self._metrics.jobs_ended.labels(job.state.value, code or "").inc()
        self._metrics.audio.labels(job.environment).inc(audio_s or 0)
        log.info("job ended", extra={"job": job.id, "state": job.state.value, "error": code, "audio_s": audio_s})


@dataclass(frozen=True, slots=True)
class _HandBack:
    """The job goes back to the queue: for another attempt when *error* says why, else because the server stops."""

    delay_s: float = 0.0
    error: JobError | None = None


def _judged(verdict: Verdict) -> Outcome | _HandBack:
    match verdict:
        case Verdict.CANCELED:
            return Outcome(state=State.CANCELED)
        case Verdict.SHUTDOWN:
            return _HandBack()
        case Verdict.LEASE_LOST | Verdict.STALLED:
            raise LeaseLost


def _told(error: BaseException | None, rules: WorkerRules, job: Job) -> Outcome | _HandBack | None:
    """What an exception of the work means for the job; None when there was none."""
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


async def _ended(task: "asyncio.Task[object]") -> None:
    """Cancel *task* if it still runs and wait until it is over. Its result stays to be read."""
    task.cancel()
    await asyncio.wait({task})
