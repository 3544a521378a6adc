"""Opens what an order names of a recording: one track, or several mixed or side by side.

Several tracks are read by a decoder each, from the same bytes, so that none waits for the packets of another: tracks
may have other lengths, rates and gaps. cell.py calls this module in a separate process.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import zip_longest
from typing import Any, Protocol

import numpy as np

from pipeline.audio import Samples
from pipeline.errors import InvalidAudio, UndecodableAudio, UnknownTrack
from pipeline.ingest.containers import DecodeLimits, Probe
from pipeline.ingest.decode import OpenRecording, OpenTracks, live_tracks, recording
from pipeline.ingest.encodings import RawAudio
from pipeline.ingest.ledger import Ledger
from pipeline.ingest.mixing import TrackMix
from pipeline.ingest.raw import RawRecording, has_header
from pipeline.ingest.source import ByteSource
from pipeline.ingest.tracks import ALL_TRACKS, AUTO, MIX, UNDECODABLE_TRACK, Track, TrackChoice


class Recording(Protocol):
    """What is decoded: OpenRecording, or several of them."""

    @property
    def probe(self) -> Probe: ...
    @property
    def notes(self) -> tuple[str, ...]: ...
    def __iter__(self) -> Iterator[Samples]: ...


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
    **how: Any,
) -> Iterator[Recording | OpenTracks]:
    """Open what *track* names, or *raw* audio, unless the file has a header all the same. See recording().

    With *several* all tracks of a live stream come as OpenTracks, to choose among, mix or keep apart outside.

    Raises what recording() raises, and UnknownTrack for more than DecodeLimits.max_tracks separate tracks.
    """
    ledger = Ledger(header_found=raw is not None and has_header(source))
    if raw is not None and not ledger.header_found:
        yield RawRecording(source, raw, limits, separate=separate)
        return
    if several:
        with live_tracks(source, limits, ledger, separate=separate and track not in ALL_TRACKS) as tracks:
            undecodable = [one.name for one in tracks.probe.tracks if one.codec is None]
            ledger.damaged += undecodable if track in ALL_TRACKS else []
            yield tracks
        return
    if track in ALL_TRACKS:
        with ExitStack() as stack:
            yield _open_all(stack, source, limits, mixed=track == MIX)
        return
    number = track if isinstance(track, int) else None
    with recording(source, limits, live=live, separate=separate, track=number, ledger=ledger, **how) as audio:
        yield audio


def _open_all(stack: ExitStack, source: ByteSource, limits: DecodeLimits, *, mixed: bool) -> "_AllTracks":
    first = stack.enter_context(recording(_View(source), limits))
    tracks = first.probe.tracks
    if len(tracks) > limits.max_tracks:
        raise UnknownTrack(f"the recording has {len(tracks)} audio tracks; give the number of one")
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
    return _AllTracks(opened, first.probe, damaged, mixed=mixed)


class _AllTracks:
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
        heard = [note for audio in self._opened if audio is not None for note in audio.notes]
        damaged = [f"{UNDECODABLE_TRACK}: Track {track.name} cannot be decoded." for track in self._damaged]
        return tuple(dict.fromkeys([*heard, *damaged]))

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


class _View:
    """A source with a place of its own, so that several readers can share it."""

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
