"""Connections to other people's servers, by httpcore: to addresses that were judged, with a bound to the answer's head.

A server may send any number of interim answers (`100 Continue`) before its answer. The HTTP library would read them for
ever, and parse all interim answers of one read, 2,600 in 64 KiB, in one turn of the event loop.
"""

import ssl
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpcore
import httpx
from httpcore import SOCKET_OPTION, AnyIOBackend, AsyncNetworkBackend, AsyncNetworkStream

from server.config import Address

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


class JudgedAddresses(AsyncNetworkBackend):
    """Connects to the first of some addresses at which somebody listens, whatever name is asked for."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        """*addresses* of the host that will be asked for: at least one, all of them checked."""
        self._addresses = addresses
        self._backend = AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,  # noqa: ARG002  the addresses are its
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  httpcore calls it so
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> AsyncNetworkStream:
        """Raises httpcore.ConnectError or httpcore.ConnectTimeout of the last address."""
        *others, last = map(str, self._addresses)
        for address in others:
            try:
                return HeadBoundStream(
                    await self._backend.connect_tcp(address, port, timeout, local_address, socket_options)
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return HeadBoundStream(await self._backend.connect_tcp(last, port, timeout, local_address, socket_options))


class Body(httpx.AsyncByteStream):
    """The body of an answer, whose errors are those of httpx."""

    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with errors_of_httpx():
            async for piece in self._answer.aiter_stream():
                yield piece

    async def aclose(self) -> None:
        await self._answer.aclose()


@contextmanager
def errors_of_httpx() -> Iterator[None]:
    """Raise httpx's error of the same name in place of httpcore's."""
    try:
        yield
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
        raise getattr(httpx, type(error).__name__)(str(error)) from error
