"""The stream clock and the sample format that everything in this package shares.

A *position* is a whole number of 16 kHz samples since the stream began. Floats of seconds exist only where a
library or a reader needs them.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

RATE = 16_000
"""Samples per second, mono. Whisper and Silero both hear at this rate."""

WINDOW = 512
"""Samples of one voice activity window: what Silero takes at 16 kHz, 32 ms."""

LONGEST_JOB = 30 * RATE
"""Samples that one decode job may hold: Whisper's receptive field."""

Samples: TypeAlias = NDArray[np.float32]
"""Mono audio at RATE, one dimension, -1..1."""


def seconds(position: int) -> float:
    """The position in seconds with three decimals, halves rounded up."""
    return (position * 2000 + RATE) // (2 * RATE) / 1000


def position(seconds: float) -> int:
    """The position nearest to *seconds*."""
    return round(seconds * RATE)
