"""Tests of what people say several times over: it is written as often, by tiny.en, as a file and live."""

import asyncio
from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path

import numpy as np
import pytest

from benchmarks.scoring import spoken_words
from benchmarks.virtual_time import VirtualTimeLoop
from pipeline.audio import RATE, WINDOW, Samples
from pipeline.batch import packing_options
from pipeline.ingest.vad import Vad
from pipeline.live_stream import LiveStream
from pipeline.recognition.engine import DecodeRequest, Engine
from pipeline.recognition.engines.load import load
from pipeline.recognition.model_set import EngineSettings
from pipeline.recognition.scheduler import Scheduler
from pipeline.recognition.stream import StreamCore
from pipeline.recognition.stream_options import StreamOptions
from pipeline.words import Word
from tests.pipeline.live_streams import committed_words, run_whole
from tests.pipeline.sounds import SPEECH, jobs_of, read


@pytest.fixture(scope="module")
def engine(bundled_model: Path) -> Iterator[Engine]:
    engine = load(EngineSettings(model=str(bundled_model)))
    yield engine
    engine.close()


def said_again(times: int, gap_s: float) -> Samples:
    said = read(SPEECH / "human/jfk.flac")[round(0.3 * RATE) : round(2.3 * RATE)]  # And so my fellow Americans
    return np.tile(np.concatenate((said, np.zeros(round(gap_s * RATE), np.float32))), times)


def as_file(engine: Engine, samples: Samples) -> tuple[Word, ...]:
    jobs = jobs_of(samples, Vad(), packing_options(engine.longest_job))
    requests = (DecodeRequest(samples=job.samples, start=job.start, voiced=job.voiced) for job in jobs)
    return tuple(chain.from_iterable(engine.recognise([request])[0].words for request in requests))


def live(engine: Engine, samples: Samples) -> tuple[Word, ...]:
    async def run() -> tuple[Word, ...]:
        scheduler = Scheduler(engine)
        options = StreamOptions(language="en")
        session = LiveStream(StreamCore(options), vad=Vad().stream(), recogniser=scheduler, tenant="acct")

        async def speak(session: LiveStream) -> None:
            for piece in np.split(samples, range(WINDOW * 6, len(samples), WINDOW * 6)):
                await asyncio.sleep(len(piece) / RATE)
                await session.feed(piece)

        happened = await run_whole(session, speak)
        scheduler.close()
        return committed_words(happened)

    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(count(0, 0.1).__next__)) as runner:  # a call takes 0.1 s
        return runner.run(run())


@pytest.mark.parametrize(("hear", "times", "gap_s"), [(as_file, 5, 0.3), (as_file, 8, 0.2), (live, 5, 0.3)])
def test_what_is_said_several_times_is_written_as_often(engine, hear, times, gap_s):
    words = spoken_words(" ".join(word.text for word in hear(engine, said_again(times, gap_s))))
    assert abs(words.count("fellow") - times) <= 1
