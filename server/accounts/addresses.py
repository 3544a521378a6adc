"""Who is asking, when there is no key: the client's address, and what of it is counted."""

import hmac
import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

NOBODY = "unknown"
"""What is counted where the peer has no address, as on a Unix socket: all of them together."""

_WITH_PORT = re.compile(r"\[([^\]]*)\](?::[0-9]*)?|([0-9.]+):[0-9]*")


def client_address(peer: str | None, forwarded_for: Iterable[str], trusted: Sequence[Network]) -> Address | None:
    """The address that the request comes from, as far as it can be believed; None when the peer has none.

    That is the peer of the socket. Only when the peer is one of our own proxies (*trusted*), it is the nearest hop in
    the X-Forwarded-For headers that is not: each hop was written by the one right of it, so whatever a client sent
    itself stands left of its true address and is never reached. A hop that is no address discredits the headers: the
    peer it is.
    """
    nearest = address = _parsed(peer or "")
    hops = [hop.strip() for hop in ",".join(forwarded_for).split(",") if hop.strip()]
    while hops and address is not None and any(address in network for network in trusted):
        address = _parsed(hops.pop())
    return nearest if address is None else address


def address_key(address: Address | None) -> str:
    """What counts as one address: an IPv4 address, or an IPv6 /64, which is what one household or server is given."""
    if address is None:
        return NOBODY
    if isinstance(address, IPv4Address):
        return f"{address}/32"
    return str(IPv6Network((int(address) >> 64 << 64, 64)))


def counted_as(secret: bytes, key: str, *, day: str) -> str:
    """The name under which an address_key() is counted on *day*: addresses are not kept, and days cannot be joined."""
    return "address " + hmac.digest(secret, f"address\n{day}\n{key}".encode(), "sha256").hex()[:32]


def _parsed(text: str) -> Address | None:
    """The address, IPv4 where it was written inside IPv6, without port and zone; None where it is none."""
    if match := _WITH_PORT.fullmatch(text):
        text = match[1] or match[2] or ""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped
