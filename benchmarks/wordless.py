"""How many words come out of sound in which nobody speaks, in many languages: none should.

    .venv/bin/python -m benchmarks.wordless                        # base, 24 s of each kind: about ten minutes
    .venv/bin/python -m benchmarks.wordless --model small --seconds 120 --languages de ja zh

The sounds are made here: noises, hum, melody, breath and silence. Three ways are counted. "As a file": the speech that
the voice detector finds in a sound at any of four gains, heard in each language and with the language found. "Live": a
session without settings. This is what users get. "Undetected": the model hears all of the sound, as if the voice
detector had found speech in it, which shows what the gates and the table of credits hold back. Calls of the model are
remembered (memo.py).
"""

import argparse
import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from benchmarks.languages import stream
from benchmarks.measure import write
from benchmarks.memo import memoise_engine
from benchmarks.virtual_time import VirtualTimeLoop
from pipeline.audio import RATE, Samples
from pipeline.batch import packing_options
from pipeline.ingest.speech import DecodeJob, SpeechPacker
from pipeline.ingest.vad import Vad
from pipeline.recognition.engine import DecodeRequest, Engine
from pipeline.recognition.engines.load import load
from pipeline.recognition.model_set import EngineSettings, ModelSet
from pipeline.recognition.routing import LanguageRouter

LANGUAGES = (
    "en", "es", "fr", "de", "it", "pt", "nl", "pl", "cs", "ru", "uk", "tr", "ar", "hi", "zh", "ja", "ko", "sv", "ro",
    "fi",
)  # fmt: skip
GAINS_DB = (-40, -20, 0, 20)
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
    parser.add_argument("--seconds", type=float, default=24.0, help="of each sound")
    parser.add_argument("--languages", nargs="+", default=LANGUAGES, help="that are given, beside none")
    parser.add_argument("--result", help="name of the result file; without it the figures are only printed")
    given = parser.parse_args()
    engine, voice = load(EngineSettings(engine="whisper", model=given.model, device="cpu")), Vad()
    memoise_engine(engine)
    told = [*(code for code in given.languages if code in engine.languages), None]
    rows = {}
    for number, (name, make) in enumerate(SOUNDS.items()):
        sound = make(round(given.seconds * RATE), np.random.default_rng(number))
        levels = [np.clip(sound * 10 ** (gain / 20), -1, 1).astype(np.float32) for gain in GAINS_DB]
        heard = {
            "as a file": [word for samples in levels for word in by_file(engine, voice, samples, told)],
            "live": [word for samples in levels for word in live(engine, voice, samples)],
            "undetected": list(by_engine(engine, sound.astype(np.float32), told)),
        }
        sounds = {"as a file": len(levels) * len(told), "live": len(levels), "undetected": len(told)}
        for way, words in heard.items():
            minutes = sounds[way] * given.seconds / 60
            rows[f"{name}, {way}"] = {"minutes": round(minutes, 1), "words": len(words), "first": " ".join(words[:12])}
            print(f"{name:8} {way:10} {minutes:5.1f} min  {len(words):3} words  {' '.join(words[:12])}", flush=True)
    engine.close()
    if given.result:
        print(write(given.result, {"model": given.model, "languages": len(told) - 1, "sounds": rows}))


def by_file(engine: Engine, voice: Vad, samples: Samples, told: Sequence[str | None]) -> Iterator[str]:
    """Yield the words of the speech that the voice detector finds, in each language. As files are packed."""
    packer = SpeechPacker(voice.stream(), packing_options(engine.longest_job))
    for item in (*packer.pack(samples), *packer.flush()):
        if isinstance(item, DecodeJob):
            for language in told:
                request = DecodeRequest(samples=item.samples, start=item.start, language=language, voiced=item.voiced)
                yield from (word.text for word in engine.recognise([request])[0].words)


def live(engine: Engine, voice: Vad, samples: Samples) -> list[str]:
    """Return the final words of a live session whose language is found."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        words, _ = runner.run(stream(samples, LanguageRouter(ModelSet.of(engine)), voice))
    return [word.text for word in words]


def by_engine(engine: Engine, samples: Samples, told: Sequence[str | None]) -> Iterator[str]:
    """Yield the words of *samples* as the model hears them where the voice detector finds no speech."""
    for language in told:
        for start in range(0, len(samples), PIECE_S * RATE):
            piece = samples[start : start + PIECE_S * RATE]
            request = DecodeRequest(samples=piece, start=start, language=language, final=True)
            yield from (word.text for word in engine.recognise([request])[0].words)


if __name__ == "__main__":
    main()
