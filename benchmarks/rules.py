"""What each rule of recognition is worth: word errors and CPU of files with it and without it, in seven languages.

    .venv/bin/python -m benchmarks.rules                       # every rule left out, one after the other
    .venv/bin/python -m benchmarks.rules --rules coverage gain --languages es ru --seconds 200
    .venv/bin/python -m benchmarks.rules --half judging --rules    # no rule left out: the recogniser as it is

Recordings are those of scripts/corpora, joined with pauses of 0.3 to 2.5 s, the language given. A model's answers are
remembered on disk, so a rule costs only the calls that it changes. Intervals of 95 % are over clips.
"""

import argparse
import random
import unicodedata
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
from jiwer import process_words

from benchmarks.corpora import clips_of, samples_of
from benchmarks.intervals import difference
from benchmarks.scoring import spoken_words
from pipeline.audio import RATE, Samples, floats_of
from pipeline.batch import packing_options
from pipeline.ingest.speech import DecodeJob, SpeechPacker
from pipeline.ingest.vad import Vad
from pipeline.recognition.engine import DecodeRequest
from pipeline.recognition.engines import bootstrap, models
from pipeline.words import join_words

bootstrap.prepare()

from benchmarks.memo import Memo, memoise_engine  # noqa: E402  needs what prepare() has set
from pipeline.recognition.engines.whisper import engine as whisper  # noqa: E402  likewise
from pipeline.recognition.engines.whisper.windows import FULL, WindowSizes  # noqa: E402  likewise

LANGUAGES = ("en", "en noisy", "es", "fr", "it", "ru", "nl", "cs", "es noisy", "ru noisy")
USUAL = WindowSizes(7, 15, 19)
NOISE_DB = 10


@dataclass(frozen=True, slots=True)
class Track:
    """Clips one after the other, with the words of each."""

    samples: Samples
    said: tuple[tuple[str, ...], ...]


def _published_gates(text: str, *, avg_logprob: float, no_speech_prob: float, **_: Any) -> str | None:
    if not any(sign.isalnum() for sign in text):
        return "no_words"
    if no_speech_prob > 0.6 and avg_logprob < -1.0:
        return "no_speech"
    data = text.encode()
    return "repetition" if len(data) / len(zlib.compress(data)) > 2.4 else None


RULES: Mapping[str, Mapping[str, Any]] = {
    "second look": {"WhisperEngine._second_look": lambda _self, _request, first, _shape: first},
    "coverage": {"WhisperEngine._fill_gaps": lambda _self, _request, result, _sizes: result},
    "echo": {"without_echo": lambda words, _: tuple(words)},
    "own gates": {"failed_gate": _published_gates},
    "gain": {"_raise_level": lambda request: floats_of(request.samples)},
    "beam": {"_BEAM": 1},
    "short windows": {"sizes": FULL},
    "jobs of 19 s": {"sizes": WindowSizes(10, 15, 28)},
    "lead": {"lead": 0},
}
PLAIN = ("second look", "coverage", "echo", "own gates", "gain")
RULES = {**RULES, "all of these": {name: value for rule in PLAIN for name, value in RULES[rule].items()}}
for _kept in PLAIN:
    RULES[f"all but {_kept}"] = {n: v for rule in PLAIN if rule != _kept for n, v in RULES[rule].items()}


