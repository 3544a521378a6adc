"""Does this model hear in short windows as well as in the 30 s it was trained on? Measured, once a model and machine.

A short window costs a fraction: encoding 5 s takes a twentieth of what encoding 30 s takes. But a Whisper that never
saw one may lose words or fall into loops, and how long a job it hears best differs too. So a minute of speech that
comes with this package is heard in full windows and in shorter ones, cheapest first, and the first that makes no more
errors is taken.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from pipeline.audio import LONGEST_JOB, RATE, Samples
from pipeline.recognition.engine import DecodeRequest, Heard
from pipeline.recognition.scoring import spoken, word_errors
from pipeline.words import written

Windows: TypeAlias = Literal["short", "full"]

SPEECH = Path(__file__).with_name("windows_speech.npz")
"""Three passages of sentences, by espeak-ng in English and Spanish and by flite; benchmarks/make_windows_speech.py."""

TOLERATED = 0.005
"""Word error rate by which shorter windows may be worse than full ones."""

_UNKNOWN_VOICE = 0.5  # a passage of which no window hears half says nothing about windows


@dataclass(frozen=True, slots=True)
class Fit:
    """How audio is cut for one model."""

    windows: Windows  # short: padded to the next of prompts.WINDOWS_S; full: always to 30 s
    job_s: int  # what the decode jobs of files aim at

    @property
    def job(self) -> int:
        return min(self.job_s * RATE, LONGEST_JOB)


FULL = Fit("full", 28)
SHORTER = (Fit("short", 3), Fit("short", 10), Fit("short", 20))
"""What is tried before FULL, cheapest first."""


@dataclass(frozen=True, slots=True)
class Sentence:
    samples: Samples
    text: str
    language: str
    voice: str


@dataclass(frozen=True, slots=True)
class Trial:
    """One fit and the word error rate of each passage that it was tried on."""

    fit: Fit
    errors: dict[str, float]
    words: dict[str, int]

    def rate(self, voices: Sequence[str]) -> float:
        words = sum(self.words[voice] for voice in voices)
        return sum(self.errors[voice] * self.words[voice] for voice in voices) / words


Hear: TypeAlias = Callable[[Fit, Sequence[DecodeRequest]], list[Heard]]


def bundled_speech(path: Path = SPEECH) -> list[Sentence]:
    """What fitting() listens to."""
    with np.load(path) as stored:
        rows = json.loads(bytes(stored["rows"]).decode())
        return [
            Sentence(stored[row["name"]].astype(np.float32) / 32768, row["text"], row["language"], row["voice"])
            for row in rows
        ]


def fitting(hear: Hear, sentences: Sequence[Sentence]) -> tuple[Fit, list[Trial]]:
    """The cheapest fit that errs no more than FULL by TOLERATED, and what was tried, FULL first.

    FULL where nothing can be told, because the model knows none of the voices.
    """
    full = _trial(hear, FULL, sentences)
    trials = [full]
    for fit in SHORTER:
        trials.append(_trial(hear, fit, sentences))
        known = [voice for voice in full.errors if min(full.errors[voice], trials[-1].errors[voice]) < _UNKNOWN_VOICE]
        if known and trials[-1].rate(known) <= full.rate(known) + TOLERATED:
            return fit, trials
    return FULL, trials


def _trial(hear: Hear, fit: Fit, sentences: Sequence[Sentence]) -> Trial:
    errors, words = {}, {}
    for voice in dict.fromkeys(sentence.voice for sentence in sentences):
        passage = [sentence for sentence in sentences if sentence.voice == voice]
        said = spoken(" ".join(sentence.text for sentence in passage))
        answers = hear(fit, list(_jobs(passage, fit.job)))
        heard = spoken(" ".join(written(answer.words) for answer in answers))
        errors[voice] = min(1.0, word_errors(said, heard) / len(said))  # a loop counts as nothing understood
        words[voice] = len(said)
    return Trial(fit, errors, words)


def _jobs(passage: Sequence[Sentence], longest: int) -> Iterator[DecodeRequest]:
    """The passage in requests of whole sentences, as many as fit into *longest*."""
    group: list[Samples] = []
    for sentence in passage:
        if group and sum(map(len, group)) + len(sentence.samples) > longest:
            yield DecodeRequest(samples=np.concatenate(group), start=0, language=sentence.language)
            group = []
        group.append(sentence.samples)
    yield DecodeRequest(samples=np.concatenate(group), start=0, language=passage[-1].language)
