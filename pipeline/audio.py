"""The clock and the sample format that the whole pipeline shares.

A *position* is a whole number of 16 kHz samples since the stream began. Seconds as floats are used only where a
library or a reader needs them.
"""

from collections.abc import Awaitable, Callable, Iterable
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

Windows: TypeAlias = NDArray[np.float32]
"""Consecutive windows of audio, of shape (n, WINDOW)."""

DetectSpeech: TypeAlias = Callable[[Windows], list[float]]
"""Returns the probability of speech in each of the next windows of one recording or stream. It is called in order."""

DetectLiveSpeech: TypeAlias = Callable[[Windows], list[float] | Awaitable[list[float]]]
"""The same for a live stream, perhaps together with other streams: at once or later. The next call comes after that."""

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
