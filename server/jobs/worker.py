"""Jobs get done here: claim, run the pipeline, checkpoint, renew, finish. One Workers object per process.

A worker trusts only its lease. It writes nothing once the lease may have ended by its own monotonic clock, and every
write that it does make is refused by the store when another worker has taken over.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from enum import StrEnum, auto
from pathlib import Path
from typing import Protocol

import orjson

from pipeline.audio import seconds
from pipeline.batch import BatchOptions
from pipeline.documents.assemble import assemble
from pipeline.documents.formats import segment_object, word_object
from pipeline.documents.stored import restored, stored
from pipeline.errors import PipelineError
from pipeline.words import Chunk, Transcript
from server.accounts.limits import Plan
from server.accounts.plans import Plans
from server.jobs.fetch import Fetcher, FetchError
from server.jobs.outputs import write_output
from server.jobs.probing import Prober
from server.jobs.sandbox import Canceled, rehearsed
from server.jobs.states import Job, JobError, State, returns_quota
from server.logs import log
from server.metrics import Metrics
from server.storage.interfaces import Artifact, BlobStore, DiskFull, JobStore, Lease, NewEvent, Outcome, Renewal


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRules:
    """How workers hold and lose jobs. Seconds; storage's README tells how they fit together."""

    claim_s: float = 5.0  # of waiting for a job at a time; a lease is counted from before it, so far less than one
    lease_s: float = 30.0
    renew_s: float = 10.0
    reap_s: float = 5.0
    stall_s: float = 300.0  # without a finished chunk for so long, the engine is taken to hang
    handback_s: float = 15.0  # how long a shutdown waits for the chunk in work
    retry_s: float = 1.0  # first delay after an error worth another attempt; doubles


class Transcriber(Protocol):
    """pipeline.batch.Batch, as workers see it."""

    @property
    def engine_name(self) -> str: ...

    @property
    def model_name(self) -> str: ...

    def transcribe(self, path: Path, options: BatchOptions, *, done: Sequence[Chunk] = ()) -> AsyncGenerator[Chunk]: ...


class LeaseLost(Exception):
    """Somebody else has the job, or may have it by now. Stop; write nothing, delete nothing."""


