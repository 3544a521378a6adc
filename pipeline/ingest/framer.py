"""Cuts samples that come in pieces of any length into the windows that the voice detector takes."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import WINDOW, Samples

Windows: TypeAlias = NDArray[np.float32]
"""Consecutive windows of audio, of shape (n, WINDOW)."""


class Framer:
    """Cuts a stream into windows. It keeps less than one window."""

    def __init__(self) -> None:
        self._rest = np.zeros(0, np.float32)

    def windows_of(self, samples: Samples) -> Windows:
        """Return the windows that *samples* complete; there may be none."""
        joined = np.concatenate((self._rest, samples))
        whole = len(joined) - len(joined) % WINDOW
        self._rest = joined[whole:].copy()  # a view would keep all of *joined* alive
        return joined[:whole].reshape(-1, WINDOW)

    def flush(self) -> tuple[Windows, int]:
        """Return the rest as one window padded with zeros, or no window, and how many samples are real."""
        rest, self._rest = self._rest, np.zeros(0, np.float32)
        padded = np.pad(rest, (0, -len(rest) % WINDOW))
        return padded.reshape(-1, WINDOW), len(rest)
