"""Limits by network address: of refusals, lines of the log, and connections.

An address that was refused too often without a known account waits for each further refusal, and gets 429. Lines of the
log are counted because a line is longer than the shortest request, so that a flood of requests would fill the disk.
"""

import asyncio
import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Protocol

from starlette.requests import HTTPConnection
from starlette.types import Scope

from server.config import Address, Network
from server.http.problems import Problem
from server.keyed_limits import RateTable, TokenBucket
from server.logs import log

PAUSE_S = 1.0
"""The delay of an answer to an address that was refused too often."""

NOBODY = "unknown"
"""The key of all clients without an address, such as those on a Unix socket, which are counted together."""

MAX_FORWARDED = 4096  # last characters of X-Forwarded-For that are read
MAX_PARSED = 4096  # parsed addresses in memory, because every request needs one
_WITH_PORT = re.compile(r"\[([^\]]*)\](?::[0-9]*)?|([0-9.]+):[0-9]*")
LOG_LINES, LOG_LINES_PER_S = 1_000, 40
"""The lines that one address may add to the log at once, and then each second: about 1 MB in a minute."""
MAX_ADDRESSES = 10_000  # whose lines are counted; beyond it all counts are dropped
SUMMARY_S = 60.0
FORWARDED = b"x-forwarded-for"


def client_address(peer: str | None, forwarded_for: Iterable[str], trusted: Sequence[Network]) -> Address | None:
    """The address of the client that sent the request; None if the socket's peer has none.

    It is the socket's peer. If that is one of the operator's own proxies (*trusted*), it is the last hop in the
    X-Forwarded-For headers that is no such proxy. Each hop was written by the one to its right, so a false hop sent by
    the client stands further left and is never reached. If a hop is not an address, the headers are ignored.
    """
    nearest = address = _parse(peer or "")
    hops = [hop.strip() for hop in ",".join(forwarded_for)[-MAX_FORWARDED:].split(",") if hop.strip()]
    while hops and address is not None and any(address in network for network in trusted):
        address = _parse(hops.pop())
    return nearest if address is None else address


@lru_cache(MAX_PARSED)
def address_key(address: Address | None) -> str:
    """The key by which an address is counted: an IPv4 address, or the IPv6 /64 that a household or server has."""
    if address is None:
        return NOBODY
    if isinstance(address, IPv4Address):
        return f"{address}/32"
    return str(IPv6Network((int(address) >> 64 << 64, 64)))


@lru_cache(MAX_PARSED)
def peer_key(peer: str | None) -> str:
    """The address_key() of a socket's peer that is no proxy. Almost every request needs it."""
    return address_key(client_address(peer, (), ()))


def anonymous_subject(secret: bytes, key: str, *, day: str) -> str:
    """The name under which an address_key() is counted on *day*: a hash, from which no address can be read."""
    return "address " + hmac.digest(secret, f"address\n{day}\n{key}".encode(), "sha256").hex()[:32]


@lru_cache(MAX_PARSED)
def _parse(text: str) -> Address | None:
    """*text* as an address, without port and zone; None if it is no address. IPv4 inside IPv6 becomes IPv4."""
    if match := _WITH_PORT.fullmatch(text):
        text = match[1] or match[2] or ""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped


def address_of(scope: Scope, trusted: Sequence[Network]) -> str:
    """The address_key() of the client that sent the request. *trusted* are the operator's proxies."""
    client: tuple[str, int] | None = scope.get("client")
    peer = client[0] if client else None
    if not trusted:
        return peer_key(peer)
    forwarded = [value.decode("latin-1") for name, value in scope["headers"] if name == FORWARDED]
    return address_key(client_address(peer, forwarded, trusted))


class ConnectionUse(Protocol):
    """The use of a connection, as scope["state"]["connection"]. TrackedConnection implements it."""

    def count_for(self, account: str) -> bool:
        """Count the connection for *account* until it rests. Returns False if the account has too many."""

    def count_forwarded(self, address: str) -> bool:
        """Count the connection for an *address* that a trusted proxy forwarded. Returns False if it has too many."""

    def work(self) -> None:
        """Note that the connection is in use, so it must not be closed for others."""

    def await_client(self) -> None:
        """Note that it waits for bytes of a body. If it counts for no account, it may be closed for others."""

    def rest(self) -> None:
        """Note that the request was answered. Until more work comes, the connection may be closed for others."""

    def idle(self) -> None:
        """Note that nothing is sent over it for now, so it may be closed for others."""


class IdleReport:
    """Tells the connection of *scope* whether its stream has something to send at the moment."""

    def __init__(self, scope: Scope) -> None:
        self._used: ConnectionUse | None = scope["state"].get("connection")
        self._quiet = False

    def rest_while(self, quiet: bool) -> None:  # noqa: FBT001  it is the only thing that is reported
        if quiet is self._quiet:
            return
        self._quiet = quiet
        if self._used is not None:
            if quiet:
                self._used.idle()
            else:
                self._used.work()


def check_account(connection: HTTPConnection, account: str) -> None:
    """Count the connection for *account*. Raises Problem too_many_connections if the account has too many."""
    used: ConnectionUse | None = connection.scope["state"].get("connection")
    if used is not None and not used.count_for(account):
        raise too_many_connections("This account")


def too_many_connections(whose: str) -> Problem:
    return Problem(
        "too_many_connections", f"{whose} has too many connections. Close some.", headers={"Retry-After": "5"}
    )


@dataclass(slots=True)
class AddressCounters:
    """Counts refusals and lines of the log by address, in memory. See server/http/client_addresses.py."""

    refusals_per_minute: int
    trusted_proxies: Sequence[Network]
    _refused: RateTable = field(default_factory=RateTable)
    _lines: dict[str, TokenBucket] = field(default_factory=dict)
    _left_out: int = 0

    def check_connections(self, scope: Scope) -> None:
        connection: ConnectionUse | None = scope["state"].get("connection")
        if self.trusted_proxies and connection is not None:
            address = address_of(scope, self.trusted_proxies)
            if not connection.count_forwarded(address):
                raise too_many_connections("This address")

    def check_refusals(self, scope: Scope) -> None:
        address = address_of(scope, self.trusted_proxies)
        self._refused.hit(address, limit=self.refusals_per_minute).check()

    def may_log(self, scope: Scope) -> bool:
        address = address_of(scope, self.trusted_proxies)
        if len(self._lines) >= MAX_ADDRESSES:
            self._lines.clear()
        allowance = self._lines.setdefault(address, TokenBucket(most=LOG_LINES, per_s=LOG_LINES_PER_S))
        if allowance.afford(1):
            return True
        if not self._left_out:
            asyncio.get_running_loop().call_later(SUMMARY_S, self._sum_up)
        self._left_out += 1
        return False

    def _sum_up(self) -> None:
        log.warning("requests of addresses that sent many were not logged", extra={"count": self._left_out})
        self._left_out = 0
