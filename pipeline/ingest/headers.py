"""Finds where one recording ends and the next begins in the bytes of a file: people join recordings by `cat`.

A header counts only with so many fixed bytes that compressed audio does not have them by chance.
"""

import re
from collections.abc import Callable
from typing import Literal

import numpy as np

Peek = Callable[[int, int], bytes]
"""Returns the bytes of a file at a position, at most so many."""

LONGEST_HEADER = 64
"""Every header is recognised by at most so many bytes."""

_HEADERS = (
    rb"(?:RIFF|RIFX|RF64|BW64).{4}(?:WAVE[A-Za-z0-9_]{3}[A-Za-z0-9_ ]|AVI LIST)",
    rb"riff\x2e\x91\xcf\x11\xa5\xd6\x28\xdb",  # Wave64
    rb"FORM.{4}AIF[FC][A-Z(]",
    rb"(?<=\0\0\0[\x14-\x80])ftyp[A-Za-z0-9 ._-]{4}",  # MP4 and its kin; the size of the box is before it
    # not the copy of it in the headers of Ogg and Matroska
    rb"(?<!\x7fFLAC.{4})(?<!\x63\xa2.)(?<!\x63\xa2..)(?<!\x63\xa2.{4})(?<!\x63\xa2.{8})fLaC[\0\x80]\0\0\x22",
    rb"OggS\0\x02\0{8}.{12}\x01[\x01-\xfe][\x01\x7f\x80OSFf]",  # the first page of a stream, and its first byte
    rb"\x1a\x45\xdf\xa3[\x01\x40-\xff].{0,44}?\x42\x82[\x84\x88](?:webm|matroska)",
    rb"\x30\x26\xb2\x75\x8e\x66\xcf\x11\xa6\xd9\0\xaa\0\x62\xce\x6c",  # ASF
    rb"caff\0\x01\0\0desc",
    rb"#!AMR(?:-WB)?\n",
    rb"\.snd\0\0.{6}\0\0\0[\x01-\x1b]\0[\0-\x0f]",
    rb"FLV\x01[\x01\x04\x05]\0\0\0\x09\0{4}",
    rb"\.RMF\0\0\0[\x10-\x20]\0[\0\x01]",
    rb"TTA1[\x01\x02]\0[\x01-\x08]\0",
    rb"MAC [\x6e-\xff]\x0f",
    rb"wvpk.{4}[\x02-\x10]\x04.{6}\0{4}.{4}.[\x08-\x0f\x18-\x1f\x28-\x2f\x88-\x8f]",  # the first block of WavPack
    rb"ID3[\x02-\x04]\0[\0\x10\x20\x40\x60\x80\xa0\xc0].[\0-\x7f]{3}[A-Z][A-Z0-9]{2}",  # a tag before MP3
    rb"MPCKSH|DSD \x1c\0{7}|Creative Voice File\x1a",
)
_HEADER = re.compile(b"|".join(_HEADERS), re.DOTALL)

_STARTS = (
    *b"RIFF RIFX RF64 BW64 riff FORM ftyp fLaC OggS \x1a\x45\xdf\xa3 \x30\x26\xb2\x75 caff #!AM".split(),
    *b".snd FLV\x01 .RMF TTA1 MPCK Crea wvpk".split(),
    b"MAC ",
    b"DSD ",
    b"ID3\x03",
)
"""The first four bytes of every header."""

RIFF: dict[bytes, Literal["little", "big"]] = {b"RIFF": "little", b"RIFX": "big"}
"""The order of bytes in WAV files."""

MOST_CHUNKS = 1000
"""So many chunks of a WAV file are looked at."""

_BOXES = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip")
_EBML = b"\x1a\x45\xdf\xa3"
_ID3 = re.compile(rb"ID3[\0-\4].(.)([\0-\x7f]{4})", re.DOTALL)
_CHUNK = re.compile(rb"[A-Za-z0-9_()]{3}[A-Za-z0-9_() ].{4}", re.DOTALL)

