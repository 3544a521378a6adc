"""Turns any audio file, or a growing stream of its bytes, into float32 samples at 16 kHz.

open_recording() opens what the options name: one track, or all of them mixed or side by side. A file may hold several
containers one after another, which are decoded in order. cell.py calls this module in a separate process.
"""

import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import Any, TypeAlias

import av.error
import numpy as np
from av.audio.frame import AudioFrame

from pipeline.audio import RATE, Samples, position
from pipeline.errors import InvalidAudio, NoAudioStream, PipelineError, UndecodableAudio, UnknownTrack
from pipeline.ingest.container import UNDECODABLE, OpenContainer, opened_container
from pipeline.ingest.input_formats import (
    ALL_TRACKS,
    AUTO,
    MIX,
    DecodeLimits,
    Probe,
    RawAudio,
    Track,
    TrackChoice,
    by_preference,
)
from pipeline.ingest.messages import TrackPiece
from pipeline.ingest.mixing import TrackMix
from pipeline.ingest.notes import Ledger, undecodable_track
from pipeline.ingest.raw_audio import RawRecording
from pipeline.ingest.resampling import SoundResampler, TrackSound, cut, even_out, up_to
from pipeline.ingest.source import LONGEST_HEADER, ByteSource, ContainerSource, starts_with_header

MAX_BROKEN = 100
"""So many containers one after another that cannot be opened end the file."""


@contextmanager
def open_recording(
    source: ByteSource,
    limits: DecodeLimits,
    *,
    track: TrackChoice = AUTO,
    raw: RawAudio | None = None,
    live: bool = False,
    separate: bool = False,
    several: bool = False,
    sparse: bool = False,
) -> "Iterator[Recording]":
    """Open what *track* names, or *raw* audio, unless the file has a header all the same. See recording().

    With *several* all tracks of a live stream come as OpenTracks, to choose among, mix or keep apart outside; a stream
    with a single track is an OpenRecording.

    Raises what recording() raises, and UnknownTrack for more than DecodeLimits.max_tracks separate tracks.
    """
    ledger = Ledger()
    if raw is not None:  # people declare an encoding for WAV files too
        ledger.header_found = starts_with_header(source.read(LONGEST_HEADER) or b"")
        source.seek(0)
        if not ledger.header_found:
            yield RawRecording(source, raw, limits, separate=separate)
            return
    if several:
        with _opened(source, limits, ledger, live=True, together=True) as (containers, first):
            if track in ALL_TRACKS:
                ledger.damaged += [one.name for one in first.tracks if one.codec is None]
            separate = separate and track not in ALL_TRACKS
            if len(first.tracks) > 1:
                yield OpenTracks(containers, first, ledger, separate=separate)
            else:
                yield OpenRecording(containers, first, ledger, limits, live=True, separate=separate)
    elif track in ALL_TRACKS:
        with ExitStack() as stack:
            yield _open_all(stack, source, limits, mixed=track == MIX)
    else:
        number = track if isinstance(track, int) else None
        with recording(
            source, limits, live=live, separate=separate, track=number, sparse=sparse, ledger=ledger
        ) as audio:
            yield audio


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
) -> "Iterator[OpenRecording]":
    """Open the recording in *source*: its channels mixed, or side by side if they are *separate*.

    *live* starts after a few kilobytes instead of reading far ahead.
    *track* is the number of an audio track; None: the one that players choose, or the next that can be decoded.
    *sparse* leaves out most of a long recording.
    *ledger* gets what is lost; None: one of its own.

    Raises EmptyAudio, UndecodableAudio, InvalidAudio, NoAudioStream, UnknownTrack.
    """
    ledger = ledger or Ledger()
    with _opened(source, limits, ledger, live=live, track=track, sparse=sparse) as (containers, first):
        yield OpenRecording(containers, first, ledger, limits, live=live, separate=separate)


@contextmanager
def _opened(
    source: ByteSource, limits: DecodeLimits, ledger: Ledger, *, live: bool, **how: Any
) -> Iterator[tuple[Iterator[OpenContainer], OpenContainer]]:
    """Open the first container. Yields the ones that follow, and the first. *how*: as opened_container() takes it."""
    with closing(_containers(source, limits, ledger, live=live, **how)) as containers:
        try:
            yield containers, next(containers)
        except av.error.FFmpegError as error:
            raise InvalidAudio(UNDECODABLE) from error


