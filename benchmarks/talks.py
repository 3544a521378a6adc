"""Makes conversations with known turns: of recordings of people, of made voices, and of excerpts of meetings.

Settings are chosen on the development half. The other half has voices on which no setting was chosen: voices of
espeak-ng, and people in a folder that has a folder of clips for each of them.
"""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

import numpy as np
import soundfile
from numpy.random import Generator

from benchmarks.conditions import CONDITIONS, FRAME, speech_level
from benchmarks.tracks import SPEECH, Track
from pipeline.audio import RATE, Samples

DEVELOPMENT, HELD_APART = "development", "held apart"

PEOPLE = {
    "austen": "human/austen_*.flac",
    "LJ": "human/LJ*.flac",
    "kennedy": "human/jfk.flac",
    "reader": "human/two_cities.flac",
}
MADE = {name: f"flite/{name}_*.flac" for name in ("rms", "slt", "awb", "kal16")}
ESPEAK = ("en-us+m3", "en-gb+f2", "en-us+klatt4", "en-gb-scotland+f5", "en-us+grandpa", "en-gb-x-rp+Alicia")
"""Voices of espeak-ng that are held apart."""

SEED = {DEVELOPMENT: 1, HELD_APART: 2}
SECONDS = 60.0
TURN_S = (0.5, 10.0)
SHORT_TURNS = 0.25  # of all: up to SHORT_S, such as a yes
SHORT_S = 2.0
GAP_S = (-1.0, 2.0)  # before a turn; below 0 two speak at once
LEVEL = 0.06  # the root mean square of a clip

SPOKEN_DB = (12.0, 25.0)  # below the level of speech: surely speech, and surely none
ABOVE_NOISE_DB = 5.0  # between them: more than this above the quietest of a recording
PAUSE_S = 0.3  # a shorter pause is part of a turn
NOISY = ("small room", "pink noise, 20 dB", "telephone")

Turns: TypeAlias = list[tuple[str, float, float]]
"""Who speaks from when to when, in seconds."""

Voices: TypeAlias = Mapping[str, Sequence[Samples]]
"""The clips of each voice."""


@dataclass(frozen=True, slots=True)
class Talk:
    """A recording, and who speaks when in it."""

    group: str  # the row of the results in which it counts
    samples: Samples
    turns: Turns

    @property
    def voices(self) -> int:
        return len({who for who, *_ in self.turns})


def conversations(half: str, people: Path | None, seconds: float = SECONDS) -> list[Talk]:
    """Return the conversations of 2 to 4 voices of one half, always the same."""
    persons, made = voices(half, people)
    talks: list[Talk] = []
    for name, own in (("people", persons), ("made voices", made)):
        for count in (2, 3, 4):
            if len(own) >= count:
                seeds = [[SEED[half], count, take] for take in range(2)]
                talks += [_talk(f"{name}, {count}", own, count, seconds, seed) for seed in seeds]
    for condition in NOISY:
        for count in (2, 3):
            clear = _talk(condition, {**persons, **made}, count, seconds, [SEED[half], count, 7])
            (track,) = CONDITIONS[condition]([Track(condition, "en", clear.samples, ())], SEED[half])
            talks.append(Talk(condition, track.samples, clear.turns))
    return talks


