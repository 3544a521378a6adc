"""Looks up the host names that users give. Names of /etc/hosts are found too.

A query to a name server needs no thread, and each account may have only a few queries open at once. So a name server
that does not answer delays only the account that named the host.
"""

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import ip_address

from aiodns import DNSResolver
from aiodns.error import DNSError

from server.config import Address
from server.egress.targets import no_public_address
from server.keyed_limits import KeyedTurns

SERVER_S = 2.0  # for the answer of one name server, which is asked once
LOOKUP_S = 5.0  # after this time, which includes the wait for the account's turn, a name counts as without address
MAX_PER_ASKER = 2


class Unresolvable(Exception):
    """The name has no address now. It may have one later."""


class Names:
    """Looks names up. Each process has one, in one event loop; close() it at the end."""

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
