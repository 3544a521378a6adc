"""The work on one job under one lease: transcribe a file part by part, or download the audio of an address.

In the sandbox a request may name a scenario, an outcome that is played so that a client can test how it handles it.
"""

import asyncio
import hashlib
from abc import abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import seconds
from pipeline.batch import Batch, BatchOptions
from pipeline.errors import PipelineError
from pipeline.timeline import Entry, entries_of, unpack
from pipeline.transcription import Continuation, Transcription
from pipeline.translation.target import SamplesOf, no_samples
from pipeline.translation.translator import FileAudio
from pipeline.words import Chunk
from server.accounts.limits import month_of
from server.background import compute, total_bytes
from server.clock import now_ms
from server.egress.fetch import Fetcher
from server.jobs.finishing import Finisher, Recognised
from server.jobs.leases import HeldLease, LeaseKeeper, WorkerRules
from server.jobs.probing import Prober, known_recordings, speaker_options
from server.model.accounts import Plan
from server.model.errors import QuotaExceeded, RateLimited
from server.model.jobs import Artifact, HandBack, Outcome
from server.model.orders import AUDIO
from server.storage.sql.storage import Storage
from server.translation.translations import Translations, Translators


class Stopped(Exception):
    """The server is shutting down, and the chunk in progress has been stored."""


def source_key(job_id: str) -> str:
    """The blob key of a job's uploaded audio, and the prefix of the keys of downloaded audio."""
    return f"{job_id}/source"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTools:
    """The parts that a process uses for every job."""

    storage: Storage
    fetcher: Fetcher
    prober: Prober
    finisher: Finisher
    rules: WorkerRules
    translations: Mapping[str, Translators] = field(default_factory=dict)  # by environment


class JobAttempt:
    """The work on one job under one lease: a download or a transcription."""

    patience_s = 0.0  # how long to wait for the end of work() after stop()

    def __init__(self, held: HeldLease, tools: WorkerTools, plan: Plan) -> None:
        self.held = held
        self.keeper = LeaseKeeper(held, tools.storage.jobs, tools.rules)
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
        self.patience_s = tools.rules.handback_s  # time to finish the part in work
        self._job = held.job
        self._batch = batch
        self._stopping = False

    def stop(self) -> None:
        """Stop after the part in work: work() then raises Stopped."""
        self._stopping = True

    async def work(self) -> Outcome:
        """Transcribe from the last checkpoint on, then write the documents.

        Raises the pipeline's errors, LeaseLost, Stopped.
        """
        job, order = self._job, self._job.order
        assert job.blob is not None, "a job whose audio is not stored yet is downloaded first"
        stored = await self._tools.storage.timelines.entries(job.id)
        past = await compute(job.account, total_bytes(stored), Transcription.of, map(unpack, stored))
        options = BatchOptions(
            model=order.model,
            language=order.language,
            languages=frozenset(order.languages),
            task=order.task,
            hints=order.hints,
            text=order.text,
            tenant=job.account,
            longest_s=self._plan.audio_s_per_file,
            separate=order.separate,
            track=order.track,
            raw=order.raw,
            speakers=speaker_options(order, await self._known_voices()),
        )
        async with (
            self._tools.storage.blobs.local(job.blob) as path,
            aclosing(self.parts(path, options, past.parts)) as made,
        ):
            async for part in made:
                await self._checkpoint(part, past.place)
                if self._stopping:
                    raise Stopped
            warnings = await self._translate(path, options) if order.translate_to else ()
            audio = await asyncio.to_thread(_audio_artifact, job.blob, path) if order.keeps_audio else None
        recognised = Recognised(
            engine=self._batch.engine_name, model_of=self._batch.model_of, warnings=warnings, audio=audio
        )
        return await self._tools.finisher.outcome(self.held, recognised)

    async def _translate(self, path: Path, options: BatchOptions) -> Sequence[Mapping[str, str]]:
        """Translate what has no translation yet, and store each translation. Returns the warnings about outages."""
        job = self._job
        await self.held.note(stage="translating")
        stored = await self._tools.storage.timelines.entries(job.id)
        past = await compute(job.account, total_bytes(stored), Transcription.of, map(unpack, stored))

        async def append(entry: Entry) -> None:
            await self.held.append([entry])
            self.keeper.note_progress()
            if self._stopping:
                raise Stopped

        translation = self._tools.translations[job.environment]
        async with AsyncExitStack() as stack:
            samples_of: SamplesOf = no_samples
            if translation.listens:
                audio = await stack.enter_async_context(self._batch.audio(path, options))
                redacted = [(word.start, word.end) for word, _ in past.said if word.redacted]
                samples_of = FileAudio(audio, redacted).of
            targets = translation.targets(job.order, tenant=job.account, past=past, samples_of=samples_of)
            translations = Translations(job.order, targets, append, self._tools.finisher.metrics)
            translations.finish()
            try:
                await translations.run()
            except BaseExceptionGroup as group:
                raise group.exceptions[0] from group
        return translations.warnings

    def parts(self, path: Path, options: BatchOptions, done: Sequence[Chunk]) -> AsyncGenerator[Chunk]:
        """Transcribe the rest of the file, after *done*."""
        return self._batch.transcribe(path, options, done=done)

    async def _known_voices(self) -> Mapping[str, NDArray[np.float32]]:
        if not self._job.order.known_speakers:
            return {}
        return await self._batch.learn_voices(await known_recordings(self._job.id, self._tools.storage.blobs))

    async def _checkpoint(self, part: Chunk, place: Continuation) -> None:
        """Store a part that is done, with the share of the audio up to it: below 1, since documents are to follow."""
        shown, total_s = self._job.order.word_timestamps, self._job.duration_s
        entries = entries_of(part, words=place.words, segments=place.segments, shown=shown)
        progress = min(0.999, seconds(part.end) / total_s) if total_s else 0.0
        await self.held.checkpoint(entries, progress=progress)
        for entry in entries:
            place.add(entry)
        self.keeper.note_progress()


