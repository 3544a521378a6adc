"""Tests that an engine of another kind than Whisper fits behind the same interface, for files and live.

It decodes frame by frame, as a transducer does, and knows neither hints, nor decided words, nor languages. Each word is
a tone of its own, and a word is said when its tone has ended.
"""

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np
import soundfile

from pipeline.audio import RATE, Samples, Windows, position
from pipeline.batch import Batch, BatchOptions
from pipeline.ingest.isolation import Isolation
from pipeline.live_stream import LiveStream
from pipeline.recognition.engine import DecodeRequest, Engine, RecognitionResult
from pipeline.recognition.engines.load import ENGINES, load
from pipeline.recognition.model_set import EngineSettings, FoundModel, FoundModels, ModelSet
from pipeline.recognition.routing import LanguageRouter
from pipeline.recognition.stream import StreamCore
from pipeline.recognition.stream_options import StreamOptions
from pipeline.words import Word
from tests.pipeline.live_streams import committed_words, run_whole

FRAME = position(0.02)
TONES = {500: "so", 800: "my", 1100: "fellow", 1400: "friends", 1700: "ask", 2000: "what"}
SAID = ["so", "my", "fellow", "friends", "ask", "what", "my", "friends", "ask"]


class FrameEngine:
    """See pipeline.recognition.engine.Engine for the contract of its public names."""

    name = model = "frames"
    languages = frozenset({"en"})
    translates = False
    max_batch = replicas = file_replicas_during_speech = 1
    longest_job = position(20)

    def bucket(self, request: DecodeRequest) -> Hashable:
        return request.final

    def recognise(self, requests: Sequence[DecodeRequest]) -> list[RecognitionResult]:
        return [RecognitionResult(self._decode(request), "en") for request in requests]

    def detect_language(self, samples: Samples) -> Mapping[str, float]:  # noqa: ARG002  Engine gives the name
        return {"en": 1.0}

    def close(self) -> None: ...

    def _decode(self, request: DecodeRequest) -> tuple[Word, ...]:
        words: list[Word] = []
        tone, since = 0, 0
        for at in range(0, len(request.samples) - FRAME + 1, FRAME):
            heard = tone_in(request.samples[at : at + FRAME])
            if heard != tone:
                if tone:
                    words.append(Word(TONES[tone], request.start + since, request.start + at, 0.95))
                tone, since = heard, at
        return tuple(words)


def tone_in(frame: Samples) -> int:
    """Return which of TONES is in the frame; 0 for none."""
    if float(np.abs(frame).max()) < 0.05:
        return 0
    loudest = float(np.argmax(np.abs(np.fft.rfft(frame)))) * RATE / len(frame)
    return min(TONES, key=lambda tone: abs(tone - loudest))


class Loudness:
    """Detects the tones as speech."""

    def stream(self) -> "Loudness":
        return self

    def __call__(self, windows: Windows) -> list[float]:
        return [0.95 if float(np.abs(window).max()) > 0.05 else 0.02 for window in windows]


def speech() -> Samples:
    """Return SAID with short gaps between the words, and a pause in the middle."""
    pitch = {word: tone for tone, word in TONES.items()}
    at = np.arange(position(0.3)) / RATE
    parts = [np.zeros(position(0.5), np.float32)]
    for number, word in enumerate(SAID):
        parts += [(0.3 * np.sin(2 * np.pi * pitch[word] * at)).astype(np.float32)]
        parts += [np.zeros(position(1.2 if number == 4 else 0.06), np.float32)]
    return np.concatenate([*parts, np.zeros(position(1), np.float32)])


def find_models(_: EngineSettings) -> FoundModels:
    model = FoundModel(
        name="frames",
        load=FrameEngine,
        languages=FrameEngine.languages,
        longest_job=FrameEngine.longest_job,
    )
    return FoundModels((model,), {})


def live(engine: Engine, samples: Samples) -> tuple[Word, ...]:
    async def run() -> tuple[Word, ...]:
        with closing(ModelSet.of(engine)) as models:
            core = StreamCore(StreamOptions())
            session = LiveStream(core, vad=Loudness(), recogniser=LanguageRouter(models), tenant="acct")
            return committed_words(await run_whole(session, lambda session: session.feed(samples)))

    return asyncio.run(run())


def as_file(engine: Engine, samples: Samples, path: Path) -> tuple[Word, ...]:
    soundfile.write(path, samples, RATE)

    async def run() -> tuple[Word, ...]:
        with (
            closing(ModelSet.of(engine)) as models,
            closing(Isolation()) as isolation,
            ThreadPoolExecutor(1) as threads,
        ):
            batch = Batch(engine=engine, models=models, vad=Loudness(), isolation=isolation, threads=threads)
            chunks = [chunk async for chunk in batch.transcribe(path, BatchOptions(tenant="acct"))]
        return tuple(word for chunk in chunks for segment in chunk.segments for word in segment.words)

    return asyncio.run(run())


def test_an_engine_that_decodes_frame_by_frame_hears_sessions_and_files(tmp_path, monkeypatch):
    monkeypatch.setitem(ENGINES, "frames", find_models)
    engine, samples = load(EngineSettings(engine="frames")), speech()
    for words in (live(engine, samples), as_file(engine, samples, tmp_path / "tones.flac")):
        assert [word.text for word in words] == SAID
        assert all(before.end <= after.start for before, after in pairwise(words))
