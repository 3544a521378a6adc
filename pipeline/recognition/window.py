"""Holds the newest audio of a live stream in frames, each with its probability of speech. stream.py uses it.

Frames are appended at the end and cut off at the start. They are kept in 16 bits, which halves a session's memory: the
samples of most clients come in 16 bits, and what others lose is 98 dB below full scale.
"""

from collections.abc import Sequence

import numpy as np

from pipeline.audio import FULL_SCALE, LONGEST_JOB, WINDOW, Pcm, Windows

MAX_FRAMES = LONGEST_JOB // WINDOW
"""The most frames in one decode job, just under 30 s. A window holds no more."""

SPARE_FRAMES = 64
"""The frames, 2 s, for which there is space when the window is moved to a new array."""

FRESH_FRAMES = 24
"""So many frames are brought into 16 bits together, which costs a quarter of doing so one by one."""

_LOUDEST = np.float32(FULL_SCALE - 1)


class AudioWindow:
    """A run of frames of WINDOW samples. It starts and ends at multiples of WINDOW and holds at most MAX_FRAMES.

    A full window refuses more, until something is decided and cut off.
    """

    def __init__(self, start: int = 0) -> None:
        """*start* is the position of the first frame. Raises ValueError unless it is a multiple of WINDOW."""
        if start % WINDOW:
            raise ValueError(f"a stream starts at a multiple of {WINDOW} samples, got {start}")
        self._first = start // WINDOW  # number of the oldest frame that is kept, counted from the recording's first
        self._count = 0  # frames that are kept
        self._audio = np.empty((SPARE_FRAMES, WINDOW), np.int16)  # rows are written once: samples() returns views
        self._speech = np.empty(SPARE_FRAMES)  # of each row
        self._at = 0  # the row of the oldest frame
        self._fresh: list[Windows] = []  # the newest frames, whose rows are not written yet
        self._unwritten = 0  # how many these are

    @property
    def start(self) -> int:
        return self._first * WINDOW

    @property
    def end(self) -> int:
        return (self._first + self._count) * WINDOW

    @property
    def room(self) -> int:
        """How many samples can be appended."""
        return (MAX_FRAMES - self._count) * WINDOW

    def append(self, frames: Windows, speech: Sequence[float]) -> None:
        """Take the next frames, in -1..1, with their probabilities. Raises ValueError for other sizes or when full."""
        if frames.shape != (len(speech), WINDOW):
            raise ValueError(f"a frame has {WINDOW} samples and a probability, got an array of shape {frames.shape}")
        if self._count + len(frames) > MAX_FRAMES:
            raise ValueError(f"the window is full: {MAX_FRAMES} frames are undecided")
        end = self._at + self._count
        if end + len(frames) > len(self._audio):
            self._make_space(len(frames))
            end = self._count
        self._speech[end : end + len(frames)] = speech
        self._count += len(frames)
        self._fresh.append(frames)
        self._unwritten += len(frames)
        if self._unwritten >= FRESH_FRAMES:
            self._write_fresh()

    def cut(self, position: int) -> None:
        """Drop the frames that end at or before *position*, if they are still there."""
        dropped = min(position // WINDOW - self._first, self._count)
        if dropped > 0:
            self._at += dropped
            self._first += dropped
            self._count -= dropped

    def samples(self, start: int, end: int) -> Pcm:
        """Return the audio between two positions, rounded out to whole frames. At least one of them must be there."""
        self._write_fresh()
        samples: Pcm = self._audio[self._rows(start, end)].reshape(-1)
        return samples

    def voiced(self, start: int, end: int, min_speech: float) -> bytes:
        """Return a byte for each frame of samples(start, end): 1 if its speech is at least this probable, else 0."""
        return (self._speech[self._rows(start, end)] >= min_speech).tobytes()

    def voiced_spans(self, start: int, end: int, min_speech: float) -> tuple[tuple[int, int], ...]:
        """Return the spans of samples(start, end) with a probability of speech of at least *min_speech*, in order."""
        voiced, place = self.voiced(start, end, min_speech), max(start // WINDOW, self._first)
        spans: list[tuple[int, int]] = []
        begin = voiced.find(1)
        while begin >= 0:
            after = voiced.find(0, begin)
            after = len(voiced) if after < 0 else after
            spans.append(((place + begin) * WINDOW, (place + after) * WINDOW))
            begin = voiced.find(1, after)
        return tuple(spans)

    def _rows(self, start: int, end: int) -> slice:
        """Return the rows of the kept frames between two positions."""
        first = max(0, start // WINDOW - self._first)
        last = min(-(-end // WINDOW) - self._first, self._count)
        return slice(self._at + first, self._at + max(first, last))

    def _write_fresh(self) -> None:
        if self._fresh:
            end = self._at + self._count
            frames = np.concatenate(self._fresh) * FULL_SCALE
            np.minimum(frames, _LOUDEST, out=self._audio[end - len(frames) : end], casting="unsafe")
            self._fresh.clear()
            self._unwritten = 0

    def _make_space(self, more: int) -> None:
        """Move the frames to the start of an array that has space for *more* and SPARE_FRAMES besides."""
        self._write_fresh()
        rows, count = slice(self._at, self._at + self._count), self._count
        size = count + more + SPARE_FRAMES
        audio, speech = np.empty((size, WINDOW), np.int16), np.empty(size)
        audio[:count], speech[:count] = self._audio[rows], self._speech[rows]
        self._audio, self._speech, self._at = audio, speech, 0
