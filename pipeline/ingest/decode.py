"""Turns any audio file, or a growing stream of its bytes, into float32 samples at RATE.

A file may hold several recordings behind each other: they are heard one after the other. cell.py calls this module in a
separate process.
"""

from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

import av.error
import numpy as np
from av.audio.frame import AudioFrame

from pipeline.audio import RATE, Samples, position
from pipeline.errors import InvalidAudio, NoAudioStream, PipelineError, UndecodableAudio, UnknownTrack
from pipeline.ingest.containers import DecodeLimits
from pipeline.ingest.focus import focus_on
from pipeline.ingest.ledger import Ledger
from pipeline.ingest.part import Part, opened_part
from pipeline.ingest.pieces import cut, even_out, up_to
from pipeline.ingest.resampling import ChannelResampler, MonoResampler, kind_of, pick_of, with_focus
from pipeline.ingest.source import ByteSource, PartSource

HOLE = position(0.1)
"""The shortest gap between the end of a frame and the time stamp of the next one that is filled with silence, so that
words keep their place. Shorter gaps come from rounded time stamps, or from a decoder that drops its first frame."""

LONGEST_HOLE = position(600)
"""The longest gap that is filled unless the file states a length that has room for it. A longer one means that a clock
was set, not that time passed."""

OVERLAP = position(1)
"""The most by which a time stamp may lie before the end of the last frame. More means that a clock was set back."""

MAX_BROKEN_PARTS = 100
"""So many recordings behind each other that cannot be opened end the file."""


