"""Adds several tracks. Pure."""

import numpy as np

from pipeline.audio import RATE, Samples
from pipeline.ingest.polarity import Polarity


class TrackMix:
    """Adds tracks. What would exceed full scale is scaled down, and so is all that follows.

    A track that is opposite to those before it is turned, so that they do not cancel each other.
    """

    def __init__(self) -> None:
        self._gain = 1.0
        self._polarities: dict[int, Polarity] = {}

    def add(self, block: Samples) -> Samples:
        """Return the sum of *block*, of shape (n, tracks)."""
        total = block[:, 0].copy()
        for number, track in enumerate(np.ascontiguousarray(block.T[1:])):
            gains = self._polarities.setdefault(number, Polarity(RATE)).gains(total, track)
            total += track if gains is None else np.asarray(track * gains, np.float32)
        peak = float(np.abs(total).max(initial=0.0))
        self._gain = min(self._gain, 1.0 / peak) if peak > 0 else self._gain
        return total if self._gain == 1.0 else np.asarray(total * np.float32(self._gain), np.float32)
