"""The samples of one track of a recording: its frames resampled, and as much silence between as its time stamps have.

A stamp that differs by a packet or more from what came before is a gap, or a clock that was set. Small differences that
add up are a clock that goes slower or faster than the one of the samples, as between a sound card and a recorder: one
hundredth is 36 s in an hour. Then the sound is stretched, so that words are where a player shows them.
"""

from collections.abc import Callable

import numpy as np
from av.audio.frame import AudioFrame

from pipeline.audio import RATE, Samples, position
from pipeline.ingest.ledger import Ledger
from pipeline.ingest.part import Part
from pipeline.ingest.pieces import LONGEST_HOLE
from pipeline.ingest.resampling import SoundResampler
from pipeline.ingest.track_decoder import TimedFrame

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


class TrackSound:
    """Follows one track of a part."""

    def __init__(
        self, part: Part, ledger: Ledger, resampler_of: Callable[[AudioFrame], SoundResampler], *, live: bool
    ) -> None:
        """*resampler_of* makes the resampler for a frame and all of its kind."""
        self._part = part
        self._ledger = ledger
        self._resampler_of = resampler_of
        self._live = live
        self._run: SoundResampler | None = None
        self._due_s = part.start_s  # players start at the first time stamp of any stream
        self._after_s: float | None = None  # where the last frame ends by its own time stamp
        self._ahead_s = 0.0  # by how much the samples are ahead of the time stamps
        self._follows = part.probe.format in CLOCKED  # are the time stamps believed?
        self._stretches = False

    def add(self, timed: TimedFrame, behind: int = 0) -> list[tuple[int, Samples]]:
        """Take a frame. Return samples of silence, and those behind them, which may be none.

        *behind* is by how many samples another track is ahead: time that is known to have passed.
        """
        frame, at_s = timed
        self._follow(frame, at_s)
        hole = self._hole(at_s, behind)
        run, found = self._run, []
        if run is not None and (hole or not run.takes(frame)):
            found.append((0, self._stretched(run.flush())))
            self._ledger.gaps += hole > 0
            self._ledger.filled += hole
            run = None
        if run is None:
            run = self._run = self._resampler_of(frame)
        due_s = self._due_s
        begins_s = at_s if due_s is None or _is_off(at_s, due_s) else due_s
        self._due_s = None if begins_s is None else begins_s + frame.samples / frame.sample_rate
        samples = self._stretched(run.resample(frame))
        if hole or len(samples):
            found.append((hole, samples))
        return found

    def flush(self) -> list[tuple[int, Samples]]:
        """Return what the resampler still holds."""
        run, self._run = self._run, None
        return [] if run is None else [(0, self._stretched(run.flush()))]

    def _follow(self, frame: AudioFrame, at_s: float | None) -> None:
        """Take a small difference between a time stamp and the end of the frame before for drift, and not for a gap."""
        length_s = frame.samples / frame.sample_rate
        if self._follows and at_s is not None and self._after_s is not None and self._due_s is not None:
            step_s = at_s - self._after_s
            if abs(step_s) < length_s / 2:
                self._due_s += step_s
                self._ahead_s -= step_s
        self._after_s = None if at_s is None else at_s + length_s

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

    def _hole(self, at_s: float | None, behind: int) -> int:
        """Return the samples between where a frame was due and where it begins, or 0 if the gap is not to be filled."""
        gap = 0 if at_s is None or self._due_s is None else position(at_s - self._due_s)
        if gap <= LONGEST_HOLE + behind:
            return gap if gap >= HOLE else 0
        end_s = None if self._live else self._part.end_s
        if at_s is not None and end_s is not None and at_s < end_s:
            return gap
        self._ledger.shifted_s += gap / RATE
        return 0


def _is_off(at_s: float | None, due_s: float) -> bool:
    """Return whether the time stamp *at_s* of a frame differs so much from the expected time *due_s* that it counts.

    Otherwise the expected time counts, so that small differences add up. If each lost packet of 20 ms were ignored, all
    later words would be early.
    """
    return at_s is not None and not -OVERLAP <= position(at_s - due_s) < HOLE


def stretch(samples: Samples, length: int) -> Samples:
    """Return *samples* as so many, by cubic interpolation (Catmull-Rom)."""
    places = np.arange(length) * (len(samples) / max(1, length))
    first = places.astype(np.int64)
    part = (places - first).astype(np.float32).reshape(-1, *[1] * (samples.ndim - 1))
    a, b, c, d = (samples[np.clip(first + by, 0, len(samples) - 1)] for by in (-1, 0, 1, 2))
    cubic = b + part / 2 * (c - a + part * (2 * a - 5 * b + 4 * c - d + part * (3 * (b - c) + d - a)))
    return np.asarray(np.clip(cubic, -1.0, 1.0), np.float32)
