"""The audio that is still undecided: frames with their speech probability, appended at one end, cut at the other."""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import TypeVar

import numpy as np

from pipeline.audio import LONGEST_JOB, WINDOW, Samples

T = TypeVar("T")

MAX_FRAMES = LONGEST_JOB // WINDOW
"""Frames that one decode job can hold, and therefore all that a window keeps: just under 30 s."""


class Window:
    """A run of frames of WINDOW samples. It starts and ends at multiples of WINDOW and holds at most MAX_FRAMES.

    A full window refuses more: its owner has to stop feeding until something was decided and cut.
    """

    def __init__(self, start: int = 0) -> None:
        self._first = start // WINDOW  # number of the oldest frame kept, counted from the stream's first
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

    def append(self, frame: Samples, *, speech: float) -> None:
        """Take the next WINDOW samples. Raises ValueError for another size or when full."""
        if frame.shape != (WINDOW,):
            raise ValueError(f"a frame has {WINDOW} samples, got an array of shape {frame.shape}")
        if self.full:
            raise ValueError(f"the window is full: {MAX_FRAMES} frames are undecided")
        self._frames.append(frame)
        self._speech.append(speech)

    def cut(self, position: int) -> None:
        """Forget the frames that lie before *position* as a whole. Never forgets the same twice, never brings back."""
        for _ in range(min(position // WINDOW - self._first, len(self._frames))):
            self._frames.popleft()
            self._speech.popleft()
            self._first += 1

    def samples(self, start: int, end: int) -> Samples:
        """The audio between two positions, rounded out to whole frames. At least one frame must be there."""
        return np.concatenate(list(self._between(self._frames, start, end)))

    def speech(self, start: int, end: int) -> list[float]:
        """The speech probabilities of the frames that samples(start, end) has."""
        return list(self._between(self._speech, start, end))

    def voiced(self, start: int, end: int, least: float) -> tuple[tuple[int, int], ...]:
        """The spans of samples(start, end) in which the probability of speech is at least *least*, in order."""
        spans: list[tuple[int, int]] = []
        for number, speech in enumerate(self.speech(start, end), start=max(start // WINDOW, self._first)):
            if speech < least:
                continue
            first, last = number * WINDOW, (number + 1) * WINDOW
            spans = [*spans[:-1], (spans[-1][0], last)] if spans and spans[-1][1] == first else [*spans, (first, last)]
        return tuple(spans)

    def _between(self, values: deque[T], start: int, end: int) -> Iterator[T]:
        return islice(values, max(0, start // WINDOW - self._first), max(0, -(-end // WINDOW) - self._first))
