"""The audio that is accepted, and what is known of a recording before it is decoded.

There are 48 file extensions with the demuxers that read them, and four raw encodings. Files are recognised by their
content only; the extensions are for people who read the list. A Probe has the facts about a recording, and a Track
those about one of its audio tracks.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pipeline.languages import language_named


@dataclass(frozen=True, slots=True)
class InputFormat:
    """One kind of input file. *demuxer* is FFmpeg's name of the reader for it."""

    extension: str
    mime: str
    demuxer: str


INPUT_FORMATS = (
    InputFormat("mp3", "audio/mpeg", "mp3"),
    InputFormat("wav", "audio/wav", "wav"),
    InputFormat("m4a", "audio/mp4", "mov"),
    InputFormat("flac", "audio/flac", "flac"),
    InputFormat("ogg", "audio/ogg", "ogg"),
    InputFormat("oga", "audio/ogg", "ogg"),
    InputFormat("opus", "audio/ogg", "ogg"),
    InputFormat("webm", "video/webm", "matroska"),
    InputFormat("weba", "audio/webm", "matroska"),
    InputFormat("mp4", "video/mp4", "mov"),
    InputFormat("mov", "video/quicktime", "mov"),
    InputFormat("mkv", "video/matroska", "matroska"),
    InputFormat("mka", "audio/matroska", "matroska"),
    InputFormat("aac", "audio/aac", "aac"),
    InputFormat("ac3", "audio/ac3", "ac3"),
    InputFormat("eac3", "audio/eac3", "eac3"),
    InputFormat("aiff", "audio/aiff", "aiff"),
    InputFormat("aif", "audio/aiff", "aiff"),
    InputFormat("aifc", "audio/aiff", "aiff"),
    InputFormat("amr", "audio/amr", "amr"),
    InputFormat("ape", "audio/x-ape", "ape"),
    InputFormat("asf", "video/x-ms-asf", "asf"),
    InputFormat("wma", "audio/x-ms-wma", "asf"),
    InputFormat("wmv", "video/x-ms-wmv", "asf"),
    InputFormat("au", "audio/basic", "au"),
    InputFormat("snd", "audio/basic", "au"),
    InputFormat("avi", "video/x-msvideo", "avi"),
    InputFormat("caf", "audio/x-caf", "caf"),
    InputFormat("dts", "audio/vnd.dts", "dts"),
    InputFormat("flv", "video/x-flv", "flv"),
    InputFormat("gsm", "audio/gsm", "gsm"),
    InputFormat("m4b", "audio/mp4", "mov"),
    InputFormat("mp2", "audio/mpeg", "mp3"),
    InputFormat("mpeg", "video/mpeg", "mpeg"),
    InputFormat("mpg", "video/mpeg", "mpeg"),
    InputFormat("mpga", "audio/mpeg", "mp3"),
    InputFormat("ts", "video/mp2t", "mpegts"),
    InputFormat("rm", "application/vnd.rn-realmedia", "rm"),
    InputFormat("ra", "audio/vnd.rn-realaudio", "rm"),
    InputFormat("tta", "audio/x-tta", "tta"),
    InputFormat("voc", "audio/x-voc", "voc"),
    InputFormat("w64", "audio/x-w64", "w64"),
    InputFormat("wv", "audio/x-wavpack", "wv"),
    InputFormat("dsf", "audio/x-dsf", "dsf"),
    InputFormat("3gp", "video/3gpp", "mov"),
    InputFormat("3g2", "video/3gpp2", "mov"),
    InputFormat("mpc", "audio/x-musepack", "mpc"),
    InputFormat("mxf", "application/mxf", "mxf"),
)

Encoding: TypeAlias = Literal["pcm_s16le", "pcm_f32le", "mulaw", "alaw"]

SAMPLE_BYTES: Mapping[Encoding, int] = {"pcm_s16le": 2, "pcm_f32le": 4, "mulaw": 1, "alaw": 1}
"""The bytes of one sample in each encoding."""

RATES = range(8_000, 48_001)
"""Samples a second."""

CHANNELS = range(1, 3)
"""The numbers of channels of mixed audio."""

