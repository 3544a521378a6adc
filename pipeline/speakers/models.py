"""The two models of voices: when up to three people speak within ten seconds, and what a voice sounds like.

The segmentation model gives for each frame of about 17 ms the probability of each set of at most two of three voices.
They are local voices: the next window numbers them anew. Its weights are in a package that `scripts/setup` installs.

The encoder computes the embedding of a voice: a vector of 256 numbers and length 1, from some seconds of speech. It is
an LSTM over mel spectra of 10 ms, trained so that embeddings of one voice have a high cosine, and those of two voices a
low one.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from pipeline.audio import RATE, Samples
from pipeline.weights import SEGMENTATION, read_checked

Array = NDArray[np.float32]

ENCODER = Path(__file__).with_name("encoder.onnx")
"""A GE2E voice encoder, Apache-2.0: what a voice sounds like, as 256 numbers. scripts/convert_encoder.py made it."""

_ENCODER_SHA256 = "ed3cccc76fb9fb75656f4df2de8073d07733b3f1e29c1bc31a085335effc99c6"

STEP = 270
"""Samples from one frame to the next."""

LENGTH = 10 * RATE
"""Samples in a window."""

FRAMES = 589
"""Frames of a window."""

OFFSET = 360
"""Frame *n* of a window means the STEP samples after its sample n * STEP + OFFSET: the middle of the model's input."""

VOICES = 3
"""Voices that a window can have."""

SIZE = 256
"""Numbers in an embedding."""

HOP = 160
"""Samples from one mel frame to the next, 10 ms."""

PIECE = 160
"""The mel frames that the encoder takes at once, 1.6 s. It was trained with this length."""

_FFT = 400
_MELS = 40
_HANN = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_FFT) / _FFT)).astype(np.float32)
_BLOCK = 1000  # frames transformed at once: an hour at once would take a gigabyte
_LOUDEST = 0.37  # the power in a frame of speech at -30 dBFS, to which quieter speech is raised as in training
_EMBEDDED = 32  # pieces in one call
_SHORTER = 0.75  # of the longest piece of a call is its shortest: the encoder computes each as long as the longest

_SEGMENTED = 2  # windows in one call: a sixth less CPU than one, for 18 MB; four take 64 MB for another twentieth
_SETS = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 0, 1], [0, 1, 1]], np.float32)


