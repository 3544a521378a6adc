"""The bytes of a recording as FFmpeg reads them: without a name, and only up to the header of the next recording."""

import os
from errno import EINVAL
from typing import Protocol

from pipeline.ingest.containers import wav_bytes_missing
from pipeline.ingest.headers import (
    LONGEST_HEADER,
    data_chunks,
    end_of_segment,
    find_header,
    foreign_bytes,
    own_header,
    starts_with_header,
    stated_end,
)
from pipeline.ingest.transport import TransportJoin, is_transport, joined_end

READ_BYTES = 65_536

MOST_TAGS = 4096
"""So many bytes behind the audio of a live stream may be tags. They have passed when their number is known."""

MOST_SEARCHED = 1 << 30
"""The most bytes of a file that are searched for another header: 2 s of CPU time."""


class ByteSource(Protocol):
    """The source of a recording: a seekable file, or a pipe whose read() waits for more."""

    def read(self, size: int, /) -> bytes | None:
        """Return 1..size bytes, or none at the end."""
        ...

    def seekable(self) -> bool: ...
    def seek(self, offset: int, whence: int = 0, /) -> int: ...
    def tell(self) -> int: ...


class PartSource:
    """One of the recordings that a file or pipe holds behind each other; usually there is one.

    It has no name from which FFmpeg could choose a reader, and cannot be written to. Positions are those of the part.
    """

    def __init__(self, source: ByteSource, *, start: int = 0, ahead: bytes = b"") -> None:
        """*start* is where it begins in *source*; *ahead* are the bytes from there that were already read of a pipe."""
        self._source = source
        self._ahead = ahead
        self._at = self.start = start
        self.head = b""  # the first bytes read
        self.seekable = source.seekable
        self.end: int | None = None  # where it ends in *source*; None: not known yet
        self._size: int | None = None  # of all parts
        self._join: TransportJoin | None = None  # of a transport stream
        self._tail = b""  # the last bytes that were searched for a header
        self._searched = start
        self._own = start  # where its own header stands
        self._tagged = False  # may tags stand between its frames?
        self.data_chunks: list[int] = []  # the sizes of those in a WAV file, if it can be sought
        if source.seekable():
            self._size = source.seek(0, os.SEEK_END)
            self.end = stated_end(self._peek, start, self._size) or joined_end(self._peek, start, self._size)
            self.data_chunks = data_chunks(self._peek, start, self.end or self._size)
            source.seek(start)

    @property
    def size(self) -> int | None:
        """The bytes of this part; None if they are not known."""
        end = self._size if self.end is None else self.end
        return None if end is None else end - self.start

    @property
    def share(self) -> float:
        """The share of the whole file that this part is known to be, 1 if no other is known to follow."""
        return 1.0 if self.end is None or not self._size else (self.end - self.start) / self._size

    def tell(self) -> int:
        return self._at - self.start

    def read(self, size: int) -> bytes:
        if self.end is not None:
            size = min(size, self.end - self._at)
        data = self._take(size) if size > 0 else b""
        begins, self._at = self._at, self._at + len(data)
        if not self.head:
            self.head = data
            self._own = self.start + own_header(data)
            self._tagged = not starts_with_header(data[self._own - self.start :])
            self._join = TransportJoin() if is_transport(data) else None
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
        """Find out where this recording ends. Waits for the next header, or for the end of a pipe."""
        if self._size is not None:
            self.seek(self._searched - self.start)
        while self.end is None and (self._size is None or self._searched - self.start < MOST_SEARCHED):
            if not self.read(READ_BYTES):
                break
        if self.end is None:
            self.end = self._at if self._size is None else self._size

    def following(self) -> "PartSource | None":
        """Return the next recording behind this one, or None. Its end must have been found."""
        assert self.end is not None
        if self._size is not None:
            return PartSource(self._source, start=self.end) if self.end < self._size else None
        return PartSource(self._source, start=self.end, ahead=self._ahead) if self._ahead else None

    def missing(self) -> int:
        """Return how many bytes this recording lacks of those that its container states. Its end must be known."""
        end = self._size if self.end is None else self.end
        of_segment = max(0, end_of_segment(self._peek, self.start) - end) if end is not None else 0
        return of_segment or wav_bytes_missing(self.head, self.size)

    def foreign(self) -> int:
        """Return how many bytes of this part, which cannot be opened, are neither tags nor padding."""
        size = self.size or 0
        return size if self._size is None else foreign_bytes(self._peek, self.start, self.start, self.start + size)

    def foreign_tail(self, at: int) -> int:
        """Return how many bytes behind the audio, which ends *at*, are neither tags nor padding."""
        size = self.size or 0
        if self._size is None:
            return size - at if size - at > MOST_TAGS else 0
        return foreign_bytes(self._peek, self.start, self.start + at, self.start + size)

    def _take(self, size: int) -> bytes:
        if self._ahead:
            data, self._ahead = self._ahead[:size], self._ahead[size:]
            return data
        return self._source.read(size) or b""

    def _search(self, data: bytes, begins: int) -> int:
        """Search new *data*, which begin at *begins*, for a header. Return how many of them belong to this part."""
        new = data[self._searched - begins :]
        seen = self._tail + new
        first = self._searched - len(self._tail)
        self._searched, self._tail = self._at, seen[-LONGEST_HEADER if self._join is None else -MOST_TAGS :]
        found = find_header(seen, self._own - first, tags=not self._tagged)
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
