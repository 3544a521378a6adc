"""One file in the hands of one worker: fetch it, transcribe it chunk by chunk, write its outputs, keep the lease."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import orjson

from pipeline.audio import seconds
from pipeline.batch import BatchOptions
from pipeline.documents.assemble import assemble
from pipeline.documents.formats import segment_object, word_event
from pipeline.documents.stored import restored
from pipeline.words import Chunk, Transcript
from server.egress.fetch import Fetcher
from server.jobs.leases import HeldLease
from server.jobs.outputs import completed_outcome, write_output
from server.jobs.probing import Prober
from server.jobs.sandbox import rehearse
from server.model.accounts import Plan
from server.model.events import NewEvent
from server.model.leases import Renewal, Verdict
from server.model.outcomes import Artifact, Outcome
from server.storage.ports import BlobStore, JobStore


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRules:
    """How long workers hold jobs, in seconds. storage/README.md explains how the numbers fit together."""

    claim_s: float = 5.0  # one wait for a job; much shorter than a lease, which is counted from before the wait
    lease_s: float = 30.0
    renew_s: float = 10.0
    reap_s: float = 5.0
    stall_s: float = 300.0  # without a finished chunk for this long, the engine is assumed to hang
    handback_s: float = 15.0  # how long a shutdown waits for the chunk in work
    retry_s: float = 1.0  # first delay after an error worth another attempt; doubles


class Transcriber(Protocol):
    """The part of pipeline.batch.Batch that workers use."""

    @property
    def engine_name(self) -> str: ...

    @property
    def model_name(self) -> str: ...

    def transcribe(self, path: Path, options: BatchOptions, *, done: Sequence[Chunk] = ()) -> AsyncGenerator[Chunk]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The parts that a process uses for every job."""

    jobs: JobStore
    blobs: BlobStore
    fetcher: Fetcher
    prober: Prober
    rules: WorkerRules


class Running:
    """One job of one worker. transcribe() does the work while keep() holds the lease."""

    def __init__(self, held: HeldLease, *, tools: Tools, batch: Transcriber, plan: Plan) -> None:
        self.job = held.job
        self._held = held
        self._tools = tools
        self._batch = batch
        self._plan = plan
        self._moved_at = time.monotonic()
        self._total_s = self.job.duration_s
        self._stopping = False

    def stop_after_chunk(self) -> None:
        self._stopping = True

    async def keep(self) -> Verdict:
        """Renew the lease while the work makes progress; returns why the work must end early."""
        rules, seen = self._tools.rules, self.job
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
            now = await self._tools.jobs.changed(seen, timeout_s=wait_s)
            if now is None or now.epoch != self._held.lease.epoch:
                return Verdict.LEASE_LOST
            if now.cancel_requested_at is not None:
                return Verdict.CANCELED
            seen = now

    async def transcribe(self) -> Outcome:
        """Do the whole job, from the last checkpoint on. Raises the pipeline's errors, LeaseLost, Stopped."""
        order = self.job.order
        key = await self._locate_audio()
        await self._held.note(stage="transcribing")
        chunks = await self._transcribe_chunks(key)
        await self._held.note(stage="writing")
        transcript = assemble(
            chunks, duration=chunks[-1].end, engine=self._batch.engine_name, model=self._batch.model_name
        )
        artifacts = [await self._write(name, transcript) for name in order.output_formats]
        return completed_outcome(transcript, artifacts, warnings=[{"code": note} for note in transcript.notes])

    async def _transcribe_chunks(self, key: str) -> list[Chunk]:
        """All chunks, including those of earlier attempts. Each is stored before the next is asked for."""
        order = self.job.order
        chunks = await asyncio.to_thread(lambda: [restored(body) for body in self._held.lease.chunks])
        options = BatchOptions(
            language=order.language, hint=order.prompt, tenant=self.job.account, longest_s=self._plan.audio_s_per_file
        )
        with self._tools.blobs.local(key) as path:
            made = rehearse(order.scenario, self._batch.transcribe(path, options, done=tuple(chunks)))
            async with aclosing(made):
                async for chunk in made:
                    await self._checkpoint(chunk, chunks)
                    chunks.append(chunk)
                    if self._stopping:
                        raise Stopped
        return chunks

    async def _locate_audio(self) -> str:
        """The blob with the job's audio. An address is downloaded first, once for all attempts."""
        if self._held.lease.blob is not None:
            return self._held.lease.blob
        await self._held.note(stage="downloading")
        key = f"{source_key(self.job.id)}/{self._held.lease.epoch}"
        source = await self._tools.fetcher.fetch(self.job.source, blob=key, most=self._plan.upload_bytes)
        probe = await self._tools.prober.probe(key, longest_s=self._plan.audio_s_per_file)
        self._moved_at = time.monotonic()
        self._total_s = probe.duration_s
        await self._held.note(source=replace(source, format=probe.format), duration_s=probe.duration_s, blob=key)
        return key

    async def _checkpoint(self, chunk: Chunk, before: Sequence[Chunk]) -> None:
        events = chunk_events(chunk, before, words=self.job.order.word_timestamps)
        asked = time.monotonic()
        await self._held.checkpoint(chunk, events, progress=self._progress(chunk))
        self._moved_at = asked

    def _progress(self, chunk: Chunk) -> float:
        """The share of the audio that is done, just below 1 until everything is written."""
        return min(0.999, seconds(chunk.end) / self._total_s) if self._total_s else 0.0

    async def _write(self, name: str, transcript: Transcript) -> Artifact:
        self._held.check()
        return await write_output(name, transcript, self.job, epoch=self._held.lease.epoch, blobs=self._tools.blobs)


class Stopped(Exception):
    """The server is shutting down, and the chunk in progress has been stored."""


def source_key(job_id: str) -> str:
    """The blob of a job's uploaded audio; the blobs of fetched audio lie below it."""
    return f"{job_id}/source"


def chunk_events(chunk: Chunk, before: Sequence[Chunk], *, words: bool) -> list[NewEvent]:
    """The events of a chunk: every word, if the client asked for words, then the segment."""
    segment_id = sum(len(earlier.segments) for earlier in before)
    index = sum(len(segment.words) for earlier in before for segment in earlier.segments)
    events = []
    for segment in chunk.segments:
        if words:
            for word in segment.words:
                body = {"index": index, "segment": segment_id, **word_event(word)}
                events.append(NewEvent("word", orjson.dumps(body)))
                index += 1
        events.append(NewEvent("segment", orjson.dumps(segment_object(segment_id, segment))))
        segment_id += 1
    return events
