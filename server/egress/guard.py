"""Sends HTTP requests to addresses that users name, if targets.py allows them. No other file sends such requests.

A name is resolved once, all its addresses are checked, and the connection goes to one of the checked addresses, with
the name in the Host header and in TLS. Proxies named in environment variables are not used. No connection is kept, so a
permission for one name never serves another, and no user gets another user's connection.

Requests are httpcore's, one connection each. The client of httpx would look at what the other server sends: it reads
cookies, rewrites paths, and parses where a redirect leads even if it is not to follow, with errors of any kind.
"""

import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager

import httpcore
import httpx

from server.config import Address, Network
from server.egress.names import Names, Unresolvable
from server.egress.streams import Body, JudgedAddresses, errors_of_httpx
from server.egress.targets import Target, TargetNotAllowed, judge_addresses, parse_target


class Egress:
    """Sends guarded requests, for downloads and webhooks. Each process has one; close() it at the end."""

    def __init__(self, *, allowed: Sequence[Network], allow_http: bool, names: Names | None = None) -> None:
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
