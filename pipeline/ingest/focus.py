"""Hears one channel of surround sound while somebody speaks there, and otherwise the mix of all channels. Pure.

Films and broadcasts have the dialogue in the centre and music and noise around it, which drown the dialogue in a mix.
Voices from aside are heard while the centre is without speech.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Protocol

import numpy as np

from pipeline.audio import RATE, WINDOW, Samples
from pipeline.ingest.framer import Framer, Windows
from pipeline.ingest.mixing import ChannelMix

AHEAD = RATE // 4 // WINDOW
"""The windows before speech that are heard from the centre too, for soft first sounds. So much later samples come."""

AFTER = RATE // 2 // WINDOW
"""The windows after speech that are heard from the centre too: a pause between words."""

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


class Detector(Protocol):
    """Detects speech in the next windows of one channel. VoiceStream is one."""

    def __call__(self, windows: Windows) -> list[float]: ...


class FocusMix:
    """Follows one recording. Its result does not depend on the pieces in which samples come."""

    def __init__(self, detect: Detector, channels: int, focus: int) -> None:
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
        self._held = np.concatenate((self._held, np.stack((self._mix.mix(samples), preferred), axis=1)))
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


class PlainMix:
    """Mixes all channels, as they come."""

    def __init__(self, channels: int) -> None:
        self._mix = ChannelMix(channels)

    def add(self, samples: Samples) -> Samples:
        """Return the mix of the next samples, of shape (n, channels)."""
        return self._mix.mix(samples)

    def flush(self) -> Samples:
        """Return nothing: no sample is held."""
        return np.zeros(0, np.float32)


def live_mix(detect: Detector | None, channels: int, layout: str) -> FocusMix | PlainMix:
    """Return the mix of a live track: of surround sound the centre while *detect* finds speech there."""
    centre = centre_of(layout)
    if detect is None or centre is None or centre >= channels:
        return PlainMix(channels)
    return FocusMix(detect, channels, centre)


class Mixer(Protocol):
    """Turns samples of shape (n, channels) into samples of shape (n,), perhaps late."""

    def add(self, samples: Samples) -> Samples: ...
    def flush(self) -> Samples: ...


def mixed(audio: Iterable[Samples], mix: Mixer) -> Iterator[Samples]:
    """Yield what *mix* makes of *audio*."""
    for samples in audio:
        if len(made := mix.add(samples)):
            yield made
    if len(rest := mix.flush()):
        yield rest
