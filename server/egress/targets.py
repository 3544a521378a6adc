"""Decides which URLs the server may call for a user, as an audio source or as a webhook.

parse_target() checks the text of a URL. judge_addresses() checks every address of its host, just before a connection to
one of them is made, because a name may get other addresses at any time. A redirect is checked like a new URL.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import quote, urlsplit

from server.config import Address, Network
from server.model.bounds import MAX_URL_CHARS
from server.model.errors import RequestError

PORTS = frozenset({80, 443})
"""On other ports are databases and mail servers, some of which act on a well-chosen HTTP request."""

GLOBAL_UNICAST = IPv6Network("2000::/3")
"""The IPv6 addresses that IANA has assigned for the public internet. Python's is_global is also true for others."""

NOT_PUBLIC: tuple[Network, ...] = tuple(
    map(
        ip_network,
        (
            "192.0.0.0/24",  # IETF protocol assignments
            "192.88.99.0/24",  # 6to4 relays: lead to embedded IPv4 addresses
            "168.63.129.16/32",  # the host's own service on every Azure machine, although the address is public
            "::/96",  # IPv4-compatible: embeds any IPv4 address
            "64:ff9b::/96",  # NAT64: embeds any IPv4 address
            "64:ff9b:1::/48",  # NAT64 of a network's own choice
            "2001::/23",  # IETF protocol assignments, Teredo among them: embeds any IPv4 address
            "2002::/16",  # 6to4: embeds any IPv4 address
            "3fff::/20",  # documentation (RFC 9637)
            "5f00::/16",  # segment routing
            "fec0::/10",  # site-local, deprecated but still routed by some
        ),
    )
)
"""Addresses that Python's is_global (3.11) calls public, although they may lead into a private network."""

_WRITABLE = re.compile(r"[^\x00-\x20\x7f-\x9f\\\ud800-\udfff]+")
_HOST = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_RESOURCE = re.compile(r"[^:]+://[^/?#]*([^#]*)")
_AS_IS = "".join(map(chr, range(0x21, 0x7F)))


class TargetNotAllowed(RequestError):
    """The service does not call this address. Give a public https address on port 443 or 80.

    The operator of a closed network can allow more with EGRESS_ALLOW_CIDRS and ALLOW_HTTP_SOURCES.
    """

    code = "url_not_allowed"


@dataclass(frozen=True, slots=True)
class Target:
    """A URL whose text was checked. *host* is an ASCII name in lower case, or an address without brackets."""

    scheme: str
    host: str
    port: int
    resource: str  # path and query as they were given, ASCII, starts with "/"

    @property
    def authority(self) -> str:
        """The Host header. It has the port only if that is not the scheme's default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _port_of(self.scheme) else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL with its host in a normal form. Call this one, not the text that the user sent."""
        return f"{self.scheme}://{self.authority}{self.resource}"


def parse_target(url: str, *, allow_http: bool, allowed: Sequence[Network]) -> Target:
    """The target that *url* names. Raises TargetNotAllowed, also for a literal address that may not be called.

    *allowed* are networks that may be called on any port, although they are not public.
    """
    if len(url) > MAX_URL_CHARS or not _WRITABLE.fullmatch(url):
        raise TargetNotAllowed(f"a URL has 1 to {MAX_URL_CHARS} characters, without spaces, backslashes or line breaks")
    try:
        parts = urlsplit(url)
        port = parts.port
        host = _host(parts.hostname or "")
    except ValueError:
        raise TargetNotAllowed("this is no URL with a host that can be called") from None
    if parts.scheme not in (("https", "http") if allow_http else ("https",)):
        raise TargetNotAllowed(
            "only https addresses are allowed" if not allow_http else "only http and https addresses are allowed"
        )
    if "@" in parts.netloc:
        raise TargetNotAllowed("a URL must not carry a user name or password")
    # Dots and an empty query stay, because a signature may be made of them. Only what is not ASCII is escaped.
    given = _RESOURCE.match(url)
    assert given is not None
    resource = quote(given[1] if given[1].startswith("/") else f"/{given[1]}", safe=_AS_IS)
    target = Target(parts.scheme, host, _port_of(parts.scheme) if port is None else port, resource)
    if (address := _literal(host)) is not None:
        judge_addresses(target, [address], allowed=allowed)
    elif not allowed:
        _judge_port(target)
    return target


def judge_addresses(target: Target, addresses: Iterable[Address], *, allowed: Sequence[Network]) -> None:
    """Raise TargetNotAllowed unless *target* may be called at every one of *addresses*, and there is at least one.

    A single private address is enough to refuse, because any of them may be the one that is called.
    """
    judged = [_without_mapping(address) for address in addresses]
    if not judged:
        raise TargetNotAllowed(no_public_address(target.host))
    for address in judged:
        if any(address in network for network in allowed):
            continue
        if not is_public(address):
            raise TargetNotAllowed(no_public_address(target.host))
        _judge_port(target)


def no_public_address(host: str) -> str:
    """Why *host* is not called. Unknown names get the same text, so that nobody learns which internal names exist."""
    return f"{host} has no public address"


def is_public(address: Address) -> bool:
    """Whether *address* is on the public internet. An IPv4 address inside an IPv6 one is checked as IPv4."""
    address = _without_mapping(address)
    return (
        address.is_global
        and not address.is_multicast
        and (address.version == 4 or address in GLOBAL_UNICAST)  # noqa: PLR2004  the Internet Protocol's
        and not any(address in network for network in NOT_PUBLIC)
    )


def _host(name: str) -> str:
    """The name in the form that is looked up. Raises ValueError if it is neither a host name nor a normal address."""
    if (address := _literal(name)) is not None:
        return str(address)
    host = name.encode("idna").decode().lower().removesuffix(".")
    if (address := _literal(host)) is not None:  # written with full-width digits or dots
        return str(address)
    # "127.1", "0x7f000001" and "017700000001" are names to us but 127.0.0.1 to the system's resolver.
    if len(host) > 253 or not _HOST.fullmatch(host) or _NUMBER.fullmatch(host.rpartition(".")[2]):  # noqa: PLR2004  DNS
        raise ValueError("no host name")
    return host


def _literal(host: str) -> Address | None:
    if "%" in host:  # a zone has no meaning outside this machine
        return None
    try:
        return ip_address(host)
    except ValueError:
        return None


def _without_mapping(address: Address) -> Address:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped


def _judge_port(target: Target) -> None:
    if target.port not in PORTS:
        raise TargetNotAllowed(f"port {target.port} is not called, only {' and '.join(map(str, sorted(PORTS)))}")


def _port_of(scheme: str) -> int:
    return 443 if scheme == "https" else 80
