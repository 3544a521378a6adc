"""The options --model, --speech and --clips, which every benchmark has: the model and the recordings.

The defaults are the model that is installed with the project, and recordings of people. The small test model only knows
made voices, which are synthetic:

    --model tests/speech/tiny-whisper --speech made
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.conditions import string_together
from benchmarks.tracks import LONG_S, PEOPLE, SPEECH, Track, clips, long_tracks
from pipeline.recognition.engines.models import BUNDLED, bundled_folder

SPEECHES = {"people": PEOPLE, "made": SPEECH}


@dataclass(frozen=True)
class Choices:
    """The model and the recordings of one run of a benchmark."""

    model: str  # a folder, or a name that faster-whisper knows
    name: str  # what results call it
    speech: str  # people or made
    folders: tuple[Path, ...]

    def clips(self) -> list[Track]:
        """Return the English clips. English is the only language that every model here knows."""
        return [clip for folder in self.folders for clip in clips(folder) if clip.language == "en"]

    def tracks(self, count: int, length_s: float = LONG_S) -> list[Track]:
        """Return long tracks, all different: people one after another with pauses, or the made clips joined."""
        spoken = self.clips()
        if self.speech == "made":
            return long_tracks(spoken, count, length_s)
        return [string_together(spoken, number, length_s) for number in range(count)]

    def about(self) -> dict[str, Any]:
        """Return the first members of a result: what it was measured with."""
        return {"model": self.name, "speech": self.speech}

    def result(self, name: str) -> str:
        """Return the name of the result file. Results on made speech never overwrite those on people."""
        return name if self.speech == "people" else f"{name}-{self.speech}"


def add_choices(parser: argparse.ArgumentParser) -> None:
    model = "a Whisper model's folder or name (default: the bundled tiny.en)"
    parser.add_argument("--model", help=model)
    parser.add_argument("--speech", choices=SPEECHES, default="people", help="whose voices (default: people)")
    parser.add_argument(
        "--clips",
        type=Path,
        action="append",
        metavar="DIR",
        help="other recordings of it: folders with a manifest.json",
    )


def choices_of(given: argparse.Namespace) -> Choices:
    """Return what the options of add_choices() name. Raises SystemExit without the bundled model."""
    model = given.model or bundled_model()
    name = Path(model).name if given.model else BUNDLED
    return Choices(model, name, given.speech, tuple(given.clips or [SPEECHES[given.speech]]))


def bundled_model() -> str:
    """Return the folder of the bundled model. Raises SystemExit if it is not installed."""
    folder = bundled_folder()
    if folder is None:
        raise SystemExit("the bundled model is not installed: run scripts/setup dev, or give --model")
    return str(folder)
