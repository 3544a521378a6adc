"""The options --model and --clips, which most benchmarks have: the model and the recordings of people."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from benchmarks.conditions import string_together
from benchmarks.tracks import PEOPLE, Track, clips
from pipeline.recognition.engines.models import bundled_folder

BUNDLED = "tiny.en"
"""The model of most benchmarks: it hears English on a fresh machine."""


@dataclass(frozen=True)
class Choices:
    """The model and the recordings of one run of a benchmark."""

    model: str  # a folder, or a name that faster-whisper knows
    name: str  # what results call it
    folders: tuple[Path, ...]

    def clips(self) -> list[Track]:
        """Return the English clips. English is the only language that every model here knows."""
        return [clip for folder in self.folders for clip in clips(folder) if clip.language == "en"]

    def tracks(self, count: int, length_s: float) -> list[Track]:
        """Return *count* different tracks of *length_s* seconds: people one after another, with pauses."""
        spoken = self.clips()
        return [string_together(spoken, number, length_s) for number in range(count)]


def add_choices(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", help="a Whisper model's folder or name (default: the bundled tiny.en)")
    other = "other recordings of people: a folder with a manifest.json, as tests/speech/human has it; may be repeated"
    parser.add_argument("--clips", type=Path, action="append", metavar="DIR", help=other)


def choices_of(given: argparse.Namespace) -> Choices:
    """Return what the options of add_choices() name. Raises SystemExit without the bundled model."""
    model = given.model or bundled_model()
    return Choices(model, Path(model).name if given.model else BUNDLED, tuple(given.clips or [PEOPLE]))


def bundled_model() -> str:
    """Return the folder of the bundled model. Raises SystemExit if it is not installed."""
    folder = bundled_folder(BUNDLED)
    if folder is None:
        raise SystemExit("the bundled model is not installed: run scripts/setup dev, or give --model")
    return str(folder)
