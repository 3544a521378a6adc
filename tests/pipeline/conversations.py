"""Conversations with known turns, made of the clips of tests/speech, and their score."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TypeAlias

import numpy as np
import soundfile
from simpleder import DER

from pipeline.audio import RATE, Samples
from pipeline.speakers.diarizer import Diarizer, speaker_turns
from pipeline.speakers.options import SpeakerOptions
from pipeline.speakers.windows import SpeakerModels
from pipeline.words import SpeakerTurn

SPEECH = Path(__file__).parents[1] / "speech"
Labelled: TypeAlias = list[tuple[str, float, float]]


@cache
def models() -> SpeakerModels:
    return SpeakerModels()


@cache
def recording(name: str) -> Samples:
    """Return a clip as it is."""
    samples: Samples = soundfile.read(SPEECH / name, dtype="float32")[0]
    return samples


@cache
def clip(name: str) -> Samples:
    """Return a clip, as loud as the others."""
    samples = recording(name)
    return np.asarray(samples * 0.06 / np.sqrt((samples**2).mean()), np.float32)


def conversation(*clips: str, gap_s: float = 0.4) -> tuple[Samples, Labelled]:
    """Return clips one after the other, and who speaks when: the first letters of their names."""
    pieces: list[Samples] = []
    turns: Labelled = []
    at = 0
    for name in clips:
        samples = clip(name)
        pieces += [samples, np.zeros(round(gap_s * RATE), np.float32)]
        turns.append((name.split("/")[-1][:3], at / RATE, (at + len(samples)) / RATE))
        at += sum(map(len, pieces[-2:]))
    return np.concatenate(pieces), turns


def meeting(name: str) -> tuple[Samples, Labelled]:
    folder = SPEECH / "meetings"
    row = next(row for row in json.loads((folder / "manifest.json").read_text()) if row["file"] == name)
    samples = soundfile.read(folder / name, dtype="float32")[0]
    return samples, [(speaker, start, end) for start, end, speaker in row["turns"]]


def diarize(samples: Samples, options: SpeakerOptions | None = None) -> list[SpeakerTurn]:
    diarizer = Diarizer(models())
    for start in range(0, len(samples), RATE):
        diarizer.add_samples(samples[start : start + RATE])
    diarizer.end()
    return speaker_turns({None: diarizer}, options or SpeakerOptions())


def error_rate(true: Labelled, turns: Sequence[SpeakerTurn]) -> float:
    """Return the diarization error rate, without a collar, overlap included."""
    return float(DER(true, [(turn.speaker, turn.start / RATE, turn.end / RATE) for turn in turns]))
