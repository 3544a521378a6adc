"""Tests of channels that are heard by themselves: which sound each is, and that a stopped file goes on exactly."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
import soundfile

from pipeline.audio import RATE, WINDOW, Samples, Windows
from pipeline.batch import CHUNK, MAX_SPAN, Batch, BatchOptions
from pipeline.documents.assemble import assemble
from pipeline.ingest.input_formats import DecodeLimits
from pipeline.ingest.isolation import Isolation
from pipeline.recognition.engines.scripted import ScriptedEngine
from pipeline.recognition.model_set import ModelSet
from pipeline.words import Chunk, Transcript
from tests.pipeline.timelines import stored_parts

SECONDS = 100


class Loudness:
    """Takes whatever is loud for speech."""

    def stream(self) -> "Loudness":
        return self

    def __call__(self, windows: Windows) -> list[float]:
        return [float(np.abs(window).max() > 0.1) for window in windows]


@pytest.fixture(scope="module")
def call(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a call: the left side is loud in the even ten seconds, the right one is loud in the first minute."""
    path = tmp_path_factory.mktemp("files") / "call.wav"
    seconds = np.arange(SECONDS * 8000) / 8000
    tone = 0.5 * np.sin(2 * np.pi * 440 * seconds)
    left, right = tone * (seconds // 10 % 2 == 0), tone * (seconds < 60)
    soundfile.write(path, np.stack((left, right), axis=1), 8000, subtype="ULAW")
    return path


def decode(path: Path, *, separate: bool) -> Samples:
    with Isolation() as isolation, isolation.decoding(path, DecodeLimits(), separate=separate) as audio:
        return np.concatenate(list(audio))


def loud_s(samples: Samples) -> list[bool]:
    return [bool(np.abs(second[1000:-1000]).max() > 0.1) for second in np.split(samples, len(samples) // RATE)]


def test_each_channel_is_its_own_sound_and_all_are_of_one_length(call):
    (left, right), both = decode(call, separate=True).T, decode(call, separate=False)
    assert len(left) == len(right) == len(both) == SECONDS * RATE
    assert loud_s(left) == [second // 10 % 2 == 0 for second in range(SECONDS)]
    assert loud_s(right) == [second < 60 for second in range(SECONDS)]
    assert np.abs((left + right) / 2 - both).max() < 0.01


@contextmanager
def batch_with(voice: Loudness | None) -> Iterator[Batch]:
    engine = ScriptedEngine()
    with Isolation() as isolation, ThreadPoolExecutor(2) as threads, closing(ModelSet.of(engine)) as models:
        yield Batch(engine=engine, models=models, vad=voice, isolation=isolation, threads=threads)  # type: ignore[arg-type]  # has the method


async def chunks_of(batch: Batch, path: Path, done: Sequence[Chunk] = ()) -> list[Chunk]:
    options = BatchOptions(tenant="test", separate=True)
    return [chunk async for chunk in batch.transcribe(path, options, done=done)]


def transcript(chunks: Sequence[Chunk]) -> Transcript:
    return assemble(chunks, duration=SECONDS * RATE, engine="scripted", model_of=lambda _: "scripted")


async def test_a_stopped_file_goes_on_behind_any_chunk_to_the_same_transcript(call):
    with batch_with(Loudness()) as batch:
        made = await chunks_of(batch, call)
        whole = transcript(made)
        assert [chunk.index for chunk in made] == list(range(len(made)))
        assert {segment.channel for segment in whole.segments} == {0, 1}
        assert max(word.end for segment in whole.segments if segment.channel == 1 for word in segment.words) <= (
            62 * RATE
        )
        for count in range(len(made) + 1):
            kept = stored_parts(made[:count])
            assert kept == made[:count]
            assert transcript([*kept, *await chunks_of(batch, call, kept)]) == whole


async def test_no_channel_runs_far_ahead_of_another(call):
    with batch_with(None) as batch:
        reached = {0: 0, 1: 0}
        for chunk in await chunks_of(batch, call):
            assert chunk.start == reached[chunk.channel] == min(reached.values())
            reached[chunk.channel] = chunk.end
            assert max(reached.values()) - min(reached.values()) < CHUNK + 30 * RATE


class CountingLoudness(Loudness):
    """Counts the windows of all channels."""

    def __init__(self) -> None:
        self.windows = 0

    def __call__(self, windows: Windows) -> list[float]:
        self.windows += len(windows)
        return super().__call__(windows)


async def test_a_channel_that_says_little_does_not_let_the_others_fill_the_memory(tmp_path):
    seconds = np.arange(900 * 8000) / 8000
    tone = 0.5 * np.sin(2 * np.pi * 440 * seconds)
    path = tmp_path / "monologue.wav"
    soundfile.write(path, np.stack((tone * (seconds < 5), tone), axis=1), 8000, subtype="ULAW")

    voice = CountingLoudness()
    with batch_with(voice) as batch:
        options = BatchOptions(tenant="test", separate=True)
        async with aclosing(batch.transcribe(path, options)) as chunks:
            assert (await anext(chunks)).channel == 0
        assert voice.windows * WINDOW / 2 < MAX_SPAN + 60 * RATE
