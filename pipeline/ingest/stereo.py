"""Mixes the two channels of a file, but takes one alone where the other has a sound of its own without speech.

    mix = TwoChannels(vad.stream)
    for samples in audio: use(mix.add(samples))    # of shape (n, 2), up to some seconds late
    use(mix.flush())
    mix.notes, mix.alone

In the mix of a microphone with a hiss, a hum, or the time code of a camera, the voice is misrecognised. So where both
channels sound at the same time and are not alike, the VAD checks each of them: the one with speech is taken alone until
the other one has some. Of people in one room, who are on both channels, and of a call, in which one channel is silent
while the other speaks, the mix stays as it is, and the VAD rests.

Where both have speech at once, of different people and most of the time, there are two talks: an interpreter, two
readers. Then no mix is right, and a note says how to transcribe both.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from pipeline.audio import RATE, WINDOW, DetectSpeech, Samples
from pipeline.ingest.mixing import AFTER, AHEAD, IS_SPEECH, ChannelMix
from pipeline.ingest.notes import TWO_TALKS

TWO_TALKS_NOTE = (
    f"{TWO_TALKS}: Different people talk at the same time on the two channels, and mixed only one of them is "
    "recognised well. Give channels=separate to transcribe both."
)

CHUNK = 2 * RATE // WINDOW
"""The windows, two seconds, for which it is decided together whether the VAD checks the channels."""

CHUNKS = 5
"""The chunks of a stretch, ten seconds, by which it is decided whether there are two talks."""

STRETCHES = 6
"""The stretches, a minute, in which they have to be."""

REST = 15
"""The chunks for which the VAD rests after a stretch in which both channels had speech."""

AROUND = 8
"""The windows on each side over which levels and likeness are measured: half a second in all."""

UNLIKE = 0.5
"""Channels whose correlation is below this have sounds of their own."""

BESIDE_DB, AUDIBLE_DB = 20.0, -60.0
"""Two sounds are a mixture if the quieter one is at most so much lower, and above so many dBFS."""

STEADY_DB, STEADY, STEADY_RANGE_DB = -45.0, 4 * RATE // WINDOW, 12.0
"""A channel has a steady sound, which hides even a quieter voice, if its windows have been above this level for so long
and differ by no more than this. Those of speech differ by 25 dB and more."""

SOME = AROUND
"""The windows of a chunk, a quarter of a second, that have to be a mixture before the VAD checks them."""

SPOKEN = RATE // WINDOW // 2
"""The windows with speech on each channel, half a second, after which the VAD rests."""

TOGETHER, SHARE = 3 * RATE // WINDOW, 0.3
"""Two talks are at least three seconds, and this share of all speech, in which both channels have speech at once."""

COPY, LATEST = 0.6, 8
"""Of channels with one talk the loudness is so much alike, at most so many windows apart."""


ACTIVE_DB = -45.0
"""The level from which somebody may be speaking where the VAD was not asked."""

_MIX = 2  # in place of a channel's number


@dataclass(slots=True)
class _Stretch:
    """What is known of ten seconds."""

    chunks: int = 0
    active: int = 0  # windows in which anybody speaks
    speech: list[NDArray[np.bool_]] = field(default_factory=list)  # of windows of which the VAD was asked
    levels: list[NDArray[np.float64]] = field(default_factory=list)  # dBFS of the same windows

    def close(self) -> tuple[int, int, bool]:
        """Return the windows with two talks, those with speech, and whether both channels had some."""
        if not self.speech:
            return 0, self.active, False
        speech, levels = np.concatenate(self.speech), np.concatenate(self.levels)
        both = np.flatnonzero(speech.all(axis=1))
        talks = 0 if len(both) < TOGETHER or _are_copies(levels, both) else len(both)
        return talks, self.active, bool((speech.sum(axis=0) >= SPOKEN).all())


class TwoChannels:
    """Follows one file. Its result does not depend on the pieces in which samples come."""

    def __init__(self, detector_of: Callable[[], DetectSpeech]) -> None:
        """*detector_of* makes what detects speech in a channel."""
        self._detector_of = detector_of
        self._mix = ChannelMix(2)
        self._held = np.zeros((0, 3), np.float32)  # both and their mix, from the first window that is not released
        self._measured = 0  # windows of them whose energies are known
        self._energies = np.zeros((AROUND, 3))  # l*l, r*r and l*r, from AROUND before the first that is not decided
        self._levels = np.zeros((0, 2))  # of up to STEADY decided windows
        self._detectors: tuple[DetectSpeech, DetectSpeech] | None = None  # while the VAD checks them
        self._resting = 0  # chunks
        self._speech = np.zeros((AFTER, 2), np.bool_)  # from AFTER before the first that is not released
        self._asked = np.zeros(0, np.bool_)  # of those that are not released: was the VAD asked?
        self._taken = _MIX
        self._shares = np.array((0.0, 0.0, 1.0))  # of both and the mix, at the end of the last window
        self._stretch = _Stretch()
        self._stretches: deque[tuple[int, int]] = deque(maxlen=STRETCHES)  # two talks, any
        self._alone = [0, 0]  # windows in which each channel was taken
        self._two_talks = False

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes for readers: "code: message"."""
        return (TWO_TALKS_NOTE,) if self._two_talks else ()

    @property
    def alone(self) -> int | None:
        """The channel that was taken alone for a second or more, where the other one never was."""
        return next((one for one in (0, 1) if self._alone[one] * WINDOW >= RATE and not self._alone[1 - one]), None)

    def add(self, samples: Samples) -> Samples:
        """Take the next samples, of shape (n, 2), and return the mix of those that are decided."""
        self._hold(samples)
        while self._measured - len(self._asked) >= CHUNK + AROUND:
            self._decide(CHUNK)
        return self._release(len(self._asked) - AHEAD)

    def flush(self) -> Samples:
        """Return the remaining samples."""
        length = len(self._held)
        self._hold(np.zeros((-length % WINDOW, 2), np.float32))
        if (rest := self._measured - len(self._asked)) > 0:
            self._decide(rest)
        self._judge(*self._stretch.close()[:2], ended=True)
        return self._release(len(self._asked))[:length]

    def _hold(self, samples: Samples) -> None:
        mixed = self._mix.add(samples)[:, np.newaxis]
        self._held = np.concatenate((self._held, np.concatenate((samples, mixed), axis=1)))
        windows = len(self._held) // WINDOW
        new = self._held[self._measured * WINDOW : windows * WINDOW, :2].T
        first, second = np.ascontiguousarray(new).reshape(2, -1, WINDOW)
        pairs = ((first, first), (second, second), (first, second))
        products = [np.einsum("ij,ij->i", one, other) for one, other in pairs]
        self._energies = np.concatenate((self._energies, np.stack(products, axis=1)))
        self._measured = windows

    def _decide(self, count: int) -> None:
        """Find out of the next *count* windows which channel has speech, if that matters."""
        energies = self._energies[: count + 2 * AROUND]
        energies = np.pad(energies, ((0, count + 2 * AROUND - len(energies)), (0, 0)))
        around = sliding_window_view(energies, 2 * AROUND + 1, axis=0).sum(axis=2)
        self._energies = self._energies[count:]
        levels = _levels_db(energies[AROUND : AROUND + count, :2], 1)
        self._levels = np.concatenate((self._levels, levels))[-max(STEADY, count) :]
        is_steady = (self._levels.min(axis=0) > STEADY_DB) & (np.ptp(self._levels, axis=0) < STEADY_RANGE_DB)
        smooth = _levels_db(around[:, :2], 2 * AROUND + 1)
        is_mixture = (np.ptp(smooth, axis=1) <= BESIDE_DB) & (smooth.min(axis=1) >= AUDIBLE_DB)
        unlike = np.abs(around[:, 2]) < UNLIKE * np.sqrt(around[:, 0] * around[:, 1]) + 1e-12
        is_steady_beside = bool(is_steady.any()) and bool(unlike.all())
        asks = is_steady_beside or (not self._resting and int((is_mixture & unlike).sum()) >= min(SOME, count))
        speech = np.zeros((count, 2), np.bool_)
        if asks:
            start = len(self._asked) * WINDOW
            own = np.ascontiguousarray(self._held[start : start + count * WINDOW, :2].T).reshape(2, count, WINDOW)
            self._detectors = self._detectors or (self._detector_of(), self._detector_of())
            for channel, detect in enumerate(self._detectors):
                speech[:, channel] = np.array(detect(own[channel])) >= IS_SPEECH
            self._stretch.speech.append(speech)
            self._stretch.levels.append(levels)
        else:
            self._detectors = None
        self._speech = np.concatenate((self._speech, speech))
        self._asked = np.concatenate((self._asked, np.full(count, asks)))
        if self._resting and not asks:
            self._resting -= 1
            return
        self._stretch.active += int((speech.any(axis=1) if asks else levels.max(axis=1) > ACTIVE_DB).sum())
        self._stretch.chunks += 1
        if self._stretch.chunks == CHUNKS:
            talks, active, both = self._stretch.close()
            self._judge(talks, active, ended=False)
            self._resting = REST if both else 0
            self._stretch = _Stretch()

    def _judge(self, talks: int, active: int, *, ended: bool) -> None:
        self._stretches.append((talks, active))
        if ended or len(self._stretches) == STRETCHES:
            talks, active = map(sum, zip(*self._stretches, strict=True))
            self._two_talks |= talks >= max(TOGETHER, SHARE * active)

    def _release(self, count: int) -> Samples:
        """Return the mix of *count* windows, and what is left of an incomplete one at the end."""
        if count <= 0:
            return np.zeros(0, np.float32)
        held, self._held = self._held[: count * WINDOW], self._held[count * WINDOW :]
        asked, self._asked = self._asked[:count], self._asked[count:]
        speech, self._speech = self._speech, self._speech[count:]
        self._measured -= count
        if not asked.any() and self._shares[_MIX] == 1:
            return np.ascontiguousarray(held[:, _MIX])
        speech = np.pad(speech, ((0, AHEAD), (0, 0)))
        near = np.asarray(sliding_window_view(speech, AFTER + AHEAD + 1, axis=0).any(axis=2))[:count]
        shares = np.zeros((count + 1, 3))
        shares[0] = self._shares
        for at, (first, second) in enumerate(near.tolist(), 1):
            if not asked[at - 1] or (first and second):
                self._taken = _MIX
            elif first or second:
                self._taken = 0 if first else 1
            shares[at, self._taken] = 1
            if self._taken != _MIX:
                self._alone[self._taken] += 1
        self._shares = shares[-1]
        steps = np.arange(1, WINDOW + 1) / WINDOW  # a sudden change would click
        each = shares[:-1, None] + (shares[1:] - shares[:-1])[:, None] * steps[:, None]
        return np.asarray((held * each.reshape(-1, 3)).sum(axis=1), np.float32)


def _levels_db(energies: NDArray[np.float64], windows: int) -> NDArray[np.float64]:
    return np.asarray(10 * np.log10(energies / (windows * WINDOW) + 1e-12))


def _are_copies(levels: NDArray[np.float64], both: NDArray[np.int64]) -> bool:
    """Return whether the channels have the same loudness, in the windows *both* and perhaps at another time."""
    for late in range(-LATEST, LATEST + 1):
        at = both[(both + late >= 0) & (both + late < len(levels))]
        if np.corrcoef(levels[at, 0], levels[at + late, 1])[0, 1] >= COPY:
            return True
    return False
