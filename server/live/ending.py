"""Ends a live job: makes the transcript and the outputs from its stored chunks, and writes the end in one commit."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

import orjson

from pipeline.attribution import SpeakerRun
from pipeline.audio import seconds
from pipeline.documents.assemble import assemble
from pipeline.documents.stored import unpack_chunk
from pipeline.words import Chunk, SpeakerTurn, Transcript
from server.background import compute, total_bytes
from server.jobs.end_report import report_end
from server.jobs.leases import HeldLease
from server.jobs.outputs import completed_outcome, output_key, write_output
from server.jobs.voices import voices_key
from server.live.event_rendering import closed_segment, labelled_segment, revised_event
from server.live.models import LiveModels
from server.live.parts import SessionParts
from server.live.resuming import SessionPast
from server.logs import log
from server.model.errors import BlobsAway
from server.model.events import NewEvent
from server.model.jobs import JobError, State, returns_quota
from server.model.orders import Order, Source
from server.model.outcomes import Artifact, Outcome
from server.waiting import set_within

AWAY_S = 2.0  # between two attempts to store something while the bucket is away

T = TypeVar("T")

FinalSpeakers: TypeAlias = tuple[tuple[SpeakerTurn, ...], Sequence[SpeakerRun]]
"""All turns, and the speaker of every word, as LiveSpeakers.finish() returns them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveResult:
    """What the end of a live job needs besides its stored chunks. No chunk ends after *duration* (samples)."""

    duration: int
    received_bytes: int | None = None  # None: no longer known
    warnings: Sequence[Mapping[str, str]] = ()
    copies: int = 0  # separate channels that held the same as others, which do not count
    audio: Artifact | None = None
    speakers: FinalSpeakers | None = None  # None: not ordered, or stored before


