"""Any chunking in, exact windows out: what the voice detector takes."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import WINDOW, Samples

Windows: TypeAlias = NDArray[np.float32]
"""Consecutive windows of audio, of shape (n, WINDOW)."""


class Framer:
    """Cuts a stream into windows. It holds less than one window."""

    def __init__(self) -> None:
        self._rest = np.zeros(0, np.float32)

    def receive(self, samples: Samples) -> Windows:
        """The windows, none or more, that *samples* complete."""
        joined = np.concatenate((self._rest, samples))
        whole = len(joined) - len(joined) % WINDOW
        self._rest = joined[whole:].copy()  # a view would keep all of *joined* alive
        return joined[:whole].reshape(-1, WINDOW)

    def end(self) -> tuple[Windows, int]:
        """What is left as one window filled up with zeros, and how many of its samples are real; none left: 0."""
        rest, self._rest = self._rest, np.zeros(0, np.float32)
        padded = np.pad(rest, (0, -len(rest) % WINDOW))
        return padded.reshape(-1, WINDOW), len(rest)
