"""The messages between the server and a decoding process, and how they are written as bytes.

The server sends one DecodeOrder. The process answers Opened, then samples, then Done, or Failed at any point. A
message is one byte of kind, four of length, and the payload. The process reads untrusted bytes, so its messages are
not trusted either: there are no pickles, no payload exceeds MAX_BYTES, and only the errors in ERRORS are accepted.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from struct import Struct
from typing import Any, Self, TypeAlias

import numpy as np
import orjson
from msgspec import DecodeError, convert
from msgspec.json import Decoder

from pipeline.audio import Samples
from pipeline.errors import (
    AudioTooLong,
    EmptyAudio,
    InvalidAudio,
    NoAudioStream,
    PipelineError,
    UndecodableAudio,
    UnknownTrack,
)
from pipeline.ingest.containers import DecodeLimits, Probe, length_or_none
from pipeline.ingest.encodings import RawAudio
from pipeline.ingest.pieces import TrackPiece
from pipeline.ingest.tracks import AUTO, MAX_TEXT, TrackChoice

HEAD = Struct("<cI")
"""The kind and the length of the payload."""

PIECE_HEAD = Struct("<BBq")
"""Of a TrackPiece: its track, how many columns its samples have (0: one dimension), and where it begins."""

MAX_BYTES = 1 << 20
"""The largest payload: 16 s of samples. Usually a payload has one second."""

ERRORS = {error.__name__: error for error in (EmptyAudio, InvalidAudio, NoAudioStream, UndecodableAudio, UnknownTrack)}
"""The errors of a recording, except AudioTooLong, which has members of its own."""


OUT_OF_MEMORY = 3
"""The exit code of a process that ran out of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeOrder:
    """The order to a decoding process about the source that comes with it."""

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


class MalformedMessage(ValueError):
    """These bytes are not a message."""


@dataclass(frozen=True, slots=True)
class Opened:
    probe: Probe


@dataclass(frozen=True, slots=True)
class Done:
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    error: PipelineError


_read_probe = Decoder(Probe).decode
_read_notes = Decoder(tuple[str, ...]).decode

Message: TypeAlias = Opened | Samples | TrackPiece | Done | Failed


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
    if kind == b"S":
        return _samples(memoryview(payload))
    if kind == b"T":
        return _piece(memoryview(payload))
    try:
        if kind == b"O":
            return Opened(_clean_probe(_read_probe(payload)))
        return Done(_read_notes(payload)) if kind == b"D" else Failed(_error(orjson.loads(payload)))
    except (DecodeError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise MalformedMessage("not what a decoder says") from error


def _samples(payload: memoryview) -> Samples:
    if not payload or len(payload) % 4:
        raise MalformedMessage("not whole samples")
    return np.frombuffer(payload, np.float32)


def _piece(payload: memoryview) -> TrackPiece:
    if len(payload) <= PIECE_HEAD.size:
        raise MalformedMessage("no samples")
    track, columns, start = PIECE_HEAD.unpack(payload[: PIECE_HEAD.size])
    samples = _samples(payload[PIECE_HEAD.size :])
    if not columns:
        return TrackPiece(track, start, samples)
    if len(samples) % columns:
        raise MalformedMessage("not whole rows")
    return TrackPiece(track, start, samples.reshape(-1, columns))


def _clean_probe(probe: Probe) -> Probe:
    """Return the facts with what is for people cut and cleaned, and without a length that no recording can have."""
    length_s = length_or_none(probe.duration_s)
    return replace(
        probe,
        duration_s=length_s,
        duration_stated=length_s is not None and probe.duration_stated,
        layout=probe.layout[:MAX_TEXT],
        tracks=tuple(
            replace(
                track,
                codec=_text(track.codec),
                layout=track.layout[:MAX_TEXT],
                language=_text(track.language),
                title=_text(track.title),
                duration_s=length_or_none(track.duration_s),
            )
            for track in probe.tracks
        ),
    )


def _text(value: str | None) -> str | None:
    """Return a text of the file for people to read, on one line."""
    return None if value is None else " ".join(value[:MAX_TEXT].split()) or None


def _error(fields: Mapping[str, Any]) -> PipelineError:
    message = str(fields["message"])
    if fields["error"] == AudioTooLong.__name__:
        facts = fields["facts"]
        return AudioTooLong(message, limit_s=float(facts["limit_s"]), actual_s=float(facts["actual_s"]))
    return ERRORS[fields["error"]](message)