def _containers(
    source: ByteSource,
    limits: DecodeLimits,
    ledger: Ledger,
    *,
    live: bool,
    track: int | None = None,
    together: bool = False,
    sparse: bool = False,
) -> Generator[OpenContainer]:
    """Open the containers that *source* holds, one after the other. If none can be opened, raise the first error.

    What cannot be opened is entered into the ledger.
    """
    at: ContainerSource | None = ContainerSource(source)
    first_error: PipelineError | None = None
    opened_count = broken = 0
    while at is not None and broken < MAX_BROKEN:
        error: PipelineError | None = None
        opened: OpenContainer | None = None
        try:
            with opened_container(
                at, limits, ledger, live=live, track=track, together=together, sparse=sparse
            ) as opened:
                opened_count, broken = opened_count + 1, 0
                if opened_count == 1:
                    together = together and len(opened.tracks) > 1
                elif track is None:
                    ledger.unknown_tracks |= {one.number for one in by_preference(opened.tracks)}
                    ledger.unknown_tracks -= {one.number for one in opened.chosen}
                yield opened
        except (InvalidAudio, NoAudioStream, UndecodableAudio, UnknownTrack) as caught:
            if not opened_count and (live or isinstance(caught, UndecodableAudio | UnknownTrack)):
                raise
            error, broken = caught, broken + 1
            first_error = first_error or caught
        at.find_end()
        if error is not None:
            maybe_tag = isinstance(error, UndecodableAudio)
            ledger.leave_out(at.foreign() if maybe_tag else at.size or 0, str(error))
        elif opened is not None:
            opened.account_for_tail()
        at = at.following()
    if not opened_count and first_error is not None:
        raise first_error


