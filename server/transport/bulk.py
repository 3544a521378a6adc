"""Reads large bodies with fewer system calls and fewer copies than asyncio's data_received().

Reading, waking the request, searching and writing cost time for each piece of a body, so larger pieces make it cheaper.
uvloop's pieces have at most 256,000 bytes, and each is copied once more on its way.
"""

import asyncio
from collections.abc import Callable

FROM_BYTES = 128 * 1024
"""Received at once in the middle of a body: there is more where that came from."""

MOST_BYTES = 2 * 1024 * 1024
"""That are read from a connection at once."""

LEAST_BYTES = 64 * 1024

TOGETHER_BYTES = 16 * 1024 * 1024
"""That may be read from all connections in one turn of the event loop, so that it stays a short one."""


class BulkReads:
    """What the large bodies of a process share: one buffer, because each piece is copied out of it before the next."""

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(MOST_BYTES))
        self._readers = 0

    def begin(self, transport: asyncio.Transport, http: asyncio.Protocol) -> Callable[[], None]:
        """From now on pass incoming data to *http*, the protocol of *transport*, in large pieces (memoryview).

        A piece is valid until data_received() returns. Call the returned function once to end this.
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
    """Stands before a connection's protocol while large pieces come, and passes everything on to it."""

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
