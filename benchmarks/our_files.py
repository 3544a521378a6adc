"""Recognises files on the way of an upload: decoding, voice detection, packing, scheduler, engine."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

from benchmarks.file_scores import RecognitionResult
from benchmarks.live_scores import Shown
from pipeline.audio import RATE
from pipeline.batch import Batch, BatchOptions
from pipeline.ingest.isolation import Isolation
from pipeline.ingest.vad import Vad
from pipeline.recognition.engines.load import load
from pipeline.recognition.model_set import EngineSettings, ModelSet


def recognise(paths: Sequence[Path], *, model: str, at_once: int) -> list[RecognitionResult]:
    """Return the words of each file, *at_once* files at a time. Raises PipelineError for one that cannot be decoded."""
    with ExitStack() as stack:
        engine = stack.enter_context(closing(load(EngineSettings(engine="whisper", model=model))))
        batch = Batch(
            engine=engine,
            models=stack.enter_context(closing(ModelSet.of(engine))),
            vad=Vad(),
            isolation=stack.enter_context(closing(Isolation())),
            threads=stack.enter_context(ThreadPoolExecutor(at_once)),
        )
        return asyncio.run(_recognise_all(paths, batch, at_once))


async def _recognise_all(paths: Sequence[Path], batch: Batch, at_once: int) -> list[RecognitionResult]:
    slots = asyncio.Semaphore(at_once)

    async def one(path: Path) -> RecognitionResult:
        async with slots:
            chunks = [chunk async for chunk in batch.transcribe(path, BatchOptions(tenant=str(path)))]
        words = [word for chunk in chunks for segment in chunk.segments for word in segment.words]
        shown = [Shown(" " * word.spaced + word.text, word.start / RATE, word.end / RATE) for word in words]
        return RecognitionResult(shown, chunks[-1].language)

    return list(await asyncio.gather(*map(one, paths)))
