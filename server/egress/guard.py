"""The only way out: HTTP requests to addresses that users name, if targets.py allows them.

A name is resolved once, all its addresses are checked, and the connection goes to one of those checked addresses, with
the name in the Host header and in TLS. Proxies of the environment are not used and neither connections nor cookies are
kept, so that a permission for one name never serves another and users never meet each other's connections.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from http.cookiejar import DefaultCookiePolicy
from ipaddress import ip_address

import httpx

from server.egress.targets import Address, Network, Target, judge_addresses, parse_target

LOOKUPS = 32  # lookups at once; a dead name server blocks a thread for half a minute
LOOKUP_S = 5.0  # after which a name counts as having no address


class Unresolvable(Exception):
    """The name has no address now. It may have one later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How many seconds a request may take."""

    connect_s: float
    read_s: float  # between two pieces of the answer


class Egress:
    """Makes guarded requests, for downloads and webhooks. One for each process; close() it at the end."""

    def __init__(self, *, allowed: Sequence[Network], allow_http: bool) -> None:
        self._allowed = allowed
        self._allow_http = allow_http
        self._lookups = ThreadPoolExecutor(LOOKUPS, "lookup")
        self._client = httpx.AsyncClient(
            verify=ssl.create_default_context(),
            trust_env=False,
            follow_redirects=False,
            limits=httpx.Limits(max_keepalive_connections=0),
        )
        self._client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=()))

    async def close(self) -> None:
        await self._client.aclose()
        self._lookups.shutdown(wait=False, cancel_futures=True)

    async def check(self, url: str) -> None:
        """Return if *url* may be called, as far as is known now. A name without an address is accepted.

        Raises TargetNotAllowed.
        """
        target = self.parse(url)
        try:
            addresses = await self._resolve(target)
        except Unresolvable:
            return
        judge_addresses(target, addresses, allowed=self._allowed)

    def parse(self, url: str) -> Target:
        """*url* as a checked target. Raises TargetNotAllowed."""
        return parse_target(url, allow_http=self._allow_http, allowed=self._allowed)

    @asynccontextmanager
    async def request(
        self,
        method: str,
        target: Target,
        *,
        headers: Mapping[str, str],
        patience: Patience,
        content: bytes | None = None,
    ) -> AsyncIterator[httpx.Response]:
        """Send a request and yield the answer, whose body is still to be read. Redirects are not followed.

        Raises TargetNotAllowed, Unresolvable, httpx.TransportError (which includes httpx.TimeoutException).
        """
        addresses = await self._resolve(target)
        judge_addresses(target, addresses, allowed=self._allowed)
        timeout = httpx.Timeout(patience.read_s, connect=patience.connect_s)
        async with AsyncExitStack() as stack:
            for left, address in enumerate(addresses, 1 - len(addresses)):
                pinned = Target(target.scheme, str(address), target.port, target.resource)
                request = self._client.stream(
                    method,
                    pinned.url,
                    content=content,
                    headers={**headers, "Host": target.authority, "Accept-Encoding": "identity"},
                    timeout=timeout,
                    extensions={"sni_hostname": target.host},
                )
                try:
                    response = await stack.enter_async_context(request)
                except (httpx.ConnectError, httpx.ConnectTimeout):  # nothing was sent: another address may answer
                    if left == 0:
                        raise
                    continue
                yield response
                return

    async def _resolve(self, target: Target) -> list[Address]:
        """Every address of the target's name, at least one, in the system's order of preference."""
        look_up = partial(socket.getaddrinfo, target.host, target.port, type=socket.SOCK_STREAM)
        try:
            async with asyncio.timeout(LOOKUP_S):
                found = await asyncio.get_running_loop().run_in_executor(self._lookups, look_up)
        except TimeoutError:
            raise Unresolvable(f"{target.host} could not be looked up in {LOOKUP_S:g} s") from None
        except OSError as error:
            raise Unresolvable(f"{target.host} has no address: {error.strerror}") from None
        return [ip_address(str(place[4][0]).partition("%")[0]) for place in found]
