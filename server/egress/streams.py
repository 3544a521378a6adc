"""Connections to other people's servers that bound the head of an answer and read it in small pieces.

A server may send any number of interim answers (`100 Continue`) before its answer. The HTTP library would read them for
ever, and parse all interim answers of one read, 2,600 in 64 KiB, in one turn of the event loop.
"""

import ssl
from collections.abc import Iterable
from typing import Any

import httpcore
import httpx
from httpcore import SOCKET_OPTION, AsyncNetworkBackend, AsyncNetworkStream

HEAD_BYTES = 64 * 1024
"""The most bytes before the body: interim answers and the head."""

PIECE_BYTES = 4 * 1024
"""The most bytes of one read before the body."""


class HeadBoundStream(AsyncNetworkStream):
    """A connection from which at most HEAD_BYTES can be read before begin_body() is called."""

    def __init__(self, stream: AsyncNetworkStream) -> None:
        self._stream = stream
        self._head_left: int | None = HEAD_BYTES  # None: the body is being read

    def begin_body(self) -> None:
        """Allow any amount from now on."""
        self._head_left = None

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  httpcore's interface
        """Raises httpcore.RemoteProtocolError if more than HEAD_BYTES come before begin_body()."""
        if self._head_left is None:
            return await self._stream.read(max_bytes, timeout)
        if self._head_left <= 0:
            raise httpcore.RemoteProtocolError(f"the head of the answer has more than {HEAD_BYTES} bytes")
        data = await self._stream.read(min(max_bytes, PIECE_BYTES), timeout)
        self._head_left -= len(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109  httpcore calls it so
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  httpcore calls it so
    ) -> AsyncNetworkStream:
        return HeadBoundStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Backend(AsyncNetworkBackend):
    """Opens the connections of *backend* as HeadBoundStream."""

    def __init__(self, backend: AsyncNetworkBackend) -> None:
        self._backend = backend

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  httpcore calls it so
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> AsyncNetworkStream:
        stream = await self._backend.connect_tcp(host, port, timeout, local_address, socket_options)
        return HeadBoundStream(stream)

    async def sleep(self, seconds: float) -> None:
        await self._backend.sleep(seconds)


class HeadBoundTransport(httpx.AsyncHTTPTransport):
    """httpx's transport, whose every connection serves one request."""

    def __init__(self) -> None:
        context = ssl.create_default_context()
        super().__init__(verify=context, trust_env=False)
        # httpx has no argument for the backend of the pool that it makes.
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=context,
            max_connections=None,
            max_keepalive_connections=0,
            network_backend=_Backend(httpcore.AnyIOBackend()),
        )
