"""Opens one recording and decodes its frames, with PyAV; resampling.py and track_streams.py use it too.

The bytes are untrusted. They are read through a file object without a name, by a list of demuxers and audio decoders,
without any way to open other files.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from errno import EPERM
from itertools import chain
from typing import Any, NoReturn, TypeAlias

import av
import av.codec.codec
import av.error
import av.stream
import av.subtitles.codeccontext  # PyAV would load these at the first film or subtitle: too late in a confined process
import av.subtitles.stream
import av.video.codeccontext
import av.video.stream
from av.container import InputContainer
from av.packet import Packet

from pipeline.audio import position
from pipeline.errors import EmptyAudio, InvalidAudio, UndecodableAudio
from pipeline.ingest.containers import (
    DEMUXERS,
    GUESSED_LENGTH,
    INPUT_FORMATS,
    ISO_MEDIA,
    LENGTH_OF_ALL,
    NAMES,
    UNTIMED,
    DecodeLimits,
    Probe,
    has_signature,
    length_or_none,
    mp3_states_length,
)
from pipeline.ingest.foreign import foreign_name
from pipeline.ingest.ledger import Ledger
from pipeline.ingest.source import READ_BYTES, PartSource
from pipeline.ingest.track_decoder import TimedFrame, TrackDecoder
from pipeline.ingest.track_streams import audio_tracks, hear, heard_tracks
from pipeline.ingest.tracks import Track

LOOKED_WHOLE_S, LOOK_S, LOOK_EVERY_S = 600.0, 10.0, 60.0
"""What a sparse recording has: its first ten minutes, and of each later minute ten seconds."""

ENDS_EXACTLY = frozenset({"wav", "aiff", "au", ISO_MEDIA, "matroska,webm", "flac", "tta"})
"""Containers of which every byte behind the last packet is known: a tag, an index, or foreign."""

WHOLE_S = 0.1
"""A recording that lacks no more than this of its stated length is whole."""

LENGTH_FROM_SIZE = frozenset({"avi", "caf", "asf", "asf_o", "w64"})
"""Containers whose length FFmpeg guesses from the size of the file if no other recording is known to follow."""

TrackFrame: TypeAlias = tuple[Track, TimedFrame]


class Part:
    """An open recording whose first frame is decoded. Its frames can be iterated once."""

    def __init__(
        self,
        source: PartSource,
        container: InputContainer,
        limits: DecodeLimits,
        ledger: Ledger,
        *,
        heard: Sequence[Track],
        tracks: Sequence[Track],
        sparse: bool,
    ) -> None:
        """Decode the first frame of the tracks that are *heard*, among *tracks*. Raises InvalidAudio."""
        self._source = source
        self._size = source.size  # as FFmpeg knows it
        self._container = container
        self._alone = len(container.streams) == 1
        self.heard = heard
        self.tracks = tracks
        self._sparse = sparse
        self._timed = container.format.name not in UNTIMED
        self._limits = limits
        self._ledger = ledger
        self._last: int | None = None  # where the last packet ends
        self._cut = False
        self._decoders = {
            stream.index: TrackDecoder(track, stream, container.format.name, limits, ledger, head=source.head)
            for track, stream in zip(heard, hear(container, heard), strict=True)
        }
        self._usual = next(iter(self._decoders.values()))
        frames = self._decode()
        first = next(frames, None)
        if first is None:
            raise InvalidAudio("no audio frame could be decoded")
        self._frames = chain((first,), frames)
        self.probe = self._probe(*first)

    def frames(self) -> Iterator[TrackFrame]:
        """Yield the frames of all tracks that are heard, as they come. Raises InvalidAudio."""
        yield from self._frames

    @property
    def start_s(self) -> float | None:
        """The first time stamp of any stream, where players start."""
        start = self._container.start_time if self._timed else None
        return None if start is None else start / av.time_base

    @property
    def end_s(self) -> float | None:
        """The time stamp at which the recording ends, as the container states it; None if it states none."""
        stream = self._usual.stream
        if not self._timed or not self.probe.duration_stated:
            return None
        own_s = 0.0 if stream.duration is None else (stream.duration + (stream.start_time or 0)) * self._usual.tick_s
        return max(own_s, ((self._container.duration or 0) + (self._container.start_time or 0)) / av.time_base)

    @property
    def probe_of_all(self) -> Probe:
        """The facts about this part, and a guess at the length of all if others are known to follow."""
        share = self._source.share
        length_s = self.probe.duration_s
        if share == 1.0:
            return self.probe
        return replace(self.probe, duration_s=length_s and length_s / share, duration_stated=False)

    def account_for_length(self, decoded: int) -> None:
        """Enter into the ledger what is missing, once *decoded* samples of this part, at most, are all there are."""
        guessed = self._container.format.name in LENGTH_FROM_SIZE and self._source.size != self._size
        stated_s = self.probe.duration_s if self.probe.duration_stated and not guessed else None
        decoders = self._decoders.values()
        skipped = any(one.skipped for one in decoders)
        if stated_s is not None and not skipped and decoded < position(0.99 * stated_s - 0.5):
            self._cut = True
            self._ledger.cut_off += position(stated_s) - decoded
        elif stated_s is not None and decoded >= position(stated_s - WHOLE_S):
            self._cut = False  # FFmpeg only took what stands behind it for a part of it
        missing = self._source.missing()
        self._ledger.cut_bytes += missing
        self._ledger.cut |= self._cut or missing > 0 or any(one.begun and one.is_cut for one in decoders)
        self._ledger.damaged += [one.track.name for one in decoders if one.is_undecodable]

    def account_for_tail(self) -> None:
        """Enter the bytes behind the audio, up to the next recording, that are neither tags nor padding."""
        whole = self._source.seekable() or self._alone  # else the rest may be of another stream
        if self._last is not None and whole and self._container.format.name in ENDS_EXACTLY:
            self._ledger.leave_out(self._source.foreign_tail(self._last), "they stand behind its end")

    def _probe(self, track: Track, first: TimedFrame) -> Probe:
        """Return the facts about the usual track, of which a frame of another *track* says little."""
        usual, container, (frame, at_s) = self._usual, self._container, first
        stream, own = usual.stream, track is usual.track
        own_s = whole_s = None
        if stream.duration and usual.tick_s and container.format.name not in LENGTH_OF_ALL:
            late_s = 0.0 if at_s is None or self.start_s is None else max(0.0, at_s - self.start_s)
            own_s = length_or_none(stream.duration * usual.tick_s + late_s)
            if (
                late_s > 0
                and container.duration
                and stream.duration * usual.tick_s >= container.duration / av.time_base
            ):
                # FFmpeg gives a stream that states no length, and begins late, that of the whole.
                own_s, whole_s = None, length_or_none(container.duration / av.time_base)
        elif container.duration:  # of a film, whose sound may end before its pictures
            whole_s = length_or_none(container.duration / av.time_base)
        return Probe(
            format=NAMES.get(container.format.name, container.format.name),
            codec=stream.codec_context.codec.canonical_name,
            rate=frame.sample_rate if own else usual.track.rate,
            channels=frame.layout.nb_channels if own else usual.track.channels,
            duration_s=own_s or whole_s,
            duration_stated=not usual.is_mistaken
            and _states_length(self._source, container)
            and bool(own_s or (whole_s and len(container.streams) == 1)),
            layout=frame.layout.name if own else usual.track.layout,
            track=usual.track.number,
            tracks=tuple(self.tracks),
        )

    def _decode(self) -> Iterator[TrackFrame]:
        """Yield the frames of all packets."""
        begun = False
        for before, (decoder, packet) in enumerate(self._packets()):
            if packet is not None and self._sparse and self._is_left_out(packet):
                continue
            if not begun and before == self._limits.max_packets_before_frame:
                raise InvalidAudio(f"the first {before} packets hold no audio frame")
            if packet is not None and packet.pos is not None:
                self._last = packet.pos + packet.size
            for frame in self._frames_of(decoder, packet):
                begun = True
                yield decoder.track, frame

    def _frames_of(self, decoder: TrackDecoder, packet: "Packet[Any] | None") -> list[TimedFrame]:
        """Decode a packet. Of several tracks one that cannot be heard does not end the others."""
        try:
            return decoder.decode(packet)
        except InvalidAudio:
            decoder.refused = True
            if all(one.refused for one in self._decoders.values()):
                raise
            return []

    def _packets(self) -> "Iterator[tuple[TrackDecoder, Packet[Any] | None]]":
        decoders = self._decoders
        try:
            for packet in self._container.demux([decoder.stream for decoder in decoders.values()]):
                yield decoders[packet.stream.index], packet  # stream_index is 0 of those that flush
        except av.error.FFmpegError:
            self._cut = True
            for decoder in decoders.values():
                yield decoder, None  # flushes the decoder, as at the end of a whole file
        except IndexError:
            return  # PyAV raises it at the end for streams that appeared late; ours are flushed by then

    def _is_left_out(self, packet: "Packet[Any]") -> bool:
        """Return whether a look at the recording for speech passes this packet over."""
        at_s = 0.0 if packet.pts is None else packet.pts * self._usual.tick_s
        return at_s > LOOKED_WHOLE_S and at_s % LOOK_EVERY_S > LOOK_S


@contextmanager
def opened_part(
    source: PartSource,
    limits: DecodeLimits,
    ledger: Ledger,
    *,
    live: bool = False,
    track: int | None = None,
    together: bool = False,
    sparse: bool = False,
) -> Iterator[Part]:
    """Open the recording in *source*, all its tracks *together* or one. See recording().

    Raises EmptyAudio, UndecodableAudio, InvalidAudio, NoAudioStream, UnknownTrack.
    """
    with ExitStack() as stack:
        try:
            yield _open_tracks(stack, source, limits, ledger, track, live=live, together=together, sparse=sparse)
        except av.error.FFmpegError as error:
            raise InvalidAudio("the audio in this container cannot be decoded") from error


def _open_tracks(
    stack: ExitStack,
    source: PartSource,
    limits: DecodeLimits,
    ledger: Ledger,
    number: int | None,
    *,
    live: bool,
    together: bool,
    sparse: bool,
) -> Part:
    """Open all tracks *together*, track *number*, or with None the first that has a frame, in the order of players."""
    damaged: list[Track] = []
    while True:
        container = stack.enter_context(_open(source, live=live))
        tracks = audio_tracks(container, limits)
        wanted = heard_tracks(tracks, number)[len(damaged) :]
        heard = wanted if together else wanted[:1]
        try:
            opened = Part(source, container, limits, ledger, heard=heard, tracks=tracks, sparse=sparse)
        except (InvalidAudio, av.error.FFmpegError):
            if live or len(wanted) == 1:
                raise
            damaged.append(wanted[0])
            stack.close()
            source.seek(0)
            continue
        ledger.damaged += [track.name for track in damaged]
        return opened


def missing_demuxers() -> list[str]:
    """Return the demuxers of INPUT_FORMATS that the installed FFmpeg lacks. `scribewire doctor` shows them."""
    installed = {name for names in av.formats_available for name in names.split(",")}
    return sorted({kind.demuxer for kind in INPUT_FORMATS} - installed)


def _open(source: PartSource, *, live: bool) -> InputContainer:
    options = {
        "protocol_whitelist": "file",
        "format_whitelist": ",".join(sorted(DEMUXERS)),
        "codec_whitelist": ",".join(_AUDIO_DECODERS),  # so that no picture and no film is decoded
    }
    if live:
        options["probesize"] = "4096"  # bytes; by default FFmpeg waits for up to 5 MB
    try:
        # Where FFmpeg can seek, it takes the last of several chunks of sound for the only one.
        file = _InOrder(source) if len(source.data_chunks) > 1 else source
        return av.open(file, "r", options=options, io_open=_refuse, metadata_errors="replace", buffer_size=READ_BYTES)
    except av.error.FFmpegError as error:
        if not source.head:
            raise EmptyAudio("the file has no bytes") from None
        if has_signature(source.head):
            raise InvalidAudio("the file is broken or cut off before its first audio frame") from error
        foreign = foreign_name(source.head)
        said = "these bytes are no audio container we know" + (f", but {foreign}" if foreign else "")
        raise UndecodableAudio(said) from error


class _InOrder:
    """A source that FFmpeg reads from beginning to end."""

    def __init__(self, source: PartSource) -> None:
        self.read = source.read


def _refuse(*_: object) -> NoReturn:
    """Refuse to open a file or address that a recording refers to."""
    raise av.error.PermissionError(EPERM, "a recording may not open other files")


def _states_length(source: PartSource, container: InputContainer) -> bool:
    if len(source.data_chunks) > 1:
        return False  # FFmpeg knows the first alone
    if container.format.name == "mp3":
        return mp3_states_length(source.head, source.size)
    return container.format.name not in GUESSED_LENGTH


def _audio_decoders() -> Iterator[str]:
    for name in sorted(av.codecs_available):
        try:
            codec = av.Codec(name, "r")
        except av.codec.codec.UnknownCodecError:
            continue  # it can only encode
        if codec.type == "audio":
            yield name


_AUDIO_DECODERS = tuple(_audio_decoders())
