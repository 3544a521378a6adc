"""Opens one recording and decodes its frames, with PyAV; resampling.py and track_streams.py use it too.

The bytes are untrusted. They are read through a file object without a name, by a list of demuxers and audio decoders,
without any way to open other files.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from errno import EPERM
from itertools import chain
from typing import NoReturn

import av
import av.codec.codec
import av.error
import av.stream
import av.subtitles.codeccontext  # PyAV would load these at the first film or subtitle: too late in a confined process
import av.subtitles.stream
import av.video.codeccontext
import av.video.stream
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.container import InputContainer
from av.packet import Packet

from pipeline.audio import position
from pipeline.errors import EmptyAudio, InvalidAudio, UndecodableAudio
from pipeline.ingest.containers import (
    DEMUXERS,
    GUESSED_LENGTH,
    INPUT_FORMATS,
    LENGTH_OF_ALL,
    NAMES,
    UNTIMED,
    DecodeLimits,
    Probe,
    has_signature,
    length_or_none,
    mp3_states_length,
    wav_bytes_missing,
)
from pipeline.ingest.foreign import foreign_name
from pipeline.ingest.ledger import Ledger
from pipeline.ingest.source import READ_BYTES, PartSource
from pipeline.ingest.track_streams import audio_tracks, hear_alone, heard_tracks
from pipeline.ingest.tracks import Track

LOOKED_WHOLE_S, LOOK_S, LOOK_EVERY_S = 600.0, 10.0, 60.0
"""What a sparse recording has: its first ten minutes, and of each later minute ten seconds."""

ENDS_EXACTLY = frozenset({"wav", "aiff", "au", "mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm", "flac", "tta"})
"""Containers of which every byte behind the last packet is known: a tag, an index, or foreign."""

LENGTH_FROM_SIZE = frozenset({"avi", "caf", "asf", "asf_o"})
"""Containers whose length FFmpeg guesses from the size of the file if no other recording is known to follow."""

TAGS = (b"ID3", b"TAG", b"APETAGEX")
"""What a packet begins with that is a tag between joined files instead of audio."""

ENCRYPTED_TAGS = frozenset({"drms", "aavd"})
"""Sample descriptions of MP4 files that iTunes and Audible sell. Their packets do not say that they are encrypted."""

ENCRYPTED = "the audio of this file is encrypted: send a copy without encryption (DRM)"


class Part:
    """An open recording whose first frame is decoded. Its frames can be iterated once."""

    def __init__(
        self,
        source: PartSource,
        container: InputContainer,
        limits: DecodeLimits,
        ledger: Ledger,
        *,
        track: Track,
        tracks: Sequence[Track],
        sparse: bool,
    ) -> None:
        """Decode the first frame of *track*, one of *tracks*. Raises InvalidAudio."""
        self._source = source
        self._size = source.size  # as FFmpeg knows it
        self._container = container
        self._alone = len(container.streams) == 1
        self._track, self._tracks = track, tracks
        self._stream = hear_alone(container, track)
        if _tag_of(self._stream) in ENCRYPTED_TAGS:
            raise InvalidAudio(ENCRYPTED)
        self._sparse = sparse
        self._tick_s = float(self._stream.time_base or 0)  # of the frames' time stamps
        self._timed = container.format.name not in UNTIMED
        self._limits = limits
        self._ledger = ledger
        self._last: int | None = None  # where the last packet ends
        self._cut = False
        self._skipped = 0
        frames = self._decode()
        first = next(frames, None)
        if first is None:
            raise InvalidAudio("no audio frame could be decoded")
        self._frames = chain((first,), frames)
        self.probe = self._probe(first[0], first[1])

    def frames(self) -> Iterator[tuple[AudioFrame, float | None]]:
        """Yield the frames, and the time in seconds at which each begins, None if unknown. Raises InvalidAudio."""
        yield from self._frames

    @property
    def start_s(self) -> float | None:
        """The first time stamp of any stream, where players start."""
        start = self._container.start_time if self._timed else None
        return None if start is None else start / av.time_base

    @property
    def end_s(self) -> float | None:
        """The time stamp at which the recording ends, as the container states it; None if it states none."""
        stream = self._stream
        if not self._timed or not self.probe.duration_stated:
            return None
        own_s = 0.0 if stream.duration is None else (stream.duration + (stream.start_time or 0)) * self._tick_s
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
        """Enter into the ledger what is missing, once *decoded* samples of this part are all there are."""
        guessed = self._container.format.name in LENGTH_FROM_SIZE and self._source.size != self._size
        stated_s = self.probe.duration_s if self.probe.duration_stated and not guessed else None
        if stated_s is not None and not self._skipped and decoded < position(0.99 * stated_s - 0.5):
            self._cut = True
            self._ledger.cut_off += position(stated_s) - decoded
        missing = wav_bytes_missing(self._source.head, self._source.size)
        self._ledger.cut_bytes += missing
        self._ledger.cut |= self._cut or missing > 0

    def account_for_tail(self) -> None:
        """Enter the bytes behind the audio, up to the next recording, that are neither tags nor padding."""
        whole = self._source.seekable() or self._alone  # else the rest may be of another stream
        if self._last is not None and whole and self._container.format.name in ENDS_EXACTLY:
            self._ledger.leave_out(self._source.foreign_tail(self._last), "they stand behind its end")

    def _probe(self, first: AudioFrame, at_s: float | None) -> Probe:
        stream, container = self._stream, self._container
        own_s = whole_s = None
        if stream.duration and self._tick_s and container.format.name not in LENGTH_OF_ALL:
            late_s = 0.0 if at_s is None or self.start_s is None else max(0.0, at_s - self.start_s)
            own_s = length_or_none(stream.duration * self._tick_s + late_s)
        elif container.duration:  # of a film, whose sound may end before its pictures
            whole_s = length_or_none(container.duration / av.time_base)
        return Probe(
            format=NAMES.get(container.format.name, container.format.name),
            codec=stream.codec_context.codec.canonical_name,
            rate=first.sample_rate,
            channels=first.layout.nb_channels,
            duration_s=own_s or whole_s,
            duration_stated=_states_length(self._source, container)
            and bool(own_s or (whole_s and len(container.streams) == 1)),
            layout=first.layout.name,
            track=self._track.number,
            tracks=tuple(self._tracks),
        )

    def _decode(self) -> Iterator[tuple[AudioFrame, float | None]]:
        """Yield the frames with their times, and count the packets that cannot be decoded."""
        broken = 0  # bad packets since a frame: skipped if a frame follows, else the end is cut
        padding = 0  # those of them that hold zeros alone, which are no loss at the end
        broken_s = clock_s = 0.0  # their length; the time of the next frame where the container has no time stamps
        begun = False
        for before, packet in enumerate(self._packets()):
            if self._sparse and packet is not None and self._is_left_out(packet):
                continue
            if not begun and before == self._limits.max_packets_before_frame:
                raise InvalidAudio(f"the first {before} packets hold no audio frame")
            if packet is not None and packet.pos is not None:
                self._last = packet.pos + packet.size
            try:
                frames = self._open_packet(packet, begun=begun)
            except av.error.FFmpegError:
                if packet is not None and not (data := bytes(packet)).startswith(TAGS):
                    padding += not data.strip(b"\0")
                    broken += 1
                    broken_s += (packet.duration or 0) * self._tick_s
                continue
            for frame in frames:
                _admit(frame.sample_rate, frame.layout.nb_channels, self._limits)
                self._skipped, begun = self._skipped + broken, True
                self._ledger.skipped += broken
                self._ledger.skipped_s += broken_s
                clock_s += broken_s
                broken, padding, broken_s = 0, 0, 0.0
                yield frame, self._at_s(frame) if self._timed else clock_s
                clock_s += frame.samples / frame.sample_rate
        self._cut |= broken > padding

    def _open_packet(self, packet: "Packet[AudioStream] | None", *, begun: bool) -> list[AudioFrame]:
        """Decode a packet. Raises FFmpegError, and InvalidAudio if the recording begins encrypted."""
        if packet is not None and packet.has_sidedata("encryption_info"):
            if not begun:
                raise InvalidAudio(ENCRYPTED)
            raise av.error.InvalidDataError(EPERM, ENCRYPTED)
        return self._stream.codec_context.decode(packet)

    def _packets(self) -> "Iterator[Packet[AudioStream] | None]":
        try:
            yield from self._container.demux(self._stream)
        except av.error.FFmpegError:
            self._cut = True
            yield None  # flushes the decoder, as at the end of a whole file
        except IndexError:
            return  # PyAV raises it at the end for streams that appeared late; ours is flushed by then

    def _is_left_out(self, packet: "Packet[AudioStream]") -> bool:
        """Return whether a look at the recording for speech passes this packet over."""
        at_s = 0.0 if packet.pts is None else packet.pts * self._tick_s
        return at_s > LOOKED_WHOLE_S and at_s % LOOK_EVERY_S > LOOK_S

    def _at_s(self, frame: AudioFrame) -> float | None:
        return None if frame.pts is None or not self._tick_s else frame.pts * self._tick_s


@contextmanager
def opened_part(
    source: PartSource,
    limits: DecodeLimits,
    ledger: Ledger,
    *,
    live: bool = False,
    track: int | None = None,
    sparse: bool = False,
) -> Iterator[Part]:
    """Open the recording in *source*. See recording().

    Raises EmptyAudio, UndecodableAudio, InvalidAudio, NoAudioStream, UnknownTrack.
    """
    with ExitStack() as stack:
        try:
            yield _open_track(stack, source, limits, ledger, track, live=live, sparse=sparse)
        except av.error.FFmpegError as error:
            raise InvalidAudio("the audio in this container cannot be decoded") from error


def _open_track(
    stack: ExitStack,
    source: PartSource,
    limits: DecodeLimits,
    ledger: Ledger,
    number: int | None,
    *,
    live: bool,
    sparse: bool,
) -> Part:
    """Open track *number*, or with None the first that has a frame, in the order of players."""
    damaged: list[Track] = []
    while True:
        container = stack.enter_context(_open(source, live=live))
        tracks = audio_tracks(container, limits)
        wanted = heard_tracks(tracks, number)[len(damaged) :]
        try:
            opened = Part(source, container, limits, ledger, track=wanted[0], tracks=tracks, sparse=sparse)
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
        return av.open(source, "r", options=options, io_open=_refuse, metadata_errors="replace", buffer_size=READ_BYTES)
    except av.error.FFmpegError as error:
        if not source.head:
            raise EmptyAudio("the file has no bytes") from None
        if has_signature(source.head):
            raise InvalidAudio("the file is broken or cut off before its first audio frame") from error
        foreign = foreign_name(source.head)
        said = "these bytes are no audio container we know" + (f", but {foreign}" if foreign else "")
        raise UndecodableAudio(said) from error


def _refuse(*_: object) -> NoReturn:
    """Refuse to open a file or address that a recording refers to."""
    raise av.error.PermissionError(EPERM, "a recording may not open other files")


def _tag_of(stream: AudioStream) -> str:
    """Return the four letters by which the container names the codec; none where they are no letters."""
    try:
        return stream.codec_context.codec_tag
    except UnicodeDecodeError:
        return ""


def _admit(rate: int, channels: int, limits: DecodeLimits) -> None:
    if not limits.lowest_rate <= rate <= limits.highest_rate:
        raise InvalidAudio(f"{rate} Hz is outside {limits.lowest_rate}..{limits.highest_rate}")
    if not 1 <= channels <= limits.max_channels:
        raise InvalidAudio(f"{channels} channels are more than {limits.max_channels}")


def _states_length(source: PartSource, container: InputContainer) -> bool:
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
