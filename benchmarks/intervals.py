"""Bootstrap intervals of 95 % over clips: how much a word error rate would differ with other clips of the same kind."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

SAMPLES = 2000
LEVELS = (2.5, 97.5)


def interval(errors: Sequence[int], words: Sequence[int]) -> tuple[float, float] | None:
    """Return the interval of the share of wrong words; clip i has errors[i] of words[i]. None for fewer than two clips.

    A clip is drawn whole, because the words of one voice and sentence go wrong together.
    """
    return _interval(np.asarray(errors), words)


def difference(ours: Sequence[int], theirs: Sequence[int], words: Sequence[int]) -> tuple[float, float] | None:
    """Return the interval of our share of wrong words minus theirs, on the same clips. None for fewer than two clips.

    An interval that contains 0 says that these clips cannot tell the two apart.
    """
    return _interval(np.subtract(ours, theirs), words)


def _interval(errors: ArrayLike, words: Sequence[int]) -> tuple[float, float] | None:
    if len(words) < 2:
        return None
    drawn = np.random.default_rng(1).integers(len(words), size=(SAMPLES, len(words)))
    shares = np.asarray(errors)[drawn].sum(axis=1) / np.maximum(1, np.asarray(words)[drawn].sum(axis=1))
    low, high = np.percentile(shares, LEVELS)
    return round(float(low), 4), round(float(high), 4)
