"""How a live job ends: what was heard becomes its transcript, its outputs and its record, in one commit."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import orjson

from pipeline.audio import seconds
from pipeline.documents.assemble import assemble
from pipeline.documents.stored import restored, stored
from pipeline.words import Chunk, Transcript
from server.jobs.outputs import completed, write_output
from server.jobs.running import LeaseLost
from server.live.hearing import Hearing
from server.live.resuming import Past
from server.live.telling import closed_segment
from server.logs import log
from server.metrics import Metrics
from server.model.events import NewEvent
from server.model.jobs import JobError, State, returns_quota
from server.model.leases import Lease
from server.model.orders import Source
from server.model.outcomes import Artifact, Outcome
from server.storage.ports import BlobStore, JobStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What there is to say of a live job beside its stored chunks. None of them ends behind *duration*."""

    duration: int
    received_bytes: int | None = None  # None: nobody knows any more
    warnings: Sequence[Mapping[str, str]] = ()
    audio: Artifact | None = None


@dataclass(frozen=True, slots=True)
class Endings:
    jobs: JobStore
    blobs: BlobStore
    hearings: Mapping[str, Hearing]  # by environment
    metrics: Metrics

    async def complete(self, lease: Lease, heard: Heard) -> None:
        """Raises LeaseLost, DiskFull."""
        job, hearing = lease.job, self.hearings[lease.job.environment]
        chunks = await self.jobs.chunks(job.id)
        # Hours of speech have ten thousand words and more: the event loop has others to serve meanwhile.
        transcript = await asyncio.to_thread(_transcript, chunks, heard.duration, job.order.language, hearing)
        outputs = [
            await write_output(name, transcript, job, epoch=lease.epoch, blobs=self.blobs)
            for name in job.order.output_formats
        ]
        await self._note_source(lease, heard.received_bytes)
        if heard.audio is not None:
            outputs.append(heard.audio)
        await self._end(lease, completed(transcript, outputs, warnings=heard.warnings))

    async def fail(self, lease: Lease, error: JobError, *, received_bytes: int) -> None:
        """Nothing could be heard. Raises LeaseLost."""
        await self._note_source(lease, received_bytes)
        outcome = Outcome(state=State.FAILED, error=error, return_quota=returns_quota(error.code))
        await self._end(lease, outcome)

    async def cancel(self, lease: Lease, *, duration: int) -> None:
        """Raises LeaseLost."""
        await self._end(lease, Outcome(state=State.CANCELED, duration_s=seconds(duration)))

    async def close_open_words(self, lease: Lease, past: Past) -> Past:
        """Make the words that were committed after the last segment a segment of their own. Raises LeaseLost."""
        segment = past.last_segment
        if segment is None:
            return past
        chunk = Chunk(
            index=len(past.chunks),
            jobs_done=0,
            start=past.end,
            end=segment.end,
            segments=(segment,),
            language=past.language,
            language_probability=past.language_probability,
        )
        event = NewEvent("segment", orjson.dumps(closed_segment(past.segments, segment, forced=True)))
        kept = await self.jobs.checkpoint(
            lease, index=chunk.index, body=stored(chunk), events=[event], progress=0.0, lease_s=0.0
        )
        if not kept:
            raise LeaseLost
        return replace(past, chunks=(*past.chunks, chunk), open_words=())

    async def _note_source(self, lease: Lease, received_bytes: int | None) -> None:
        assert lease.job.order.live is not None
        source = Source(type="live", bytes=received_bytes, format=lease.job.order.live.encoding)
        if not await self.jobs.note(lease, source=source, stage="writing"):
            raise LeaseLost

    async def _end(self, lease: Lease, outcome: Outcome) -> None:
        if not await self.jobs.finish(lease, outcome):
            raise LeaseLost
        self.metrics.jobs_ended.labels(outcome.state.value, outcome.error.code if outcome.error else "").inc()
        self.metrics.audio.labels(lease.job.environment).inc(outcome.duration_s or 0)
        log.info(
            "live session ended",
            extra={
                "job": lease.job.id,
                "state": outcome.state.value,
                "error": outcome.error.code if outcome.error else None,
                "audio_s": outcome.duration_s,
            },
        )


def _transcript(bodies: Sequence[bytes], duration: int, language: str | None, hearing: Hearing) -> Transcript:
    """What the stored chunks say, and nothing from the last of them to the end."""
    chunks = [restored(body) for body in bodies]
    last = chunks[-1] if chunks else None
    rest = Chunk(
        index=len(chunks),
        jobs_done=0,
        start=last.end if last else 0,
        end=duration,
        segments=(),
        language=last.language if last else language,
        language_probability=last.language_probability if last else None,
    )
    return assemble([*chunks, rest], duration=duration, engine=hearing.engine, model=hearing.model)