@contextmanager
def without(rule: Mapping[str, Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for name, value in rule.items():
            if name not in ("sizes", "lead"):
                *path, last = name.split(".")
                target = getattr(whisper, path[0]) if path else whisper
                stack.enter_context(patch.object(target, last, value))
        yield


def tracks(language: str, seconds: float, *, judging: bool) -> Iterator[Track]:
    code, _, noisy = language.partition(" ")
    clips = [clip for clip in clips_of(code) if clip.judges is judging]
    random.Random(1).shuffle(clips)
    rng = np.random.default_rng(1)
    total = 0.0
    at = 0
    while total < seconds and at < len(clips):
        parts: list[Samples] = []
        said: list[tuple[str, ...]] = []
        length = 0.0
        while length < min(100.0, seconds) and at < len(clips):
            samples = samples_of(clips[at])
            parts += [samples, np.zeros(round(RATE * rng.uniform(0.3, 2.5)), np.float32)]
            said.append(tuple(words_of(clips[at].text, code)))
            length += sum(map(len, parts[-2:])) / RATE
            at += 1
        joined = np.concatenate(parts)
        if noisy:
            noise = rng.standard_normal(len(joined)).astype(np.float32)
            level = float(np.sqrt(np.mean(np.square(joined))))
            joined = np.clip(joined + noise * np.float32(level * 10 ** (-NOISE_DB / 20)), -1, 1).astype(np.float32)
        yield Track(joined, tuple(said))
        total += length


def words_of(text: str, language: str) -> list[str]:
    """Return the words of *text* as they are compared. The Spanish texts have no accents, so none count there."""
    if language == "es":
        text = "".join(sign for sign in unicodedata.normalize("NFD", text) if not unicodedata.combining(sign))
    return spoken_words(text, language)


def errors_of(track: Track, heard: Sequence[str]) -> list[int]:
    """Return how many words are wrong in each clip of *track*; a word too many counts at its place."""
    said = [word for clip in track.said for word in clip]
    owner = [at for at, clip in enumerate(track.said) for _ in clip]
    errors = [0] * len(track.said)
    [chunks] = process_words(" ".join(said), " ".join(heard)).alignments
    for chunk in chunks:
        if chunk.type == "insert":
            errors[owner[min(chunk.ref_start_idx, len(owner) - 1)]] += chunk.hyp_end_idx - chunk.hyp_start_idx
        elif chunk.type != "equal":
            for index in range(chunk.ref_start_idx, chunk.ref_end_idx):
                errors[owner[index]] += 1
    return errors


class Bench:
    def __init__(self, seconds: float, *, judging: bool) -> None:
        self._memos: dict[str, Memo] = {}
        self._voice = Vad()
        self._seconds, self._judging = seconds, judging
        self._engines: dict[str, whisper.WhisperEngine] = {}
        self._tracks: dict[str, list[Track]] = {}
        self._jobs: dict[Any, list[DecodeJob]] = {}

    def engine(self, name: str) -> whisper.WhisperEngine:
        if name not in self._engines:
            folder = models.bundled_folder(name)
            assert folder is not None
            engine = whisper.WhisperEngine(folder, model=name, sizes=USUAL)
            self._memos[name] = memoise_engine(engine)
            self._engines[name] = engine
        return self._engines[name]

    def run(self, language: str, rule: Mapping[str, Any]) -> tuple[list[int], list[int], float]:
        """Return the errors and words of each clip, and CPU seconds of the model for each second of sound."""
        code = language.partition(" ")[0]
        if language not in self._tracks:
            self._tracks[language] = list(tracks(language, self._seconds, judging=self._judging))
        name = "tiny.en" if code == "en" else "base"
        engine = self.engine(name)
        sizes = rule.get("sizes", USUAL)
        engine.sizes = sizes
        before_s = self._memos[name].counted_s
        errors: list[int] = []
        words: list[int] = []
        seconds = 0.0
        with without(rule):
            for number, track in enumerate(self._tracks[language]):
                key = (language, number, sizes, rule.get("lead"))
                if key not in self._jobs:
                    options = packing_options(engine.longest_job)
                    if "lead" in rule:
                        options = replace(options, lead=rule["lead"])
                    packer = SpeechPacker(self._voice.stream(), options)
                    found = (*packer.pack(track.samples), *packer.flush())
                    self._jobs[key] = [job for job in found if isinstance(job, DecodeJob)]
                heard: list[str] = []
                for job in self._jobs[key]:
                    request = DecodeRequest(samples=job.samples, start=job.start, language=code, voiced=job.voiced)
                    heard += words_of(join_words(engine.recognise([request])[0].words), code)
                errors += errors_of(track, heard)
                words += map(len, track.said)
                seconds += len(track.samples) / RATE
        return errors, words, (self._memos[name].counted_s - before_s) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rules", nargs="*", choices=RULES, default=list(RULES), metavar="RULE")
    parser.add_argument("--languages", nargs="+", choices=LANGUAGES, default=list(LANGUAGES), metavar="LANGUAGE")
    parser.add_argument("--seconds", type=float, default=100, help="of each language (default: 100)")
    parser.add_argument("--half", choices=("tuning", "judging"), default="tuning")
    given = parser.parse_args()
    bench = Bench(given.seconds, judging=given.half == "judging")
    usual = {language: bench.run(language, {}) for language in given.languages}
    row("(all rules)", usual, usual)
    for name in given.rules:
        row(name, {language: bench.run(language, RULES[name]) for language in given.languages}, usual)


def row(name: str, found: Mapping[str, Any], usual: Mapping[str, Any]) -> None:
    cells = []
    for language, (errors, words, _) in found.items():
        plus = sum(errors) - sum(usual[language][0])
        low, high = difference(errors, usual[language][0], words) or (0, 0)
        mark = "*" if low > 0 or high < 0 else ""
        cells.append(f"{language} {100 * sum(errors) / sum(words):.1f} ({plus:+d}{mark})")
    every = [[value for one in side.values() for value in one[at]] for side in (found, usual) for at in (0, 1)]
    low, high = difference(every[0], every[2], every[1]) or (0, 0)
    share = 100 * sum(every[0]) / sum(every[1])
    cpu = sum(one[2] for one in found.values()) / sum(one[2] for one in usual.values())
    print(
        f"{name:26} {share:.2f} % of {sum(every[1])} ({100 * low:+.2f} to {100 * high:+.2f}) CPU x{cpu:.2f} | "
        + ", ".join(cells),
        flush=True,
    )


if __name__ == "__main__":
    main()
