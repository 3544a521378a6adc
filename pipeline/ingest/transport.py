"""Finds in an MPEG transport stream where another one follows it whose sounds have other numbers (PIDs). Pure.

Transport streams need no header, so people join them by `cat`. FFmpeg takes sounds of other numbers for further tracks,
which begin with the first, or does not hear them at all if they come late. The layout is that of ISO 13818-1, 2.4.4: a
table with the number of each program's map, and in that map the numbers of its streams.
"""

from collections.abc import Callable

import numpy as np

PACKET = 188
SYNC = 0x47
TABLE, DESCRIPTION = 0, 0x11  # the numbers of the table of programs, and of what may stand before it
VIDEO = frozenset({0x01, 0x02, 0x10, 0x1B, 0x1E, 0x20, 0x24, 0x33, 0x42, 0xD1, 0xEA})  # kinds of streams
LOOKED = 8192 * PACKET
"""The bytes at the end of a file, 1.5 MB, in which its last map is sought. It comes ten times a second."""

Peek = Callable[[int, int], bytes]


def is_transport(head: bytes) -> bool:
    """Return whether bytes begin a transport stream."""
    return len(head) > PACKET and head[0] == head[PACKET] == SYNC


class TransportJoin:
    """Follows the packets of one stream, in pieces of any length."""

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


def joined_end(peek: Peek, start: int, size: int) -> int | None:
    """Return where the transport stream that begins at *start* ends because another follows; None if that is not known.

    It is sought only if the end of the file has other sounds.
    """
    if not is_transport(peek(start, PACKET + 1)):
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
