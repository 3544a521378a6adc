"""Silences quiet copies of one channel in another, where channels are transcribed separately.

    gate = CrosstalkGate(channels=2)
    for samples in audio: use(gate.add(samples))    # of shape (n, channels), a little late
    use(gate.flush())
    gate.copies                                     # channels that were copies from beginning to end

Theory. A voice that leaks from one channel into another, through a cable or from a loudspeaker into a microphone, has
there the same pattern over time and frequency, lower and up to a quarter of a second later. So two channels are
compared by the correlation of their loudness in sixteen bands, over the last second in which the louder one is loud. A
copy through a room has 0.75 to 0.95, two people who speak at once have up to 0.65, and a voice with a copy of the same
loudness on top 0.55 to 0.75. Neither the sign nor the colour of the copy matters. What is clearly louder than the copy
can be is kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from pipeline.audio import RATE, WINDOW, Samples

ENTER, LEAVE = 0.82, 0.75
"""The correlation from which a channel is a copy, and the one below which it no longer is."""

COMPARED = RATE // WINDOW
"""The windows that are compared: one second."""

ENOUGH = 8
"""Of these so many have to be loud, 0.25 s."""

LATEST = 8
"""The most windows by which a copy is late, or early."""

AHEAD = COMPARED // 2
"""The windows after the one that is decided that count too."""

TOGETHER = 8 * COMPARED
"""The windows of a file that are decided at a time."""

LIVE_AHEAD = 2
"""In place of AHEAD for live audio: the first 0.1 s of a copy may come through, which is too short for a word."""

LOUD_DB, BELOW_DB = -65.0, 45.0
"""Windows below LOUD_DB, or in quiet recordings by BELOW_DB below the loudest one so far, are not compared."""

QUIETER_DB = 3.0
"""Of two channels whose levels differ by less the second is the copy, as long as it was not the louder one before."""

OWN_DB = 10.0
"""A window that is so much louder than the copy usually is holds a sound of its own."""

SAME_DB, ALL = 12.0, 0.98
"""A channel that is a copy in this share of its loud windows, and lower by at most SAME_DB, is identical."""

_BANDS = np.geomspace(150.0, 6000.0, 17)
_FRAME = 2 * WINDOW
_HANN = np.hanning(_FRAME).astype(np.float32)
_FREQUENCIES = np.fft.rfftfreq(_FRAME, 1 / RATE)
_INTO_BANDS = np.stack(
    [(low <= _FREQUENCIES) & (high > _FREQUENCIES) for low, high in pairwise(_BANDS)], axis=1
).astype(np.float32)
_FLOOR = 1e-7  # of the power in a band: noise of -109 dBFS
_HISTORY = COMPARED + LATEST
_LAGS = np.arange(-LATEST, LATEST + 1)

Rows = NDArray[np.float64]


@dataclass(slots=True)
class _Pair:
    """What is known of two channels."""

    copy: int | None = None  # the one that is a copy now
    below_db: float = 0.0  # by how much the second is louder than the first, usually


@dataclass(slots=True)
class _Counts:
    """The windows of one channel so far."""

    loud: int = 0
    copied: dict[int, int] = field(default_factory=dict)  # by the channel whose copy they are


class CrosstalkGate:
    """Follows the channels of one recording. Its result does not depend on the pieces in which samples come."""

    def __init__(self, channels: int, *, ahead: int = AHEAD, together: int = TOGETHER) -> None:
        """*ahead* windows after the one that is decided count too; so much later the samples come out.

        At least *together* windows are decided at a time, which costs less.
        """
        self._channels = channels
        self._together = together
        self._ahead = ahead
        self._held = np.zeros((0, channels), np.float32)  # from the first window that is not decided
        self._framed = 0  # windows of *held* that have a row
        self._loudest_db = -np.inf  # of all channels so far
        self._loud_db = np.zeros(0)  # for each row: the level from which it is compared
        self._rows = np.zeros((0, channels, len(_BANDS) - 1))  # from _HISTORY before the first that is not decided
        self._pairs = {(one, other): _Pair() for other in range(channels) for one in range(other)}
        self._counts = [_Counts() for _ in range(channels)]

    @property
    def copies(self) -> Mapping[int, int]:
        """The channels that are a copy of another one from beginning to end so far, and which one that is."""
        found: dict[int, int] = {}
        for channel, counts in enumerate(self._counts):
            of = max(counts.copied, key=lambda one: counts.copied[one], default=None)
            if of is not None and of not in found and counts.copied[of] >= ALL * counts.loud:
                found[channel] = of
        return found

    def add(self, samples: Samples) -> Samples:
        """Take the next samples, of shape (n, channels), and return those that are decided."""
        self._held = np.concatenate((self._held, samples))
        self._frame()
        count = self._framed - self._ahead
        return self._release(count) if count >= self._together else self._held[:0]

    def flush(self) -> Samples:
        """Return the samples that are not decided yet. More may come after it."""
        length = len(self._held)
        short = _FRAME + (-length % WINDOW) if length else 0
        self._held = np.concatenate((self._held, np.zeros((short, self._channels), np.float32)))
        self._frame()
        count = -(-length // WINDOW)
        self._rows = np.concatenate((self._rows, np.repeat(self._rows[-1:], self._ahead, axis=0)))
        self._loud_db = np.concatenate((self._loud_db, np.repeat(self._loud_db[-1:], self._ahead)))
        decided = self._release(count)[:length]
        self._held, self._framed = self._held[:0], 0
        self._rows, self._loud_db = self._rows[:_HISTORY], self._loud_db[:_HISTORY]
        return decided

    def _frame(self) -> None:
        """Make the rows of all whole frames."""
        waiting = self._held[self._framed * WINDOW :]
        if len(waiting) < _FRAME:
            return
        frames = sliding_window_view(waiting, _FRAME, axis=0)[::WINDOW]  # windows, channels, samples
        powers = np.square(np.abs(np.fft.rfft(frames * _HANN, axis=2))) @ _INTO_BANDS
        rows = np.log10(powers + _FLOOR)
        loudest_db = np.maximum.accumulate(np.append(self._loudest_db, _levels_db(rows).max(axis=1)))[1:]
        self._loudest_db = float(loudest_db[-1])
        loud_db = np.minimum(LOUD_DB, loudest_db - BELOW_DB)
        if not len(self._rows):
            loud_db = np.concatenate((np.repeat(loud_db[:1], _HISTORY), loud_db))
            rows = np.concatenate((np.repeat(rows[:1], _HISTORY, axis=0), rows))
        self._rows = np.concatenate((self._rows, rows))
        self._loud_db = np.concatenate((self._loud_db, loud_db))
        self._framed += len(frames)

    def _release(self, count: int) -> Samples:
        """Decide *count* windows, and return their samples."""
        if count <= 0:
            return self._held[:0]
        silenced = self._decide(count)
        samples = self._held[: count * WINDOW].copy()
        for channel in range(self._channels):
            gains = 1.0 - np.repeat(silenced[:, channel], WINDOW).astype(np.float32)
            samples[:, channel] *= gains[: len(samples)]
        self._held = self._held[count * WINDOW :]
        self._framed = max(0, self._framed - count)
        self._rows, self._loud_db = self._rows[count:], self._loud_db[count:]
        return samples

    def _decide(self, count: int) -> NDArray[np.bool_]:
        """Return which of the next *count* windows of each channel are copies."""
        silenced = np.zeros((count, self._channels), np.bool_)
        levels = _levels_db(self._rows)
        now = levels[_HISTORY : _HISTORY + count]
        is_loud = levels >= self._loud_db[:, None]
        now_loud = is_loud[_HISTORY : _HISTORY + count]
        for (one, other), pair in self._pairs.items():
            if not (now_loud[:, one].any() and now_loud[:, other].any()):
                pair.copy = None
                continue
            likeness, apart_db, late = self._compare((one, other), levels, is_loud, count)
            for at in range(count):
                copy = _copy(pair, float(likeness[at]), float(apart_db[at]))
                if copy is None:
                    continue
                source, target, expected_db = (one, other, pair.below_db) if copy else (other, one, -pair.below_db)
                then = _HISTORY + at - max(0, int(late[at] if copy else -late[at]))
                if now[at, target] - levels[then, source] - expected_db >= OWN_DB:
                    continue
                silenced[at, target] = True
                if now_loud[at, target] and abs(pair.below_db) <= SAME_DB:
                    copied = self._counts[target].copied
                    copied[source] = copied.get(source, 0) + 1
        for channel, counts in enumerate(self._counts):
            counts.loud += int(np.count_nonzero(now_loud[:, channel]))
        return silenced

    def _compare(
        self, pair: tuple[int, int], levels: Rows, is_loud: NDArray[np.bool_], count: int
    ) -> tuple[Rows, Rows, NDArray[np.int64]]:
        """Return for each of the next *count* windows the likeness of two channels, and what goes with it.

        That is by how much the second one is louder, in dB, and by how many windows it is late.
        """
        one, other = pair
        end = _HISTORY + count + self._ahead
        at = np.arange(end - count - COMPARED + 1, end)
        early, delayed = at - np.maximum(_LAGS, 0)[:, None], at - np.maximum(-_LAGS, 0)[:, None]
        first, second = self._rows[early, one], self._rows[delayed, other]  # shifts, windows, bands
        levels_1, levels_2 = levels[early, one], levels[delayed, other]
        weights = (is_loud[early, one] | is_loud[delayed, other]).astype(np.float64)
        number = _sums(weights)
        safe = np.maximum(number, 1.0)
        total_1, total_2 = _sums(first * weights[..., None]), _sums(second * weights[..., None])
        both = _sums((first * second).sum(axis=2) * weights) - (total_1 * total_2).sum(axis=2) / safe
        own_1 = _sums((first * first).sum(axis=2) * weights) - (total_1 * total_1).sum(axis=2) / safe
        own_2 = _sums((second * second).sum(axis=2) * weights) - (total_2 * total_2).sum(axis=2) / safe
        likeness = np.where(number < ENOUGH, -1.0, both / np.sqrt(np.maximum(own_1 * own_2, 1e-9)))
        energy_1, energy_2 = (np.maximum(_sums(10 ** (level / 10)), 1e-12) for level in (levels_1, levels_2))
        best = likeness.argmax(axis=0), np.arange(count)
        return likeness[best], 10 * np.log10(energy_2 / energy_1)[best], _LAGS[best[0]]


def _copy(pair: _Pair, likeness: float, apart_db: float) -> int | None:
    """Return which of a pair is the copy in the next window: 0, 1 or None."""
    if likeness < (ENTER if pair.copy is None else LEAVE):
        pair.copy = None
        return None
    if pair.copy is None:
        pair.copy = 0 if apart_db > QUIETER_DB else 1
    elif (apart_db > QUIETER_DB and pair.copy == 1) or (apart_db < -QUIETER_DB and pair.copy == 0):
        pair.copy = 1 - pair.copy
    pair.below_db = apart_db
    return pair.copy


def _levels_db(rows: Rows) -> Rows:
    return np.asarray(10 * np.log10(np.sum(10**rows, axis=2)) - _FULL_SCALE_DB, np.float64)


def _sums(values: Rows) -> Rows:
    """Return the sums of each COMPARED windows in a row; they are the second axis."""
    total = np.cumsum(values, axis=1)
    total[:, COMPARED:] -= total[:, :-COMPARED].copy()
    return total[:, COMPARED - 1 :]


_FULL_SCALE_DB = float(10 * np.log10(np.sum(_HANN.astype(np.float64) ** 2) * _FRAME / 4))
"""The level of a row for a sine of full scale, about."""
