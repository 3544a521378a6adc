"""Turns decoded frames and raw samples into samples at RATE: mixed, one of the channels, or each channel separately.

decode.py and pcm.py use it.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import av.error
import numpy as np
from av.audio.fifo import AudioFifo
from av.audio.frame import AudioFrame
from av.filter import Graph

from pipeline.audio import RATE, Samples
from pipeline.ingest.polarity import Polarity

_NONE = np.zeros(0, np.float32)

_STEREO = ("stereo", "2 channels")  # the second is what a WAV file without an order of its channels has

_BOUNDS = {"u8": (0, 255), "s16": (-(2**15), 2**15 - 1), "s32": (-(2**31), 2**31 - 1), "flt": None, "dbl": None}
"""The sample formats that PyAV gives as arrays, and their bounds. Planar formats have a "p" at the end."""


class Resampler:
    """Resamples mono audio to RATE, in pieces of any length. It keeps its state between pieces."""

    def __init__(self, rate: int, *, full_scale: bool = False) -> None:
        """*full_scale*: no sample is louder than full scale."""
        self._rate = rate
        self._mono = None if rate == RATE else MonoResampler("flt", "mono", rate, block=1)
        self._full_scale = None if full_scale else FullScale()  # where nothing is to be resampled

    def resample(self, samples: Samples) -> Samples:
        """Return the samples that the filter releases now. *samples* may be changed."""
        if self._mono is None:
            return samples if self._full_scale is None else self._full_scale.scale(samples)
        if not len(samples):
            return samples
        frame = AudioFrame.from_ndarray(samples[np.newaxis, :], format="flt", layout="mono")
        frame.sample_rate = self._rate
        return self._mono.resample(frame)

    def flush(self) -> Samples:
        """Return what the filter still holds. Nothing can be resampled after it."""
        return _NONE if self._mono is None else self._mono.flush()


class FullScale:
    """Scales samples above full scale down to it, instead of clipping them.

    The gain falls at once and rises by 3 dB a second, so a voice stays as it is. It depends on the samples alone, not
    on the pieces in which they come. What is less than 1 dB above full scale, as after lossy encoding, is clipped.
    """

    _FROM = 1.12
    _RISE = 3.0 / 20 * math.log(10) / RATE  # as a natural logarithm per sample

    def __init__(self) -> None:
        self._passed = 0  # samples
        self._held = 0.0  # the highest logarithm of a sample so far, plus the rise up to it

    def scale(self, samples: Samples) -> Samples:
        """Return the samples, changed in place, within -1..1. No numbers become silence."""
        if not len(samples):
            return samples
        begins, self._passed = self._passed, self._passed + len(samples)
        peak = np.abs(samples).max()
        if peak <= self._FROM and self._held <= self._RISE * begins:
            return samples if peak <= 1.0 else np.clip(samples, -1.0, 1.0, out=samples)
        # A file of floats may contain NaN, which would stay in the voice detector's state for ever.
        np.nan_to_num(samples, copy=False, posinf=1.0, neginf=-1.0)
        size = np.abs(samples)
        rise = self._RISE * np.arange(begins, self._passed)
        needed = np.log(np.where(size > self._FROM, size, 1.0), dtype=np.float64) + rise
        held = np.maximum(np.maximum.accumulate(needed), self._held)
        self._held = float(held[-1])
        samples *= np.exp(rise - held)
        return np.clip(samples, -1.0, 1.0, out=samples)


class MonoResampler:
    """Turns frames of one sample format, layout and rate into samples at RATE, within -1..1.

    Frames are filtered in blocks of at least *block* samples, because one pass of the filter takes longer than decoding
    a frame. PyAV's own AudioResampler starts a thread per core for each stream; this graph needs none.
    """

    def __init__(self, sample_format: str, layout: str, rate: int, *, block: int, pick: str | None = None) -> None:
        """*pick* is how the filter "pan" makes one channel of all; None mixes them."""
        self._kind = (sample_format, layout, rate)
        self._block = block
        self._waiting = AudioFifo()
        self._count = 0  # samples waiting
        mixes = layout in _STEREO and pick is None and sample_format.removesuffix("p") in _BOUNDS
        self._polarity = Polarity(rate) if mixes else None
        self._full_scale = FullScale()
        self._graph = graph = Graph()
        graph.threads = 1
        steps = (
            graph.add("abuffer", sample_rate=f"{rate}", sample_fmt=sample_format, channel_layout=layout),
            *(() if pick is None else (graph.add("pan", pick),)),
            # Without this bound the downmix is 1.4 times too loud for stereo, and 4.4 times for 7.1.
            graph.add("aresample", rematrix_maxval="1.0"),
            graph.add("aformat", sample_rates=f"{RATE}", sample_fmts="flt", channel_layouts="mono"),
            graph.add("abuffersink"),
        )
        for step, following in pairwise(steps):
            step.link_to(following)
        graph.configure()

    def takes(self, frame: AudioFrame) -> bool:
        return kind_of(frame) == self._kind

    def resample(self, frame: AudioFrame) -> Samples:
        """Return the samples that the filter releases now."""
        frame.pts = None  # the queue refuses time stamps with gaps
        self._waiting.write(frame)
        self._count += frame.samples
        return self._pass_waiting() if self._count >= self._block else _NONE

    def flush(self) -> Samples:
        """Return all remaining samples."""
        rest = self._pass_waiting() if self._count else _NONE
        self._graph.push(None)
        return np.concatenate((rest, self._pull()))

    def _pass_waiting(self) -> Samples:
        frame = self._waiting.read()
        assert frame is not None
        self._graph.push(frame if self._polarity is None else _upright(frame, self._polarity))
        self._count = 0
        return self._pull()

    def _pull(self) -> Samples:
        arrays: list[Samples] = []
        while True:
            try:
                frame = self._graph.pull()
            except (av.error.BlockingIOError, av.error.EOFError):
                break
            assert isinstance(frame, AudioFrame)
            arrays.append(frame.to_ndarray()[0])
        return self._full_scale.scale(np.concatenate((_NONE, *arrays)))


def _upright(frame: AudioFrame, polarity: Polarity) -> AudioFrame:
    """Return a stereo *frame* whose channels do not cancel each other when they are mixed."""
    values = frame.to_ndarray()
    channels = values if frame.format.is_planar else values.reshape(-1, 2).T
    zero = 128 if values.dtype == np.uint8 else 0
    first, second = channels.astype(np.float32) - zero
    if (gains := polarity.gains(first, second)) is None:
        return frame
    turned = second.astype(np.float64) * gains + zero
    if (bounds := _BOUNDS[frame.format.name.removesuffix("p")]) is not None:
        turned = np.clip(np.rint(turned), *bounds)
    channels[1] = turned
    upright = AudioFrame.from_ndarray(values, format=frame.format.name, layout=frame.layout.name)
    upright.sample_rate = frame.sample_rate
    return upright


class ChannelResampler:
    """Turns frames into samples of several channels side by side, of shape (n, channels)."""

    def __init__(self, channels: Sequence[MonoResampler]) -> None:
        self._channels = channels

    def takes(self, frame: AudioFrame) -> bool:
        return self._channels[0].takes(frame)

    def resample(self, frame: AudioFrame) -> Samples:
        return np.stack([channel.resample(frame) for channel in self._channels], axis=1)

    def flush(self) -> Samples:
        return np.stack([channel.flush() for channel in self._channels], axis=1)


def with_focus(frame: AudioFrame, focus: int, *, block: int) -> ChannelResampler:
    """Return what makes the mix and the channel *focus*, side by side, of *frame* and those of its kind."""
    picks = (None, pick_of(focus, frame.layout.nb_channels))
    return ChannelResampler([MonoResampler(*kind_of(frame), block=block, pick=pick) for pick in picks])


def kind_of(frame: AudioFrame) -> tuple[str, str, int]:
    return frame.format.name, frame.layout.name, frame.sample_rate


def pick_of(channel: int, channels: int) -> str:
    """Return how to take this channel out of *channels*. A part of a recording that lacks it is silent."""
    return f"mono|c0=c{channel}" if channel < channels else "mono|c0=0*c0"
