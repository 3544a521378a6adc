"""The bytes of a recording as FFmpeg reads them: without a name, and only up to where the next recording begins.

People join recordings by `cat`, so a file may hold several containers one after another. Most begin with a header. It
counts only with so many fixed bytes that compressed audio does not have them by chance. MPEG transport streams need no
header: another one begins where the tables of the stream (ISO 13818-1, 2.4.4) name sounds with other numbers (PIDs).
FFmpeg would take those for further tracks that begin with the first, or would not decode them at all.
"""

import os
import re
from collections.abc import Callable
from errno import EINVAL
from typing import Literal, Protocol

import numpy as np

from pipeline.ingest.input_formats import wav_bytes_missing

READ_BYTES = 65_536

MOST_TAGS = 4096
"""So many bytes after the audio of a live stream may be tags. They have passed when their number is known."""

MOST_SEARCHED = 1 << 30
"""The most bytes of a file that are searched for another header: 2 s of CPU time."""

Peek = Callable[[int, int], bytes]
"""Returns the bytes of a file at a position, at most so many."""


class ByteSource(Protocol):
    """The source of a recording: a seekable file, or a pipe whose read() waits for more."""

    def read(self, size: int, /) -> bytes | None:
        """Return 1..size bytes, or none at the end."""
        ...

    def seekable(self) -> bool: ...
    def seek(self, offset: int, whence: int = 0, /) -> int: ...
    def tell(self) -> int: ...