SEPARATE_CHANNELS = range(2, 9)
"""The numbers of separate channels: as many as a file may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawAudio:
    """What a file without a header holds: interleaved samples."""

    encoding: Encoding = "pcm_s16le"
    rate: int = 16_000
    channels: int = 1


AUTO, MIX, SEPARATE = "auto", "mix", "separate"
TRACK_MODES = (AUTO, MIX, SEPARATE)
ALL_TRACKS = (MIX, SEPARATE)
"""The choices that need all tracks at the same time."""

TrackChoice: TypeAlias = int | str
"""A number from 1, or one of TRACK_MODES: the usual track, all of them mixed, or all of them as separate channels."""

MAX_TEXT = 100
"""Characters of a title or language that are kept."""

ASIDE = re.compile(r"\b(commentary|descri(bed|ptive|ption|ptions))\b", re.IGNORECASE)
"""In the title of a commentary or description, for containers whose tracks have no flags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """An audio track as its container describes it."""

    number: int  # from 1, in the container's order
    codec: str | None = None  # None: there is no decoder
    rate: int = 0  # Hz; 0: not known before decoding
    channels: int = 0  # 0: not known before decoding
    layout: str = ""
    language: str | None = None
    title: str | None = None
    default: bool = False
    aside: bool = False  # a commentary, or a description for people who do not see or hear well
    duration_s: float | None = None  # that the container states

    @property
    def name(self) -> str:
        """What people call it: its number, and in brackets what else tells it apart."""
        known = ", ".join(filter(None, (self.language, self.title)))
        return f"{self.number} ({known})" if known else f"{self.number}"


def by_preference(tracks: Sequence[Track], language: str | None = None) -> list[Track]:
    """Return the tracks that can be decoded, in the order in which players would choose them.

    Those in *language*, the code of the one that is spoken, come first.
    """

    def is_spoken(track: Track) -> bool:
        named = language_named(track.language or "")
        return language is not None and named is not None and named.code == language

    usable = [track for track in tracks if track.codec is not None]
    return sorted(usable, key=lambda one: (one.aside, not is_spoken(one), not one.default, one.number))


def length_or_none(stated_s: float | None) -> float | None:
    """Return the length that a header states, in seconds, or None if no recording can have it.

    A header may contain any number. A negative length would add to the allowance of the account instead of using it.
    """
    return stated_s if stated_s is not None and math.isfinite(stated_s) and stated_s > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeLimits:
    """The limits of a recording."""

    longest_s: float | None = None  # of decoded audio, whatever the header says; None: no limit, for live streams
    max_channels: int = 8  # 7.1 surround sound
    max_tracks: int = 8  # that are decoded at once
    max_streams: int = 32  # each costs buffers; a film has a dozen
    highest_rate: int = 384_000  # the highest that converters are sold with
    lowest_rate: int = 2_000  # at 1 Hz a single frame would become 18 hours of samples
    max_packets_before_frame: int = 1_000  # a decoder that waits for a header needs a few dozen
    first_frame_cpu_s: float = 5.0  # the index of a film of 12 hours takes half a second


@dataclass(frozen=True, slots=True)
class Probe:
    """The facts about a recording that are known once its first frame is decoded."""

    format: str  # mp3, wav, mp4, ogg, matroska, ...
    codec: str
    rate: int
    channels: int  # of the track; with separate tracks their number
    duration_s: float | None  # above 0; None: unknown
    duration_stated: bool  # False: guessed, so it is good for a progress bar but not to refuse a file
    layout: str = ""  # FFmpeg's name of the order of its channels
    several: bool = False  # the samples come as TrackPieces
    track: int = 1  # the one that is decoded, or the first of several
    tracks: tuple[Track, ...] = ()  # all audio tracks


DEMUXERS = frozenset(kind.demuxer for kind in INPUT_FORMATS) | {
    "loas",  # .aac as broadcasters write it
    "dtshd",  # .dts with its newer header
    "mpc8",  # .mpc since version 8
    "asf_o",  # the second reader of .asf
}
"""The only demuxers that may read a user's bytes. None of them opens other files, draws pictures or plays lists."""

ISO_MEDIA = "mov,mp4,m4a,3gp,3g2,mj2"
NAMES = {ISO_MEDIA: "mp4", "matroska,webm": "matroska"}
"""The name shown for a container whose demuxer has several names."""

GUESSED_LENGTH = frozenset({"aac", "ac3", "dts", "dtshd", "eac3", "gsm", "loas", "amr", "mpeg", "mpegts"})
"""Containers that do not state a length. FFmpeg guesses it from the bit rate or the last time stamp."""

UNTIMED = frozenset({"aac", "ac3", "dts", "dtshd", "eac3", "gsm", "loas", "amr", "mp3"})
"""Containers without time stamps. FFmpeg counts frames at the rate of the first one, whatever rate the others have."""

LENGTH_OF_ALL = frozenset({"asf", "asf_o", "avi"})
"""Containers that state one length for all their streams. The sound may end earlier than the picture."""