class OpenRecording:
    """An open recording whose first frame is decoded. It can be iterated once; *notes* are complete after that.

    The samples of a file come in arrays of RATE samples; the last one is shorter. Those of a live stream come as soon
    as possible. Arrays have the shape (n, channels) if the channels are separate, otherwise (n,). Iterating raises
    InvalidAudio, and AudioTooLong one second of audio after the limit.
    """

    def __init__(
        self,
        parts: Iterator[Part],
        ledger: Ledger,
        limits: DecodeLimits,
        *,
        live: bool,
        separate: bool,
        focus: int | None,
    ) -> None:
        """*parts* are open one at a time; the first is opened now. Raises what opening it raises."""
        self._parts = parts
        self._part = next(parts)
        self._ledger = ledger
        self._limits = limits
        self._live = live
        probe = self._part.probe_of_all
        self._separate = probe.channels if separate else None
        self._focus = focus_on(probe.layout, probe.channels, focus)
        self._columns = 2 if self._focus is not None else self._separate  # None: arrays have one dimension
        self.probe = replace(probe, focused=self._focus is not None)

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes about this recording for readers of its transcript: "code: message"."""
        return self._ledger.notes

    def __iter__(self) -> Iterator[Samples]:
        samples = self._all_parts()
        return up_to(self._limits.longest_s, cut(samples) if self._live else even_out(samples))

    def _all_parts(self) -> Iterator[Samples]:
        part: Part | None = self._part
        while part is not None:
            decoded = 0
            for samples in self._resample(part):
                decoded += len(samples)
                yield samples
            part.account_for_length(decoded + position(self._ledger.shifted_s))
            part = next(self._parts, None)

    def _resample(self, part: Part) -> Iterator[Samples]:
        """Yield the samples of all frames, with silence where the recording has gaps."""
        run: MonoResampler | ChannelResampler | None = None
        due_s = part.start_s  # players start at the first time stamp of any stream
        for frame, at_s in part.frames():
            hole = self._hole(at_s, due_s, part)
            if run is not None and (hole or not run.takes(frame)):
                yield run.flush()
                self._ledger.gaps += hole > 0
                self._ledger.filled += hole
                run = None
            yield from self._silence(hole)
            if run is None:
                run = self._run(frame)
            begins_s = at_s if due_s is None or _is_off(at_s, due_s) else due_s
            due_s = None if begins_s is None else begins_s + frame.samples / frame.sample_rate
            yield run.resample(frame)
        if run is not None:
            yield run.flush()

    def _hole(self, at_s: float | None, due_s: float | None, part: Part) -> int:
        """Return the samples between where a frame was due and where it begins, or 0 if the gap is not to be filled."""
        gap = 0 if at_s is None or due_s is None else position(at_s - due_s)
        if gap <= LONGEST_HOLE:
            return gap if gap >= HOLE else 0
        end_s = None if self._live else part.end_s
        if at_s is not None and end_s is not None and at_s < end_s:
            return gap
        self._ledger.shifted_s += gap / RATE
        return 0

    def _run(self, frame: AudioFrame) -> "MonoResampler | ChannelResampler":
        """Return the resampler for *frame* and all frames of its kind."""
        block, channels = 1 if self._live else frame.sample_rate, frame.layout.nb_channels
        if self._separate is not None:
            picks = [pick_of(channel, channels) for channel in range(self._separate)]
            return ChannelResampler([MonoResampler(*kind_of(frame), block=block, pick=pick) for pick in picks])
        if self._focus is not None:
            return with_focus(frame, self._focus, block=block)
        return MonoResampler(*kind_of(frame), block=block)

    def _silence(self, length: int) -> Iterator[Samples]:
        for at in range(0, length, RATE):
            count = min(RATE, length - at)
            yield np.zeros(count if self._columns is None else (count, self._columns), np.float32)


@contextmanager
def recording(
    source: ByteSource,
    limits: DecodeLimits,
    *,
    live: bool = False,
    separate: bool = False,
    track: int | None = None,
    sparse: bool = False,
    focus: int | None = None,
    ledger: Ledger | None = None,
) -> Iterator[OpenRecording]:
    """Open the recording in *source*: its channels mixed, or side by side if they are *separate*.

    *live* starts after a few kilobytes instead of reading far ahead.
    *track* is the number of an audio track; None: the one that players choose, or the next that can be decoded.
    *sparse* leaves out most of a long recording.
    *focus* is a channel that comes beside the mix, or CENTRE: that of surround sound, if there is one. It needs
    channels that are not *separate*.
    *ledger* gets what is not heard; None: one of its own.

    Raises EmptyAudio, UndecodableAudio, InvalidAudio, NoAudioStream, UnknownTrack.
    """
    ledger = ledger or Ledger()
    with closing(_parts(source, limits, ledger, live=live, track=track, sparse=sparse)) as parts:
        try:
            yield OpenRecording(parts, ledger, limits, live=live, separate=separate, focus=focus)
        except av.error.FFmpegError as error:
            raise InvalidAudio("the audio in this container cannot be decoded") from error


def _parts(
    source: ByteSource, limits: DecodeLimits, ledger: Ledger, *, live: bool, track: int | None, sparse: bool
) -> Generator[Part]:
    """Open the recordings that *source* holds, one after the other. If none can be opened, raise the first error.

    What cannot be opened is entered into the ledger.
    """
    part: PartSource | None = PartSource(source)
    first_error: PipelineError | None = None
    heard = broken = 0
    while part is not None and broken < MAX_BROKEN_PARTS:
        error: PipelineError | None = None
        opened: Part | None = None
        try:
            with opened_part(part, limits, ledger, live=live, track=track, sparse=sparse) as opened:
                heard, broken = heard + 1, 0
                yield opened
        except (InvalidAudio, NoAudioStream, UndecodableAudio, UnknownTrack) as caught:
            if not heard and (live or isinstance(caught, UndecodableAudio | UnknownTrack)):
                raise
            error, broken = caught, broken + 1
            first_error = first_error or caught
        part.find_end()
        if error is not None:
            maybe_tag = isinstance(error, UndecodableAudio)
            ledger.leave_out(part.foreign() if maybe_tag else part.size or 0, str(error))
        elif opened is not None:
            opened.account_for_tail()
        part = part.following()
    if not heard and first_error is not None:
        raise first_error


def _is_off(at_s: float | None, due_s: float) -> bool:
    """Return whether the time stamp *at_s* of a frame differs so much from the expected time *due_s* that it counts.

    Otherwise the expected time counts, so that small differences add up. If each lost packet of 20 ms were ignored, all
    later words would be early.
    """
    return at_s is not None and not -OVERLAP <= position(at_s - due_s) < HOLE