class SegmentationModel:
    """The loaded model. It may be used by several threads."""

    def __init__(self) -> None:
        """Load the weights. Raises ModelUnavailable."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3  # it warns of initializers that it removed
        self._session = onnxruntime.InferenceSession(
            SEGMENTATION.read(), sess_options=options, providers=["CPUExecutionProvider"]
        )
        self._input = self._session.get_inputs()[0].name

    def __call__(self, windows: Sequence[Samples]) -> Array:
        """Return the probability that each voice speaks in each frame of windows of up to LENGTH samples.

        The shape is (windows, FRAMES, VOICES). A shorter window is filled up with silence.
        """
        return np.concatenate(
            [self._analyse(windows[at : at + _SEGMENTED]) for at in range(0, len(windows), _SEGMENTED)]
        )

    def _analyse(self, windows: Sequence[Samples]) -> Array:
        padded = np.zeros((len(windows), 1, LENGTH), np.float32)
        for row, window in zip(padded[:, 0], windows, strict=True):
            row[: len(window)] = window
        (log_probabilities,) = self._session.run(None, {self._input: padded})
        speech: Array = np.einsum("wfs,sv->wfv", np.exp(log_probabilities), _SETS)
        return speech


def mel_frames(samples: Samples, first: int = 0) -> Array:
    """Return the power in 40 mel bands, of shape (frames, 40): a frame for every HOP samples, centred on its first.

    The frames before *first* are left out.
    """
    count = len(samples) // HOP
    padded = np.zeros(count * HOP + _FFT, np.float32)
    padded[_FFT // 2 : _FFT // 2 + min(len(samples), len(padded) - _FFT // 2)] = samples[: len(padded) - _FFT // 2]
    framed = sliding_window_view(padded, _FFT)[first * HOP : count * HOP : HOP]
    mels = np.empty((count - first, _MELS), np.float32)
    for start in range(0, len(mels), _BLOCK):
        spectrum = np.fft.rfft(framed[start : start + _BLOCK] * _HANN)
        power = (spectrum.real**2 + spectrum.imag**2).astype(np.float32)
        mels[start : start + _BLOCK] = np.einsum("fk,mk->fm", power, _FILTERS)
    return mels


def unit(vectors: Array) -> Array:
    """Return the vectors, one a row, with length 1. A vector of zeros stays one."""
    scaled: Array = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-9)
    return scaled


def read_encoder() -> bytes:
    """Return the bytes of ENCODER. Raises ModelUnavailable if it is missing or has other bytes than it should."""
    return read_checked(ENCODER, _ENCODER_SHA256, "install Scribewire again")


class VoiceEncoder:
    """The loaded encoder. It may be used by several threads."""

    def __init__(self) -> None:
        """Load the weights, which takes 0.1 s. Raises ModelUnavailable."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            read_encoder(), sess_options=options, providers=["CPUExecutionProvider"]
        )

    def __call__(self, voices: Sequence[Array]) -> list[Array]:
        """Return the embeddings of the pieces of each mel spectrum, of shape (pieces, SIZE).

        A spectrum has at least one frame. piece_lengths() says how it is cut.
        """
        pieces = [
            piece for mels in voices for piece in np.split(_raise(mels), np.cumsum(piece_lengths(len(mels)))[:-1])
        ]
        found = np.zeros((len(pieces), SIZE), np.float32)
        for rows in _calls([len(piece) for piece in pieces]):
            found[rows] = self._embed([pieces[row] for row in rows])
        return np.split(found, np.cumsum([len(piece_lengths(len(mels))) for mels in voices])[:-1]) if pieces else []

    def _embed(self, pieces: Sequence[Array]) -> Array:
        lengths = np.array([len(piece) for piece in pieces], np.int32)
        frames = np.zeros((lengths.max(), len(pieces), _MELS), np.float32)
        for row, piece in enumerate(pieces):
            frames[: len(piece), row] = piece
        (embeddings,) = self._session.run(None, {"frames": frames, "lengths": lengths})
        return unit(embeddings)


def piece_lengths(frames: int) -> NDArray[np.intp]:
    """Return the lengths, about PIECE each, of the pieces into which *frames* mel frames are cut."""
    count = max(1, round(frames / PIECE))
    return np.full(count, frames // count) + (np.arange(count) < frames % count)


def _calls(lengths: Sequence[int]) -> list[list[int]]:
    """Return which of the pieces with these lengths go into one call, for all calls."""
    calls: list[list[int]] = []
    for piece in sorted(range(len(lengths)), key=lambda piece: -lengths[piece]):
        if calls and len(calls[-1]) < _EMBEDDED and lengths[piece] >= _SHORTER * lengths[calls[-1][0]]:
            calls[-1].append(piece)
        else:
            calls.append([piece])
    return calls


def _raise(mels: Array) -> Array:
    """Return the spectrum as if it were at least as loud as what the encoder was trained with."""
    power = float(mels.sum()) / len(mels)
    return mels * max(1.0, _LOUDEST / max(power, 1e-9))


def _mel_filters() -> Array:
    """Return Slaney's filter bank of shape (mels, spectrum), (40, 201): triangles of equal area on his mel scale.

    The scale is linear up to 1 kHz, which is mel 15, and logarithmic above.
    """
    straight = 15
    highest = straight + 27 * np.log(RATE / 2000) / np.log(6.4)
    points = np.linspace(0, highest, _MELS + 2)
    edges = np.where(points < straight, points * 200 / 3, 1000 * 6.4 ** ((points - straight) / 27))
    bins = np.fft.rfftfreq(_FFT, 1 / RATE)
    low, centre, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    triangles = np.maximum(0, np.minimum((bins - low) / (centre - low), (high - bins) / (high - centre)))
    filters: Array = (triangles * 2 / (high - low)).astype(np.float32)
    return filters


_FILTERS = _mel_filters()
