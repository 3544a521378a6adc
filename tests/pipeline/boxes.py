"""MP4 files whose index claims far more samples than there are."""

import struct

from tests.pipeline.sounds import encode_audio, tone

INSIDE = (b"moov", b"trak", b"mdia", b"minf", b"stbl")  # boxes that hold others


def mp4_of_samples(count: int) -> bytes:
    """Return an MP4 file of some kilobytes with a second of sound, whose `stsz` box gives *count* samples of one size.

    FFmpeg makes an entry of its index for each of them before it reads the first.
    """
    return _rebuild(encode_audio(tone(1.0), "mp4", "aac"), count)


def _rebuild(data: bytes, count: int) -> bytes:
    out, at = b"", 0
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        size = size or len(data) - at
        body = data[at + 8 : at + size]
        if kind in INSIDE:
            body = _rebuild(body, count)
        elif kind == b"stsz":  # version and flags, the size of every sample, their number
            body = struct.pack(">III", 0, struct.unpack_from(">I", body, 12)[0], count)
        elif kind == b"stts":  # one entry: so many samples of 1024 ticks
            body = struct.pack(">IIII", 0, 1, count, 1024)
        elif kind == b"stsc":  # one entry: from chunk 1 on, so many samples a chunk, description 1
            body = struct.pack(">IIIII", 0, 1, 1, count, 1)
        elif kind == b"stco":  # one chunk, where the first one was
            body = struct.pack(">II", 0, 1) + body[8:12]
        out += struct.pack(">I4s", len(body) + 8, kind) + body
        at += size
    return out
