"""Turns any audio file, or a growing stream of its bytes, into float32 samples at RATE.

Only this module and resampling.py use PyAV. The bytes are untrusted. They are read through a file object without a
name, by a list of demuxers and audio decoders, without any way to open other files. cell.py calls this module in a
separate process.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from errno import EINVAL, EPERM
from itertools import chain
from typing import Any, NoReturn, Protocol

import av
import av.codec.codec
import av.error
import av.stream
import av.subtitles.codeccontext  # PyAV would load these at the first film or subtitle: too late in a confined process
import av.subtitles.stream
import av.video.codeccontext
import av.video.stream
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.container import InputContainer
from av.packet import Packet

from pipeline.audio import RATE, Samples, position
from pipeline.errors import AudioTooLong, EmptyAudio, InvalidAudio, UndecodableAudio
from pipeline.ingest.containers import (
    DEMUXERS,
    GUESSED_LENGTH,
    INPUT_FORMATS,
    LENGTH_OF_ALL,
    NAMES,
    DecodeLimits,
    Probe,
    has_signature,
    length_or_none,
    mp3_states_length,
)
from pipeline.ingest.focus import focus_on
from pipeline.ingest.resampling import ChannelResampler, MonoResampler, kind_of, pick_of, with_focus
from pipeline.ingest.track_streams import audio_tracks, hear_alone, heard_tracks
from pipeline.ingest.tracks import UNDECODABLE_TRACK, Track

TRUNCATED = "audio_truncated"
"""Note: the file ends before the end that its header states."""
SKIPPED = "frames_skipped"
"""Note: frames that could not be decoded were left out."""
FILLED = "gaps_filled"
"""Note: gaps in the recording were filled with silence."""

HOLE = position(0.1)
"""The shortest gap between the end of a frame and the time stamp of the next one that is filled with silence, so that
words keep their place. Shorter gaps come from rounded time stamps, or from a decoder that drops its first frame."""

LONGEST_HOLE = position(600)
"""The longest gap that is filled. A longer one means that a clock was set, not that time passed."""

OVERLAP = position(1)
"""The most by which a time stamp may lie before the end of the last frame. More means that a clock was set back."""

LOOKED_WHOLE_S, LOOK_S, LOOK_EVERY_S = 600.0, 10.0, 60.0
"""What a sparse recording has: its first ten minutes, and of each later minute ten seconds."""

UNKNOWN_RIFF = 0x7FFF_0000
"""Programs that do not know the size of a WAV file write about 2 or 4 GB. Sizes from here on are ignored."""

_BUFFER_BYTES = 65_536


class ByteSource(Protocol):
    """The source of a recording: a seekable file, or a pipe whose read() waits for more."""

    def read(self, size: int, /) -> bytes | None:
        """Return 1..size bytes, or none at the end."""
        ...

    def seekable(self) -> bool: ...
    def seek(self, offset: int, whence: int = 0, /) -> int: ...
    def tell(self) -> int: ...


class OpenRecording:
    """An open recording whose first frame is decoded. It can be iterated once; *notes* are complete after that.

    The samples of a file come in arrays of RATE samples; the last one is shorter. Those of a live stream come as soon
    as possible. Arrays have the shape (n, channels) if the channels are separate, otherwise (n,). Iterating raises
    InvalidAudio, and AudioTooLong one second of audio after the limit.
    """

    def __init__(
        self,
        source: "_Nameless",
        container: InputContainer,
        limits: DecodeLimits,
        *,
        track: Track,
        tracks: Sequence[Track],
        live: bool = False,
        separate: bool = False,
        sparse: bool = False,
        focus: int | None = None,
    ) -> None:
        """Decode the first frame of *track*, one of *tracks*. Raises InvalidAudio."""
        self._container = container
        self._track, self._tracks = track, tracks
        self._stream = hear_alone(container, track)
        self._sparse = sparse
        self._tick_s = float(self._stream.time_base or 0)  # of the frames' time stamps
        self._limits = limits
        self._live = live
        self._truncated = source.cut_off
        self._skipped = 0
        self._filled = 0
        self.damaged: tuple[Track, ...] = ()  # tracks that players would choose rather, without a frame
        frames = self._decode()
        first = next(frames, None)
        if first is None:
            raise InvalidAudio("no audio frame could be decoded")
        self._separate = first.layout.nb_channels if separate else None
        self._focus = focus_on(first.layout.name, first.layout.nb_channels, focus)
        self._columns = 2 if self._focus is not None else self._separate  # None: arrays have one dimension
        self._frames = chain((first,), frames)
        self.probe = self._probe(first, stated=_states_length(source, container))

    @property
    def notes(self) -> tuple[str, ...]:
        """Codes of the notes about this recording for readers of its transcript."""
        found = ((TRUNCATED, self._truncated), (SKIPPED, self._skipped), (FILLED, self._filled))
        damaged = (f"{UNDECODABLE_TRACK}: Track {track.name} cannot be decoded." for track in self.damaged)
        return (*(note for note, happened in found if happened), *damaged)

    def __iter__(self) -> Iterator[Samples]:
        samples = self._resample()
        longest_s, decoded = self._limits.longest_s, 0
        for chunk in _slice(samples) if self._live else _even_out(samples):
            decoded += len(chunk)
            if longest_s is not None and decoded > position(longest_s) + RATE:
                message = f"the recording is longer than {longest_s:g} s"
                raise AudioTooLong(message, limit_s=longest_s, actual_s=decoded / RATE)
            yield chunk
        self._compare_with_header(decoded)

    def _probe(self, first: AudioFrame, *, stated: bool) -> Probe:
        stream, container = self._stream, self._container
        own_s = whole_s = None
        if stream.duration and self._tick_s and container.format.name not in LENGTH_OF_ALL:
            own_s = length_or_none(stream.duration * self._tick_s + self._lead(first) / RATE)
        elif container.duration:  # of a film, whose sound may end before its pictures
            whole_s = length_or_none(container.duration / av.time_base)
        return Probe(
            format=NAMES.get(container.format.name, container.format.name),
            codec=stream.codec_context.codec.canonical_name,
            rate=first.sample_rate,
            channels=first.layout.nb_channels,
            duration_s=own_s or whole_s,
            duration_stated=stated and bool(own_s or (whole_s and len(container.streams) == 1)),
            layout=first.layout.name,
            focused=self._focus is not None,
            track=self._track.number,
            tracks=tuple(self._tracks),
        )

    def _resample(self) -> Iterator[Samples]:
        """Yield the samples of all frames, with silence where the recording has gaps."""
        run: MonoResampler | ChannelResampler | None = None
        due_s: float | None = None
        for frame in self._frames:
            at_s = self._at_s(frame)
            if run is None:
                yield self._silence(self._lead(frame))
            elif (hole := _hole(at_s, due_s)) or not run.takes(frame):
                yield run.flush()
                yield self._silence(hole)
                self._filled += hole > 0
                run = None
            if run is None:
                run = self._run(frame)
            begins_s = at_s if due_s is None or _is_off(at_s, due_s) else due_s
            due_s = None if begins_s is None else begins_s + frame.samples / frame.sample_rate
            yield run.resample(frame)
        if run is not None:
            yield run.flush()

    def _run(self, frame: AudioFrame) -> "MonoResampler | ChannelResampler":
        """Return the resampler for *frame* and all frames of its kind."""
        block, channels = 1 if self._live else frame.sample_rate, frame.layout.nb_channels
        if self._separate is not None:
            picks = [pick_of(channel, channels) for channel in range(self._separate)]
            return ChannelResampler([MonoResampler(*kind_of(frame), block=block, pick=pick) for pick in picks])
        if self._focus is not None:
            return with_focus(frame, self._focus, block=block)
        return MonoResampler(*kind_of(frame), block=block)

    def _silence(self, length: int) -> Samples:
        return np.zeros(length if self._columns is None else (length, self._columns), np.float32)

    def _at_s(self, frame: AudioFrame) -> float | None:
        """Return the time at which *frame* begins, in seconds by its time stamp, or None."""
        return None if frame.pts is None or not self._tick_s else frame.pts * self._tick_s

    def _lead(self, first: AudioFrame) -> int:
        """Return the samples of silence before the first frame: players start at the first time stamp of any stream."""
        start = self._container.start_time
        return 0 if start is None else _hole(self._at_s(first), start / av.time_base)

    def _decode(self) -> Iterator[AudioFrame]:
        """Yield the frames, and count the packets that cannot be decoded. Raises InvalidAudio beyond the limits."""
        broken = 0  # bad packets since a frame: skipped if a frame follows, else the end is cut
        begun = False
        for before, packet in enumerate(self._packets()):
            if self._sparse and packet is not None and self._is_left_out(packet):
                continue
            if not begun and before == self._limits.max_packets_before_frame:
                raise InvalidAudio(f"the first {before} packets hold no audio frame")
            try:
                frames = self._stream.codec_context.decode(packet)
            except av.error.FFmpegError:
                broken += 1
                continue
            for frame in frames:
                _admit(frame.sample_rate, frame.layout.nb_channels, self._limits)
                self._skipped, broken, begun = self._skipped + broken, 0, True
                yield frame
        self._truncated |= broken > 0

    def _packets(self) -> "Iterator[Packet[AudioStream] | None]":
        try:
            yield from self._container.demux(self._stream)
        except av.error.FFmpegError:
            self._truncated = True
            yield None  # flushes the decoder, as at the end of a whole file
        except IndexError:
            return  # PyAV raises it at the end for streams that appeared late; ours is flushed by then

    def _is_left_out(self, packet: "Packet[AudioStream]") -> bool:
        """Return whether a look at the recording for speech passes this packet over."""
        at_s = 0.0 if packet.pts is None else packet.pts * self._tick_s
        return at_s > LOOKED_WHOLE_S and at_s % LOOK_EVERY_S > LOOK_S

    def _compare_with_header(self, decoded: int) -> None:
        """Note a cut if the samples are clearly fewer than the header states, and no frames were left out."""
        stated_s = self.probe.duration_s if self.probe.duration_stated else None
        if stated_s is not None and not self._skipped:
            self._truncated |= decoded < position(0.99 * stated_s - 0.5)


class _Nameless:
    """A source that cannot be written to, and has no name from which FFmpeg could choose a reader."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self.head = b""  # the first bytes read
        self.size = source.seek(0, os.SEEK_END) if source.seekable() else None
        if self.size is not None:
            source.seek(0)
        self.seekable = source.seekable
        self.tell = source.tell

    def read(self, size: int) -> bytes:
        data = self._source.read(size) or b""
        self.head = self.head or data
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        """Seek and return the new position, or a negative error number if a broken file points outside itself."""
        try:
            return self._source.seek(offset, whence)
        except (OSError, ValueError):
            return -EINVAL

    @property
    def cut_off(self) -> bool:
        """Whether a WAV or AVI file is shorter than its header states. FFmpeg corrects that without a warning."""
        if self.size is None or not self.head.startswith(b"RIFF"):
            return False
        stated = int.from_bytes(self.head[4:8], "little") + 8
        return self.size + 4096 < stated < UNKNOWN_RIFF  # some programs are wrong by the size of a header


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
) -> Iterator[OpenRecording]:
    """Open the recording in *source*: its channels mixed, or side by side if they are *separate*.

    *live* starts after a few kilobytes instead of reading far ahead.
    *track* is the number of an audio track; None: the one that players choose, or the next that can be decoded.
    *sparse* leaves out most of a long recording.
    *focus* is a channel that comes beside the mix, or CENTRE: that of surround sound, if there is one. It needs
    channels that are not *separate*.

    Raises EmptyAudio, UndecodableAudio, InvalidAudio, NoAudioStream, UnknownTrack.
    """
    with ExitStack() as stack:
        try:
            yield _open_track(stack, source, limits, track, live=live, separate=separate, sparse=sparse, focus=focus)
        except av.error.FFmpegError as error:
            raise InvalidAudio("the audio in this container cannot be decoded") from error


