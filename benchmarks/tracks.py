"""Reads the test clips as tracks, which are samples with their words. conditions.py varies and joins them."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import soundfile

from pipeline.audio import RATE, Samples

SPEECH = Path(__file__).parents[1] / "tests" / "speech"
PEOPLE = SPEECH / "human"
MODEL = str(SPEECH / "tiny-whisper")


@dataclass(frozen=True, slots=True)
class Truth:
    """One word of the reference, with times in seconds of the stream's clock."""

    text: str
    start: float
    end: float


@dataclass(frozen=True)
class Track:
    """The audio of one session, and the words in it."""

    name: str
    language: str
    samples: Samples
    truth: tuple[Truth, ...]
    offline: str = ""
    """What the same engine recognises in the whole recording."""

    @property
    def seconds(self) -> float:
        return len(self.samples) / RATE

    @property
    def text(self) -> str:
        return " ".join(word.text for word in self.truth)


def clips(folder: Path = SPEECH) -> list[Track]:
    """Return the clips of a folder whose words and word times are known."""
    return [
        Track(row["file"], row["language"], samples, tuple(Truth(*word) for word in row["words"]))
        for row, samples in recordings(folder)
        if row["words"]
    ]


def recordings(folder: Path, longest_s: float = math.inf) -> Iterator[tuple[dict[str, Any], Samples]]:
    """Return the rows of a folder's manifest that have speech, with their audio."""
    for row, path in _rows_of(folder):
        if row["text"] and row["seconds"] <= longest_s:
            yield row, soundfile.read(path, dtype="float32")[0]


def _rows_of(folder: Path) -> Iterator[tuple[dict[str, Any], Path]]:
    """Return every row of a folder's manifest with its file. Paths are relative to the folder or its parent."""
    for row in json.loads((folder / "manifest.json").read_text()):
        path = folder / row["file"]
        yield row, path if path.exists() else folder.parent / row["file"]
