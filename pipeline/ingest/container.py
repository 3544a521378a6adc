"""Opens one container with PyAV, finds its audio tracks, and decodes their frames.

The bytes are untrusted. They are read through a file object without a name, by a list of demuxers and audio decoders,
without any way to open other files. A file may hold several containers one after another: decode.py opens each.
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
from av.audio.codeccontext import AudioCodecContext
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.container import InputContainer
from av.packet import Packet
from av.stream import Disposition

from pipeline.audio import position
from pipeline.errors import EmptyAudio, InvalidAudio, NoAudioStream, UndecodableAudio, UnknownTrack
from pipeline.ingest.input_formats import (
    ASIDE,
    DEMUXERS,
    GUESSED_LENGTH,
    INPUT_FORMATS,
    ISO_MEDIA,
    LENGTH_OF_ALL,
    MAX_TEXT,
    NAMES,
    TRACK_MODES,
    UNTIMED,
    DecodeLimits,
    Probe,
    Track,
    by_preference,
    foreign_name,
    has_signature,
    length_or_none,
    mp3_states_length,
    stored_bits,
)
from pipeline.ingest.notes import Ledger
from pipeline.ingest.source import READ_BYTES, ContainerSource

LOOKED_WHOLE_S, LOOK_S, LOOK_EVERY_S = 600.0, 10.0, 60.0
"""What a sparse recording has: its first ten minutes, and of each later minute ten seconds."""

ENDS_EXACTLY = frozenset({"wav", "aiff", "au", ISO_MEDIA, "matroska,webm", "flac", "tta"})
"""Containers of which every byte after the last packet is known: a tag, an index, or foreign."""

WHOLE_S = 0.1
"""A recording that lacks no more than this of its stated length is whole."""

LENGTH_FROM_SIZE = frozenset({"avi", "caf", "asf", "asf_o", "w64"})
"""Containers whose length FFmpeg guesses from the size of the file if no other container is known to follow."""

CUSTOM_ORDERS = frozenset({ISO_MEDIA, "caf", "aiff"})
"""Containers that may name each channel."""

TAGS = (b"ID3", b"TAG", b"APETAGEX")
"""What a packet begins with that is a tag between joined files instead of audio."""

ENCRYPTED_TAGS = frozenset({"drms", "aavd"})
"""Sample descriptions of MP4 files that iTunes and Audible sell. Their packets do not say that they are encrypted."""

ENCRYPTED = "The audio of this file is encrypted. Send a copy without encryption (DRM)."
UNDECODABLE = "The audio in this container cannot be decoded. Convert it to another format, such as FLAC or MP3."

TimedFrame: TypeAlias = tuple[AudioFrame, float | None]
"""A frame, and the time in seconds at which it begins; None: unknown."""

TrackFrame: TypeAlias = tuple[Track, TimedFrame]


class OpenContainer:
    """An open container whose first frame is decoded. Its frames can be iterated once."""

    def __init__(
        self,
        source: ContainerSource,
        container: InputContainer,
        limits: DecodeLimits,
        ledger: Ledger,
        *,
        chosen: Sequence[Track],
        tracks: Sequence[Track],
        sparse: bool,
    ) -> None:
        """Decode the first frame of the *chosen* tracks, among all *tracks*. Raises InvalidAudio."""
        self._source = source
        self._size = source.size  # as FFmpeg knows it
        self._container = container
        self._alone = len(container.streams) == 1
        self.chosen = chosen
        self.tracks = tracks
        self._sparse = sparse
        self._timed = container.format.name not in UNTIMED
        self._limits = limits
        self._ledger = ledger
        self._last: int | None = None  # where the last packet ends
        self._cut = False
        streams = [container.streams.audio[track.number - 1] for track in chosen]
        wanted = {stream.index for stream in streams}
        for stream in container.streams:
            if stream.index not in wanted:
                stream.discard = av.stream.Discard.all
        self._decoders: dict[int, TrackDecoder] = {}
        for track, stream in zip(chosen, streams, strict=True):
            stream.codec_context.thread_count = 1  # more do not help audio, and PyAV would start one per core
            decoder = TrackDecoder(track, stream, container.format.name, limits, ledger, head=source.head)
            self._decoders[stream.index] = decoder
        self._usual = next(iter(self._decoders.values()))
        frames = self._decode()
        first = next(frames, None)
        if first is None:
            raise InvalidAudio("The file has no audio frame that can be decoded. Convert it to another format.")
        self._frames = chain((first,), frames)
        self.probe = self._probe(*first)

    def frames(self) -> Iterator[TrackFrame]:
        """Yield the frames of all chosen tracks, as they come. Raises InvalidAudio."""
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
        """The facts about this container, and a guess at the length of all if others are known to follow."""
        share = self._source.share
        length_s = self.probe.duration_s
        if share == 1.0:
            return self.probe
        return replace(self.probe, duration_s=length_s and length_s / share, duration_stated=False)

    def account_for_length(self, decoded: int) -> None:
        """Enter into the ledger what is missing, once at most *decoded* samples of this container are all there are."""
        guessed = self._container.format.name in LENGTH_FROM_SIZE and self._source.size != self._size
        stated_s = self.probe.duration_s if self.probe.duration_stated and not guessed else None
        decoders = self._decoders.values()
        skipped = any(one.skipped for one in decoders)
        if stated_s is not None and not skipped and decoded < position(0.99 * stated_s - 0.5):
            self._cut = True
            self._ledger.cut_off += position(stated_s) - decoded
        elif stated_s is not None and decoded >= position(stated_s - WHOLE_S):
            self._cut = False  # FFmpeg only took what follows the audio for a part of it
        missing = self._source.missing()
        self._ledger.cut_bytes += missing
        self._ledger.cut |= self._cut or missing > 0 or any(one.begun and one.is_cut for one in decoders)
        self._ledger.damaged += [one.track.name for one in decoders if one.is_undecodable]

    def account_for_tail(self) -> None:
        """Enter the bytes after the audio, up to the next container, that are neither tags nor padding."""
        whole = self._source.seekable() or self._alone  # else the rest may be of another stream
        if self._last is not None and whole and self._container.format.name in ENDS_EXACTLY:
            self._ledger.leave_out(self._source.foreign_tail(self._last), "They come after the end of its audio.")

    def _probe(self, track: Track, first: TimedFrame) -> Probe:
        """Return the facts about the usual track, of which a frame of another *track* says little."""
        usual, container, (frame, at_s) = self._usual, self._container, first
        stream, own = usual.stream, track is usual.track
        all_s = length_or_none(container.duration / av.time_base) if container.duration else None
        own_s = whole_s = None
        if stream.duration and usual.tick_s and container.format.name not in LENGTH_OF_ALL:
            length_s = stream.duration * usual.tick_s
            late_s = 0.0 if at_s is None or self.start_s is None else max(0.0, at_s - self.start_s)
            if late_s > 0 and container.duration and length_s >= container.duration / av.time_base:
                whole_s = all_s  # FFmpeg gives a stream that states no length, and begins late, that of the whole
            else:
                own_s = length_or_none(length_s + late_s)
        else:
            whole_s = all_s  # of a film, whose sound may end before its pictures
        states_length = container.format.name not in GUESSED_LENGTH
        if container.format.name == "mp3":
            states_length = mp3_states_length(self._source.head, self._source.size)
        if usual.is_mistaken or len(self._source.data_chunks) > 1:  # of which FFmpeg knows the first alone
            states_length = False
        return Probe(
            format=NAMES.get(container.format.name, container.format.name),
            codec=stream.codec_context.codec.canonical_name,
            rate=frame.sample_rate if own else usual.track.rate,
            channels=frame.layout.nb_channels if own else usual.track.channels,
            duration_s=own_s or whole_s,
            duration_stated=states_length and bool(own_s or (whole_s and len(container.streams) == 1)),
            layout=frame.layout.name if own else usual.track.layout,
            track=usual.track.number,
            tracks=tuple(self.tracks),
        )

    def _decode(self) -> Iterator[TrackFrame]:
        """Yield the frames of all packets. Of several tracks one that cannot be decoded does not end the others."""
        begun = False
        for before, (decoder, packet) in enumerate(self._packets()):
            if packet is not None and self._sparse:
                at_s = 0.0 if packet.pts is None else packet.pts * self._usual.tick_s
                if at_s > LOOKED_WHOLE_S and at_s % LOOK_EVERY_S > LOOK_S:
                    continue
            if not begun and before == self._limits.max_packets_before_frame:
                raise InvalidAudio(f"The first {before} packets of the file hold no audio frame.")
            if packet is not None and packet.pos is not None:
                self._last = packet.pos + packet.size
            try:
                frames = decoder.decode(packet)
            except InvalidAudio:
                decoder.refused = True
                if all(one.refused for one in self._decoders.values()):
                    raise
                continue
            for frame in frames:
                begun = True
                yield decoder.track, frame

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


# --- opening ---------------------------------------------------------------------------------------------------------


@contextmanager
def opened_container(
    source: ContainerSource,
    limits: DecodeLimits,
    ledger: Ledger,
    *,
    live: bool = False,
    track: int | None = None,
    together: bool = False,
    sparse: bool = False,
) -> Iterator[OpenContainer]:
    """Open the container in *source*: all its tracks *together*, or *track*, or with None the first that has a frame.

    They are tried in the order of players. See recording() of decode.py.

    Raises EmptyAudio, UndecodableAudio, InvalidAudio, NoAudioStream, UnknownTrack.
    """
    damaged: list[Track] = []
    with ExitStack() as stack:
        try:
            while True:
                container = stack.enter_context(_open(source, live=live))
                tracks = _audio_tracks(container, limits)
                wanted = _wanted_tracks(tracks, track)[len(damaged) :]
                chosen = wanted if together else wanted[:1]
                try:
                    opened = OpenContainer(
                        source, container, limits, ledger, chosen=chosen, tracks=tracks, sparse=sparse
                    )
                    break
                except (InvalidAudio, av.error.FFmpegError):
                    if live or len(wanted) == 1:
                        raise
                damaged.append(wanted[0])
                stack.close()
                source.seek(0)
            ledger.damaged += [one.name for one in damaged]
            yield opened
        except av.error.FFmpegError as error:
            raise InvalidAudio(UNDECODABLE) from error


def missing_demuxers() -> list[str]:
    """Return the demuxers of INPUT_FORMATS that the installed FFmpeg lacks. `scribewire doctor` shows them."""
    installed = {name for names in av.formats_available for name in names.split(",")}
    return sorted({kind.demuxer for kind in INPUT_FORMATS} - installed)


class _InOrder:
    """A source that FFmpeg reads from beginning to end."""

    def __init__(self, source: ContainerSource) -> None:
        self.read = source.read


def _open(source: ContainerSource, *, live: bool) -> InputContainer:
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
            raise EmptyAudio("The file has no bytes.") from None
        if has_signature(source.head):
            raise InvalidAudio("The file is broken or cut off before its first audio frame.") from error
        if (foreign := foreign_name(source.head)) is not None:
            raise UndecodableAudio(f"This is no audio, but {foreign}") from error
        advice = "Convert it, for example with `ffmpeg -i FILE talk.flac`."
        raise UndecodableAudio(f"The file is in no known audio format. {advice}") from error


def _refuse(*_: object) -> NoReturn:
    """Refuse to open a file or address that a recording refers to."""
    raise av.error.PermissionError(EPERM, "a recording may not open other files")


def _audio_decoders() -> Iterator[str]:
    for name in sorted(av.codecs_available):
        try:
            codec = av.Codec(name, "r")
        except av.codec.codec.UnknownCodecError:
            continue  # it can only encode
        if codec.type == "audio":
            yield name


_AUDIO_DECODERS = tuple(_audio_decoders())


# --- tracks ----------------------------------------------------------------------------------------------------------

_ASIDE = Disposition.comment | Disposition.visual_impaired | Disposition.hearing_impaired | Disposition.descriptions


def _audio_tracks(container: InputContainer, limits: DecodeLimits) -> tuple[Track, ...]:
    """Return all audio tracks. Raises InvalidAudio for a container with none or too many streams, NoAudioStream."""
    count = len(container.streams)
    if count == 0:
        raise InvalidAudio("The file has no audio or video in it.")
    if count > limits.max_streams:
        raise InvalidAudio(f"The file holds {count} tracks. At most {limits.max_streams} are accepted.")
    if not container.streams.audio:
        raise NoAudioStream("The file has no audio track.")
    for stream in container.streams.audio:
        context = stream.codec_context
        if container.format.name in CUSTOM_ORDERS and context is not None and context.codec.name.startswith("pcm_"):
            # Field recorders name channels one by one, and PyAV 18 frees such names twice. It looks at them once here.
            context.layout = f"{context.channels} channels"
    return tuple(_described(number, stream) for number, stream in enumerate(container.streams.audio, 1))


def _wanted_tracks(tracks: Sequence[Track], number: int | None) -> list[Track]:
    """Return the track *number*, or with None all that can be decoded, the one first that players choose.

    Raises UnknownTrack, UndecodableAudio.
    """
    if number is not None and not 1 <= number <= len(tracks):
        names = ", ".join(track.name for track in tracks)
        count = "one audio track" if len(tracks) == 1 else f"{len(tracks)} audio tracks"
        advice = f"Give one of these numbers, or {', '.join(TRACK_MODES)}."
        raise UnknownTrack(f"The recording has {count} ({names}), and no track {number}. {advice}")
    wanted = by_preference(tracks if number is None else tracks[number - 1 : number])
    if not wanted:
        raise UndecodableAudio("There is no decoder for the audio in this container. Convert it to another format.")
    return wanted


def _described(number: int, stream: AudioStream) -> Track:
    context, tags = stream.codec_context, stream.metadata
    title = tags.get("title") or tags.get("name")
    handler = tags.get("handler_name")  # the name that an MP4 file gives a track, or of the program that wrote it
    usual = ("handler", "media", "sound", "audio", "core", "stereo", "mono")
    if not title and handler is not None and not any(word in handler.lower() for word in usual):
        title = handler
    language = tags.get("language")
    flags = stream.disposition
    return Track(
        number=number,
        codec=None if context is None else context.codec.canonical_name,
        rate=0 if context is None else context.sample_rate or 0,
        channels=0 if context is None else context.channels or 0,
        layout="" if context is None or not context.channels else context.layout.name,
        language=language[:MAX_TEXT] if language and language != "und" else None,
        title=title[:MAX_TEXT] if title else None,
        default=bool(flags & Disposition.default),
        aside=bool(flags & _ASIDE) or (title is not None and ASIDE.search(title) is not None),
        duration_s=length_or_none(float(stream.duration * stream.time_base))
        if stream.duration and stream.time_base
        else None,
    )


class TrackDecoder:
    """Decodes the packets of one track. What cannot be decoded is entered into the ledger, once a frame follows."""

    def __init__(
        self,
        track: Track,
        stream: AudioStream,
        container: str,
        limits: DecodeLimits,
        ledger: Ledger,
        *,
        head: bytes = b"",
    ) -> None:
        """*container* is FFmpeg's name of its format, *head* its first bytes.

        Raises InvalidAudio if it says that the track is encrypted, or of a codec in an unknown order of bytes.
        """
        try:
            tag = stream.codec_context.codec_tag
        except UnicodeDecodeError:
            tag = ""  # its four bytes are no letters
        if tag in ENCRYPTED_TAGS:
            raise InvalidAudio(ENCRYPTED)
        self._context = _wav_context(stream.codec_context, head) if container == "wav" else stream.codec_context
        self.track = track
        self.stream = stream
        self.tick_s = float(stream.time_base or 0)  # of the time stamps
        self.begun = False  # was a frame decoded?
        self.refused = False  # was InvalidAudio raised?
        self.skipped = 0  # bad packets with frames after them
        self._came = False  # did a packet come?
        self._timed = container not in UNTIMED
        self._limits = limits
        self._ledger = ledger
        self._broken = 0  # bad packets since a frame: skipped if a frame follows, else the end is cut
        self._padding = 0  # those of them that hold zeros alone, which are no loss at the end
        self._broken_s = self._clock_s = 0.0  # their length; the time of the next frame if there are no time stamps

    @property
    def is_mistaken(self) -> bool:
        """Whether FFmpeg takes its samples for another kind, and so has a wrong idea of their number."""
        return self._context is not self.stream.codec_context

    @property
    def is_cut(self) -> bool:
        """Whether bad packets are the last ones so far."""
        return self._broken > self._padding

    @property
    def is_undecodable(self) -> bool:
        """Whether packets came, and none of them could be decoded."""
        return self.refused or (self._came and not self.begun)

    def decode(self, packet: "Packet[AudioStream] | None") -> list[TimedFrame]:
        """Return the frames that a packet completes; None flushes the decoder. Raises InvalidAudio."""
        if self.refused:
            return []
        self._came |= packet is not None and packet.size > 0
        # It takes 2 us, so it is asked up to the first frame. Later packets that are encrypted cannot be decoded.
        if not self.begun and packet is not None and packet.has_sidedata("encryption_info"):
            raise InvalidAudio(ENCRYPTED)
        try:
            frames = self._context.decode(packet)
        except av.error.FFmpegError:
            if packet is not None and not (data := bytes(packet)).startswith(TAGS):
                self._padding += not data.strip(b"\0")
                self._broken += 1
                self._broken_s += (packet.duration or 0) * self.tick_s
            return []
        if frames and self._broken:
            self.skipped += self._broken
            self._ledger.skipped += self._broken
            self._ledger.skipped_s += self._broken_s
            self._clock_s += self._broken_s
            self._broken, self._padding, self._broken_s = 0, 0, 0.0
        return [(frame, self._at_s(frame)) for frame in frames]

    def _at_s(self, frame: AudioFrame) -> float | None:
        """Return when a frame begins. Raises InvalidAudio beyond the limits."""
        rate, channels, limits = frame.sample_rate, frame.layout.nb_channels, self._limits
        if not limits.lowest_rate <= rate <= limits.highest_rate:
            accepted = f"{limits.lowest_rate} to {limits.highest_rate} Hz are accepted"
            raise InvalidAudio(f"The audio has a rate of {rate} Hz. {accepted}.")
        if not 1 <= channels <= limits.max_channels:
            raise InvalidAudio(f"The audio has {channels} channels. At most {limits.max_channels} are accepted.")
        self.begun = True
        if self._timed:
            return None if frame.pts is None or not self.tick_s else frame.pts * self.tick_s
        at_s = self._clock_s
        self._clock_s += frame.samples / rate
        return at_s


def _wav_context(context: AudioCodecContext, head: bytes) -> AudioCodecContext:
    """Return the decoder for the samples of a WAV file, of which FFmpeg mistakes two kinds. Raises InvalidAudio.

    It takes those of RIFX for little-endian ones, and whole numbers of 24 bits in 32 for floats.
    """
    name = context.codec.name
    if name in ("pcm_s24le", "pcm_f24le") and stored_bits(head) == 32:  # noqa: PLR2004  bits
        right = "pcm_s32le"
    elif not head.startswith(b"RIFX") or name.startswith(("pcm_u8", "pcm_mulaw", "pcm_alaw")):
        return context
    elif not name.startswith("pcm_") or not name.endswith("le"):
        raise InvalidAudio(f"This is a big-endian WAV file (RIFX) of {name}. Send it as RIFF.")
    else:
        right = f"{name.removesuffix('le')}be"
    made = AudioCodecContext.create(right, "r")
    assert isinstance(made, AudioCodecContext)
    made.sample_rate, made.layout = context.sample_rate, context.layout
    return made
