"""Sends HTTP requests to addresses that users name, if targets.py allows them. No other file sends such requests.

A name is resolved once, all its addresses are checked, and the connection goes to one of the checked addresses, with
the name in the Host header and in TLS. Proxies named in environment variables are not used. No connection is kept, so a
permission for one name never serves another, and no user gets another user's connection.

Requests are httpcore's, one connection each. The client of httpx would look at what the other server sends: it reads
cookies, rewrites paths, and parses where a redirect leads even if it is not to follow, with errors of any kind.

A server may send any number of interim answers (`100 Continue`) before its answer. The HTTP library would read them for
ever, and parse all interim answers of one read, 2,600 in 64 KiB, in one turn of the event loop. So heads are bounded.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from ipaddress import ip_address
from typing import Any

import httpcore
import httpx
from aiodns import DNSResolver
from aiodns.error import DNSError
from httpcore import SOCKET_OPTION, AnyIOBackend, AsyncNetworkBackend, AsyncNetworkStream

from server.config import Address, Network
from server.egress.targets import Target, TargetNotAllowed, judge_addresses, no_public_address, parse_target
from server.keyed_limits import KeyedTurns

HEAD_BYTES = 64 * 1024
"""The most bytes before the body: interim answers and the head."""

PIECE_BYTES = 4 * 1024
"""The most bytes of one read before the body."""

SERVER_S = 2.0  # for the answer of one name server, which is asked once
LOOKUP_S = 5.0  # after this time, which includes the wait for the account's turn, a name counts as without address
MAX_PER_ASKER = 2


class Unresolvable(Exception):
    """The name has no address now. It may have one later."""


class Egress:
    """Sends guarded requests, for downloads and webhooks. Each process has one; close() it at the end."""

    def __init__(self, *, allowed: Sequence[Network], allow_http: bool, names: "Names | None" = None) -> None:
        """*allowed* networks may be called although they are not public. *names* None: the system's name servers."""
        self._allowed = allowed
        self._allow_http = allow_http
        self._names = Names() if names is None else names
        self._tls = ssl.create_default_context()

    async def close(self) -> None:
        await self._names.close()

    async def check(self, url: str, *, asker: str, known: bool = False) -> None:
        """Raise TargetNotAllowed unless *url* may be called for the account *asker*.

        A name without an address is allowed, since it may have one later, unless it must be *known*. The error's text
        is the same for a name without an address and for one inside a private network. request() checks again.
        """
        try:
            await self._addresses(self.parse(url), asker)
        except Unresolvable as error:
            if known:
                raise TargetNotAllowed(str(error)) from None

    def parse(self, url: str) -> Target:
        """See parse_target()."""
        return parse_target(url, allow_http=self._allow_http, allowed=self._allowed)

    @asynccontextmanager
    async def request(
        self,
        method: str,
        target: Target,
        *,
        asker: str,
        headers: Mapping[str, str],
        timeouts: httpx.Timeout,
        content: bytes | None = None,
    ) -> AsyncIterator[httpx.Response]:
        """Send a request for the account *asker* and yield the answer, whose body is not read yet.

        Redirects are not followed. Raises TargetNotAllowed, Unresolvable, httpx.TransportError (also on a timeout).
        """
        addresses = await self._addresses(target, asker)
        length = {} if content is None else {"Content-Length": str(len(content))}
        fields = {**headers, **length, "Host": target.authority, "Accept-Encoding": "identity"}
        place = target.scheme.encode(), target.host.encode(), target.port
        request = httpcore.Request(
            method,
            httpcore.URL(scheme=place[0], host=place[1], port=place[2], target=target.resource.encode()),
            headers=list(fields.items()),
            content=content,
            extensions={"timeout": timeouts.as_dict()},
        )
        connection = httpcore.AsyncHTTPConnection(
            httpcore.Origin(*place), ssl_context=self._tls, network_backend=JudgedAddresses(addresses)
        )
        async with aclosing(connection):
            with errors_of_httpx():
                answer = await connection.handle_async_request(request)
            async with aclosing(httpx.Response(answer.status, headers=answer.headers, stream=Body(answer))) as response:
                answer.extensions["network_stream"].begin_body()
                yield response

    async def _addresses(self, target: Target, asker: str) -> list[Address]:
        """Every address of the target, all of them checked. Raises TargetNotAllowed, Unresolvable."""
        addresses = await self._names.addresses(target.host, asker=asker)
        judge_addresses(target, addresses, allowed=self._allowed)
        return addresses


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


class Names:
    """Looks names up, those of /etc/hosts too. Each process has one, in one event loop; close() it at the end.

    A query to a name server needs no thread, and each account may have only a few queries open at once. So a name
    server that does not answer delays only the account that named the host.
    """

    def __init__(self, servers: Sequence[str] | None = None) -> None:
        """*servers* are the addresses of name servers, with or without a port; None: the system's."""
        self._servers = servers
        self._resolver: DNSResolver | None = None
        self._turns = KeyedTurns()  # of accounts

    async def close(self) -> None:
        if self._resolver is not None:
            await self._resolver.close()

    async def addresses(self, host: str, *, asker: str) -> list[Address]:
        """Every address of *host*, at least one, in the order of preference. *asker* is the account that named it.

        Raises Unresolvable.
        """
        try:
            async with asyncio.timeout(LOOKUP_S), self._turns.turn(asker, most=MAX_PER_ASKER):
                found = await self._resolve(host)
        except (TimeoutError, DNSError):
            raise Unresolvable(no_public_address(host)) from None
        return found

    async def _resolve(self, host: str) -> list[Address]:
        if self._resolver is None:  # it needs the running loop
            self._resolver = DNSResolver(self._servers, timeout=SERVER_S, tries=1)
        found = await self._resolver.getaddrinfo(host, family=socket.AF_UNSPEC, type=socket.SOCK_STREAM)
        return [ip_address(node.addr[0].decode().partition("%")[0]) for node in found.nodes]