class ContainerSource:
    """One of the containers that a file or pipe holds one after another; usually there is one.

    It has no name from which FFmpeg could choose a reader, and cannot be written to. Positions begin in it.
    """

    def __init__(self, source: ByteSource, *, start: int = 0, ahead: bytes = b"") -> None:
        """*start* is where it begins in *source*; *ahead* are the bytes from there that were already read of a pipe."""
        self._source = source
        self._ahead = ahead
        self._at = self.start = start
        self.head = b""  # the first bytes read
        self.seekable = source.seekable
        self.end: int | None = None  # where it ends in *source*; None: not known yet
        self._size: int | None = None  # of all containers
        self._join: TransportJoin | None = None  # of a transport stream
        self._tail = b""  # the last bytes that were searched for a header
        self._searched = start
        self._own = start  # where its own header is
        self._tagged = False  # may tags come between its frames?
        self.data_chunks: list[int] = []  # the sizes of those in a WAV file, if it can be sought
        if source.seekable():
            self._size = source.seek(0, os.SEEK_END)
            self.end = _stated_end(self._peek, start, self._size) or _transport_end(self._peek, start, self._size)
            self.data_chunks = _data_chunks(self._peek, start, self.end or self._size)
            source.seek(start)

    @property
    def size(self) -> int | None:
        """The bytes of this container; None if they are not known."""
        end = self._size if self.end is None else self.end
        return None if end is None else end - self.start

    @property
    def share(self) -> float:
        """The share of the whole file that this container is known to be, 1 if no other is known to follow."""
        return 1.0 if self.end is None or not self._size else (self.end - self.start) / self._size

    def tell(self) -> int:
        return self._at - self.start

    def read(self, size: int) -> bytes:
        if self.end is not None:
            size = min(size, self.end - self._at)
        data = b""
        if size > 0 and self._ahead:
            data, self._ahead = self._ahead[:size], self._ahead[size:]
        elif size > 0:
            data = self._source.read(size) or b""
        begins, self._at = self._at, self._at + len(data)
        if not self.head:
            self.head = data
            self._own = self.start + _own_header(data)
            self._tagged = not starts_with_header(data[self._own - self.start :])
            self._join = TransportJoin() if _is_transport(data) else None
        if self.end is None and begins <= self._searched < self._at:
            data = data[: self._search(data, begins)]
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        """Seek and return the new position, or a negative error number if a broken file points outside itself."""
        if whence == os.SEEK_END:
            offset, whence = offset + (self.size or 0), os.SEEK_SET
        target = self.start + offset if whence == os.SEEK_SET else self._at + offset
        if target < self.start:
            return -EINVAL
        try:
            self._at = self._source.seek(target)
        except (OSError, ValueError):
            return -EINVAL
        return self.tell()

    def find_end(self) -> None:
        """Find out where this container ends. Waits for the next header, or for the end of a pipe."""
        if self._size is not None:
            self.seek(self._searched - self.start)
        while self.end is None and (self._size is None or self._searched - self.start < MOST_SEARCHED):
            if not self.read(READ_BYTES):
                break
        if self.end is None:
            self.end = self._at if self._size is None else self._size

    def following(self) -> "ContainerSource | None":
        """Return the next container after this one, or None. Its end must have been found."""
        assert self.end is not None
        if self._size is not None:
            return ContainerSource(self._source, start=self.end) if self.end < self._size else None
        return ContainerSource(self._source, start=self.end, ahead=self._ahead) if self._ahead else None

    def missing(self) -> int:
        """Return how many bytes this container lacks of those that it states. Its end must be known."""
        end = self._size if self.end is None else self.end
        of_segment = max(0, _end_of_segment(self._peek, self.start) - end) if end is not None else 0
        return of_segment or wav_bytes_missing(self.head, self.size)

    def foreign(self) -> int:
        """Return how many bytes of this container, which cannot be opened, are neither tags nor padding."""
        size = self.size or 0
        return size if self._size is None else _foreign_bytes(self._peek, self.start, self.start, self.start + size)

    def foreign_tail(self, at: int) -> int:
        """Return how many bytes after the audio, which ends *at*, are neither tags nor padding."""
        size = self.size or 0
        if self._size is None:
            return size - at if size - at > MOST_TAGS else 0
        return _foreign_bytes(self._peek, self.start, self.start + at, self.start + size)

    def _search(self, data: bytes, begins: int) -> int:
        """Search new *data*, which begin at *begins*, for a header. Return how many are of this container."""
        new = data[self._searched - begins :]
        seen = self._tail + new
        first = self._searched - len(self._tail)
        self._searched, self._tail = self._at, seen[-LONGEST_HEADER if self._join is None else -MOST_TAGS :]
        found = _find_header(seen, self._own - first, tags=not self._tagged)
        if self._join is not None and found is None and (ends := self._join.find(new)) is not None:
            found = max(0, self.start + ends - first)
        if found is None:
            return len(data)
        self.end = first + found
        if not self.seekable():
            self._ahead = seen[found:] + self._ahead
        self._at = self.end
        return max(0, self.end - begins)

    def _peek(self, at: int, size: int) -> bytes:
        if not 0 <= at < (self._size or 0):
            return b""
        self._source.seek(at)
        return self._source.read(size) or b""


# --- headers ---------------------------------------------------------------------------------------------------------

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

_RIFF: dict[bytes, Literal["little", "big"]] = {b"RIFF": "little", b"RIFX": "big"}
"""The order of bytes in WAV files."""

MOST_CHUNKS = 1000
"""So many chunks of a WAV file are looked at."""

_BOXES = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip")
_EBML = b"\x1a\x45\xdf\xa3"
_ID3 = re.compile(rb"ID3[\0-\4].(.)([\0-\x7f]{4})", re.DOTALL)
_CHUNK = re.compile(rb"[A-Za-z0-9_()]{3}[A-Za-z0-9_() ].{4}", re.DOTALL)

BOX_HEAD_BYTES = 8
FEW_BYTES = 16  # after the audio are no loss: some programs write a size there
ID3V1_BYTES = 128
APE_HEAD_BYTES = 32

_LOOK_BACK = 4  # the size of an MP4's first box

_PAIRS = np.zeros(1 << 16, np.bool_)
"""Which pairs of bytes, as little-endian numbers, are in a start at an even place of the file."""
for _start in _STARTS:
    _PAIRS[[int.from_bytes(_start[at : at + 2], "little") for at in (0, 1)]] = True


