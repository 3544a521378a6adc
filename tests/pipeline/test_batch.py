"""Tests of batch.py: chunks of a file depend on its audio alone, so that a stopped job can continue."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from pipeline.audio import RATE
from pipeline.batch import BATCHES_AHEAD, CHUNK, Batch, BatchOptions
from pipeline.documents.assemble import assemble
from pipeline.ingest.isolation import Isolation
from pipeline.ingest.notes import TRUNCATED
from pipeline.recognition.engine import TASKS, DecodeRequest, RecognitionResult
from pipeline.recognition.engines.scripted import ScriptedEngine
from pipeline.recognition.model_set import ModelSet
from pipeline.recognition.scheduler import Scheduler, Urgency
from pipeline.words import Chunk, Transcript
from tests.pipeline.sounds import codes

MINUTES = 4


class SmallEngine(ScriptedEngine):
    max_batch = 2


@dataclass
class Recognition:
    """A model of a set that answers while it is open, and counts its requests."""

    scheduler: Scheduler
    asked: int = 0
    waiting: int = 0
    most: int = 0
    before: list[str | None] = field(default_factory=list)  # the hint about the language in each request
    tasks: set[str] = field(default_factory=set)
    open: asyncio.Event = field(default_factory=asyncio.Event)
    full: asyncio.Event = field(default_factory=asyncio.Event)  # set when the most requests wait

    async def recognise(self, request: DecodeRequest, **options: Any) -> RecognitionResult:
        _, result = await self.recognise_newest(request, **options)
        return result

    async def recognise_newest(
        self, request: DecodeRequest, *, tenant: str, urgency: Urgency, **_: None
    ) -> tuple[DecodeRequest, RecognitionResult]:
        self.asked += 1
        self.tasks.add(request.task)
        self.before.append(request.before)
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        if self.waiting == BATCHES_AHEAD * SmallEngine.max_batch:
            self.full.set()
        try:
            await self.open.wait()
            return await self.scheduler.recognise_newest(request, tenant=tenant, urgency=urgency)
        finally:
            self.waiting -= 1


class CountedModels(ModelSet):
    """A set of one model, which is a Recognition."""

    recognition: Recognition

    async def model_for(self, language: str) -> Any:  # noqa: ARG002  as that of a ModelSet
        return self.recognition


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files") / "whole.flac"
    soundfile.write(path, np.zeros(MINUTES * 60 * RATE, np.int16), RATE)
    return path


@pytest.fixture(scope="module")
def truncated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a WAV file whose header states twice its length. It ends at the end of a decode job."""
    path = tmp_path_factory.mktemp("files") / "cut.wav"
    soundfile.write(path, np.zeros(MINUTES * 60 * RATE, np.int16), RATE)
    data = path.read_bytes()
    path.write_bytes(data[: 44 + len(data) // 2])
    return path


@asynccontextmanager
async def batches(*, held: bool = False) -> AsyncIterator[tuple[Batch, Recognition]]:
    """Yield a batch whose model answers at once; if *held*, only after recognition.open is set."""
    engine = SmallEngine()
    models = CountedModels.of(engine)
    models.recognition = recognition = Recognition(models.schedulers()[engine.model])
    if not held:
        recognition.open.set()
    with Isolation() as isolation, ThreadPoolExecutor(2) as threads:
        yield Batch(engine=engine, models=models, vad=None, isolation=isolation, threads=threads), recognition
    models.close()


async def chunks_of(
    batch: Batch, path: Path, *, done: Sequence[Chunk] = (), language: str | None = None
) -> list[Chunk]:
    options = BatchOptions(tenant="test", language=language)
    return [chunk async for chunk in batch.transcribe(path, options, done=done)]


def transcript(chunks: Sequence[Chunk]) -> Transcript:
    return assemble(chunks, duration=chunks[-1].end, engine="scripted", model_of=lambda _: "scripted")


@pytest.mark.parametrize("kind", ["whole", "truncated_file"])
async def test_going_on_behind_any_chunk_gives_the_chunks_that_were_missing(kind, request):
    path: Path = request.getfixturevalue(kind)
    async with batches() as (batch, _):
        made = await chunks_of(batch, path)
        assert len(made) > 2
        assert codes(transcript(made).notes) == ((TRUNCATED,) if kind == "truncated_file" else ())
        for count in range(len(made)):
            assert await chunks_of(batch, path, done=made[:count]) == made[count:]
        again = await chunks_of(batch, path, done=made)
        assert transcript([*made, *again]) == transcript(made), "a file that was done is done once more, for nothing"


async def test_chunks_end_with_the_job_in_hand_once_they_are_long_enough(whole):
    async with batches() as (batch, _):
        made = await chunks_of(batch, whole)
        assert [chunk.index for chunk in made] == list(range(len(made)))
        assert all(chunk.end - chunk.start >= CHUNK for chunk in made[:-1])
        assert (made[-1].end, made[-1].jobs_done) == (MINUTES * 60 * RATE, 2 * MINUTES)


async def test_a_file_has_at_most_two_batches_in_the_schedulers_hands(whole):
    async with batches(held=True) as (batch, recognition):
        making = asyncio.create_task(chunks_of(batch, whole, language="en"))
        await recognition.full.wait()
        await asyncio.sleep(0.2)  # time for what should not happen
        assert recognition.asked == BATCHES_AHEAD * SmallEngine.max_batch
        recognition.open.set()
        await making
        assert (recognition.asked, recognition.most) == (2 * MINUTES, BATCHES_AHEAD * SmallEngine.max_batch)


async def test_closing_early_takes_everything_out_of_the_schedulers_hands(whole):
    async with batches(held=True) as (batch, recognition):
        recognition.open.set()
        async with aclosing(batch.transcribe(whole, BatchOptions(tenant="test", language="en"))) as made:
            await anext(made)
            recognition.open.clear()
        assert recognition.waiting == 0


async def test_the_hints_of_a_file_are_the_same_when_it_goes_on_behind_a_chunk(whole):
    async with batches() as (batch, recognition):
        made = await chunks_of(batch, whole)
        hints = recognition.before[:]
        assert hints == [None] * 4 + ["en"] * (len(hints) - 4), (
            "four jobs wait at once, so the fifth knows of the first"
        )
        recognition.before.clear()
        await chunks_of(batch, whole, done=made[:6])
        assert recognition.before == hints[made[5].jobs_done :]


@pytest.mark.parametrize("task", TASKS)
async def test_every_window_is_asked_for_the_task_of_the_file(task, whole):
    async with batches() as (batch, recognition):
        async with aclosing(batch.transcribe(whole, BatchOptions(tenant="test", task=task))) as made:
            assert [chunk async for chunk in made]
        assert recognition.tasks == {task}
