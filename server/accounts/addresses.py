"""The address of a client without a key, and the part of it that limits are counted by."""

import hmac
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

from server.config import Address, Network

NOBODY = "unknown"
"""The key of all clients without an address, such as those on a Unix socket. They are counted together."""

MAX_FORWARDED = 4096  # characters of X-Forwarded-For that are looked at, from its end

MAX_PARSED = 4096  # addresses that are remembered as parsed: every request asks

_WITH_PORT = re.compile(r"\[([^\]]*)\](?::[0-9]*)?|([0-9.]+):[0-9]*")


def client_address(peer: str | None, forwarded_for: Iterable[str], trusted: Sequence[Network]) -> Address | None:
    """The most trustworthy address that the request comes from; None when the peer has none.

    That is the socket's peer. If the peer is one of the operator's own proxies (*trusted*), it is the nearest hop in
    the X-Forwarded-For headers that is not a proxy. Each hop was written by the one to its right, so a false hop sent
    by the client stands further left and is never reached. If a hop is not an address, the headers are ignored.
    """
    nearest = address = _parse(peer or "")
    hops = [hop.strip() for hop in ",".join(forwarded_for)[-MAX_FORWARDED:].split(",") if hop.strip()]
    while hops and address is not None and any(address in network for network in trusted):
        address = _parse(hops.pop())
    return nearest if address is None else address


@lru_cache(MAX_PARSED)
def address_key(address: Address | None) -> str:
    """The key under which an address is counted: an IPv4 address, or an IPv6 /64, which one household or server has."""
    if address is None:
        return NOBODY
    if isinstance(address, IPv4Address):
        return f"{address}/32"
    return str(IPv6Network((int(address) >> 64 << 64, 64)))


@lru_cache(MAX_PARSED)
def peer_key(peer: str | None) -> str:
    """The address_key() of a socket's peer for which no proxy speaks. Almost every request asks for one."""
    return address_key(client_address(peer, (), ()))


def anonymous_subject(secret: bytes, key: str, *, day: str) -> str:
    """The name for counting an address_key() on *day*: a hash, so that neither addresses nor their days can be read."""
    return "address " + hmac.digest(secret, f"address\n{day}\n{key}".encode(), "sha256").hex()[:32]


@lru_cache(MAX_PARSED)
def _parse(text: str) -> Address | None:
    """*text* as an address without port and zone, as IPv4 if it was written inside IPv6; None if it is no address."""
    if match := _WITH_PORT.fullmatch(text):
        text = match[1] or match[2] or ""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped
