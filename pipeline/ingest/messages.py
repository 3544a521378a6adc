"""The messages between the server and a decoding process, and how they are written as bytes.

The server sends DecodeOptions. The process answers Opened, then samples, then Done, or Failed at any point. A message
is one byte of kind, four of length, and the payload. The process reads untrusted bytes, so its messages are not trusted
either: there are no pickles, no payload exceeds MAX_BYTES, and only the errors in ERRORS are accepted.
"""

import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self, TypeAlias

import numpy as np
import orjson
from msgspec import DecodeError, convert
from msgspec.json import Decoder

from pipeline.audio import Samples, position
from pipeline.errors import (
    AudioTooLong,
    EmptyAudio,
    InvalidAudio,
    NoAudioStream,
    PipelineError,
    UndecodableAudio,
    UnknownTrack,
)
from pipeline.ingest.input_formats import AUTO, MAX_TEXT, DecodeLimits, Probe, RawAudio, TrackChoice, length_or_none

HEAD = struct.Struct("<cI")
"""The kind and the length of the payload."""

PIECE_HEAD = struct.Struct("<BBq")
"""Of a TrackPiece: its track, how many columns its samples have (0: one dimension), and where it begins."""

MAX_BYTES = 1 << 20
"""The largest payload: 16 s of samples. Usually a payload has one second."""

ERRORS = {error.__name__: error for error in (EmptyAudio, InvalidAudio, NoAudioStream, UndecodableAudio, UnknownTrack)}
"""The errors of a recording, except AudioTooLong, which has members of its own."""

OUT_OF_MEMORY = 3
"""The exit code of a process that ran out of memory."""

LONGEST_HOLE = position(600)
"""The longest gap that is filled unless the file states a length that has room for it. A longer one means that a clock
was set, not that time passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeOptions:
    """What a decoding process is to make of the source that comes with them."""

    limits: DecodeLimits
    live: bool
    stall_s: float  # CPU time without a sample after which the kernel ends the process
    cpu_s: int | None  # CPU time for everything; None: no limit, for live streams
    separate: bool = False  # the channels side by side; False: all of them mixed
    track: TrackChoice = AUTO
    several: bool = False  # all tracks of a live stream, as TrackPieces
    raw: RawAudio | None = None  # what a file without a header holds
    sparse: bool = False  # leave most of a long recording out: enough to find out whether somebody speaks

    def to_line(self) -> bytes:
        return orjson.dumps({"start": asdict(self)}) + b"\n"

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Self:
        return convert(fields, cls)


@dataclass(frozen=True, slots=True)
class Opened:
    probe: Probe


@dataclass(frozen=True, slots=True)
class TrackPiece:
    """Samples of one of several tracks: 1..RATE of them, of shape (n,) or (n, columns)."""

    track: int  # its number, from 1
    start: int  # the position of the first, on the clock of all tracks. Before it is the track's last piece, or silence
    samples: Samples


@dataclass(frozen=True, slots=True)
class Done:
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    error: PipelineError


Message: TypeAlias = Opened | Samples | TrackPiece | Done | Failed


class MalformedMessage(ValueError):
    """These bytes are not a message."""


_read_probe = Decoder(Probe).decode
_read_notes = Decoder(tuple[str, ...]).decode


def pack(message: Message) -> bytes:
    """Return the message as bytes, ready to send."""
    match message:
        case Opened(probe):
            kind, payload = b"O", orjson.dumps(asdict(probe))
        case Done(notes):
            kind, payload = b"D", orjson.dumps(notes)
        case Failed(error):
            fields = {"error": type(error).__name__, "message": str(error), "facts": vars(error)}
            kind, payload = b"F", orjson.dumps(fields)
        case TrackPiece(track, start, samples):
            columns = 0 if samples.ndim == 1 else samples.shape[1]
            kind, payload = b"T", PIECE_HEAD.pack(track, columns, start) + samples.tobytes()
        case samples:
            kind, payload = b"S", samples.tobytes()
    return HEAD.pack(kind, len(payload)) + payload


def length_of(head: bytes | bytearray) -> tuple[bytes, int]:
    """Return the kind and the length of the payload that follows *head*. Raises MalformedMessage."""
    kind, length = HEAD.unpack(head)
    if kind not in (b"O", b"S", b"T", b"D", b"F") or length > MAX_BYTES:
        raise MalformedMessage(f"kind {kind!r}, {length} bytes")
    return kind, length


def unpack(kind: bytes, payload: bytes | bytearray) -> Message:
    """Return the message of this kind and payload. Raises MalformedMessage."""
    try:
        match kind:
            case b"S":
                return _samples(memoryview(payload))
            case b"T":
                track, columns, start = PIECE_HEAD.unpack_from(payload)
                samples = _samples(memoryview(payload)[PIECE_HEAD.size :])
                return TrackPiece(track, start, samples.reshape(-1, columns) if columns else samples)
            case b"O":
                return Opened(_clean(_read_probe(payload)))
            case b"D":
                return Done(_read_notes(payload))
        fields = orjson.loads(payload)
        message = str(fields["message"])
        if fields["error"] == AudioTooLong.__name__:
            limit_s, actual_s = (float(fields["facts"][name]) for name in ("limit_s", "actual_s"))
            return Failed(AudioTooLong(message, limit_s=limit_s, actual_s=actual_s))
        return Failed(ERRORS[fields["error"]](message))
    except (DecodeError, ValueError, TypeError, KeyError, AttributeError, struct.error) as error:
        raise MalformedMessage("not what a decoder says") from error


def _samples(payload: memoryview) -> Samples:
    if not payload:
        raise MalformedMessage("no samples")
    return np.frombuffer(payload, np.float32)


def _clean(probe: Probe) -> Probe:
    """Return the facts with what is for people on one line and cut, and without lengths that no recording can have."""

    def text(value: str | None) -> str | None:
        return None if value is None else " ".join(value[:MAX_TEXT].split()) or None

    length_s = length_or_none(probe.duration_s)
    return replace(
        probe,
        duration_s=length_s,
        duration_stated=length_s is not None and probe.duration_stated,
        layout=probe.layout[:MAX_TEXT],
        tracks=tuple(
            replace(
                track,
                codec=text(track.codec),
                layout=track.layout[:MAX_TEXT],
                language=text(track.language),
                title=text(track.title),
                duration_s=length_or_none(track.duration_s),
            )
            for track in probe.tracks
        ),
    )