@dataclass(frozen=True, slots=True)
class Endings:
    """Ends live jobs. Every method raises LeaseLost."""

    parts: SessionParts

    async def complete(self, held: HeldLease, result: LiveResult) -> None:
        """End the job with all recognised words. Raises LeaseLost, DiskFull."""
        job, engine = held.job, self.parts.engines[held.job.environment]
        await self._note_source(held, result.received_bytes)  # first, for a process that has to go on here
        chunks = await self.parts.storage.jobs.chunks(job.id)
        if result.speakers is not None:
            await self._store_speakers(held, result, chunks)
            chunks = await self.parts.storage.jobs.chunks(job.id)
        size = total_bytes(chunks)
        transcript = await compute(job.account, size, _transcript, chunks, result.duration, job.order, engine)
        outputs = [await self._write(name, transcript, held, size) for name in job.order.output_formats]
        if result.audio is not None:
            outputs.append(result.audio)
        heard_s = _heard_s(held, result.duration, copies=result.copies)
        warnings = result.warnings
        outcome = await compute(
            job.account, size, completed_outcome, transcript, outputs, warnings=warnings, heard_s=heard_s
        )
        await self._end_job(held, outcome)

    async def store_when_reachable(self, held: HeldLease, key: str, store: Callable[[], Awaitable[T]]) -> T:
        """Call *store*, which stores the blob *key*, again while the blob store cannot be reached.

        What a failed call left under the key is deleted. Raises LeaseLost if the lease ends meanwhile, and BlobsAway if
        the server stops.
        """
        again = False
        while True:
            try:
                if again:
                    await self.parts.storage.blobs.delete(key)
                return await store()
            except BlobsAway:
                again = True
                held.check()
                log.warning("a live session waits for the bucket", extra={"job": held.job.id})
                if await set_within(self.parts.closing, AWAY_S):
                    raise

    async def fail(self, held: HeldLease, error: JobError, *, received_bytes: int) -> None:
        """End a job whose audio could not be recognised at all. Raises LeaseLost."""
        await self._note_source(held, received_bytes)
        outcome = Outcome(state=State.FAILED, error=error, return_quota=returns_quota(error.code))
        await self._end_job(held, outcome)

    async def cancel(self, held: HeldLease, *, duration: int) -> None:
        """End the job because its client canceled it. Raises LeaseLost."""
        outcome = Outcome(state=State.CANCELED, duration_s=seconds(duration), heard_s=_heard_s(held, duration))
        await self._end_job(held, outcome)

    async def close_open_words(self, held: HeldLease, past: SessionPast) -> SessionPast:
        """Store the words after the last closed segment of each channel as a segment of its own. Raises LeaseLost."""
        for still_open in past.open:
            segment = still_open.closed
            chunk = past.next_chunk(still_open.channel, segment.end, (segment,))
            body = closed_segment(still_open.id, segment, forced=True)
            if held.job.order.diarize:
                labels = Counter(label for label in still_open.labels if label is not None)
                body = labelled_segment(still_open.id, segment, labels, forced=True)
            await held.checkpoint(chunk, [NewEvent("segment", orjson.dumps(body))])
            past = replace(past, chunks=(*past.chunks, chunk), open=past.open[1:])
        return past

    async def _write(self, name: str, transcript: Transcript, held: HeldLease, size: int) -> Artifact:
        job, epoch, blobs = held.job, held.lease.epoch, self.parts.storage.blobs
        return await self.store_when_reachable(
            held,
            output_key(name, job, epoch=epoch),
            lambda: write_output(name, transcript, job, size=size, epoch=epoch, blobs=blobs),
        )

    async def _store_speakers(self, held: HeldLease, result: LiveResult, chunks: Sequence[bytes]) -> None:
        """Store the speaker turns in a last chunk, with an event that has the final speaker of every word."""
        assert result.speakers is not None
        turns, runs = result.speakers
        job, size = held.job, total_bytes(chunks)
        chunk = await compute(job.account, size, _speakers_chunk, chunks, turns, result.duration, job.order)
        event = await compute(job.account, size, revised_event, runs, final=True)
        await held.checkpoint(chunk, [event])

    async def _note_source(self, held: HeldLease, received_bytes: int | None) -> None:
        assert held.job.order.live is not None
        source = Source(type="live", bytes=received_bytes, format=held.job.order.live.encoding)
        await held.note(source=source, stage="writing")

    async def _end_job(self, held: HeldLease, outcome: Outcome) -> None:
        report_end(await held.finish(outcome), self.parts.metrics)
        if held.job.order.diarize:
            await self._delete_voices(held.job.id)

    async def _delete_voices(self, job_id: str) -> None:
        """Delete the recordings of voices. If that fails, the chore that deletes audio of ended jobs does it."""
        try:
            await self.parts.storage.blobs.delete(voices_key(job_id))
        except (BlobsAway, OSError) as error:
            log.warning("recordings of voices cannot be deleted yet: %s", error, extra={"job": job_id})


def _heard_s(held: HeldLease, duration: int, *, copies: int = 0) -> float | None:
    """The seconds of audio that count as used: the duration for each separate channel. None: the duration alone."""
    order = held.job.order
    return seconds(duration) * (len(order.live_channels) - copies) if order.separate else None


def _speakers_chunk(bodies: Sequence[bytes], turns: tuple[SpeakerTurn, ...], duration: int, order: Order) -> Chunk:
    """A chunk behind the stored ones, without words, that has the turns of all speakers up to *duration*."""
    past = SessionPast(tuple([unpack_chunk(body) for body in bodies]))
    chunk = past.next_chunk(order.live_channels[0], duration)
    heard = [replace(turn, end=min(turn.end, duration)) for turn in turns if turn.start < duration]
    return replace(chunk, language=None, language_probability=None, turns=tuple(heard))


def _transcript(bodies: Sequence[bytes], duration: int, order: Order, engine: LiveModels) -> Transcript:
    """The transcript of the stored chunks. Each channel is silent from its last chunk to *duration*."""
    past = SessionPast(tuple([unpack_chunk(body) for body in bodies]))
    for channel in order.live_channels:
        rest = past.next_chunk(channel, duration)
        past = replace(past, chunks=(*past.chunks, replace(rest, language=rest.language or order.language)))
    made = assemble(past.chunks, duration=duration, engine=engine.engine, model=engine.models.names[0])
    return replace(made, model=order.model or engine.models.name_for(made.language))
