"""Automatic gain control: makes quiet speech loud enough for the VAD and the recogniser.

With a distant microphone or a low gain, speech is 30 to 50 dB below a usual recording. Silero VAD, which was trained
on usual levels, then misses most of it, and Whisper makes more errors. GainControl raises quiet windows for the VAD
as they come; raise_level() raises the audio of one request for the recogniser. Speech of a usual level is
not changed by a single bit there. Silence and noise are raised too, by at most MAX_GAIN_DB, so no part of the
pipeline may take loudness alone for speech.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from pipeline.audio import RATE, WINDOW, Pcm, Samples, Windows, floats_of, position

SUSTAINED = 3
"""Windows that have to be loud in a row, 0.1 s: a click or a bump of the microphone is shorter."""

MAX_GAIN_DB = 48.0
"""The most by which audio is raised."""

SPEECH_DB = -46.0
"""The level to which the loudest windows are raised. In usual recordings they are above it."""

HEADROOM_DB = 12.0
"""How far above the level of speech a window may be raised.

After a pause the known level is that of the room. Without this limit the first windows of a word would get the gain of
the room, 40 dB more than the rest of the word, and the VAD takes such a fall for the end of speech. The
first second of a stream has no limit: with one, noise at its start would seem to be the beginning of speech.
"""

QUIET_DB, SILENT_DB = -45.0, -60.0
"""Speech below the first level, in decibels relative to full scale, or nothing but sound below the second, is so quiet
that users should know."""

SLOW_DB_S, FAST_DB_S = 12.0, 48.0
"""How fast the known level of a stream falls, in decibels a second.

