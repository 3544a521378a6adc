"""Cuts samples into even arrays, and ends them at the longest length of a recording."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from pipeline.audio import RATE, Samples, position
from pipeline.errors import AudioTooLong

LONGEST_HOLE = position(600)
"""The longest gap that is filled unless the file states a length that has room for it. A longer one means that a clock
was set, not that time passed."""


@dataclass(frozen=True, slots=True)
class TrackPiece:
    """Samples of one of several tracks: 1..RATE of them, of shape (n,) or (n, columns)."""

    track: int  # its number, from 1
    start: int  # the position of the first, on the clock of all tracks. Before it is the track's last piece, or silence
    samples: Samples


def cut(arrays: Iterable[Samples]) -> Iterator[Samples]:
    """Yield the same samples in arrays of 1..RATE."""
    for samples in arrays:
        for at in range(0, len(samples), RATE):
            yield samples[at : at + RATE]


def even_out(arrays: Iterable[Samples]) -> Iterator[Samples]:
    """Yield the same samples in arrays of RATE; the last one may be shorter."""
    buffer: Samples | None = None
    for samples in cut(arrays):
        buffer = samples if buffer is None else np.concatenate((buffer, samples))
        if len(buffer) >= RATE:
            yield buffer[:RATE]
            buffer = buffer[RATE:]
    if buffer is not None and len(buffer):
        yield buffer


def up_to(longest_s: float | None, arrays: Iterable[Samples]) -> Iterator[Samples]:
    """Yield the same arrays. Raise AudioTooLong once they are a second longer than *longest_s* (None: no limit)."""
    decoded = 0
    for samples in arrays:
        decoded += len(samples)
        if longest_s is not None and decoded > position(longest_s) + RATE:
            message = f"the recording is longer than {longest_s:g} s"
            raise AudioTooLong(message, limit_s=longest_s, actual_s=decoded / RATE)
        yield samples
