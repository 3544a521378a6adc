"""Reads the test clips as tracks, which are samples with their words, and joins made clips to long tracks.

benchmarks/conditions.py joins the clips of people, and benchmarks/choices.py chooses the clips of a benchmark.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from benchmarks.live_scores import Truth
from pipeline.audio import RATE, Samples

SPEECH = Path(__file__).parents[1] / "tests" / "speech"
PEOPLE = SPEECH / "human"
MODEL = str(SPEECH / "tiny-whisper")
WARM_UP_S = 20.0
MEASURED_S = 120.0
LONG_S = WARM_UP_S + MEASURED_S
GAP_S = 0.6  # between two clips of one track


@dataclass(frozen=True)
class Track:
    """The audio of one session, and the words in it."""

    name: str
    language: str
    samples: Samples
    truth: tuple[Truth, ...]
    offline: str = ""
    edges: tuple[int, int] = (0, 0)
    """The numbers of words cut off at its start and its end. They are not in *truth*; recognising them is no error."""

    @property
    def seconds(self) -> float:
        return len(self.samples) / RATE


def clips(folder: Path = SPEECH) -> list[Track]:
    """Return the clips of a folder whose words and word times are known."""
    return [
        Track(row["file"], row["language"], samples, tuple(Truth(*word) for word in row["words"]))
        for row, samples in recordings(folder)
        if row["words"]
    ]


def recordings(folder: Path, longest_s: float = math.inf) -> Iterator[tuple[dict[str, Any], Samples]]:
    """Return the rows of a folder's manifest that have speech, with their audio."""
    for row, path in rows_of(folder):
        if row["text"] and row["seconds"] <= longest_s:
            yield row, soundfile.read(path, dtype="float32")[0]


def wordless(folder: Path = SPEECH) -> list[Track]:
    """Return the clips of a folder that have no speech."""
    rows = [(row["file"], path) for row, path in rows_of(folder) if not row["text"]]
    return [Track(name, "", soundfile.read(path, dtype="float32")[0], ()) for name, path in rows]


def rows_of(folder: Path) -> Iterator[tuple[dict[str, Any], Path]]:
    """Return every row of a folder's manifest with its file. Paths are relative to the folder or its parent."""
    for row in json.loads((folder / "manifest.json").read_text()):
        path = folder / row["file"]
        yield row, path if path.exists() else folder.parent / row["file"]


def join_tracks(tracks: Sequence[Track], first: int, length_s: float) -> Track:
    """Return one track of a given length, joined from many tracks from number *first* on."""
    samples: list[Samples] = []
    truth: list[Truth] = []
    at = 0.0
    for number in range(first, first + 10_000):
        track = tracks[number % len(tracks)]
        truth += [replace(word, start=word.start + at, end=word.end + at) for word in track.truth]
        samples += [track.samples, np.zeros(round(GAP_S * RATE), np.float32)]
        at += len(track.samples) / RATE + GAP_S
        if at >= length_s:
            break
    said = tuple(word for word in truth if word.end < length_s - GAP_S)
    return Track(f"joined {first}", "en", np.concatenate(samples)[: round(length_s * RATE)], said)


def long_tracks(tracks: Sequence[Track], count: int, length_s: float = LONG_S) -> list[Track]:
    """Return tracks of the length of one measurement, with different starts, each in one language."""
    english = [track for track in tracks if track.language == "en"]
    return [join_tracks(english, 3 * number, length_s) for number in range(count)]
