"""A short recording of speech that is put before short audio, because Whisper hears what has speech before it better.

The decoder is told the words of the recording as the beginning of its answer, so they are not in what it adds. They can
come again if there is nothing else to hear: repeats_primer() sees that, and whisper.py then hears the audio alone.
The recording is a sentence of LJ Speech 1.1, which is in the public domain. decisions.md has the figures.
"""

from functools import cache
from pathlib import Path

import numpy as np
import soundfile

from pipeline.audio import Samples, position
from pipeline.recognition.spoken_form import units_of
from pipeline.words import Word

_RECORDING = Path(__file__).with_name("primer.flac")
_MIN_PEAK = 0.05  # quieter audio is raised to this (gain.py)
_SILENCE = position(0.4)  # between the recording and the audio
_ALIKE = 2  # units in a row that are also in the primer's words


@cache
def primer_text() -> str:
    """Return the words of the recording."""
    return _RECORDING.with_suffix(".txt").read_text().strip()


@cache
def primer_length() -> int:
    """Return the samples that primed() puts before audio."""
    return len(_samples()) + _SILENCE


def primed(samples: Samples) -> Samples:
    """Return *samples* after the recording, which is as loud as they are, and a silence."""
    peak = max(_MIN_PEAK, float(np.abs(samples).max(initial=0.0)))
    return np.concatenate([_samples() * np.float32(peak), np.zeros(_SILENCE, np.float32), samples])


def repeats_primer(text: str) -> bool:
    """Return whether an answer may have come from the recording instead of the audio: it has words in a row of it."""
    ours, heard = (_units(words) for words in (primer_text(), text))
    runs = {tuple(ours[at : at + _ALIKE]) for at in range(len(ours) - _ALIKE + 1)}
    few = 0 < len(heard) < _ALIKE and set(heard) <= set(ours)
    return few or any(tuple(heard[at : at + _ALIKE]) in runs for at in range(len(heard) - _ALIKE + 1))


@cache
def _samples() -> Samples:
    samples, _ = soundfile.read(_RECORDING, dtype="float32")
    return np.asarray(samples / np.abs(samples).max(), np.float32)


def _units(text: str) -> list[str]:
    return [unit.text for unit in units_of([Word(word, 0, 0, 1.0) for word in text.split()])]