def monologues(half: str, people: Path | None) -> list[Talk]:
    """Return pieces of 4 to 30 s of each voice alone, which begin and end anywhere."""
    talks: list[Talk] = []
    for own in voices(half, people):
        for name, clips in own.items():
            random = np.random.default_rng([SEED[half], len(clips)])
            whole = np.concatenate([part for clip in clips for part in (clip, np.zeros(RATE // 3, np.float32))])
            for _ in range(4):
                length = round(random.uniform(4, 30) * RATE)
                start = random.integers(0, max(1, len(whole) - length))
                piece = whole[start : start + length]
                talks.append(Talk("one voice", piece, [(name, a, b) for a, b in speech_spans(piece)]))
    return talks


def meetings(folder: Path) -> list[Talk]:
    """Return the recordings of a folder with a manifest.json like that of tests/speech/meetings."""
    known = json.loads((folder / "manifest.json").read_text())
    return [
        Talk(
            "meetings",
            soundfile.read(folder / row["file"], dtype="float32")[0],
            [(name, start, end) for start, end, name in row["turns"]],
        )
        for row in (known if isinstance(known, list) else known["clips"])
    ]


def voices(half: str, people: Path | None) -> tuple[Voices, Voices]:
    """Return the people and the made voices of one half. There may be none of either."""
    if half == DEVELOPMENT:
        return tuple({name: _clips(SPEECH, pattern) for name, pattern in own.items()} for own in (PEOPLE, MADE))
    persons = {} if people is None else {one.name: _clips(one, "*") for one in sorted(people.iterdir())}
    return persons, {name: _speak_with_espeak(name) for name in ESPEAK} if shutil.which("espeak-ng") else {}


def converse(clips: Voices, seconds: float, random: Generator) -> tuple[Samples, Turns]:
    """Return a conversation of all these voices, the last turn of which begins before *seconds*."""
    samples, turns = np.zeros(round((seconds + TURN_S[1] + 2) * RATE), np.float32), []
    names = list(clips)
    at, last, waiting = RATE // 2, "", list(random.permutation(names))
    while at < seconds * RATE:
        last = str(waiting.pop() if waiting else random.choice([name for name in names if name != last]))
        said = _turn(clips[last], random)
        samples[at : at + len(said)] += said[: len(samples) - at]
        turns += [(last, at / RATE + start, at / RATE + end) for start, end in speech_spans(said)]
        at = max(0, at + len(said) + round(random.uniform(*GAP_S) * RATE))
    return samples[: round((max(end for *_, end in turns) + 0.5) * RATE)], turns


def speech_spans(samples: Samples) -> list[tuple[float, float]]:
    """Return from when to when somebody speaks in a clip of one voice, in seconds."""
    frames = samples[: len(samples) // FRAME * FRAME].reshape(-1, FRAME)
    levels = np.sqrt((frames.astype(np.float64) ** 2).mean(axis=1))
    noise = np.percentile(levels, 5) * 10 ** (ABOVE_NOISE_DB / 20)
    most, least = (speech_level(samples) * 10 ** (-db / 20) for db in SPOKEN_DB)
    loud = levels > min(most, max(noise, least))
    found: list[tuple[float, float]] = []
    for frame in np.flatnonzero(loud) * FRAME / RATE:
        start = found.pop()[0] if found and frame - found[-1][1] < PAUSE_S else float(frame)
        found.append((start, float(frame) + FRAME / RATE))
    return found


def _talk(group: str, own: Voices, count: int, seconds: float, seed: list[int]) -> Talk:
    random = np.random.default_rng(seed)
    names = random.choice(list(own), count, replace=False)
    return Talk(group, *converse({str(name): own[str(name)] for name in names}, seconds, random))


def _turn(clips: Sequence[Samples], random: Generator) -> Samples:
    """Return a piece of a clip that begins and ends at a pause, if it has any."""
    clip = clips[random.integers(len(clips))]
    runs = speech_spans(clip)
    longest = random.uniform(TURN_S[0], SHORT_S if random.random() < SHORT_TURNS else TURN_S[1])
    first = random.integers(len(runs))
    start, end = runs[first]
    for _, later in runs[first + 1 :]:
        if later - start > longest:
            break
        end = later
    return clip[round(start * RATE) : round(min(end, start + longest) * RATE)]


@cache
def _clips(folder: Path, pattern: str) -> list[Samples]:
    return [_at_level(*soundfile.read(path, dtype="float32")) for path in sorted(folder.glob(pattern))]


@cache
def _speak_with_espeak(voice: str) -> list[Samples]:
    """Return sentences of the people's recordings, spoken by a voice of espeak-ng."""
    rows = json.loads((SPEECH / "human" / "manifest.json").read_text())
    texts = [" ".join(word for word, *_ in row["words"]) for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "said.wav"
        made: list[Samples] = []
        for text in texts:
            subprocess.run(("espeak-ng", "-v", voice, "-w", path, text), check=True)
            made.append(_at_level(*soundfile.read(path, dtype="float32")))
    return made


def _at_level(samples: Samples, rate: int) -> Samples:
    from scipy.signal import resample_poly  # noqa: PLC0415  costs half a second to import

    heard = np.asarray(samples if rate == RATE else resample_poly(samples, RATE, rate), np.float32)
    return np.asarray(heard * LEVEL / np.sqrt((heard**2).mean()), np.float32)