def _find_header(data: bytes, past: int, *, tags: bool = True) -> int | None:
    """Return where in *data* the header of a container begins, the first one beyond *past*; None if there is none.

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
            begins = start - _LOOK_BACK if found[0].startswith(b"ftyp") else start
            if begins > past:
                return begins
    return None


def starts_with_header(head: bytes) -> bool:
    """Return whether *head*, at least LONGEST_HEADER bytes if the file has so many, begins with a header."""
    return _find_header(b"\0" + head, 0) == 1


def _own_header(head: bytes) -> int:
    """Return where the header of a container that begins with *head* is: the last one that is not of another container.

    An ID3v2 tag may come before any container. Ogg has a header for each of its streams, all of them first.
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


# --- where a container ends, and what follows ------------------------------------------------------------------------


def _stated_end(peek: Peek, start: int, size: int) -> int | None:
    """Return where the container that begins at *start* ends, by the sizes that it states, or None.

    The sizes count only if they lead to the end of the file or to another header. Programs that do not know a size
    write any number.
    """
    head = peek(start, 20)
    if head[:4] in _RIFF and head[8:12] == b"WAVE":
        end = start + 8 + int.from_bytes(head[4:8], _RIFF[head[:4]])
    elif head[:4] == b"FORM":
        end = start + 8 + int.from_bytes(head[4:8])
    elif head[4:8] in _BOXES:
        end = _end_of_boxes(peek, start, size)
    elif head[:4] == _EBML:
        end = _end_of_segment(peek, start)
    else:
        return None
    for at in (end, end + end % 2):
        following = peek(at, LONGEST_HEADER)
        if at > start and (at == size or starts_with_header(following) or following[4:8] in _BOXES):
            return at
    return None


def _data_chunks(peek: Peek, start: int, size: int) -> list[int]:
    """Return the sizes of the chunks of sound in the WAV file that begins at *start*; none if it is no WAV file.

    A recorder that was paused, or an editor, may write several.
    """
    head, found = peek(start, 12), list[int]()
    if head[:4] not in _RIFF or head[8:12] != b"WAVE":
        return []
    at, chunks = start + 12, 0
    while (chunk := peek(at, 8)) and chunks < MOST_CHUNKS and at + 8 <= size:
        length = int.from_bytes(chunk[4:], _RIFF[head[:4]])
        found += [length] if chunk[:4] == b"data" else []
        at, chunks = at + 8 + length + length % 2, chunks + 1
    return found


def _foreign_bytes(peek: Peek, start: int, at: int, end: int) -> int:
    """Return how many bytes up to *end* are neither boxes, chunks, tags nor zeros.

    *start* is where the container begins, *at* where its audio ends.
    """
    head = peek(start, 12)
    if head[4:8] in _BOXES:
        at = max(at, _end_of_boxes(peek, start, end))
    elif head[:4] == _EBML:
        if (segment := _end_of_segment(peek, start)) < at:
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


def _end_of_segment(peek: Peek, start: int) -> int:
    """Return where the Segment of a Matroska file ends; -1 if it states no size, or of another file."""

    def width_of(data: bytes) -> int:
        return 9 - data[0].bit_length() if data and data[0] else 1

    def number_in(data: bytes) -> int:
        width = width_of(data)
        return int.from_bytes(data[:width]) & ((1 << 7 * width) - 1)

    head = peek(start, 4 + 8)
    if head[:4] != _EBML:
        return -1
    at = start + 4 + width_of(head[4:]) + number_in(head[4:])
    segment = peek(at, 12)
    if segment[:4] != b"\x18\x53\x80\x67":
        return -1
    length, width = number_in(segment[4:]), width_of(segment[4:])
    return -1 if length == (1 << 7 * width) - 1 else at + 4 + width + length


# --- transport streams -----------------------------------------------------------------------------------------------

PACKET = 188
SYNC = 0x47
TABLE, DESCRIPTION = 0, 0x11  # the numbers of the table of programs, and of what may come before it
VIDEO = frozenset({0x01, 0x02, 0x10, 0x1B, 0x1E, 0x20, 0x24, 0x33, 0x42, 0xD1, 0xEA})  # kinds of streams
LOOKED = 8192 * PACKET
"""The bytes at the end of a file, 1.5 MB, in which its last map is sought. It comes ten times a second."""