class DownloadAttempt(JobAttempt):
    """One attempt at a download. If the server stops, the attempt is cancelled, and the next one begins anew."""

    async def work(self) -> HandBack:
        """Download the audio and record its blob. Raises FetchError, the pipeline's errors, DiskFull, LeaseLost."""
        held, tools = self.held, self._tools
        key = f"{source_key(held.job.id)}/{held.lease.epoch}"
        source = await tools.fetcher.fetch(
            held.job.source, asker=held.job.account, blob=key, most=self._plan.upload_bytes
        )
        self.keeper.note_progress()
        try:
            probe = await tools.prober.probe(key, held.job.order, account=held.job.account, plan=self._plan)
        except BaseException:
            await tools.storage.blobs.delete(key)
            raise
        await held.note(source=replace(source, format=probe.format), duration_s=probe.duration_s, blob=key)
        return HandBack("downloaded")


def _audio_artifact(key: str, path: Path) -> Artifact:
    """The stored audio under *key*, which is the file at *path*, as an output of its job."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Artifact(kind=AUDIO, blob=key, sha256=digest, bytes=file.tell())


SLOW_S = 20.0
"""How long a job of the scenario `slow` waits in the queue. It is longer than the keep-alive interval of event streams
and shorter than the usual 30 s of a long poll, so that both can be tried."""


class OrderedFailure(PipelineError):
    """The scenario `fail`."""

    code = "engine_error"


class Canceled(Exception):
    """The scenario `canceled`: the job ends as if a cancel had arrived."""


def raise_ordered_limit(scenario: str | None) -> None:
    """Raise QuotaExceeded or RateLimited if the scenario asks for it."""
    now = now_ms()
    if scenario == "quota_exceeded":
        raise QuotaExceeded("transcriptions", limit=5, used=5, resets_at=month_of(now).resets_at)
    if scenario == "rate_limited":
        raise RateLimited("minute", limit=30, used=30, resets_at=now + 1000)


def delay_of(scenario: str | None) -> float:
    """The seconds for which the scenario keeps a job in the queue."""
    return SLOW_S if scenario == "slow" else 0.0


class RehearsedAttempt(TranscriptionAttempt):
    """An attempt that ends as the job's scenario wants it."""

    async def parts(self, path: Path, options: BatchOptions, done: Sequence[Chunk]) -> AsyncGenerator[Chunk]:
        """Transcribe the file, without words in the scenario `empty`. Raises OrderedFailure, Canceled."""
        scenario = self._job.order.scenario
        if scenario == "fail":
            raise OrderedFailure("ordered by sandbox_scenario")
        if scenario == "canceled":
            raise Canceled
        async with aclosing(super().parts(path, options, done)) as made:
            async for part in made:
                silent = replace(part, segments=(), turns=None if part.turns is None else ())
                yield silent if scenario == "empty" else part
