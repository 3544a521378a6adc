"""Undoes the Content-Encoding of an answer. Some sources compress although they are asked for the bytes as they are."""

import zlib
from collections.abc import AsyncIterator, Iterator

WINDOWS = {"gzip": (31,), "x-gzip": (31,), "deflate": (15, -15)}
"""The codings that are undone, and zlib's numbers for each; some send deflate without its header."""

GZIP = b"\x1f\x8b"

PIECE_BYTES = 65_536
"""The most that is decompressed at once: a piece of an attack may hold a thousand times its own size."""


class FaultyCoding(Exception):
    """The answer's coding is not known, or its bytes are not of that coding. The message says so to the client."""


async def decoded(pieces: AsyncIterator[bytes], coding: str) -> AsyncIterator[bytes]:
    """Yield the bytes that *pieces* stand for, in pieces of their own. *coding* is the answer's Content-Encoding.

    Raises FaultyCoding, and what *pieces* raises.
    """
    name = coding.strip().lower()
    if name in ("", "identity"):
        async for piece in pieces:
            yield piece
        return
    if name not in WINDOWS:
        raise FaultyCoding(f"the source sends its bytes in the coding {name[:40]!r}; only gzip and deflate are undone")
    unpacking = _Unpacking(name)
    async for piece in pieces:
        for unpacked in unpacking.unpack(piece):
            yield unpacked
    if not unpacking.ended:
        raise FaultyCoding(f"the source breaks off within its {name} data")


class _Unpacking:
    def __init__(self, name: str) -> None:
        self._name = name
        self._windows = [*WINDOWS[name]]
        self._unpacker = zlib.decompressobj(self._windows[0])

    @property
    def ended(self) -> bool:
        return self._unpacker.eof

    def unpack(self, data: bytes) -> Iterator[bytes]:
        """Yield what *data* completes. What stands behind the end of the data is ignored."""
        full = False  # then there may be more of what was taken
        while data or full:
            if self.ended:
                if not data.startswith(GZIP):  # of which several may be joined
                    return
                self._unpacker = zlib.decompressobj(self._windows[0])
            try:
                unpacked = self._unpacker.decompress(data, PIECE_BYTES)
            except zlib.error as error:
                if len(self._windows) == 1:
                    raise FaultyCoding(
                        f"the source says that its bytes are {self._name}, which they are not"
                    ) from error
                del self._windows[0]
                self._unpacker = zlib.decompressobj(self._windows[0])
                continue
            del self._windows[1:]
            data = self._unpacker.unconsumed_tail or self._unpacker.unused_data
            full = len(unpacked) == PIECE_BYTES and not self.ended
            if unpacked:
                yield unpacked