class _Verdict(StrEnum):
    """Why a running job must stop before it is done."""

    LEASE_LOST = auto()
    CANCELED = auto()
    STALLED = auto()
    SHUTDOWN = auto()


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
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), pause_s)

    async def _work(self, lease: Lease, *, held_until: float) -> None:
        """Run the job of *lease* and write how it ended, unless the lease was lost on the way.

        It is surely ours until *held_until* of the monotonic clock: the store counts from a later moment.
        """
        began = time.monotonic()
        if lease.job.started_at is not None and lease.job.attempt <= 1:
            self._metrics.job_wait.observe((lease.job.started_at - lease.job.created_at) / 1000)
        running = _Running(
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

    async def _outcome(self, running: "_Running") -> "Outcome | _HandBack":
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
            return _judged(_Verdict.SHUTDOWN)
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


class _Running:
    """One job in the hands of one worker."""

    def __init__(
        self,
        lease: Lease,
        *,
        jobs: JobStore,
        blobs: BlobStore,
        batch: Transcriber,
        plan: Plan,
        fetcher: Fetcher,
        prober: Prober,
        rules: WorkerRules,
        held_until: float,
    ) -> None:
        self.job = lease.job
        self._lease = lease
        self._jobs = jobs
        self._blobs = blobs
        self._batch = batch
        self._plan = plan
        self._fetcher = fetcher
        self._prober = prober
        self._rules = rules
        self._held_until = held_until
        self._moved_at = time.monotonic()
        self._total_s = self.job.duration_s
        self._stopping = False

    def stop_after_chunk(self) -> None:
        self._stopping = True

    async def keep(self) -> _Verdict:
        """Renew the lease while the work makes progress; returns why the work must end early."""
        seen = self.job
        while True:
            wait_s = self._held_until - self._rules.lease_s + self._rules.renew_s - time.monotonic()
            if wait_s <= 0:
                if time.monotonic() - self._moved_at > self._rules.stall_s:
                    return _Verdict.STALLED
                if (verdict := await self._renew()) is not None:
                    return verdict
                continue
            now = await self._jobs.changed(seen, timeout_s=wait_s)
            if now is None or now.epoch != self._lease.epoch:
                return _Verdict.LEASE_LOST
            if now.cancel_requested_at is not None:
                return _Verdict.CANCELED
            seen = now

    async def _renew(self) -> _Verdict | None:
        asked = time.monotonic()
        match await self._jobs.renew(self._lease, lease_s=self._rules.lease_s):
            case Renewal.OK:
                self._held_until = asked + self._rules.lease_s
                return None
            case Renewal.LOST:
                return _Verdict.LEASE_LOST
            case Renewal.CANCEL_REQUESTED:
                return _Verdict.CANCELED

    async def transcribe(self) -> Outcome:
        """The whole job, from the last checkpoint on. Raises what the pipeline raises, LeaseLost, _Stopped."""
        order = self.job.order
        key = await self._audio()
        await self._known(stage="transcribing")
        chunks = await self._heard(key)
        await self._known(stage="writing")
        transcript = assemble(
            chunks, duration=chunks[-1].end, engine=self._batch.engine_name, model=self._batch.model_name
        )
        return Outcome(
            state=State.COMPLETED,
            duration_s=seconds(transcript.duration),
            language=transcript.language,
            language_probability=transcript.language_probability,
            engine=transcript.engine,
            model=transcript.model,
            text=transcript.text,
            artifacts=tuple([await self._write(name, transcript) for name in order.output_formats]),
            warnings=tuple({"code": note} for note in transcript.notes),
        )

    async def _heard(self, key: str) -> list[Chunk]:
        """Every chunk of the audio, those of earlier attempts included, each safe before the next is asked for."""
        order = self.job.order
        chunks = [restored(body) for body in self._lease.chunks]
        options = BatchOptions(
            language=order.language,
            hint=order.prompt,
            tenant=self.job.account,
            longest_s=self._plan.audio_s_per_file,
        )
        with self._blobs.local(key) as path:
            made = rehearsed(order.scenario, self._batch.transcribe(path, options, done=tuple(chunks)))
            async with aclosing(made):
                async for chunk in made:
                    await self._checkpoint(chunk, chunks)
                    chunks.append(chunk)
                    if self._stopping:
                        raise _Stopped
        return chunks

    async def _audio(self) -> str:
        """The blob with the job's audio; an address is fetched first, once for all attempts."""
        if self._lease.blob is not None:
            return self._lease.blob
        await self._known(stage="downloading")
        key = f"{source_key(self.job.id)}/{self._lease.epoch}"
        source = await self._fetcher.fetch(self.job.source, blob=key, most=self._plan.upload_bytes)
        probe = await self._prober.probe(key, longest_s=self._plan.audio_s_per_file)
        self._moved_at = time.monotonic()
        self._total_s = probe.duration_s
        if not await self._jobs.note(
            self._lease, source=replace(source, format=probe.format), duration_s=probe.duration_s, blob=key
        ):
            raise LeaseLost
        return key

    async def _known(self, *, stage: str) -> None:
        if not await self._jobs.note(self._lease, stage=stage):
            raise LeaseLost

    async def _checkpoint(self, chunk: Chunk, before: Sequence[Chunk]) -> None:
        self._check_clock()
        asked = time.monotonic()
        kept = await self._jobs.checkpoint(
            self._lease,
            index=chunk.index,
            body=stored(chunk),
            events=chunk_events(chunk, before, words=self.job.order.word_timestamps),
            progress=self._progress(chunk),
            lease_s=self._rules.lease_s,
        )
        if not kept:
            raise LeaseLost
        self._held_until = asked + self._rules.lease_s
        self._moved_at = asked

    def _progress(self, chunk: Chunk) -> float:
        """How far the decoded audio is, a hair below 1 until everything is written."""
        return min(0.999, seconds(chunk.end) / self._total_s) if self._total_s else 0.0

    async def _write(self, name: str, transcript: Transcript) -> Artifact:
        self._check_clock()
        return await write_output(name, transcript, self.job, epoch=self._lease.epoch, blobs=self._blobs)

    def _check_clock(self) -> None:
        if time.monotonic() >= self._held_until:
            raise LeaseLost


class _Stopped(Exception):
    """The server is shutting down and the chunk in work is safe."""


def source_key(job_id: str) -> str:
    """Where a job's audio lies: this blob when it was uploaded, blobs below it when it was fetched."""
    return f"{job_id}/source"


def chunk_events(chunk: Chunk, before: Sequence[Chunk], *, words: bool) -> list[NewEvent]:
    """What a chunk tells its subscribers: every word when the client asked for words, then its segment."""
    segment_id = sum(len(earlier.segments) for earlier in before)
    index = sum(len(segment.words) for earlier in before for segment in earlier.segments)
    events = []
    for segment in chunk.segments:
        if words:
            for word in segment.words:
                body = {"index": index, "segment": segment_id, **word_object(word)}
                events.append(NewEvent("word", orjson.dumps(body)))
                index += 1
        events.append(NewEvent("segment", orjson.dumps(segment_object(segment_id, segment))))
        segment_id += 1
    return events


def _judged(verdict: _Verdict) -> Outcome | _HandBack:
    match verdict:
        case _Verdict.CANCELED:
            return Outcome(state=State.CANCELED)
        case _Verdict.SHUTDOWN:
            return _HandBack()
        case _Verdict.LEASE_LOST | _Verdict.STALLED:
            raise LeaseLost


def _told(error: BaseException | None, rules: WorkerRules, job: Job) -> Outcome | _HandBack | None:
    """What an exception of the work means for the job; None when there was none."""
    again_s = rules.retry_s * 2 ** (job.attempt - 1)
    match error:
        case None:
            return None
        case LeaseLost():
            raise error
        case _Stopped():
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
