"""Finds the network address of a client, and the part of it by which limits are counted."""

import hmac
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

from server.config import Address, Network

NOBODY = "unknown"
"""The key of all clients without an address, such as those on a Unix socket, which are counted together."""

MAX_FORWARDED = 4096  # last characters of X-Forwarded-For that are read

MAX_PARSED = 4096  # parsed addresses in memory, because every request needs one

_WITH_PORT = re.compile(r"\[([^\]]*)\](?::[0-9]*)?|([0-9.]+):[0-9]*")


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