It falls fast while it is ABOVE_DB above the quietest sound of the last RECENT samples, otherwise slowly. The faster it
falls, the sooner a voice that has become quieter is raised. But breath and noise in a pause are raised too, and a pause
has to end a turn.
"""

ABOVE_DB, RECENT = 20.0, position(4)

_SPOKEN, _LISTENED = position(3), position(10)  # speech, or sound without speech, after which an input is judged
_IS_SPEECH = 0.5

_MIN_DB = -120.0
_PEAK = 0.05  # to which the loudest samples of quiet speech are raised
_AROUND = position(0.7) // WINDOW  # windows on each side
_BEGINNING = position(1) // WINDOW  # windows
_OFFSET = 0.02  # a mean of the samples above this is a fault of the sound card


class GainControl:
    """Follows the level of one stream. Its result depends on the windows alone, not on how many come together."""

    def __init__(self) -> None:
        self.level_db = _MIN_DB  # of the loudest sound of the last seconds
        self._recent = [_MIN_DB] * SUSTAINED
        self._quiet: deque[float] = deque(maxlen=RECENT // WINDOW)  # each is the loudest of SUSTAINED windows

    def __call__(self, windows: Windows, levels: Sequence[float] | None = None) -> Windows:
        """Return the next windows, of shape (n, WINDOW), raised until speech of the known level is loud enough.

        *levels*: their levels_db(), where these are known.

        The first loud window already sets the level, so the first word of a stream is raised like the others.
        """
        gains = [self._gain_db(level) for level in (levels_db(windows) if levels is None else levels)]
        if not any(gains):
            return windows
        factors = 10 ** (np.array(gains, np.float32) / 20)
        return np.asarray(np.clip(windows * factors[:, None], -1.0, 1.0), np.float32)

    def _gain_db(self, level_db: float) -> float:
        self._recent = [*self._recent[1:], level_db]
        self._quiet.append(max(self._recent))
        fall = FAST_DB_S if self.level_db > min(self._quiet) + ABOVE_DB else SLOW_DB_S
        self.level_db = max(min(self._recent), self.level_db - fall * WINDOW / RATE)
        begins = len(self._quiet) < _BEGINNING
        highest = MAX_GAIN_DB if begins else SPEECH_DB + HEADROOM_DB - level_db
        return min(max(0.0, min(SPEECH_DB - self.level_db, highest)), MAX_GAIN_DB)


class InputLevel:
    """Notices an input that stays very quiet: a far microphone, a low gain, or the wrong device."""

    def __init__(self) -> None:
        self._recent = [_MIN_DB] * SUSTAINED
        self.loudest_db = _MIN_DB  # of the loudest sustained sound so far, in dBFS
        self._loudest_speech_db = _MIN_DB
        self.spoken = 0  # samples with speech so far
        self._listened = 0  # samples so far

    def measure(self, windows: Windows, speech: Sequence[float]) -> None:
        """Take the next windows, (n, up to WINDOW), and the probability that each of them holds speech."""
        for level_db, probability in zip(levels_db(windows), speech, strict=True):
            self._recent = [*self._recent[1:], level_db]
            sustained = min(self._recent)
            self.loudest_db = max(self.loudest_db, sustained)
            self._listened += WINDOW
            if probability >= _IS_SPEECH:
                self._loudest_speech_db = max(self._loudest_speech_db, sustained)
                self.spoken += WINDOW

    @property
    def fine(self) -> bool:
        """Whether there was speech of a usual level, after which there is no warning any more."""
        return self._loudest_speech_db >= QUIET_DB

    @property
    def speech_db(self) -> float | None:
        """The level of the loudest sustained speech so far, in dBFS; None without speech."""
        return self._loudest_speech_db if self.spoken else None

    @property
    def quiet_speech(self) -> str | None:
        """The warning about speech that is very quiet so far; None if it is not, or if there is too little of it."""
        if self.spoken < _SPOKEN or self._loudest_speech_db >= QUIET_DB:
            return None
        return f"The input is very quiet: speech is at {self._loudest_speech_db:.0f} dBFS. Words may be missed."

    @property
    def silence(self) -> str | None:
        """The warning about an almost silent input without speech so far; None if it is not, or is too short."""
        if self._listened < _LISTENED or self.spoken or self.loudest_db >= SILENT_DB:
            return None
        return f"The input is very quiet: nothing is above {self.loudest_db:.0f} dBFS. Is it the right one?"


def levels_db(windows: Windows) -> list[float]:
    """Return the level of each window in decibels relative to full scale, without an offset."""
    power = np.var(windows, axis=1, dtype=np.float64)
    levels: list[float] = (10 * np.log10(power + 10 ** (_MIN_DB / 10))).tolist()
    return levels


def raise_level(samples: Samples | Pcm, spans: Sequence[tuple[int, int]] = ()) -> Samples:
    """Return the samples of one request with quiet speech raised and a constant offset removed.

    *spans*: starts and ends of speech, as indices, which may lie outside the samples. If empty, all counts as speech.

    Each place gets the gain that the loudest speech within _AROUND needs. So a distant voice is raised, and a close one
    in the same window is not. Returns the same object if nothing changes.
    """
    samples = floats_of(samples)
    offset = float(np.mean(samples)) if len(samples) else 0.0
    if abs(offset) > _OFFSET:
        samples = samples - np.float32(offset)
    peaks = np.abs(np.pad(samples, (0, -len(samples) % WINDOW))).reshape(-1, WINDOW).max(axis=1)
    spoken = np.zeros(len(peaks), np.bool_) if spans else np.ones(len(peaks), np.bool_)
    for start, end in spans:
        spoken[max(0, start // WINDOW) : max(0, -(-end // WINDOW))] = True
    if not spoken.any() or float(peaks[spoken].min()) >= _PEAK:
        return samples
    near = np.pad(np.where(spoken, peaks, 0.0), _AROUND)
    loudest = sliding_window_view(near, 2 * _AROUND + 1).max(axis=1)
    known = np.flatnonzero(loudest > 0)
    if not known.size:
        return samples
    gains = np.clip(_PEAK / np.interp(np.arange(len(peaks)), known, loudest[known]), 1.0, 10 ** (MAX_GAIN_DB / 20))
    if float(gains.max()) == 1.0:
        return samples
    middles = (np.arange(len(peaks)) + 0.5) * WINDOW
    return np.asarray(samples * np.interp(np.arange(len(samples)), middles, gains), np.float32)
