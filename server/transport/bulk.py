"""Reads large bodies with fewer system calls and fewer copies than asyncio's data_received().

Each piece of a body costs a read, a wake-up of the request, a search for the boundary and a write, so fewer, larger
pieces cost less. uvloop's own pieces have at most 256,000 bytes, and each is copied once more.
"""

import asyncio
from collections.abc import Callable

FROM_BYTES = 128 * 1024
"""The size of a read in the middle of a body from which on the body counts as large."""

MOST_BYTES = 2 * 1024 * 1024
"""The most bytes read from a connection at once."""

LEAST_BYTES = 64 * 1024

TOGETHER_BYTES = 16 * 1024 * 1024
"""The most bytes read from all connections together in one turn of the event loop, so that turns stay short."""


class BulkReads:
    """One buffer for the large bodies of a process. Each piece is copied out of it before the next one is read."""

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(MOST_BYTES))
        self._readers = 0

    def begin(self, transport: asyncio.Transport, http: asyncio.Protocol) -> Callable[[], None]:
        """Pass incoming data to *http*, the protocol of *transport*, in large pieces (memoryview).

        A piece is valid until data_received() returns. Call the returned function once to go back to usual reads.
        """
        self._readers += 1
        transport.set_protocol(_BulkReader(http, self._share))

        def end() -> None:
            self._readers -= 1
            transport.set_protocol(http)

        return end

    def _share(self) -> memoryview:
        return self._buffer[: max(LEAST_BYTES, TOGETHER_BYTES // self._readers)]


class _BulkReader(asyncio.BufferedProtocol):
    """Reads large pieces for a connection's protocol, and passes all events on to it."""

    def __init__(self, http: asyncio.Protocol, share: Callable[[], memoryview]) -> None:
        self._http = http
        self._share = share
        self._piece = memoryview(b"")

    def get_buffer(self, _sizehint: int) -> memoryview:
        self._piece = self._share()
        return self._piece

    def buffer_updated(self, nbytes: int) -> None:
        self._http.data_received(self._piece[:nbytes])  # type: ignore[arg-type]  # begin() says so

    def eof_received(self) -> bool | None:
        return self._http.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._http.connection_lost(exc)

    def pause_writing(self) -> None:
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._http.resume_writing()
