"""Bootstrap intervals of 95 % over clips: how much a word error rate would differ with other clips of the same kind."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

SAMPLES, LEVELS = 2000, (2.5, 97.5)


def interval(errors: ArrayLike, words: Sequence[int]) -> tuple[float, float] | None:
    """Return the interval of the share of wrong words; clip i has errors[i] of words[i]. None for fewer than two clips.

    A clip is drawn whole, because the words of one voice and sentence go wrong together.
    """
    if len(words) < 2:
        return None
    several = drawn(len(words))
    return bounds(np.asarray(errors)[several].sum(axis=1) / np.maximum(1, np.asarray(words)[several].sum(axis=1)))


def difference(ours: Sequence[int], theirs: Sequence[int], words: Sequence[int]) -> tuple[float, float] | None:
    """Return the interval of our share of wrong words minus theirs, on the same clips. None for fewer than two clips.

    An interval that contains 0 says that these clips cannot tell the two apart.
    """
    return interval(np.subtract(ours, theirs), words)


def drawn(clips: int) -> NDArray[np.int64]:
    """Return which clips each sample has: SAMPLES rows of as many numbers as there are *clips*."""
    return np.random.default_rng(1).integers(clips, size=(SAMPLES, clips))


def bounds(figures: NDArray[np.float64]) -> tuple[float, float]:
    """Return the interval of a figure that each sample has."""
    low, high = np.percentile(figures, LEVELS)
    return round(float(low), 4), round(float(high), 4)
