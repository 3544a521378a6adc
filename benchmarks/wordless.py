"""How many words come out of an hour of sound in which nobody speaks, in 20 languages: none should.

    .venv/bin/python -m benchmarks.wordless --model base               # a minute of each kind and language
    .venv/bin/python -m benchmarks.wordless --model base --minutes 5

The sounds are made here: noises, hum, melody, breath and silence. Each goes the way of an upload, in each language as
the client names it and once with the language found; a second time without voice detection, so that the model hears it.
Speech that the voice detector finds in such a sound is what reaches a model on a server, so the first row is what users
get and the second is what the gates and the table of credits hold back.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import soundfile

from pipeline.audio import RATE, Samples
from pipeline.batch import Batch, BatchOptions
from pipeline.ingest.isolation import Isolation
from pipeline.ingest.vad import VoiceDetector
from pipeline.recognition.engine import DecodeRequest, Engine
from pipeline.recognition.engines.load import EngineSettings, load
from pipeline.recognition.scheduler import Scheduler

LANGUAGES = (
    "en", "es", "fr", "de", "it", "pt", "nl", "pl", "cs", "ru", "uk", "tr", "ar", "hi", "zh", "ja", "ko", "sv", "ro",
    "fi",
)  # fmt: skip
PIECE_S = 8  # of a request without voice detection


def white(length: int, chance: np.random.Generator) -> np.ndarray:
    return 0.05 * chance.standard_normal(length)


def pink(length: int, chance: np.random.Generator) -> np.ndarray:
    spectrum = np.fft.rfft(chance.standard_normal(length))
    coloured = np.fft.irfft(spectrum / np.sqrt(np.arange(1, len(spectrum) + 1)), length)
    return 0.05 * coloured / np.std(coloured)


def hum(length: int, chance: np.random.Generator) -> np.ndarray:
    at = np.arange(length) / RATE
    return 0.03 * sum(np.sin(2 * np.pi * 50 * n * at) / n for n in range(1, 7)) + 0.001 * chance.standard_normal(length)


def melody(length: int, chance: np.random.Generator) -> np.ndarray:
    """Return a plucked tune of three notes a second."""
    note = RATE // 3
    at = np.arange(note) / RATE
    notes = [220 * 2 ** (step / 12) for step in chance.choice([0, 2, 4, 5, 7, 9, 12], -(-length // note))]
    tones = [np.exp(-4 * at) * sum(np.sin(2 * np.pi * hz * n * at) / n**2 for n in range(1, 6)) for hz in notes]
    return 0.15 * np.concatenate(tones)[:length]


def breath(length: int, chance: np.random.Generator) -> np.ndarray:
    at = np.arange(length) / RATE
    return pink(length, chance) * np.clip(np.sin(2 * np.pi * 0.25 * at), 0, 1) ** 2


def silence(length: int, _chance: np.random.Generator) -> np.ndarray:
    return np.zeros(length)


SOUNDS: Mapping[str, Callable[[int, np.random.Generator], np.ndarray]] = {
    "white": white, "pink": pink, "hum": hum, "melody": melody, "breath": breath, "silence": silence,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="base")
    parser.add_argument("--minutes", type=float, default=1.0, help="of each sound in each language")
    given = parser.parse_args()
    length = round(60 * given.minutes * RATE)
    sounds = {
        name: make(length, np.random.default_rng(number)).astype(np.float32)
        for number, (name, make) in enumerate(SOUNDS.items())
    }
    with ExitStack() as stack:
        engine = stack.enter_context(closing(load(EngineSettings(engine="whisper", model=given.model))))
        batch = Batch(
            engine=engine,
            recogniser=stack.enter_context(closing(Scheduler(engine))),
            voice=VoiceDetector(),
            isolation=stack.enter_context(closing(Isolation())),
            threads=stack.enter_context(ThreadPoolExecutor(1)),
        )
        known = [language for language in LANGUAGES if language in engine.languages]
        for name, samples in sounds.items():
            hours = given.minutes / 60 * (len(known) + 1)
            for way, words in (
                ("as a file", list(by_file(batch, samples, known))),
                ("undetected", list(by_engine(engine, samples, known))),
            ):
                print(f"{name:8} {way:10} {len(words) / hours:6.1f} words an hour  {' '.join(words[:12])}", flush=True)


def by_file(batch: Batch, samples: Samples, languages: list[str]) -> Iterator[str]:
    """Yield the words of *samples* with each of *languages* fixed, and with the language found."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "wordless.flac"
        soundfile.write(path, samples, RATE)
        for language in (*languages, None):
            yield from asyncio.run(_words(batch, path, language))


async def _words(batch: Batch, path: Path, language: str | None) -> list[str]:
    chunks = [chunk async for chunk in batch.transcribe(path, BatchOptions(tenant="wordless", language=language))]
    return [word.text for chunk in chunks for segment in chunk.segments for word in segment.words]


def by_engine(engine: Engine, samples: Samples, languages: list[str]) -> Iterator[str]:
    """Yield the words of *samples* as the model hears them where the voice detector finds no speech."""
    for language in (*languages, None):
        for start in range(0, len(samples), PIECE_S * RATE):
            piece = samples[start : start + PIECE_S * RATE]
            request = DecodeRequest(samples=piece, start=start, language=language, final=True)
            yield from (word.text for word in engine.recognise([request])[0].words)


if __name__ == "__main__":
    main()
