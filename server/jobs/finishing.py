"""Ends jobs: makes transcript and documents from the timeline, and writes the end in one commit.

A file, a live session, and one that another process took over all end here.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pipeline.attribution import speaker_runs
from pipeline.audio import seconds
from pipeline.corrections import Correcting, corrected_chunks
from pipeline.documents.assemble import assemble
from pipeline.documents.formats import Heading
from pipeline.documents.translated import in_language, output_format, translation_objects
from pipeline.ingest.notes import IDENTICAL_CHANNELS
from pipeline.timeline import Entry, SpeakersRevised, StoredRun, unpack
from pipeline.transcription import Transcription
from pipeline.words import Transcript
from server.background import compute, total_bytes
from server.clock import iso
from server.jobs.leases import HeldLease
from server.jobs.probing import voices_key
from server.logs import log
from server.metrics import Metrics
from server.model.errors import BlobsAway, StorageError
from server.model.jobs import Artifact, Job, Outcome, State
from server.model.orders import Order
from server.storage.ports import BlobStore
from server.storage.sql.jobs import JobStore
from server.storage.sql.leases import TranscriptChanged
from server.storage.sql.storage import Storage
from server.translation.translations import INCOMPLETE, translated_characters, untranslated, written_language
from server.waiting import set_within

AWAY_S = 2.0  # between two attempts to store something while the bucket is away

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """What a finished job's documents need besides its timeline."""

    engine: str
    model_of: Callable[[str | None], str]  # the model that heard a language
    duration: int | None = None  # in samples; None: what the timeline has
    warnings: Sequence[Mapping[str, str]] = ()
    copies: int = 0  # separate channels that held the same as others, which do not count
    audio: Artifact | None = None


@dataclass(frozen=True, slots=True)
class Finisher:
    """Ends jobs under their leases."""

    storage: Storage
    metrics: Metrics
    closing: asyncio.Event  # set when the server stops

    async def complete(self, held: HeldLease, recognised: Recognised) -> Job:
        """End the job with everything that was recognised. Raises LeaseLost, DiskFull, BlobsAway."""
        return await self.finish(held, await self.outcome(held, recognised))

    async def outcome(self, held: HeldLease, recognised: Recognised) -> Outcome:
        """Write the documents of a job whose audio is done, and return how it ends. Raises what complete() raises.

        Documents have what was recognised. The text also has what people have corrected so far.
        """
        job = held.job
        await held.note(stage="writing")
        stored = await self.storage.timelines.entries(job.id)
        size = total_bytes(stored)
        past, transcript, outcome = await compute(job.account, size, _outcome, stored, job.order, recognised)
        made = [await self._write(name, transcript, past, held, size) for name in job.order.outputs]
        made += [] if recognised.audio is None else [recognised.audio]

        async def again() -> Outcome:
            stored = await self.storage.timelines.entries(job.id)
            _, _, newer = await compute(job.account, total_bytes(stored), _outcome, stored, job.order, recognised)
            return replace(newer, artifacts=tuple(made), again=again)

        return replace(outcome, artifacts=tuple(made), again=again)

    async def finish(self, held: HeldLease, outcome: Outcome) -> Job:
        """Write how the job ended, in one commit; count and log it. Raises LeaseLost."""
        while True:
            try:
                job = await held.finish(outcome)
                break
            except TranscriptChanged:  # by somebody, in this moment
                assert outcome.again is not None, "a job without words cannot be corrected"
                outcome = await outcome.again()
        report_end(job, self.metrics)
        if job.order.live is not None and job.order.diarize:
            try:
                await self.storage.blobs.delete(voices_key(job.id))
            except (BlobsAway, OSError) as error:  # the chore that deletes audio of ended jobs does it
                log.warning("recordings of voices cannot be deleted yet: %s", error, extra={"job": job.id})
        return job

    async def store(self, held: HeldLease, key: str, store: Callable[[], Awaitable[T]]) -> T:
        """Call *store*, which stores the blob *key*. A live session waits while the blob store cannot be reached.

        What a failed call left under the key is deleted. Raises LeaseLost if the lease ends meanwhile, and BlobsAway if
        the server stops, or if the job is a file, which can be tried again as a whole.
        """
        again = False
        while True:
            held.check()
            try:
                if again:
                    await self.storage.blobs.delete(key)
                return await store()
            except BlobsAway:
                if held.job.order.live is None:
                    raise
                again = True
                log.warning("a live session waits for the bucket", extra={"job": held.job.id})
                if await set_within(self.closing, AWAY_S):
                    raise

    async def _write(
        self, name: str, transcript: Transcript, past: Transcription, held: HeldLease, size: int
    ) -> Artifact:
        """Store the output *name*. *size* is that of the timeline, in bytes."""
        job = held.job
        data, sha256 = await compute(job.account, size, _render, name, transcript, past, job)
        key = output_key(name, job, epoch=held.lease.epoch)

        async def store() -> None:
            async with self.storage.blobs.create(key) as sink:
                await sink.write(data)

        await self.store(held, key, store)
        return Artifact(kind=name, blob=key, sha256=sha256, bytes=len(data))