def _open_track(
    stack: ExitStack, source: ByteSource, limits: DecodeLimits, number: int | None, *, live: bool, **how: Any
) -> OpenRecording:
    """Open track *number*, or with None the first that has a frame, in the order of players."""
    damaged: list[Track] = []
    while True:
        nameless = _Nameless(source)
        container = stack.enter_context(_open(nameless, live=live))
        tracks = audio_tracks(container, limits)
        wanted = heard_tracks(tracks, number)[len(damaged) :]
        try:
            opened = OpenRecording(nameless, container, limits, track=wanted[0], tracks=tracks, live=live, **how)
        except (InvalidAudio, av.error.FFmpegError):
            if live or len(wanted) == 1:
                raise
            damaged.append(wanted[0])
            stack.close()
            continue
        opened.damaged = tuple(damaged)
        return opened


def missing_demuxers() -> list[str]:
    """Return the demuxers of INPUT_FORMATS that the installed FFmpeg lacks. `scribewire doctor` shows them."""
    installed = {name for names in av.formats_available for name in names.split(",")}
    return sorted({kind.demuxer for kind in INPUT_FORMATS} - installed)


def _open(source: _Nameless, *, live: bool) -> InputContainer:
    options = {
        "protocol_whitelist": "file",
        "format_whitelist": ",".join(sorted(DEMUXERS)),
        "codec_whitelist": ",".join(_AUDIO_DECODERS),  # so that no picture and no film is decoded
    }
    if live:
        options["probesize"] = "4096"  # bytes; by default FFmpeg waits for up to 5 MB
    try:
        return av.open(
            source, "r", options=options, io_open=_refuse, metadata_errors="replace", buffer_size=_BUFFER_BYTES
        )
    except av.error.FFmpegError as error:
        if not source.head:
            raise EmptyAudio("the file has no bytes") from None
        if has_signature(source.head):
            raise InvalidAudio("the file is broken or cut off before its first audio frame") from error
        raise UndecodableAudio("these bytes are no audio container we know") from error