class OpenRecording:
    """An open recording whose first frame is decoded. It can be iterated once; *notes* are complete after that.

    The samples of a file come in arrays of RATE samples; the last one is shorter. Those of a live stream come as soon
    as possible. Arrays have the shape (n, channels) if the channels are separate, otherwise (n,). Iterating raises
    InvalidAudio, and AudioTooLong one second of audio after the limit.
    """

    def __init__(
        self,
        containers: Iterator[OpenContainer],
        first: OpenContainer,
        ledger: Ledger,
        limits: DecodeLimits,
        *,
        live: bool,
        separate: bool,
    ) -> None:
        """*containers* are open one at a time, of which the *first* is open."""
        self._containers = containers
        self._first = first
        self._ledger = ledger
        self._limits = limits
        self._live = live
        self.probe = first.probe_of_all
        self._columns = self.probe.channels if separate else None  # None: arrays have one dimension

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes about this recording: see notes.py."""
        return self._ledger.notes

    def __iter__(self) -> Iterator[Samples]:
        samples = self._samples()
        return up_to(self._limits.longest_s, cut(samples) if self._live else even_out(samples))

    def _samples(self) -> Iterator[Samples]:
        """Yield the samples of all containers."""
        opened: OpenContainer | None = self._first
        while opened is not None:
            sound = TrackSound(
                self._ledger,
                lambda frame: SoundResampler(
                    frame, block=1 if self._live else frame.sample_rate, columns=self._columns
                ),
                container=opened.probe.format,
                start_s=opened.start_s,
                end_s=None if self._live else opened.end_s,
            )
            decoded = 0
            for _, (frame, at_s) in opened.frames():
                for hole, samples in sound.add(frame, at_s):
                    decoded += hole + len(samples)
                    for at in range(0, hole, RATE):
                        count = min(RATE, hole - at)
                        yield np.zeros(count if self._columns is None else (count, self._columns), np.float32)
                    yield samples
            for _, samples in sound.flush():
                decoded += len(samples)
                yield samples
            opened.account_for_length(decoded + position(self._ledger.shifted_s))
            opened = next(self._containers, None)


class OpenTracks:
    """All tracks of an open live stream. It can be iterated once; *notes* are complete after that."""

    def __init__(
        self, containers: Iterator[OpenContainer], first: OpenContainer, ledger: Ledger, *, separate: bool
    ) -> None:
        """*containers*: see OpenRecording. *separate*: the channels of each track come side by side."""
        self._containers = containers
        self._first = first
        self._ledger = ledger
        self.probe = replace(first.probe_of_all, several=True)
        self._separate = separate
        self._columns: dict[int, int] = {}  # by track

    @property
    def notes(self) -> tuple[str, ...]:
        """See OpenRecording.notes."""
        return self._ledger.notes

    def __iter__(self) -> Iterator[TrackPiece]:
        opened: OpenContainer | None = self._first
        begins = 0
        while opened is not None:
            ends = {track.number: begins for track in opened.chosen}
            sounds = {
                number: TrackSound(
                    self._ledger,
                    partial(self._resampler_of, number),
                    container=opened.probe.format,
                    start_s=opened.start_s,
                )
                for number in ends
            }
            for track, (frame, at_s) in opened.frames():
                number = track.number
                found = sounds[number].add(frame, at_s, max(ends.values()) - ends[number])
                yield from self._pieces(number, ends, found)
            for number, sound in sounds.items():
                yield from self._pieces(number, ends, sound.flush())
            reached = max(ends.values())
            opened.account_for_length(reached - begins + position(self._ledger.shifted_s))
            begins, opened = reached, next(self._containers, None)

    def _pieces(self, number: int, ends: dict[int, int], found: Iterable[tuple[int, Samples]]) -> Iterator[TrackPiece]:
        for hole, samples in found:
            start = ends[number] + hole
            ends[number] = start + len(samples)
            if number > len(self.probe.tracks):  # of a later container with more tracks than the first
                self._ledger.unknown_tracks.add(number)
                continue
            for at in range(0, len(samples), RATE):
                yield TrackPiece(number, start + at, samples[at : at + RATE])

    def _resampler_of(self, number: int, frame: AudioFrame) -> SoundResampler:
        columns = self._columns.setdefault(number, frame.layout.nb_channels) if self._separate else None
        return SoundResampler(frame, block=1, columns=columns)


# --- all tracks of a file --------------------------------------------------------------------------------------------


def _open_all(stack: ExitStack, source: ByteSource, limits: DecodeLimits, *, mixed: bool) -> "AllTracks":
    """Open all tracks of a file.

    Each is read by a decoder of its own, from the same bytes, so that none waits for the packets of another: tracks may
    have different lengths, rates and gaps.
    """
    first = stack.enter_context(recording(_View(source), limits))
    tracks = first.probe.tracks
    if len(tracks) > limits.max_tracks:
        accepted = f"At most {limits.max_tracks} can be combined"
        raise UnknownTrack(f"The recording has {len(tracks)} audio tracks. {accepted}: give the number of one.")
    opened: list[OpenRecording | None] = []
    damaged: list[Track] = []
    for track in tracks:
        if track.number == first.probe.track:
            opened.append(first)
            continue
        try:
            opened.append(stack.enter_context(recording(_View(source), limits, track=track.number)))
        except (InvalidAudio, UndecodableAudio):
            opened.append(None)
            damaged.append(track)
    return AllTracks(opened, first.probe, damaged, mixed=mixed)


class AllTracks:
    """All tracks of a recording, decoded at the same time. It can be iterated once."""

    def __init__(
        self, opened: Sequence[OpenRecording | None], usual: Probe, damaged: Sequence[Track], *, mixed: bool
    ) -> None:
        """*opened* has None for a track that is *damaged*, which stays silent. *usual* describes the usual track."""
        self._opened = opened
        self._damaged = damaged
        self._mixed = mixed
        each = [audio.probe for audio in opened if audio is not None]
        lengths = [probe.duration_s for probe in each if probe.duration_s is not None]
        self.probe = replace(
            usual,
            track=1,
            channels=1 if mixed else len(opened),
            duration_s=max(lengths, default=None),
            duration_stated=all(probe.duration_stated for probe in each),
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """See OpenRecording.notes."""
        own = [note for audio in self._opened if audio is not None for note in audio.notes]
        return tuple(dict.fromkeys([*own, *(undecodable_track(track.name) for track in self._damaged)]))

    def __iter__(self) -> Iterator[Samples]:
        mix = TrackMix()
        each = [iter(()) if audio is None else iter(audio) for audio in self._opened]
        for arrays in zip_longest(*each):
            length = max(len(array) for array in arrays if array is not None)
            block = np.zeros((length, len(arrays)), np.float32)
            for track, array in enumerate(arrays):
                if array is not None:
                    block[: len(array), track] = array
            yield mix.add(block) if self._mixed else block


Recording: TypeAlias = OpenRecording | OpenTracks | AllTracks | RawRecording


class _View:
    """A source with a position of its own, so that several readers can share it."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._at = 0

    def read(self, size: int, /) -> bytes | None:
        self._source.seek(self._at)
        data = self._source.read(size)
        self._at += len(data or b"")
        return data

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        if whence == os.SEEK_CUR:
            offset, whence = self._at + offset, os.SEEK_SET
        self._at = self._source.seek(offset, whence)
        return self._at

    def tell(self) -> int:
        return self._at