BOX_HEAD_BYTES = 8
FEW_BYTES = 16  # behind the audio are no loss: some programs write a size there
ID3V1_BYTES = 128
APE_HEAD_BYTES = 32

_LOOK_BEHIND = 4  # the size of an MP4's first box


def _pairs() -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Return which pairs of bytes, as little-endian numbers, are in a start at an even place of the file."""
    table = np.zeros(1 << 16, np.bool_)
    for start in _STARTS:
        for pair in (start[0:2], start[1:3]):
            table[int.from_bytes(pair, "little")] = True
    return table


_PAIRS = _pairs()


def find_header(data: bytes, past: int, *, tags: bool = True) -> int | None:
    """Return where in *data* the header of a recording begins, the first one beyond *past*; None if there is none.

    MP3 and ADTS files hold tags between their frames: there *tags* are no headers.

    Whatever the place of a header, two of its first three bytes are an even pair, and few pairs of audio are among
    those. A regular expression alone takes ten times as long.
    """
    pairs = np.frombuffer(data, "<u2", len(data) // 2)
    for place in np.flatnonzero(_PAIRS[pairs]).tolist():
        for start in (2 * place, 2 * place - 1):
            if start < 0 or (found := _HEADER.match(data, start)) is None:
                continue
            if found[0].startswith(b"ID3") and not tags:
                continue
            begins = start - _LOOK_BEHIND if found[0].startswith(b"ftyp") else start
            if begins > past:
                return begins
    return None


def starts_with_header(head: bytes) -> bool:
    """Return whether *head*, at least LONGEST_HEADER bytes if the file has so many, begins with a header."""
    return find_header(b"\0" + head, 0) == 1


def header_at(peek: Peek, at: int) -> bool:
    """Return whether the header of a recording begins at this position."""
    head = peek(at, LONGEST_HEADER)
    return starts_with_header(head) or head[4:8] in _BOXES


def own_header(head: bytes) -> int:
    """Return where the header of a recording that begins with *head* stands: the last one that is not a further one.

    An ID3v2 tag may stand before any container. Ogg has a header for each of its streams, all of them first.
    """
    at = _id3_length(head)
    while (page := _HEADER.match(head, at)) is not None and page[0].startswith(b"OggS"):
        following = at + 28 + head[at + 27]
        if _HEADER.match(head, following) is None:
            break
        at = following
    return at


def _id3_length(head: bytes) -> int:
    """Return the length of the ID3v2 tag that *head* begins with, or 0."""
    found = _ID3.match(head)
    if found is None:
        return 0
    flags, *sevens = b"".join(found.groups())
    length = sum(seven << 7 * place for place, seven in enumerate(reversed(sevens)))
    return 10 + length + (10 if flags & 0x10 else 0)  # a foot may repeat the head


def stated_end(peek: Peek, start: int, size: int) -> int | None:
    """Return where the recording that begins at *start* ends, by the sizes that its container states, or None.

    The sizes count only if they lead to the end of the file or to another header. Programs that do not know a size
    write any number.
    """
    head = peek(start, 20)
    if head[:4] in RIFF and head[8:12] == b"WAVE":
        end = start + 8 + int.from_bytes(head[4:8], RIFF[head[:4]])
    elif head[:4] == b"FORM":
        end = start + 8 + int.from_bytes(head[4:8])
    elif head[4:8] in _BOXES:
        end = _end_of_boxes(peek, start, size)
    elif head[:4] == _EBML:
        end = end_of_segment(peek, start)
    else:
        return None
    return next((at for at in (end, end + end % 2) if at > start and (at == size or header_at(peek, at))), None)


def data_chunks(peek: Peek, start: int, size: int) -> list[int]:
    """Return the sizes of the chunks of sound in the WAV file that begins at *start*; none if it is no WAV file.

    A recorder that was paused, or an editor, may write several.
    """
    head, found = peek(start, 12), list[int]()
    if head[:4] not in RIFF or head[8:12] != b"WAVE":
        return []
    at, chunks = start + 12, 0
    while (chunk := peek(at, 8)) and chunks < MOST_CHUNKS and at + 8 <= size:
        length = int.from_bytes(chunk[4:], RIFF[head[:4]])
        found += [length] if chunk[:4] == b"data" else []
        at, chunks = at + 8 + length + length % 2, chunks + 1
    return found


def foreign_bytes(peek: Peek, start: int, at: int, end: int) -> int:
    """Return how many bytes up to *end* are neither boxes, chunks, tags nor zeros.

    *start* is where the recording begins, *at* where its audio ends.
    """
    head = peek(start, 12)
    if head[4:8] in _BOXES:
        at = max(at, _end_of_boxes(peek, start, end))
    elif head[:4] == _EBML:
        if (segment := end_of_segment(peek, start)) < at:
            return 0  # it ends where the file does
        at = segment
    while at < end:
        length = _tag_length(peek(at, 32), end - at)
        if length == 0:
            zeros = peek(at, 4096)
            length = len(zeros) - len(zeros.lstrip(b"\0"))
        if length == 0:
            return end - at if end - at > FEW_BYTES else 0
        at += length
    return 0


def _tag_length(head: bytes, most: int) -> int:
    """Return the length of the tag or chunk that *head* begins with, 0 if there is none of at most so many bytes."""
    if head.startswith(b"TAG"):
        length = ID3V1_BYTES
    elif head.startswith(b"APETAGEX"):
        begins = int.from_bytes(head[20:24], "little") & 1 << 29  # else it ends here
        length = APE_HEAD_BYTES + (int.from_bytes(head[12:16], "little") if begins else 0)
    elif (length := _id3_length(head)) == 0 and _CHUNK.match(head):
        sizes = (int.from_bytes(head[4:8], "little"), int.from_bytes(head[4:8], "big"))
        lengths = (8 + size + size % 2 for size in sizes)
        length = next((one for one in lengths if one <= most + 1), 0)
    return length if length <= most + 1 else 0


def _end_of_boxes(peek: Peek, start: int, size: int) -> int:
    """Return where the boxes of an MP4 file end: at the second file type, or at what is no box, or cut off."""
    at, seen, complete = start, set[bytes](), start  # where the first sound and its index are over
    while at + BOX_HEAD_BYTES <= size:
        head = peek(at, 16)
        length, kind = int.from_bytes(head[:4]), head[4:8]
        if length == 1:
            length = int.from_bytes(head[8:])
        elif length == 0 and kind == b"mdat":
            return size
        if kind == b"moov" and kind in seen and complete > start and not seen & {b"ftyp", b"moof"}:
            return complete  # QuickTime files without a file type
        if (kind == b"ftyp" and at > start) or not kind.isascii() or not BOX_HEAD_BYTES <= length <= size - at:
            return at
        at += length
        seen.add(kind)
        if complete == start and {b"moov", b"mdat"} <= seen:
            complete = at
    return at


def end_of_segment(peek: Peek, start: int) -> int:
    """Return where the Segment of a Matroska file ends; -1 if it states no size, or of another file."""
    head = peek(start, 4 + 8)
    if head[:4] != _EBML:
        return -1
    at = start + 4 + _vint_length(head[4:])
    at += _vint(head[4:])
    segment = peek(at, 12)
    if segment[:4] != b"\x18\x53\x80\x67":
        return -1
    length, width = _vint(segment[4:]), _vint_length(segment[4:])
    return -1 if length == (1 << 7 * width) - 1 else at + 4 + width + length


def _vint_length(data: bytes) -> int:
    return 9 - data[0].bit_length() if data and data[0] else 1


def _vint(data: bytes) -> int:
    width = _vint_length(data)
    return int.from_bytes(data[:width]) & ((1 << 7 * width) - 1)
