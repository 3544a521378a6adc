"""Mixes the channels of a track, and several tracks, so that nobody is lost in the mix.

- Two channels are added as they are, or with the other sign where they would cancel each other: Polarity.
- Of more channels each gets a share by its loudness: SharedGain.
- Of surround sound one channel is taken alone while somebody speaks there: FocusMix. Films and broadcasts have the
  dialogue in the centre and music and noise around it, which would drown it in a mix.
- Tracks are added, and all is lowered where they would exceed full scale: TrackMix.

Theory of opposite channels. The mix of the channels l and r is (l + r) / 2. If a cable or a plug-in changes the sign of
one of them, then r = -l, and nothing of a voice remains; (l - r) / 2 is then what the mix should be. The energies of
l + r and l - r say which case it is: of a voice in the middle l - r is nearly nothing, of different sounds in both
channels they are alike, and of opposite channels l + r is nearly nothing. The energies are those of the last moments.
The sign is kept until l + r is clearly stronger again, and in pauses, whose noise or offset may be of the other kind.

Theory of shared gain (D. Dugan, "Automatic microphone mixing", 1975). The mean of eight microphones has the only one
that speaks at an eighth, under the noise of all. If each gets the share that its level has of all levels, the speaker
comes at nearly full level without the others' noise, the same sound on all channels stays as loud as it is, and the
mix never exceeds the loudest channel.
"""

import math
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Protocol

import numpy as np

from pipeline.audio import RATE, WINDOW, DetectSpeech, Framer, Samples, Windows

CANCELLED = 0.05
"""Channels cancel each other if their sum has less than this share of the energy of their difference."""

AGREED = 2.0
"""They no longer cancel each other if their sum has at least this many times the energy of their difference."""

BLOCK_S = 0.01
"""The seconds of a block, after each of which signs and shares are decided anew."""

FADING = math.exp(-BLOCK_S / 0.25)
"""The factor by which earlier energy counts less after each block: 1/e after a quarter of a second."""

PAUSE = 0.05
"""Nothing is decided while the energy is below this share of that of the loudest recent sound."""

FORGETTING = math.exp(-BLOCK_S / 5.0)
"""The factor by which the loudest sound counts less after each block: 1/e after five seconds."""

LEAST_BLOCKS = 2
"""The fewest blocks before the first decision: less audio may look opposite by chance."""

SHARE_FADING = math.exp(-BLOCK_S / 0.1)
"""The same as FADING, for the levels by which gain is shared: a tenth of a second, as short as a pause in a word."""

NOTHING = 1e-6
"""The level, -120 dBFS, that every channel has for its share: so silent channels have equal shares."""

BLOCK = round(BLOCK_S * RATE)


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


class SharedGain:
    """Mixes many channels, each by its share of their levels. The stream comes in pieces of any length.

    A share in a block depends on the blocks before it, and changes gradually over a block. Levels are those of the
    differences between samples, in which deep sounds weigh little: neither wind nor the bass of a film drowns a voice.
    """

    def __init__(self, channels: int) -> None:
        self._before = np.zeros((1, channels), np.float32)  # the last samples
        self._energies = np.zeros(channels)  # in the complete blocks
        self._open_energies = np.zeros(channels)  # in the block that is not complete
        self._at = 0  # its samples
        self._shares = np.full((2, channels), 1 / channels)  # at its beginning and its end

    def mix(self, samples: Samples) -> Samples:
        """Return the mix of samples of shape (n, channels)."""
        if not len(samples):
            return samples[:, 0]
        edges = np.diff(samples, axis=0, prepend=self._before)
        self._before = samples[-1:].copy()
        stops = [*range(BLOCK - self._at, len(samples), BLOCK), len(samples)]
        starts = [0, *stops[:-1]]
        energies = np.add.reduceat(np.square(edges), starts, axis=0)
        begins = self._at
        shares = [self._shares]
        for start, stop, energy in zip(starts, stops, energies, strict=True):
            self._open_energies += energy
            self._at += stop - start
            if self._at == BLOCK:
                self._energies = SHARE_FADING * self._energies + self._open_energies
                levels = np.sqrt(self._energies) + NOTHING
                self._shares = np.stack((self._shares[1], levels / levels.sum()))
                self._open_energies, self._at = np.zeros_like(self._energies), 0
                shares.append(self._shares)
        block, place = np.divmod(np.arange(begins, begins + len(samples)), BLOCK)
        first, last = np.stack(shares)[block].transpose(1, 0, 2)
        each = first + (last - first) * ((place + 1) / BLOCK)[:, np.newaxis]
        return np.asarray((samples * each).sum(axis=1), np.float32)


class Mixer(Protocol):
    """Turns samples of shape (n, channels) into samples of shape (n,), perhaps late."""

    def add(self, samples: Samples) -> Samples: ...
    def flush(self) -> Samples: ...


class ChannelMix:
    """Mixes the channels of one track, however many they are."""

    def __init__(self, channels: int) -> None:
        self._polarity = Polarity(RATE)
        self._shared = SharedGain(channels) if channels > 2 else None  # noqa: PLR2004  stereo

    def add(self, samples: Samples) -> Samples:
        """Return the mix of samples of shape (n, channels)."""
        if self._shared is not None:
            return self._shared.mix(samples)
        if samples.shape[1] == 1:
            return samples[:, 0]
        first, second = np.ascontiguousarray(samples.T)
        gains = self._polarity.gains(first, second)
        return np.asarray((first + (second if gains is None else second * gains)) * np.float32(0.5), np.float32)

    def flush(self) -> Samples:
        """Return nothing, since no sample is held."""
        return np.zeros(0, np.float32)


