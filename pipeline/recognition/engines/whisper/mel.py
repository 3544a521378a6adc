"""Computes the log-mel spectrogram that Whisper was trained on, for a window of any length. engine.py calls it."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from pipeline.audio import RATE, Samples

HOP = 160
"""The samples from one frame to the next: 10 ms."""

FRAMES_PER_S = RATE // HOP

_FFT = 400  # 25 ms
_FLOOR = 1e-10  # the power that counts as silence
_RANGE = 8.0  # values are kept this many powers of ten below the loudest
_BLOCK = 16  # frames in one matrix product, so few that BLAS does not wake a second thread, which would then spin
_STRETCH = 10 * _BLOCK  # frames transformed at once: 20 s at once would take 25 MB
_HANN = np.hanning(_FFT + 1)[:-1].astype(np.float32)


class LogMel:
    """Turns samples into log-mel features. *filters* is the filter bank of the model's own extractor, (mels, 201)."""

    def __init__(self, filters: NDArray[np.float32]) -> None:
        self._filters = np.ascontiguousarray(filters.T, dtype=np.float32)

    def __call__(self, samples: Samples, frames: int) -> NDArray[np.float32]:
        """Return features of shape (mels, frames) for *samples*, padded with silence or cut off to frames * HOP.

        As in OpenAI's whisper, the padding is silence in the audio, not zeros in the features. Frames that have only
        padding are not transformed, because their value is known.
        """
        filled = min(frames, -(-(len(samples) + _FFT // 2) // HOP))
        power = np.full((frames, self._filters.shape[1]), _FLOOR, dtype=np.float32)
        framed = _frame(samples, filled)
        for start in range(0, filled, _STRETCH):
            spectrum = np.fft.rfft(framed[start : start + _STRETCH] * _HANN)
            squared = spectrum.real**2 + spectrum.imag**2
            for first in range(0, len(squared), _BLOCK):
                block = slice(start + first, min(start + first + _BLOCK, filled))
                np.matmul(squared[first : first + _BLOCK], self._filters, out=power[block])
        log = np.log10(np.maximum(power, _FLOOR))
        return np.ascontiguousarray(((np.maximum(log, log.max() - _RANGE) + 4.0) / 4.0).T)


def _frame(samples: Samples, frames: int) -> NDArray[np.float32]:
    """Return an array (frames, 400). Frame *t* is centred on sample t * HOP; before the first sample it is mirrored."""
    margin = _FFT // 2
    padded = np.zeros(frames * HOP + _FFT, dtype=np.float32)
    fitting = samples[: len(padded) - margin]
    padded[margin : margin + len(fitting)] = fitting
    padded[:margin] = padded[2 * margin : margin : -1]
    return sliding_window_view(padded, _FFT)[: frames * HOP : HOP]
