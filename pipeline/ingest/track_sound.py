"""The samples of one track of a recording: its frames resampled, and how much silence its time stamps have between."""

from collections.abc import Callable

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

    def add(self, timed: TimedFrame, behind: int = 0) -> list[tuple[int, Samples]]:
        """Take a frame. Return samples of silence, and those behind them, which may be none.

        *behind* is by how many samples another track is ahead: time that is known to have passed.
        """
        frame, at_s = timed
        hole = self._hole(at_s, behind)
        run, found = self._run, []
        if run is not None and (hole or not run.takes(frame)):
            found.append((0, run.flush()))
            self._ledger.gaps += hole > 0
            self._ledger.filled += hole
            run = None
        if run is None:
            run = self._run = self._resampler_of(frame)
        due_s = self._due_s
        begins_s = at_s if due_s is None or _is_off(at_s, due_s) else due_s
        self._due_s = None if begins_s is None else begins_s + frame.samples / frame.sample_rate
        samples = run.resample(frame)
        if hole or len(samples):
            found.append((hole, samples))
        return found

    def flush(self) -> list[tuple[int, Samples]]:
        """Return what the resampler still holds."""
        run, self._run = self._run, None
        return [] if run is None else [(0, run.flush())]

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