class TrackMix:
    """Adds tracks. What would exceed full scale is scaled down, and so is all that follows.

    A track that is opposite to those before it is turned, so that they do not cancel each other.
    """

    def __init__(self) -> None:
        self._gain = 1.0
        self._polarities: dict[int, Polarity] = {}

    def add(self, block: Samples) -> Samples:
        """Return the sum of *block*, of shape (n, tracks)."""
        total = block[:, 0].copy()
        for number, track in enumerate(np.ascontiguousarray(block.T[1:])):
            gains = self._polarities.setdefault(number, Polarity(RATE)).gains(total, track)
            total += track if gains is None else np.asarray(track * gains, np.float32)
        peak = float(np.abs(total).max(initial=0.0))
        self._gain = min(self._gain, 1.0 / peak) if peak > 0 else self._gain
        return total if self._gain == 1.0 else np.asarray(total * np.float32(self._gain), np.float32)


AHEAD = RATE // 4 // WINDOW
"""The windows before speech that are taken from the centre too, for soft first sounds. So much later samples come."""

AFTER = RATE // 2 // WINDOW
"""The windows after speech that are taken from the centre too: a pause between words."""

IS_SPEECH = 0.5

SILENT = 3e-4
"""Sound that is all below this, -70 dBFS, is not looked at: it costs more than decoding it."""


BASS = 0.03
"""Of a sound below 200 Hz the differences between samples have less than this share of its energy; of speech and hiss
more. So six microphones are told from a film's 5.1, whose fourth channel has the bass alone."""

_BASSES = dict.fromkeys(("3.1", "4.1", "5.1", "5.1(side)", "6.1", "6.1(back)", "7.1", "7.1(wide)", "7.1(wide-side)",
                        "5.1.2", "5.1.2(back)"), 3) | {"2.1": 2}  # fmt: skip
_CENTRES = {"3.0": 2, "3.1": 2, "4.0": 2, "4.1": 2, "5.0": 2, "5.0(side)": 2, "5.1": 2, "5.1(side)": 2, "6.0": 2,
            "6.1": 2, "6.1(back)": 2, "7.0": 2, "7.1": 2, "7.1(wide)": 2, "7.1(wide-side)": 2, "hexagonal": 2,
            "octagonal": 2, "5.1.2": 2, "5.1.2(back)": 2}  # fmt: skip


def centre_of(layout: str) -> int | None:
    """Return the number of the centre in a layout, by FFmpeg's name of it; None if it has none."""
    return _CENTRES.get(layout)


def bass_of(layout: str) -> int | None:
    """Return the number of the channel for bass in a layout, by FFmpeg's name of it; None if it has none."""
    return _BASSES.get(layout)


def is_bass(samples: Samples) -> bool:
    """Return whether a sound is deep, as that of a channel for bass, or nearly silent."""
    loud = float(np.abs(samples).max(initial=0.0)) >= SILENT
    return not loud or float(np.square(np.diff(samples)).sum()) < BASS * float(np.square(samples).sum())


class FocusMix:
    """Takes one channel while somebody speaks there, and otherwise the mix of all channels.

    Its result does not depend on the pieces in which samples come.
    """

    def __init__(self, detect: DetectSpeech, channels: int, focus: int) -> None:
        """*focus* is the one of its *channels* that is preferred to their mix."""
        self._detect = detect
        self._mix, self._focus = ChannelMix(channels), focus
        self._framer = Framer()
        self._held = np.zeros((0, 2), np.float32)
        self._spoken: list[bool] = [False] * AFTER  # windows, from AFTER before the first that is held
        self._share = 0.0  # of the channel at the end of the last window

    def add(self, samples: Samples) -> Samples:
        """Take the next samples, of shape (n, channels), and return those that are decided."""
        preferred = samples[:, self._focus]
        self._held = np.concatenate((self._held, np.stack((self._mix.add(samples), preferred), axis=1)))
        self._detect_in(self._framer.windows_of(preferred))
        return self._release(len(self._spoken) - AFTER - AHEAD)

    def flush(self) -> Samples:
        """Return the remaining samples."""
        self._detect_in(self._framer.flush()[0])
        return self._release(len(self._spoken) - AFTER)

    def _detect_in(self, windows: Windows) -> None:
        if len(windows):
            self._spoken += [speech >= IS_SPEECH for speech in self._detect(windows)]

    def _release(self, count: int) -> Samples:
        spoken = [float(any(self._spoken[at : at + AFTER + AHEAD + 1])) for at in range(count)]
        shares = [self._share, *spoken]
        samples, self._held = self._held[: max(0, count) * WINDOW], self._held[max(0, count) * WINDOW :]
        self._spoken = self._spoken[max(0, count) :]
        self._share = shares[-1]
        steps = np.arange(1, WINDOW + 1, dtype=np.float32) / WINDOW  # a sudden change would click
        parts = [before + (after - before) * steps for before, after in pairwise(shares)]
        share = np.concatenate(parts)[: len(samples)] if parts else np.zeros(0, np.float32)
        return np.asarray(samples[:, 0] * (1 - share) + samples[:, 1] * share, np.float32)


def live_mix(detect: DetectSpeech | None, channels: int, layout: str) -> Mixer:
    """Return the mix of a live track: of surround sound the centre while *detect* finds speech there."""
    centre = centre_of(layout)
    if detect is None or centre is None or centre >= channels:
        return ChannelMix(channels)
    return FocusMix(detect, channels, centre)


def mixed(audio: Iterable[Samples], mix: Mixer) -> Iterator[Samples]:
    """Yield what *mix* makes of *audio*."""
    for samples in audio:
        if len(made := mix.add(samples)):
            yield made
    if len(rest := mix.flush()):
        yield rest
