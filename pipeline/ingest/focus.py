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

AHEAD = RATE // 4 // WINDOW
"""The windows before speech that are heard from the centre too, for soft first sounds. So much later samples come."""

AFTER = RATE // 2 // WINDOW
"""The windows after speech that are heard from the centre too: a pause between words."""

IS_SPEECH = 0.5


CENTRE = -1
"""In place of a channel's number: the centre, if there is one."""

MIXED_WELL = 2
"""The most channels whose mix is taken for granted."""

_CENTRES = {"3.0": 2, "3.1": 2, "4.0": 2, "4.1": 2, "5.0": 2, "5.0(side)": 2, "5.1": 2, "5.1(side)": 2, "6.0": 2,
            "6.1": 2, "6.1(back)": 2, "7.0": 2, "7.1": 2, "7.1(wide)": 2, "7.1(wide-side)": 2, "hexagonal": 2,
            "octagonal": 2, "5.1.2": 2, "5.1.2(back)": 2}  # fmt: skip


def centre_of(layout: str) -> int | None:
    """Return the number of the centre in a layout, by FFmpeg's name of it; None if it has none."""
    return _CENTRES.get(layout)


def focus_on(layout: str, channels: int, focus: int | None) -> int | None:
    """Return the channel of a recording that comes beside its mix, if any."""
    wanted = centre_of(layout) if focus == CENTRE else focus
    return wanted if wanted is not None and 0 <= wanted < channels and channels > 1 else None


class Detector(Protocol):
    """Detects speech in the next windows of one channel. VoiceStream is one."""

    def __call__(self, windows: Windows) -> list[float]: ...


class FocusMix:
    """Follows one recording. Its result does not depend on the pieces in which samples come."""

    def __init__(self, detect: Detector) -> None:
        self._detect = detect
        self._framer = Framer()
        self._held = np.zeros((0, 2), np.float32)
        self._spoken: list[bool] = [False] * AFTER  # windows, from AFTER before the first that is held
        self._share = 0.0  # of the channel at the end of the last window

    def add(self, samples: Samples) -> Samples:
        """Take the next samples, of shape (n, 2) with the mix and the channel, and return those that are decided."""
        self._held = np.concatenate((self._held, samples))
        self._hear(self._framer.windows_of(samples[:, 1]))
        return self._release(len(self._spoken) - AFTER - AHEAD)

    def flush(self) -> Samples:
        """Return the remaining samples."""
        self._hear(self._framer.flush()[0])
        return self._release(len(self._spoken) - AFTER)

    def _hear(self, windows: Windows) -> None:
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


def heard_focus(audio: Iterable[Samples], detect: Detector) -> Iterator[Samples]:
    """Yield what FocusMix makes of *audio*."""
    mix = FocusMix(detect)
    for samples in audio:
        if len(heard := mix.add(samples)):
            yield heard
    if len(rest := mix.flush()):
        yield rest