def output_key(name: str, job: Job, *, epoch: int) -> str:
    """The blob key of the output *name*. Each epoch of the job has its own."""
    kind, target = output_format(name)
    return f"{job.id}/{epoch}.{target}.{kind.extension}" if target else f"{job.id}/{epoch}.{kind.extension}"


def _render(name: str, transcript: Transcript, past: Transcription, job: Job) -> tuple[bytes, str]:
    data = render_output(name, transcript, past, job)
    return data, hashlib.sha256(data).hexdigest()


def render_output(name: str, transcript: Transcript, past: Transcription, job: Job) -> bytes:
    """Return the output *name* of *job*: *transcript*, which was made of *past*, or its translation."""
    kind, target = output_format(name)
    if target is not None:
        transcript = in_language(transcript, past, target, written=written_language(job.order, translated=True))
    heading = Heading(
        job_id=job.id,
        created_at=iso(job.created_at),
        metadata=job.order.metadata,
        words=job.order.word_timestamps,
        subtitles=job.order.subtitles,
        paragraphs=job.order.text.paragraphs,
        search=job.order.text.search,
        translations=translation_objects(past, job.order.translate_to),
    )
    return kind.render(transcript, heading)


def _outcome(
    stored: Sequence[bytes], order: Order, recognised: Recognised
) -> tuple[Transcription, Transcript, Outcome]:
    """The fold and the transcript of a timeline, and how its job ends, without the files."""
    past = Transcription.of(map(unpack, stored))
    live, duration = order.live is not None, recognised.duration
    if live:
        chunks = past.chunks(duration=duration or 0, channels=order.live_channels, language=order.language)
    else:
        chunks = past.chunks()
    if duration is None:
        duration = max(chunk.end for chunk in chunks)
    model_of = recognised.model_of if order.model is None else lambda _language: str(order.model)
    transcript = assemble(chunks, duration=duration, engine=recognised.engine, model_of=model_of)
    text, revision = transcript.text, 0
    if past.corrections:
        state, revision = Correcting(past.said, past.labels, past.corrections), past.corrections[-1].revision
        corrected = assemble(corrected_chunks(chunks, state), duration=duration, engine="", model_of=model_of)
        text = corrected.text
    copies = recognised.copies + sum(note.startswith(IDENTICAL_CHANNELS) for chunk in chunks for note in chunk.notes)
    channels = len({chunk.channel for chunk in chunks}) - copies
    notes = (dict(zip(("code", "message"), note.split(": ", 1), strict=False)) for note in transcript.notes)
    speakers = None if transcript.turns is None else {who: seconds(s) for who, s in transcript.speakers.items()}
    incomplete = untranslated(past, order) if order.translate_to else None
    lacking = () if incomplete is None else ({"code": INCOMPLETE, "message": incomplete},)
    return (
        past,
        transcript,
        Outcome(
            state=State.COMPLETED,
            duration_s=seconds(duration),
            language=transcript.language,
            language_probability=transcript.language_probability,
            languages={language: seconds(spoken) for language, spoken in transcript.languages.items()},
            engine=transcript.engine,
            model=transcript.model,
            text=text,
            revision=revision,
            speakers=speakers,
            warnings=(*recognised.warnings, *lacking, *notes),
            translated_characters=translated_characters(past),
            heard_s=seconds(duration) * channels if order.separate else None,
            entries=_final_speakers(past) if live or order.word_timestamps else (),
        ),
    )


def _final_speakers(past: Transcription) -> tuple[Entry, ...]:
    """The entry that tells readers the last speaker of every word, where voices are told apart."""
    if past.turns is None:
        return ()
    runs = speaker_runs(past.said, past.turns)
    return (SpeakersRevised(tuple(StoredRun(run.first, run.last, run.speaker) for run in runs), final=True),)


def report_end(job: Job, metrics: Metrics) -> None:
    """Count *job* by its state and error, its speakers, and its audio if it was transcribed to the end; log it."""
    code = job.error.code if job.error else None
    audio_s = job.duration_s if job.state is State.COMPLETED else None
    metrics.jobs_ended.labels(job.state.value, code or "").inc()
    metrics.audio.labels(job.environment).inc(audio_s or 0)
    metrics.speakers_found.inc(len(job.speakers or ()))
    log.info("job ended", extra={"job": job.id, "state": job.state.value, "error": code, "audio_s": audio_s})


async def delete_if_gone(job_id: str, jobs: JobStore, blobs: BlobStore) -> None:
    """Delete the stored files of a job that was deleted while its worker still wrote.

    If that fails, the sweeper does it later.
    """
    try:
        if await jobs.get(job_id) is None:
            await blobs.delete(job_id)
    except (StorageError, OSError) as error:
        log.warning("what a lost job left was not looked for: %s", error, extra={"job": job_id})
