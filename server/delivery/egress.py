"""Our one way out: HTTP requests to addresses that users name, made only to where targets.py lets them go.

A name is resolved once, all its addresses are judged, and the connection goes to one of those judged addresses, with
the name in the Host header and in TLS. No proxy of the environment is used and no connection is kept, so that nothing
judged for one name ever serves another.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address

import httpx

from server.delivery.targets import Address, Network, Target, judge_addresses, parse_target


class Unresolvable(Exception):
    """The name has no address now. It may have one later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Seconds that a request may take."""

    connect_s: float
    read_s: float  # between two pieces of the answer


class Egress:
    def __init__(self, *, allowed: Sequence[Network], allow_http: bool) -> None:
        self._allowed = allowed
        self._allow_http = allow_http
        self._client = httpx.AsyncClient(
            verify=ssl.create_default_context(),
            trust_env=False,
            follow_redirects=False,
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def check(self, url: str) -> None:
        """Returns iff *url* may be called as far as can be told now; a name without an address may be.

        Raises TargetNotAllowed.
        """
        target = self.parse(url)
        try:
            addresses = await _resolve(target)
        except Unresolvable:
            return
        judge_addresses(target, addresses, allowed=self._allowed)

    def parse(self, url: str) -> Target:
        """Raises TargetNotAllowed."""
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
        """The answer, its body still to be read; redirects are answers like any other.

        Raises TargetNotAllowed, Unresolvable, httpx.TransportError (httpx.TimeoutException among them).
        """
        addresses = await _resolve(target)
        judge_addresses(target, addresses, allowed=self._allowed)
        pinned = Target(target.scheme, str(addresses[0]), target.port, target.resource)
        timeout = httpx.Timeout(patience.read_s, connect=patience.connect_s)
        async with self._client.stream(
            method,
            pinned.url,
            content=content,
            headers={**headers, "Host": target.authority, "Accept-Encoding": "identity"},
            timeout=timeout,
            extensions={"sni_hostname": target.host},
        ) as response:
            yield response


async def _resolve(target: Target) -> list[Address]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Unresolvable(f"{target.host} has no address: {error.strerror}") from None
    return [ip_address(str(place[4][0]).partition("%")[0]) for place in found]