def _is_transport(head: bytes) -> bool:
    """Return whether bytes begin a transport stream."""
    return len(head) > PACKET and head[0] == head[PACKET] == SYNC


class TransportJoin:
    """Follows the packets of one transport stream, in pieces of any length, up to where another follows it."""

    def __init__(self) -> None:
        self.sounds: frozenset[int] = frozenset()  # the numbers of the streams that are no pictures
        self._at = 0  # of the bytes that were seen
        self._rest = b""
        self._begins = 0  # where the last table of programs begins, with the description before it
        self._maps: frozenset[int] = frozenset()
        self._described = -1  # where the last description ends
        self._lost = False

    def find(self, data: bytes) -> int | None:
        """Return where the stream ends, in bytes from its beginning, and another begins; None: not in this *data*."""
        seen = self._rest + data
        whole = len(seen) // PACKET * PACKET
        self._rest = seen[whole:]
        packets = np.frombuffer(seen, np.uint8, whole).reshape(-1, PACKET)
        self._lost |= bool((packets[:, 0] != SYNC).any())
        if self._lost:
            return None
        numbers = (packets[:, 1].astype(np.int64) & 0x1F) << 8 | packets[:, 2]
        base, self._at = self._at, self._at + whole
        for row in np.flatnonzero((numbers == TABLE) | (numbers == DESCRIPTION) | (packets[:, 1] & 0x40 != 0)).tolist():
            number, place = int(numbers[row]), base + row * PACKET
            if number == DESCRIPTION:
                self._described = place + PACKET
            elif number == TABLE:
                self._begins = place - PACKET if self._described == place else place
                self._maps = _maps_of(_section(packets[row].tobytes()))
            elif number in self._maps and len(self._maps) == 1:
                sounds = _sounds_of(_section(packets[row].tobytes()))
                if sounds and self.sounds and sounds.isdisjoint(self.sounds) and self._begins > 0:
                    return self._begins
                self.sounds = sounds or self.sounds
        return None


def _transport_end(peek: Peek, start: int, size: int) -> int | None:
    """Return where the transport stream that begins at *start* ends because another follows; None if that is not known.

    It is sought only if the end of the file has other sounds.
    """
    if not _is_transport(peek(start, PACKET + 1)):
        return None
    first, last = TransportJoin(), TransportJoin()
    first.find(peek(start, LOOKED))
    last.find(peek(max(start, start + (size - start) // PACKET * PACKET - LOOKED), LOOKED))
    if last.sounds and first.sounds and not first.sounds.isdisjoint(last.sounds):
        return None
    join = TransportJoin()
    for at in range(start, size, LOOKED):
        if (found := join.find(peek(at, LOOKED))) is not None:
            return start + found
    return None


def _section(packet: bytes) -> bytes:
    """Return the section of a table that begins in a packet, as far as the packet has it, without its checksum."""
    at = 4 + (1 + packet[4] if packet[3] & 0x20 else 0)
    if not packet[1] & 0x40 or at >= PACKET:
        return b""
    section = packet[at + 1 + packet[at] :]
    length = (section[1] & 0x0F) << 8 | section[2] if len(section) > 3 else 0  # noqa: PLR2004  a section's head
    return section[: max(0, 3 + length - 4)]


def _maps_of(section: bytes) -> frozenset[int]:
    entries = (section[at : at + 4] for at in range(8, len(section) - 3, 4))
    return frozenset((entry[2] & 0x1F) << 8 | entry[3] for entry in entries if entry[0] or entry[1])


def _sounds_of(section: bytes) -> frozenset[int]:
    found = set[int]()
    at = 12 + ((section[10] & 0x0F) << 8 | section[11]) if len(section) >= 12 and section[0] == 2 else len(section)  # noqa: PLR2004  a map's head
    while at + 5 <= len(section):
        if section[at] not in VIDEO:
            found.add((section[at + 1] & 0x1F) << 8 | section[at + 2])
        at += 5 + ((section[at + 3] & 0x0F) << 8 | section[at + 4])
    return frozenset(found)
