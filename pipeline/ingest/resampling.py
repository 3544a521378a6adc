"""Turns decoded frames and raw samples into samples at RATE.

decode.py and pcm.py use it.
"""

import math
from itertools import pairwise

import av.error
import numpy as np
from av.audio.fifo import AudioFifo
from av.audio.frame import AudioFrame
from av.audio.layout import AudioLayout
from av.filter import Graph

from pipeline.audio import RATE, Samples
from pipeline.ingest.mixing import ChannelMix

_NONE = np.zeros(0, np.float32)


class Resampler:
    """Resamples mono audio to RATE, in pieces of any length. It keeps its state between pieces."""

    def __init__(self, rate: int, *, full_scale: bool = False) -> None:
        """*full_scale*: no sample is louder than full scale."""
        self._rate = rate
        self._mono = None if rate == RATE else FrameResampler("flt", "mono", rate, block=1)
        self._full_scale = None if full_scale else FullScale()  # where nothing is to be resampled

    def resample(self, samples: Samples) -> Samples:
        """Return the samples that the filter releases now. *samples* may be changed."""
        if self._mono is None:
            return samples if self._full_scale is None else self._full_scale.scale(samples)
        if not len(samples):
            return samples
        frame = AudioFrame.from_ndarray(samples[np.newaxis, :], format="flt", layout="mono")
        frame.sample_rate = self._rate
        return self._mono.resample(frame)[:, 0]

    def flush(self) -> Samples:
        """Return what the filter still holds. Nothing can be resampled after it."""
        return _NONE if self._mono is None else self._mono.flush()[:, 0]


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
        """Return the samples, changed in place, within -1..1. No numbers become silence.

        Channels, of shape (n, channels), are scaled together, so their balance stays.
        """
        if not len(samples):
            return samples
        begins, self._passed = self._passed, self._passed + len(samples)
        peak = np.abs(samples).max()
        if peak <= self._FROM and self._held <= self._RISE * begins:
            return samples if peak <= 1.0 else np.clip(samples, -1.0, 1.0, out=samples)
        # A file of floats may contain NaN, which would stay in the voice detector's state for ever.
        np.nan_to_num(samples, copy=False, posinf=1.0, neginf=-1.0)
        size = np.abs(samples) if samples.ndim == 1 else np.abs(samples).max(axis=1)
        rise = self._RISE * np.arange(begins, self._passed)
        needed = np.log(np.where(size > self._FROM, size, 1.0), dtype=np.float64) + rise
        held = np.maximum(np.maximum.accumulate(needed), self._held)
        self._held = float(held[-1])
        gains = np.exp(rise - held)
        samples *= gains if samples.ndim == 1 else gains[:, np.newaxis]
        return np.clip(samples, -1.0, 1.0, out=samples)


class FrameResampler:
    """Turns frames of one sample format, layout and rate into samples at RATE, within -1..1, of shape (n, channels).

    Frames are filtered in blocks of at least *block* samples, because one pass of the filter takes longer than decoding
    a frame. PyAV's own AudioResampler starts a thread per core for each stream; this graph needs none. Channels are
    neither mixed nor ordered here: FFmpeg takes any six for 5.1, whose fourth it leaves out of a mix.
    """

    def __init__(self, sample_format: str, layout: str, rate: int, *, block: int) -> None:
        self._kind = (sample_format, layout, rate)
        self._block = block
        self._waiting = AudioFifo()
        self._count = 0  # samples waiting
        self._full_scale = FullScale()
        self._graph = graph = Graph()
        graph.threads = 1
        steps = (
            graph.add("abuffer", sample_rate=f"{rate}", sample_fmt=sample_format, channel_layout=layout),
            graph.add("aresample"),
            graph.add("aformat", sample_rates=f"{RATE}", sample_fmts="flt"),  # PyAV crashes on 8 planes
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
        if self._count < self._block:
            return np.zeros((0, frame.layout.nb_channels), np.float32)
        self._pass_waiting()
        return self._pull(frame.layout.nb_channels)

    def flush(self) -> Samples:
        """Return all remaining samples."""
        channels = AudioLayout(self._kind[1]).nb_channels
        if self._count:
            self._pass_waiting()
        self._graph.push(None)
        return self._pull(channels)

    def _pass_waiting(self) -> None:
        self._graph.push(self._waiting.read())
        self._count = 0

    def _pull(self, channels: int) -> Samples:
        arrays = [_NONE]
        while True:
            try:
                frame = self._graph.pull()
            except (av.error.BlockingIOError, av.error.EOFError):
                break
            assert isinstance(frame, AudioFrame)
            arrays.append(np.asarray(frame.to_ndarray()[0], np.float32))
        return self._full_scale.scale(np.concatenate(arrays).reshape(-1, channels))


class SoundResampler:
    """Turns frames of one kind into samples at RATE: mixed, of shape (n,), or side by side, of shape (n, columns)."""

    def __init__(self, frame: AudioFrame, *, block: int, columns: int | None) -> None:
        """Frames like *frame* come. Where they have not as many channels as *columns*, each column has their mix."""
        channels = frame.layout.nb_channels
        self._run = FrameResampler(*kind_of(frame), block=block)
        self._columns = columns
        self._mix = None if channels == columns else ChannelMix(channels)

    def takes(self, frame: AudioFrame) -> bool:
        return self._run.takes(frame)

    def resample(self, frame: AudioFrame) -> Samples:
        return self._arranged(self._run.resample(frame))

    def flush(self) -> Samples:
        return self._arranged(self._run.flush())

    def _arranged(self, samples: Samples) -> Samples:
        if self._mix is None:
            return samples
        mixed = self._mix.mix(samples)
        return mixed if self._columns is None else np.repeat(mixed[:, np.newaxis], self._columns, axis=1)


def kind_of(frame: AudioFrame) -> tuple[str, str, int]:
    return frame.format.name, frame.layout.name, frame.sample_rate
