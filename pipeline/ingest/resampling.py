"""Turns decoded frames and raw samples into samples at 16 kHz, as many as their time stamps say.

A time stamp that differs by a packet or more from what came before is a gap, or a clock that was set. Small differences
that add up are a clock that runs slower or faster than the one of the samples, as between a sound card and a recorder:
one hundredth is 36 s in an hour. Then the sound is stretched, so that words are where a player shows them.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

import av.error
import numpy as np
from av.audio.fifo import AudioFifo
from av.audio.frame import AudioFrame
from av.audio.layout import AudioLayout
from av.filter import Graph

from pipeline.audio import RATE, Samples, position
from pipeline.errors import AudioTooLong
from pipeline.ingest.messages import LONGEST_HOLE
from pipeline.ingest.mixing import ChannelMix
from pipeline.ingest.notes import Ledger

HOLE = position(0.1)
"""The shortest gap between the end of a frame and the time stamp of the next one that is filled with silence, so that
words keep their place. Shorter gaps come from rounded time stamps, or from a decoder that drops its first frame."""

OVERLAP = position(1)
"""The most by which a time stamp may lie before the end of the last frame. More means that a clock was set back."""


DRIFTED_S = 0.03
"""Sound is stretched once it is so far from its time stamps. Rounded stamps are off by a few milliseconds."""

MOST_STRETCHED = 0.2
"""The largest share by which sound is stretched. Where that is not enough for OVERLAP, the stamps are not believed."""

CLOCKED = frozenset({"matroska", "mp4", "mpegts", "flv", "asf"})
"""Containers whose packets have time stamps of a clock. In others they count samples or bytes."""

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
        # A file of floats may contain NaN, which would stay in the state of the VAD for ever.
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
        return (frame.format.name, frame.layout.name, frame.sample_rate) == self._kind

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
        self._run = FrameResampler(frame.format.name, frame.layout.name, frame.sample_rate, block=block)
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
        mixed = self._mix.add(samples)
        return mixed if self._columns is None else np.repeat(mixed[:, np.newaxis], self._columns, axis=1)


class TrackSound:
    """The samples of one track: its frames resampled, and as much silence between as its time stamps have."""

    def __init__(
        self,
        ledger: Ledger,
        resampler_of: Callable[[AudioFrame], SoundResampler],
        *,
        container: str,
        start_s: float | None,
        end_s: float | None = None,
    ) -> None:
        """*resampler_of* makes the resampler for a frame and all of its kind.

        *container* is the name of its format. *start_s* is the first time stamp of any track, where players start;
        *end_s* the last one, if it is known.
        """
        self._ledger = ledger
        self._resampler_of = resampler_of
        self._run: SoundResampler | None = None
        self._end_s = end_s
        self._due_s = start_s
        self._after_s: float | None = None  # where the last frame ends by its own time stamp
        self._ahead_s = 0.0  # by how much the samples are ahead of the time stamps
        self._follows = container in CLOCKED  # are the time stamps believed?
        self._stretches = False

    def add(self, frame: AudioFrame, at_s: float | None, late: int = 0) -> list[tuple[int, Samples]]:
        """Take a frame and its time stamp. Return samples of silence, and those after them, which may be none.

        *late* is by how many samples another track is ahead: time that is known to have passed.
        """
        length_s = frame.samples / frame.sample_rate
        if self._follows and at_s is not None and self._after_s is not None and self._due_s is not None:
            step_s = at_s - self._after_s
            if abs(step_s) < length_s / 2:  # it is drift, and not a gap
                self._due_s += step_s
                self._ahead_s -= step_s
        self._after_s = None if at_s is None else at_s + length_s
        hole = self._hole(at_s, late)
        run, found = self._run, []
        if run is not None and (hole or not run.takes(frame)):
            found.append((0, self._stretched(run.flush())))
            self._ledger.gaps += hole > 0
            self._ledger.filled += hole
            run = None
        if run is None:
            run = self._run = self._resampler_of(frame)
        # Unless a stamp is far from the expected time, that counts, so that small differences add up. If each lost
        # packet of 20 ms were ignored, all later words would be early.
        begins_s = self._due_s
        if begins_s is None or (at_s is not None and not -OVERLAP <= position(at_s - begins_s) < HOLE):
            begins_s = at_s
        self._due_s = None if begins_s is None else begins_s + length_s
        samples = self._stretched(run.resample(frame))
        if hole or len(samples):
            found.append((hole, samples))
        return found

    def flush(self) -> list[tuple[int, Samples]]:
        """Return what the resampler still holds."""
        run, self._run = self._run, None
        return [] if run is None else [(0, self._stretched(run.flush()))]

    def _stretched(self, samples: Samples) -> Samples:
        """Return the samples as long as their time stamps say."""
        self._stretches |= abs(self._ahead_s) > DRIFTED_S
        if not self._stretches or not len(samples):
            return samples
        if abs(self._ahead_s) > OVERLAP / RATE:
            self._follows, self._ahead_s = False, 0.0
        # Of a live stream, whose pieces are short, a part of the difference, so that rounded stamps are no vibrato.
        away = self._ahead_s * min(1.0, len(samples) / RATE)
        most = round(MOST_STRETCHED * len(samples))
        length = len(samples) - max(-most, min(position(away) if away > 0 else -position(-away), most))
        self._ahead_s -= (len(samples) - length) / RATE
        return samples if length == len(samples) else stretch(samples, length)

    def _hole(self, at_s: float | None, late: int) -> int:
        """Return the samples between where a frame was due and where it begins, or 0 if the gap is not to be filled."""
        gap = 0 if at_s is None or self._due_s is None else position(at_s - self._due_s)
        if gap <= LONGEST_HOLE + late:
            return gap if gap >= HOLE else 0
        if at_s is not None and self._end_s is not None and at_s < self._end_s:
            return gap
        self._ledger.shifted_s += gap / RATE
        return 0


def stretch(samples: Samples, length: int) -> Samples:
    """Return *samples* as so many, by cubic interpolation (Catmull-Rom)."""
    places = np.arange(length) * (len(samples) / max(1, length))
    first = places.astype(np.int64)
    part = (places - first).astype(np.float32).reshape(-1, *[1] * (samples.ndim - 1))
    a, b, c, d = (samples[np.clip(first + by, 0, len(samples) - 1)] for by in (-1, 0, 1, 2))
    cubic = b + part / 2 * (c - a + part * (2 * a - 5 * b + 4 * c - d + part * (3 * (b - c) + d - a)))
    return np.asarray(np.clip(cubic, -1.0, 1.0), np.float32)


def cut(arrays: Iterable[Samples]) -> Iterator[Samples]:
    """Yield the same samples in arrays of 1..RATE."""
    for samples in arrays:
        for at in range(0, len(samples), RATE):
            yield samples[at : at + RATE]


def even_out(arrays: Iterable[Samples]) -> Iterator[Samples]:
    """Yield the same samples in arrays of RATE; the last one may be shorter."""
    buffer: Samples | None = None
    for samples in cut(arrays):
        buffer = samples if buffer is None else np.concatenate((buffer, samples))
        if len(buffer) >= RATE:
            yield buffer[:RATE]
            buffer = buffer[RATE:]
    if buffer is not None and len(buffer):
        yield buffer


def up_to(longest_s: float | None, arrays: Iterable[Samples]) -> Iterator[Samples]:
    """Yield the same arrays. Raise AudioTooLong once they are a second longer than *longest_s* (None: no limit)."""
    decoded = 0
    for samples in arrays:
        decoded += len(samples)
        if longest_s is not None and decoded > position(longest_s) + RATE:
            message = f"The recording is longer than {longest_s:g} s. Cut it, or use a larger plan."
            raise AudioTooLong(message, limit_s=longest_s, actual_s=decoded / RATE)
        yield samples
