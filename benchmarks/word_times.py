"""How far words are from their sound at pauses, where the truth can be seen: where sound begins and ends."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import RATE, WINDOW, Framer, Samples
from pipeline.ingest.vad import Vad

Span: TypeAlias = tuple[float, float]
"""Start and end, in seconds."""

SHORTEST_PAUSE_S = 0.5
WORST_S = 0.5  # a word that is off by so much is counted
STEP = RATE // 100
BELOW_DB, ABOVE_DB = 35.0, 6.0  # sound is at most so far below the loudest, and at least so far above the quietest
BESIDE_S = 0.5  # from the speech that the voice detector finds, sound is looked for


class Timed(Protocol):
    """A word with its times in seconds."""

    @property
    def start(self) -> float | None: ...
    @property
    def end(self) -> float | None: ...


def sound_of(samples: Samples) -> Span:
    """Return where the sound of a clip of speech begins and ends, to 10 ms."""
    loud = np.flatnonzero(_is_loud(samples))
    return int(loud[0]) * STEP / RATE, (int(loud[-1]) + 1) * STEP / RATE


def sounds_of(samples: Samples, voice: Vad) -> list[Span]:
    """Return the sounds of a recording between pauses: speech by the voice detector, its ends by loudness."""
    framer, detect = Framer(), voice.stream()
    probabilities = [*detect(framer.windows_of(samples)), *detect(framer.flush()[0])]
    spans: list[list[int]] = []
    for number, probability in enumerate(probabilities):
        if probability < 0.5:
            continue
        if spans and number * WINDOW - spans[-1][1] < SHORTEST_PAUSE_S * RATE:
            spans[-1][1] = (number + 1) * WINDOW
        else:
            spans.append([number * WINDOW, (number + 1) * WINDOW])
    loud, beside = _is_loud(samples), round(BESIDE_S * RATE / 2)
    sounds: list[Span] = []
    for start, end in spans:
        first, last = max(0, start - beside) // STEP, (end + beside) // STEP
        if len(steps := first + np.flatnonzero(loud[first:last])):
            sounds.append((int(steps[0]) * STEP / RATE, (int(steps[-1]) + 1) * STEP / RATE))
    return sounds


def offsets(sounds: Sequence[Span], words: Sequence[Timed]) -> tuple[list[float], list[float]]:
    """Return how far the first word after each pause begins, and the last before it ends, from the sound, in seconds.

    The last word before a pause is the last that begins before its middle. A word that is a second or more from the
    sound in the wrong direction belongs to other speech: it was not heard at all.
    """
    timed = [(word.start, word.end) for word in words if word.start is not None and word.end is not None]
    if not sounds:
        return [], []
    starts, ends = list[float](), list[float]()
    pauses = [(None, sounds[0][0]), *((one[1], other[0]) for one, other in pairwise(sounds)), (sounds[-1][1], None)]
    for last, first in pauses:
        if last is not None and first is not None and first - last < SHORTEST_PAUSE_S:
            continue
        middle = (last + first) / 2 if last is not None and first is not None else (first or last or 0.0)
        before = [end for start, end in timed if start < middle and last is not None]
        after = [start for start, _ in timed if start >= middle or last is None]
        if last is not None and before and before[-1] > last - 1:
            ends.append(before[-1] - last)
        if first is not None and after and after[0] < first + 1:
            starts.append(after[0] - first)
    return starts, ends


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Return the mean and the worst of offsets in seconds, and how many are off by WORST_S."""
    size = np.abs(np.asarray(values, np.float64))
    return {
        "count": len(values),
        "mean": round(float(size.mean()), 3) if len(values) else 0.0,
        "worst": round(float(max(values, key=abs, default=0.0)), 2),
        "far": int((size >= WORST_S).sum()),
    }


def _is_loud(samples: Samples) -> NDArray[np.bool_]:
    """Return for each 10 ms whether there is sound."""
    steps = samples[: len(samples) // STEP * STEP].reshape(-1, STEP)
    decibels = 10 * np.log10(np.mean(np.square(steps), axis=1) + 1e-10)
    quiet, loudest = np.percentile(decibels, (2, 98))
    return np.asarray(decibels > max(loudest - BELOW_DB, quiet + ABOVE_DB))
