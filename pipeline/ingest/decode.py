"""Turns any audio file, or a growing stream of its bytes, into float32 samples at RATE.

A file may hold several recordings behind each other: they are heard one after the other. cell.py calls this module in a
separate process.
"""

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial

import av.error
import numpy as np
from av.audio.frame import AudioFrame

from pipeline.audio import RATE, Samples, position
from pipeline.errors import InvalidAudio, NoAudioStream, PipelineError, UndecodableAudio, UnknownTrack
from pipeline.ingest.containers import DecodeLimits
from pipeline.ingest.ledger import Ledger
from pipeline.ingest.part import Part, opened_part
from pipeline.ingest.pieces import TrackPiece, cut, even_out, up_to
from pipeline.ingest.resampling import SoundResampler
from pipeline.ingest.source import ByteSource, PartSource
from pipeline.ingest.track_sound import TrackSound
from pipeline.ingest.tracks import by_preference

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
        first: Part,
        ledger: Ledger,
        limits: DecodeLimits,
        *,
        live: bool,
        separate: bool,
    ) -> None:
        """*parts* are open one at a time, of which the *first* is open."""
        self._parts = parts
        self._part = first
        self._ledger = ledger
        self._limits = limits
        self._live = live
        self.probe = self._part.probe_of_all
        self._columns = self.probe.channels if separate else None  # None: arrays have one dimension

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
            sound = TrackSound(part, self._ledger, self._resampler_of, live=self._live)
            decoded = 0
            for _, frame in part.frames():
                for hole, samples in sound.add(frame):
                    decoded += hole + len(samples)
                    yield from self._silence(hole)
                    yield samples
            for _, samples in sound.flush():
                decoded += len(samples)
                yield samples
            part.account_for_length(decoded + position(self._ledger.shifted_s))
            part = next(self._parts, None)

    def _resampler_of(self, frame: AudioFrame) -> SoundResampler:
        return SoundResampler(frame, block=1 if self._live else frame.sample_rate, columns=self._columns)

    def _silence(self, length: int) -> Iterator[Samples]:
        for at in range(0, length, RATE):
            count = min(RATE, length - at)
            yield np.zeros(count if self._columns is None else (count, self._columns), np.float32)


class OpenTracks:
    """All tracks of an open live stream. It can be iterated once; *notes* are complete after that."""

    def __init__(self, parts: Iterator[Part], first: Part, ledger: Ledger, *, separate: bool) -> None:
        """*parts* are open one at a time, of which the *first* is open. *separate*: the channels of each track come."""
        self._parts = parts
        self._part = first
        self._ledger = ledger
        self.probe = replace(first.probe_of_all, several=True)
        self._separate = separate
        self._columns: dict[int, int] = {}  # by track

    @property
    def notes(self) -> tuple[str, ...]:
        """See OpenRecording.notes."""
        return self._ledger.notes

    def __iter__(self) -> Iterator[TrackPiece]:
        part: Part | None = self._part
        begins = 0
        while part is not None:
            ends = {track.number: begins for track in part.heard}
            sounds = {
                number: TrackSound(part, self._ledger, partial(self._resampler_of, number), live=True)
                for number in ends
            }
            for track, frame in part.frames():
                number = track.number
                found = sounds[number].add(frame, max(ends.values()) - ends[number])
                yield from self._pieces(number, ends, found)
            for number, sound in sounds.items():
                yield from self._pieces(number, ends, sound.flush())
            reached = max(ends.values())
            part.account_for_length(reached - begins + position(self._ledger.shifted_s))
            begins, part = reached, next(self._parts, None)

    def _pieces(self, number: int, ends: dict[int, int], found: Iterable[tuple[int, Samples]]) -> Iterator[TrackPiece]:
        for hole, samples in found:
            start = ends[number] + hole
            ends[number] = start + len(samples)
            if number > len(self.probe.tracks):  # of a later recording with more tracks than the first
                self._ledger.unknown_tracks.add(number)
                continue
            for at in range(0, len(samples), RATE):
                yield TrackPiece(number, start + at, samples[at : at + RATE])

    def _resampler_of(self, number: int, frame: AudioFrame) -> SoundResampler:
        columns = self._columns.setdefault(number, frame.layout.nb_channels) if self._separate else None
        return SoundResampler(frame, block=1, columns=columns)


@contextmanager
def recording(
    source: ByteSource,
    limits: DecodeLimits,
    *,
    live: bool = False,
    separate: bool = False,
    track: int | None = None,
    sparse: bool = False,
    ledger: Ledger | None = None,
) -> Iterator[OpenRecording]:
    """Open the recording in *source*: its channels mixed, or side by side if they are *separate*.

    *live* starts after a few kilobytes instead of reading far ahead.
    *track* is the number of an audio track; None: the one that players choose, or the next that can be decoded.
    *sparse* leaves out most of a long recording.
    *ledger* gets what is not heard; None: one of its own.

    Raises EmptyAudio, UndecodableAudio, InvalidAudio, NoAudioStream, UnknownTrack.
    """
    ledger = ledger or Ledger()
    how = _How(live=live, track=track, sparse=sparse, together=False)
    with _opened(source, limits, ledger, how) as (parts, first):
        yield OpenRecording(parts, first, ledger, limits, live=live, separate=separate)


@contextmanager
def live_tracks(
    source: ByteSource, limits: DecodeLimits, ledger: Ledger, *, separate: bool
) -> Iterator[OpenRecording | OpenTracks]:
    """Open all tracks of a live stream. One with a single track is an OpenRecording. See recording()."""
    how = _How(live=True, track=None, sparse=False, together=True)
    with _opened(source, limits, ledger, how) as (parts, first):
        if len(first.tracks) > 1:
            yield OpenTracks(parts, first, ledger, separate=separate)
            return
        how.together = False  # recordings behind this one with more tracks
        yield OpenRecording(parts, first, ledger, limits, live=True, separate=separate)


@dataclass(slots=True)
class _How:
    """How the recordings of a source are opened. See recording()."""

    live: bool
    track: int | None
    sparse: bool
    together: bool  # all tracks


@contextmanager
def _opened(
    source: ByteSource, limits: DecodeLimits, ledger: Ledger, how: _How
) -> Iterator[tuple[Iterator[Part], Part]]:
    """Open the first recording. Yields it behind all that follow it."""
    with closing(_parts(source, limits, ledger, how)) as parts:
        try:
            yield parts, next(parts)
        except av.error.FFmpegError as error:
            raise InvalidAudio("the audio in this container cannot be decoded") from error


def _parts(source: ByteSource, limits: DecodeLimits, ledger: Ledger, how: _How) -> Generator[Part]:
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
            with opened_part(
                part, limits, ledger, live=how.live, track=how.track, together=how.together, sparse=how.sparse
            ) as opened:
                heard, broken = heard + 1, 0
                if heard > 1 and how.track is None:
                    ledger.unknown_tracks |= {track.number for track in by_preference(opened.tracks)}
                    ledger.unknown_tracks -= {track.number for track in opened.heard}
                yield opened
        except (InvalidAudio, NoAudioStream, UndecodableAudio, UnknownTrack) as caught:
            if not heard and (how.live or isinstance(caught, UndecodableAudio | UnknownTrack)):
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
