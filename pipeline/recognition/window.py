"""Holds the newest audio of a live stream in frames, each with its probability of speech. stream.py uses it.

Frames are appended at the end and cut off at the start. They are kept in 16 bits, which halves a session's memory: the
samples of most clients come in 16 bits, and what others lose is 98 dB below full scale.
"""

from collections import deque
from itertools import groupby, islice

import numpy as np

from pipeline.audio import LONGEST_JOB, WINDOW, Samples

MAX_FRAMES = LONGEST_JOB // WINDOW
"""The most frames in one decode job, just under 30 s. A window holds no more."""

SPARE_FRAMES = 64
"""The frames, 2 s, for which there is space when the window is moved to a new array."""

_FULL_SCALE = np.float32(1 << 15)
_LOUDEST = np.float32((1 << 15) - 1)


class AudioWindow:
    """A run of frames of WINDOW samples. It starts and ends at multiples of WINDOW and holds at most MAX_FRAMES.

    A full window refuses more, until something is decided and cut off.
    """

    def __init__(self) -> None:
        self._first = 0  # number of the oldest frame that is kept, counted from the stream's first
        self._audio = np.empty((SPARE_FRAMES, WINDOW), np.int16)
        self._at = 0  # where the oldest frame is in the array
        self._speech: deque[float] = deque()

    @property
    def start(self) -> int:
        return self._first * WINDOW

    @property
    def end(self) -> int:
        return (self._first + len(self._speech)) * WINDOW

    @property
    def full(self) -> bool:
        return len(self._speech) >= MAX_FRAMES

    @property
    def room(self) -> int:
        """How many samples can be appended."""
        return (MAX_FRAMES - len(self._speech)) * WINDOW

    def append(self, frame: Samples, *, speech: float) -> None:
        """Take the next WINDOW samples, in -1..1. Raises ValueError for another size or when full."""
        if frame.shape != (WINDOW,):
            raise ValueError(f"a frame has {WINDOW} samples, got an array of shape {frame.shape}")
        if self.full:
            raise ValueError(f"the window is full: {MAX_FRAMES} frames are undecided")
        count = len(self._speech)
        if self._at + count == len(self._audio):
            self._make_space(count)
        np.minimum(frame * _FULL_SCALE, _LOUDEST, out=self._audio[self._at + count], casting="unsafe")
        self._speech.append(speech)

    def cut(self, position: int) -> None:
        """Drop the frames that end at or before *position*, if they are still there."""
        for _ in range(min(position // WINDOW - self._first, len(self._speech))):
            self._speech.popleft()
            self._at += 1
            self._first += 1

    def samples(self, start: int, end: int) -> Samples:
        """Return the audio between two positions, rounded out to whole frames. At least one of them must be there."""
        frames = self._frames(start, end)
        kept = self._audio[self._at + frames.start : self._at + frames.stop].reshape(-1)
        samples: Samples = np.multiply(kept, 1 / _FULL_SCALE, dtype=np.float32)
        return samples

    def speech(self, start: int, end: int) -> list[float]:
        """Return the probabilities of speech of the frames in samples(start, end)."""
        frames = self._frames(start, end)
        return list(islice(self._speech, frames.start, frames.stop))

    def voiced_spans(self, start: int, end: int, min_speech: float) -> tuple[tuple[int, int], ...]:
        """Return the spans of samples(start, end) with a probability of speech of at least *min_speech*, in order."""
        place = max(start // WINDOW, self._first) * WINDOW
        spans: list[tuple[int, int]] = []
        for voiced, frames in groupby(self.speech(start, end), min_speech.__le__):
            begin, place = place, place + WINDOW * sum(1 for _ in frames)
            if voiced:
                spans.append((begin, place))
        return tuple(spans)

    def _frames(self, start: int, end: int) -> range:
        """Return the numbers of the kept frames between two positions, from the oldest one."""
        last = min(-(-end // WINDOW) - self._first, len(self._speech))
        return range(max(0, start // WINDOW - self._first), max(0, last))

    def _make_space(self, count: int) -> None:
        """Move the *count* frames to the start of an array that has space for SPARE_FRAMES more."""
        audio = np.empty((count + SPARE_FRAMES, WINDOW), np.int16)
        audio[:count] = self._audio[self._at :]
        self._audio, self._at = audio, 0