def _refuse(*_: object) -> NoReturn:
    """Refuse to open a file or address that a recording refers to."""
    raise av.error.PermissionError(EPERM, "a recording may not open other files")


def _admit(rate: int, channels: int, limits: DecodeLimits) -> None:
    if not limits.lowest_rate <= rate <= limits.highest_rate:
        raise InvalidAudio(f"{rate} Hz is outside {limits.lowest_rate}..{limits.highest_rate}")
    if not 1 <= channels <= limits.max_channels:
        raise InvalidAudio(f"{channels} channels are more than {limits.max_channels}")


def _slice(arrays: Iterable[Samples]) -> Iterator[Samples]:
    """Yield the same samples in arrays of 1..RATE."""
    for samples in arrays:
        for at in range(0, len(samples), RATE):
            yield samples[at : at + RATE]


def _even_out(arrays: Iterable[Samples]) -> Iterator[Samples]:
    """Yield the same samples in arrays of RATE; the last one may be shorter."""
    buffer: Samples | None = None
    for samples in _slice(arrays):
        buffer = samples if buffer is None else np.concatenate((buffer, samples))
        if len(buffer) >= RATE:
            yield buffer[:RATE]
            buffer = buffer[RATE:]
    if buffer is not None and len(buffer):
        yield buffer


def _hole(at_s: float | None, due_s: float | None) -> int:
    """Return the samples between where a frame was due and where it begins, or 0 if the gap is not to be filled."""
    gap = 0 if at_s is None or due_s is None else position(at_s - due_s)
    return gap if HOLE <= gap <= LONGEST_HOLE else 0


def _is_off(at_s: float | None, due_s: float) -> bool:
    """Return whether the time stamp *at_s* of a frame differs so much from the expected time *due_s* that it counts.

    Otherwise the expected time counts, so that small differences add up. If each lost packet of 20 ms were ignored, all
    later words would be early.
    """
    return at_s is not None and not -OVERLAP <= position(at_s - due_s) < HOLE


def _states_length(source: _Nameless, container: InputContainer) -> bool:
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
