"""Decodes the packets of one track, with PyAV, and counts those that cannot be decoded. part.py reads the packets."""

from typing import TypeAlias

import av.error
from av.audio.codeccontext import AudioCodecContext
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.packet import Packet

from pipeline.errors import InvalidAudio
from pipeline.ingest.containers import UNTIMED, DecodeLimits, stored_bits
from pipeline.ingest.ledger import Ledger
from pipeline.ingest.tracks import Track

TimedFrame: TypeAlias = tuple[AudioFrame, float | None]
"""A frame, and the time in seconds at which it begins; None: unknown."""

TAGS = (b"ID3", b"TAG", b"APETAGEX")
"""What a packet begins with that is a tag between joined files instead of audio."""

ENCRYPTED_TAGS = frozenset({"drms", "aavd"})
"""Sample descriptions of MP4 files that iTunes and Audible sell. Their packets do not say that they are encrypted."""

ENCRYPTED = "the audio of this file is encrypted: send a copy without encryption (DRM)"


class TrackDecoder:
    """Follows one track. What cannot be decoded is entered into the ledger, once a frame follows."""

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
        if _tag_of(stream) in ENCRYPTED_TAGS:
            raise InvalidAudio(ENCRYPTED)
        self._context = _wav_context(stream.codec_context, head) if container == "wav" else stream.codec_context
        self.track = track
        self.stream = stream
        self.tick_s = float(stream.time_base or 0)  # of the time stamps
        self.begun = False  # was a frame decoded?
        self.refused = False  # was InvalidAudio raised?
        self.skipped = 0  # bad packets with frames behind them
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
        try:
            frames = self._open(packet)
        except av.error.FFmpegError:
            if packet is not None and not (data := bytes(packet)).startswith(TAGS):
                self._padding += not data.strip(b"\0")
                self._broken += 1
                self._broken_s += (packet.duration or 0) * self.tick_s
            return []
        if frames and self._broken:
            self._skip()
        return [(frame, self._at_s(frame)) for frame in frames]

    def _at_s(self, frame: AudioFrame) -> float | None:
        """Return when a frame begins. Raises InvalidAudio beyond the limits."""
        rate, channels, limits = frame.sample_rate, frame.layout.nb_channels, self._limits
        if not limits.lowest_rate <= rate <= limits.highest_rate:
            raise InvalidAudio(f"{rate} Hz is outside {limits.lowest_rate}..{limits.highest_rate}")
        if not 1 <= channels <= limits.max_channels:
            raise InvalidAudio(f"{channels} channels are more than {limits.max_channels}")
        self.begun = True
        if self._timed:
            return None if frame.pts is None or not self.tick_s else frame.pts * self.tick_s
        at_s = self._clock_s
        self._clock_s += frame.samples / rate
        return at_s

    def _open(self, packet: "Packet[AudioStream] | None") -> list[AudioFrame]:
        """Decode a packet. Raises FFmpegError, and InvalidAudio if the recording is encrypted."""
        # It takes 2 us, so it is asked up to the first frame. Later packets that are encrypted cannot be decoded.
        if not self.begun and packet is not None and packet.has_sidedata("encryption_info"):
            raise InvalidAudio(ENCRYPTED)
        return self._context.decode(packet)

    def _skip(self) -> None:
        """Enter the bad packets, since a frame follows them."""
        self.skipped += self._broken
        self._ledger.skipped += self._broken
        self._ledger.skipped_s += self._broken_s
        self._clock_s += self._broken_s
        self._broken, self._padding, self._broken_s = 0, 0, 0.0


def _wav_context(context: AudioCodecContext, head: bytes) -> AudioCodecContext:
    """Return the decoder for the samples of a WAV file, of which FFmpeg mistakes two kinds. Raises InvalidAudio.

    It takes those of RIFX for little-endian ones, and whole numbers of 24 bits in 32 for floats.
    """
    name = context.codec.name
    if name in ("pcm_s24le", "pcm_f24le") and stored_bits(head) == 32:  # noqa: PLR2004  bits
        return _decoder("pcm_s32le", context)
    if not head.startswith(b"RIFX") or name.startswith(("pcm_u8", "pcm_mulaw", "pcm_alaw")):
        return context
    if not name.startswith("pcm_") or not name.endswith("le"):
        raise InvalidAudio(f"this is a big-endian WAV file (RIFX) of {name}: send it as RIFF")
    return _decoder(f"{name.removesuffix('le')}be", context)


def _decoder(name: str, context: AudioCodecContext) -> AudioCodecContext:
    made = AudioCodecContext.create(name, "r")
    assert isinstance(made, AudioCodecContext)
    made.sample_rate, made.layout = context.sample_rate, context.layout
    return made


def _tag_of(stream: AudioStream) -> str:
    """Return the four letters by which the container names the codec; none where they are no letters."""
    try:
        return stream.codec_context.codec_tag
    except UnicodeDecodeError:
        return ""
