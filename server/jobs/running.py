"""One job whose audio is stored: transcribe it chunk by chunk, and write its outputs."""

import asyncio
import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import orjson
from numpy.typing import NDArray

from pipeline.attribution import final_turns, speaker_runs
from pipeline.audio import seconds
from pipeline.batch import Batch, BatchOptions
from pipeline.documents.assemble import assemble
from pipeline.documents.formats import segment_object, word_event
from pipeline.documents.stored import unpack_chunk
from pipeline.ingest.crosstalk import IDENTICAL_CHANNELS
from pipeline.words import Chunk, Transcript
from server.background import compute, total_bytes
from server.egress.fetch import Fetcher
from server.jobs.leases import HeldLease, LeaseKeeper, WorkerRules
from server.jobs.outputs import completed_outcome, write_output
from server.jobs.probing import Prober
from server.jobs.sandbox import rehearse
from server.jobs.voices import known_recordings, speaker_options
from server.model.accounts import Plan
from server.model.events import NewEvent
from server.model.leases import HandBack
from server.model.orders import AUDIO
from server.model.outcomes import Artifact, Outcome
from server.storage.ports import BlobStore
from server.storage.sql.jobs import JobStore

WORD_BYTES = 40  # about the size of a word in a stored chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTools:
    """The parts that a process uses for every job."""

    jobs: JobStore
    blobs: BlobStore
    fetcher: Fetcher
    prober: Prober
    rules: WorkerRules


class JobAttempt:
    """The work on one job under one lease: a download or a transcription."""

    patience_s = 0.0  # how long to wait for the end of work() after stop()

    def __init__(self, held: HeldLease, tools: WorkerTools, plan: Plan) -> None:
        self.held = held
        self.keeper = LeaseKeeper(held, tools.jobs, tools.rules)
        self._tools = tools
        self._plan = plan

    @abstractmethod
    async def work(self) -> Outcome | HandBack:
        """Do the work. Returns how the job ends, or why it goes back to the queue."""

    def stop(self) -> None:
        """Called when the server stops, *patience_s* before work() is cancelled."""