SIGNATURES = (
    (0, b"ID3"),
    (0, b"RIFF"),
    (0, b"RIFX"),
    (0, b"RF64"),
    (0, b"riff"),
    (0, b"fLaC"),
    (0, b"OggS"),
    (0, b"\x1a\x45\xdf\xa3"),  # Matroska, WebM
    (4, b"ftyp"),
    (4, b"moov"),
    (4, b"mdat"),
    (4, b"wide"),
    (0, b"FORM"),
    (0, b"#!AMR"),
    (0, b"MAC "),
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11"),  # ASF
    (0, b".snd"),
    (0, b"caff"),
    (0, b"FLV\x01"),
    (0, b"\x00\x00\x01\xba"),  # MPEG program stream
    (0, b".RMF"),
    (0, b".ra\xfd"),
    (0, b"TTA1"),
    (0, b"Creative Voice File"),
    (0, b"wvpk"),
    (0, b"DSD "),
    (0, b"MP+"),
    (0, b"MPCK"),
    (0, b"\x06\x0e\x2b\x34"),  # MXF
    (0, b"\x0b\x77"),  # AC-3, E-AC-3
    (0, b"\x7f\xfe\x80\x01"),  # DTS
    (0, b"DTSHDHDR"),
)


def has_signature(head: bytes) -> bool:
    """Return whether *head*, the first bytes of a file (64 are enough), is the beginning of an accepted container.

    It decides how a file that cannot be opened is reported: as broken, or as no known kind of audio.
    """
    return any(head.startswith(signature, offset) for offset, signature in SIGNATURES)


_LATER_PIECE = re.compile(rb"\x1f\x43\xb6\x75|....(moof|mdat|styp|sidx)", re.DOTALL)  # of WebM and of fragmented MP4
_DATA_URL = re.compile(rb"\s*data:[^,]{0,200};\s*base64,", re.IGNORECASE)
_BASE64 = re.compile(rb"\s*[A-Za-z0-9+/_=\r\n-]{64,}\s*")
_MARKUP = re.compile(rb"(\xef\xbb\xbf)?\s*<[!?a-z]", re.IGNORECASE)
_JSON = re.compile(rb"\s*[{\[]\s*[\"{\[\]}]")
_NAMES = {
    _LATER_PIECE: "a later piece of a recording. Send all of it, or each piece with a header.",
    _DATA_URL: "a data URL. Send the bytes that it stands for.",
    _BASE64: "base64 text. Send the bytes that it stands for.",
    _MARKUP: "a page of HTML or XML. Check that the address is that of a recording.",
    _JSON: "JSON. Check that the address is that of a recording.",
}


def foreign_name(head: bytes) -> str | None:
    """Return what a file without audio is, and what to do, from its first bytes; None if that is not known."""
    return next((name for pattern, name in _NAMES.items() if pattern.match(head)), None)


_XING = re.compile(rb"(?:Xing|Info)(.{4})(.{4})(.{4})", re.DOTALL)
"""In the first frame of an MP3: a mark, flags (1: frames follow, 2: bytes follow), the number of frames, of bytes."""


def mp3_states_length(head: bytes, size: int | None) -> bool:
    """Return whether an MP3 of *size* bytes (None: unknown) that begins with *head* states its length.

    A file that is more than a sixteenth larger than it states was joined from several, so the stated length is wrong.
    FFmpeg then guesses it, as it does for a file that states none (mp3_parse_info_tag in libavformat/mp3dec.c).
    """
    found = _XING.search(head)
    if found is None:
        return b"VBRI" in head
    flags, _, stated = (int.from_bytes(field) for field in found.groups())
    joined = flags & 2 and size is not None and (size - found.start()) * 16 > stated * 17
    return bool(flags & 1) and not joined


UNKNOWN_RIFF = 0x7FFF_0000
"""Programs that do not know the size of a WAV file write about 2 or 4 GB. Sizes from here on are ignored."""

WRONG_RIFF = 4096
"""Some programs are wrong by the size of a header."""

WAV_HEADER = 128
"""The bytes of a usual header."""

ROUND_RIFF = (100_000_000, 1 << 26)
"""Other sizes of such programs are multiples of these, with or without the header."""


def wav_bytes_missing(head: bytes, size: int | None) -> int:
    """Return how many bytes a WAV or AVI file of *size* bytes (None: unknown) lacks of those that its header states.

    FFmpeg corrects the length without a word. Programs that do not know the size write 0, a number from 2 GiB on, or a
    round one, such as 1,000,000,000: those state nothing.
    """
    if size is None or not head.startswith((b"RIFF", b"RIFX")):
        return 0
    stated = int.from_bytes(head[4:8], "little" if head.startswith(b"RIFF") else "big")
    is_round = any(unit <= stated and min(stated % unit, -stated % unit) <= WAV_HEADER for unit in ROUND_RIFF)
    known = stated < UNKNOWN_RIFF and not (stated > 2 * size and is_round)
    missing = stated + 8 - size
    return missing if known and missing > WRONG_RIFF else 0


def stored_bits(head: bytes) -> int | None:
    """Return the bits that a sample takes in a WAV file that begins with *head*; None if that is not stated there."""
    at = head.find(b"fmt ", 12)
    bits = int.from_bytes(head[at + 22 : at + 24], "little") if at > 0 else 0
    return bits or None
