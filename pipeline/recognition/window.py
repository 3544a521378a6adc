"""Holds the newest audio of a live stream in frames, each with its probability of speech. stream.py uses it.

Frames are appended at the end and cut off at the start.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import TypeVar

import numpy as np

from pipeline.audio import LONGEST_JOB, WINDOW, Samples, join_spans

T = TypeVar("T")

MAX_FRAMES = LONGEST_JOB // WINDOW
"""The most frames in one decode job, just under 30 s. A window holds no more."""


class AudioWindow:
    """A run of frames of WINDOW samples. It starts and ends at multiples of WINDOW and holds at most MAX_FRAMES.

    A full window refuses more, until something is decided and cut off.
    """

    def __init__(self) -> None:
        self._first = 0  # number of the oldest frame that is kept, counted from the stream's first
        self._frames: deque[Samples] = deque()
        self._speech: deque[float] = deque()

    @property
    def start(self) -> int:
        return self._first * WINDOW

    @property
    def end(self) -> int:
        return (self._first + len(self._frames)) * WINDOW

    @property
    def full(self) -> bool:
        return len(self._frames) >= MAX_FRAMES

    @property
    def room(self) -> int:
        """How many samples can be appended."""
        return (MAX_FRAMES - len(self._frames)) * WINDOW

    def append(self, frame: Samples, *, speech: float) -> None:
        """Take the next WINDOW samples. Raises ValueError for another size or when full."""
        if frame.shape != (WINDOW,):
            raise ValueError(f"a frame has {WINDOW} samples, got an array of shape {frame.shape}")
        if self.full:
            raise ValueError(f"the window is full: {MAX_FRAMES} frames are undecided")
        self._frames.append(frame)
        self._speech.append(speech)

    def cut(self, position: int) -> None:
        """Drop the frames that end at or before *position*, if they are still there."""
        for _ in range(min(position // WINDOW - self._first, len(self._frames))):
            self._frames.popleft()
            self._speech.popleft()
            self._first += 1

    def samples(self, start: int, end: int) -> Samples:
        """Return the audio between two positions, rounded out to whole frames. At least one of them must be there."""
        return np.concatenate(list(self._between(self._frames, start, end)))

    def speech(self, start: int, end: int) -> list[float]:
        """Return the probabilities of speech of the frames in samples(start, end)."""
        return list(self._between(self._speech, start, end))

    def voiced_spans(self, start: int, end: int, min_speech: float) -> tuple[tuple[int, int], ...]:
        """Return the spans of samples(start, end) with a probability of speech of at least *min_speech*, in order."""
        frames = enumerate(self.speech(start, end), start=max(start // WINDOW, self._first))
        return join_spans((n * WINDOW, (n + 1) * WINDOW) for n, speech in frames if speech >= min_speech)

    def _between(self, values: deque[T], start: int, end: int) -> Iterator[T]:
        return islice(values, max(0, start // WINDOW - self._first), max(0, -(-end // WINDOW) - self._first))