class TranscriptionAttempt(JobAttempt):
    """One attempt to transcribe a file."""

    def __init__(self, held: HeldLease, tools: WorkerTools, plan: Plan, batch: Batch) -> None:
        super().__init__(held, tools, plan)
        self.patience_s = tools.rules.handback_s  # time to finish the chunk in work
        self._job = held.job
        self._batch = batch
        self._stopping = False

    def stop(self) -> None:
        """Stop after the chunk in work: work() then raises Stopped."""
        self._stopping = True

    async def work(self) -> Outcome:
        """Transcribe from the last checkpoint on, then write the outputs.

        Raises the pipeline's errors, LeaseLost, Stopped.
        """
        order, blob = self._job.order, self._job.blob
        assert blob is not None, "a job whose audio is not stored yet is downloaded first"
        chunks = await self._transcribe_chunks(blob)
        await self.held.note(stage="writing")
        duration = max(chunk.end for chunk in chunks)
        account, size = self._job.account, WORD_BYTES * sum(len(s.words) for chunk in chunks for s in chunk.segments)
        engine = self._batch.engine_name
        transcript = await compute(account, size, assemble, chunks, duration=duration, engine=engine, model="")
        transcript = replace(transcript, model=order.model or self._batch.model_of(transcript.language))
        artifacts = [await self._write(name, transcript, size) for name in order.output_formats]
        if order.keeps_audio:
            async with self._tools.blobs.local(blob) as path:
                artifacts.append(await asyncio.to_thread(_audio_artifact, blob, path))
        channels = len({chunk.channel for chunk in chunks}) - sum(map(is_copy, chunks))
        events: tuple[NewEvent, ...] = ()
        if order.diarize and order.word_timestamps:
            events = await compute(account, size, final_speakers, chunks)
        heard_s = seconds(duration) * channels if order.separate else None
        return await compute(account, size, completed_outcome, transcript, artifacts, heard_s=heard_s, events=events)

    async def _transcribe_chunks(self, key: str) -> list[Chunk]:
        """Transcribe the rest of the audio and store each chunk. Returns all chunks, those of earlier attempts too."""
        order = self._job.order
        stored = self.held.lease.chunks
        chunks = await compute(self._job.account, total_bytes(stored), lambda: [*map(unpack_chunk, stored)])
        options = BatchOptions(
            model=order.model,
            language=order.language,
            languages=frozenset(order.languages),
            task=order.task,
            hints=order.hints,
            text=order.text,
            tenant=self._job.account,
            longest_s=self._plan.audio_s_per_file,
            separate=order.separate,
            track=order.track,
            raw=order.raw,
            speakers=speaker_options(order, await self._known_voices()),
        )
        async with self._tools.blobs.local(key) as path:
            made = rehearse(order.scenario, self._batch.transcribe(path, options, done=tuple(chunks)))
            async with aclosing(made):
                async for chunk in made:
                    await self._checkpoint(chunk, chunks)
                    chunks.append(chunk)
                    if self._stopping:
                        raise Stopped
        return chunks

    async def _known_voices(self) -> Mapping[str, NDArray[np.float32]]:
        if not self._job.order.known_speakers:
            return {}
        return await self._batch.learn_voices(await known_recordings(self._job.id, self._tools.blobs))

    async def _checkpoint(self, chunk: Chunk, before: Sequence[Chunk]) -> None:
        events = chunk_events(chunk, before, words=self._job.order.word_timestamps)
        await self.held.checkpoint(chunk, events, progress=self._progress(chunk))
        self.keeper.note_progress()

    def _progress(self, chunk: Chunk) -> float:
        """The share of the audio that is transcribed; below 1, because the outputs are still to be written."""
        total_s = self._job.duration_s
        return min(0.999, seconds(chunk.end) / total_s) if total_s else 0.0

    async def _write(self, name: str, transcript: Transcript, size: int) -> Artifact:
        self.held.check()
        epoch, blobs = self.held.lease.epoch, self._tools.blobs
        return await write_output(name, transcript, self._job, size=size, epoch=epoch, blobs=blobs)


def is_copy(chunk: Chunk) -> bool:
    """Whether a chunk is the last one of a channel that held the same as another one, and was not heard."""
    return any(note.startswith(IDENTICAL_CHANNELS) for note in chunk.notes)


class Stopped(Exception):
    """The server is shutting down, and the chunk in progress has been stored."""


def _audio_artifact(key: str, path: Path) -> Artifact:
    """The stored audio under *key*, which is the file at *path*, as an output of its job."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Artifact(kind=AUDIO, blob=key, sha256=digest, bytes=file.tell())


def source_key(job_id: str) -> str:
    """The blob key of a job's uploaded audio, and the prefix of the keys of downloaded audio."""
    return f"{job_id}/source"


def final_speakers(chunks: Sequence[Chunk]) -> tuple[NewEvent, ...]:
    """A single event with the final speaker of every word, from the turns of the last chunk."""
    segments = [segment for chunk in chunks for segment in chunk.segments]
    runs = speaker_runs(segments, final_turns(chunks) or ())
    return (NewEvent("speakers.revised", orjson.dumps({"words": [asdict(run) for run in runs], "final": True})),)


def chunk_events(chunk: Chunk, before: Sequence[Chunk], *, words: bool) -> list[NewEvent]:
    """The events of a chunk: every word, if the client asked for words, then the segment."""
    segment_id = sum(len(earlier.segments) for earlier in before)
    index = sum(len(segment.words) for earlier in before for segment in earlier.segments)
    events = []
    for segment in chunk.segments:
        if words:
            for word in segment.words:
                body = {"index": index, "segment": segment_id, **word_event(word, segment)}
                events.append(NewEvent("word", orjson.dumps(body)))
                index += 1
        events.append(NewEvent("segment", orjson.dumps(segment_object(segment_id, segment))))
        segment_id += 1
    return events
