"""Sends HTTP requests to addresses that users name, if targets.py allows them. No other file sends such requests.

A name is resolved once, all its addresses are checked, and the connection goes to one of the checked addresses, with
the name in the Host header and in TLS. Proxies named in environment variables are not used. No connection is kept, so a
permission for one name never serves another, and no user gets another user's connection.

Requests go to httpx's transport. Its client would look at what the other server sends: it reads cookies, and parses
where a redirect leads even if it is not to follow, with errors of any kind.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import httpx

from server.config import Address, Network
from server.egress.names import Names, Unresolvable
from server.egress.streams import HeadBoundTransport
from server.egress.targets import Target, TargetNotAllowed, judge_addresses, parse_target


class Egress:
    """Sends guarded requests, for downloads and webhooks. Each process has one; close() it at the end."""

    def __init__(self, *, allowed: Sequence[Network], allow_http: bool, names: Names | None = None) -> None:
        """*allowed* networks may be called although they are not public. *names* None: the system's name servers."""
        self._allowed = allowed
        self._allow_http = allow_http
        self._names = Names() if names is None else names
        self._transport = HeadBoundTransport()

    async def close(self) -> None:
        await self._transport.aclose()
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
        for left, address in enumerate(addresses, 1 - len(addresses)):
            async with AsyncExitStack() as stack:
                request = httpx.Request(
                    method,
                    Target(target.scheme, str(address), target.port, target.resource).url,
                    content=content,
                    headers={**headers, "Host": target.authority, "Accept-Encoding": "identity"},
                    extensions={"sni_hostname": target.host, "timeout": timeouts.as_dict()},
                )
                try:
                    response = await self._transport.handle_async_request(request)
                except (httpx.ConnectError, httpx.ConnectTimeout):  # nothing was sent: another address may answer
                    if left == 0:
                        raise
                    continue
                stack.push_async_callback(response.aclose)
                response.extensions["network_stream"].begin_body()
                yield response
                return

    async def _addresses(self, target: Target, asker: str) -> list[Address]:
        """Every address of the target, all of them checked. Raises TargetNotAllowed, Unresolvable."""
        addresses = await self._names.addresses(target.host, asker=asker)
        judge_addresses(target, addresses, allowed=self._allowed)
        return addresses
