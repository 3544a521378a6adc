"""Notices stereo whose channels cancel each other, so that its mix would be silent. Pure.

Theory. The mix of the channels l and r is (l + r) / 2. If a cable or a plug-in changes the sign of one of them, then
r = -l, and nothing of a voice remains; (l - r) / 2 is then what the mix should be. The energies of l + r and l - r say
which case it is: of a voice in the middle l - r is nearly nothing, of different sounds in both channels they are alike,
and of opposite channels l + r is nearly nothing. The energies are those of the last moments. The sign is kept until
l + r is clearly stronger again, and in pauses, whose noise or offset may be of the other kind.
"""

import math

import numpy as np

from pipeline.audio import Samples

CANCELLED = 0.05
"""Channels cancel each other if their sum has less than this share of the energy of their difference."""

AGREED = 2.0
"""They no longer cancel each other if their sum has at least this many times the energy of their difference."""

BLOCK_S = 0.01
"""The seconds of a block, after each of which the sign is decided anew."""

FADING = math.exp(-BLOCK_S / 0.25)
"""The factor by which earlier energy counts less after each block: 1/e after a quarter of a second."""

PAUSE = 0.05
"""Nothing is decided while the energy is below this share of that of the loudest recent sound."""

FORGETTING = math.exp(-BLOCK_S / 5.0)
"""The factor by which the loudest sound counts less after each block: 1/e after five seconds."""

LEAST_BLOCKS = 2
"""The fewest blocks before the first decision: less audio may look opposite by chance."""


class Polarity:
    """Decides with which sign the second channel of a stereo stream is mixed. The stream comes in pieces of any length.

    The sign in a block depends on the blocks before it. It changes gradually over a block: a sudden change would click.
    """

    def __init__(self, rate: int) -> None:
        self._block = round(BLOCK_S * rate)
        self._blocks = 0  # that are complete
        self._energies = (0.0, 0.0)  # of the sum and the difference, in the complete blocks
        self._loudest = 0.0
        self._open_energies = (0.0, 0.0)  # in the block that is not complete
        self._at = 0  # its samples
        self._gains = (1.0, 1.0)  # at its beginning and its end

    def gains(self, first: Samples, second: Samples) -> Samples | None:
        """Return the factors of the *second* channel's samples, in -1..1; None if all are 1, as usual."""
        if not len(first):
            return None
        stops = [*range(self._block - self._at, len(first), self._block), len(first)]
        starts = [0, *stops[:-1]]
        with np.errstate(over="ignore", invalid="ignore"):  # floats of a file may be anything
            sums = np.add.reduceat(np.square(first + second), starts)
            differences = np.add.reduceat(np.square(first - second), starts)
        gains: list[Samples] = []
        usual = True
        for start, stop, *energies in zip(starts, stops, sums, differences, strict=True):
            usual = usual and self._gains == (1.0, 1.0)
            if not usual:
                gains.append(self._fade(stop - start))
            self._note(stop - start, *map(float, energies))
        return None if usual else np.concatenate((np.ones(len(first) - sum(map(len, gains)), np.float32), *gains))

    def _fade(self, count: int) -> Samples:
        """Return the factors of the next *count* samples of the block."""
        before, after = self._gains
        steps = np.arange(self._at + 1, self._at + count + 1, dtype=np.float32) / np.float32(self._block)
        factors: Samples = np.float32(before) + np.float32(after - before) * steps
        return factors

    def _note(self, count: int, total: float, difference: float) -> None:
        """Count samples of the block with these energies, and decide for the next block if it is complete."""
        before_total, before_difference = self._open_energies
        self._open_energies = (before_total + total, before_difference + difference)
        self._at += count
        if self._at < self._block:
            return
        total, difference = (
            FADING * before + (now if math.isfinite(now) else 0.0)
            for before, now in zip(self._energies, self._open_energies, strict=True)
        )
        self._energies, self._open_energies = (total, difference), (0.0, 0.0)
        self._at = 0
        self._blocks += 1
        self._loudest = max(FORGETTING * self._loudest, total + difference)
        gain = self._gains[1]
        if total + difference > PAUSE * self._loudest and self._blocks >= LEAST_BLOCKS:
            if total < CANCELLED * difference:
                gain = -1.0
            elif total > AGREED * difference:
                gain = 1.0
        self._gains = (self._gains[1], gain)
