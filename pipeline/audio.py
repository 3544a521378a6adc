"""The clock and the sample format that the whole pipeline shares.

A *position* is a whole number of 16 kHz samples since the stream began. Seconds as floats are used only where a
library or a reader needs them.
"""

from collections.abc import Iterable
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

RATE = 16_000
"""Samples per second, mono. Whisper and Silero both take this rate."""

WINDOW = 512
"""Samples in one window of voice detection, 32 ms: what Silero takes at 16 kHz."""

LONGEST_JOB = 30 * RATE
"""The most samples in one decode job, 30 s: the longest window of Whisper."""

Samples: TypeAlias = NDArray[np.float32]
"""Audio at RATE, -1..1. Mono has one dimension. Channels that are recognised separately have the shape (n, channels),
so that length and slices mean the same for both."""

Pcm: TypeAlias = NDArray[np.int16]
"""Mono audio at RATE in 16 bits, as live streams keep it."""

FULL_SCALE = np.float32(1 << 15)
"""The value in 16 bits that would be 1.0."""


def floats_of(samples: Samples | Pcm) -> Samples:
    """Return *samples* as floats. The same object if they are floats."""
    if samples.dtype == np.float32:
        return cast(Samples, samples)
    floats: Samples = samples.astype(np.float32)
    floats /= FULL_SCALE
    return floats


def join_spans(spans: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return *spans*, which are in order, with neighbours that touch joined into one."""
    joined: list[tuple[int, int]] = []
    for first, last in spans:
        start = joined.pop()[0] if joined and joined[-1][1] == first else first
        joined.append((start, last))
    return tuple(joined)


def seconds(position: int) -> float:
    """Return the position in seconds with three decimals, halves rounded up."""
    return (position * 2000 + RATE) // (2 * RATE) / 1000


def position(seconds: float) -> int:
    """Return the position nearest to *seconds*."""
    return round(seconds * RATE)
