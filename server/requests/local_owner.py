"""The owner of the machine uses the page without a key, where nobody else uses the server.

GET / sets a cookie that stands for the operator's key. It works for requests of this page alone. See security.md for
what it protects against.
"""

import logging
import os
import sys
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.types import Scope

from server.accounts.keys import digest
from server.accounts.signed import OWNER, make_credential, read_credential
from server.clock import now_ms
from server.config import LOOPBACK, OPERATOR_KEY, Config
from server.model.errors import Refused
from server.storage.sql.storage import Storage

log = logging.getLogger(__name__)

LASTS_S = 400 * 24 * 3600  # the longest that browsers keep a cookie; each visit of the page renews it
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
"""Headers of a proxy, behind which anybody may be."""
SOCKETS = {4: Path("/proc/net/tcp"), 6: Path("/proc/net/tcp6")}
"""Linux lists the machine's sockets there, with their users."""


@dataclass(frozen=True, slots=True)
class LocalOwner:
    """Gives the page its cookie, and finds the operator's key for requests with it."""

    config: Config
    storage: Storage

    async def cookie_for(self, connection: HTTPConnection) -> str | None:
        """The Set-Cookie header for a visit of the page; None if its visitor may be somebody else than the owner."""
        headers = connection.headers
        opened = headers.get("sec-fetch-mode") == "navigate"  # a click on a link elsewhere is a visit, too
        if not opened and not _is_of_own_page(connection, without_origin="none"):
            return None
        hashed = await self._operator(connection)
        if hashed is None:
            return None
        expires_s = now_ms() // 1000 + LASTS_S
        value = make_credential(self.storage.signing_keys, OWNER, key_hash=hashed, expires_s=expires_s)
        return f"{_cookie_name(connection)}={value}; Path=/; Max-Age={LASTS_S}; HttpOnly; SameSite=Strict"

    async def key_hash(self, connection: HTTPConnection) -> bytes | None:
        """The hash of the operator's key, for a request of the page with its cookie; None for any other request."""
        cookie = connection.cookies.get(_cookie_name(connection))
        if cookie is None or not cookie.startswith(OWNER) or not _is_of_own_page(connection):
            return None
        try:
            named, _ = read_credential(self.storage.signing_keys, OWNER, cookie, now_s=now_ms() / 1000)
        except Refused:
            return None
        hashed = await self._operator(connection)
        return hashed if hashed == named else None

    async def _operator(self, connection: HTTPConnection) -> bytes | None:
        """The hash of the operator's key, if the owner of this machine is the only one who can have sent the request.

        The accounts are looked at each time, because the command line makes accounts as well.
        """
        headers, host = connection.headers, _host(connection)
        if not _is_at_home(self.config) or connection.state.environment != "production":
            return None
        if host not in LOOPBACK or any(name in headers for name in FORWARDED) or not _is_own_user(connection.scope):
            return None
        try:
            hashed = digest((self.config.data_dir / OPERATOR_KEY).read_text().strip())
        except OSError:
            return None
        accounts = await self.storage.accounts.accounts()
        found = await self.storage.accounts.by_hash(hashed) if len(accounts) == 1 else None
        return None if found is None or found[0].revoked_at is not None else hashed


def _is_at_home(config: Config) -> bool:
    """Whether the settings say that only this machine uses the server."""
    public = config.public_base_url is None or urlsplit(config.public_base_url).hostname in LOOPBACK
    alone = config.host in LOOPBACK and not config.trusted_proxies and not config.clustered
    return config.local_owner == "auto" and public and alone


def _is_of_own_page(connection: HTTPConnection, *, without_origin: str = "same-origin") -> bool:
    """Whether a page of this address has sent the request, as the browser says.

    *without_origin* is also taken as Sec-Fetch-Site. A program that sends neither header is no page, unless it may
    be a visitor ("none").
    """
    headers = connection.headers
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is None and site is None:
        return without_origin == "none"
    same_origin = origin is None or origin == f"http://{headers.get('host')}"
    return same_origin and site in (None, "same-origin", without_origin)


def _host(connection: HTTPConnection) -> str | None:
    """The host name of the request; None if it names several, or none."""
    named = connection.headers.getlist("host")
    try:
        return urlsplit(f"//{named[0]}").hostname if len(named) == 1 else None
    except ValueError:
        return None


def _cookie_name(connection: HTTPConnection) -> str:
    """The cookie of this port: browsers send a host's cookies to all its ports."""
    port = connection.headers.get("host", "").rpartition(":")[2]
    return f"scribewire_owner_{port if port.isdecimal() else 80}"


def _is_own_user(scope: Scope) -> bool:
    """Whether the client runs as the user of this process. Where the system does not tell, every local user is taken.

    A socket that its program has closed belongs to nobody: it has the inode 0, and the user 0.
    """
    client, server = scope.get("client"), scope.get("server")
    if client is None or server is None or server[1] is None or not ip_address(client[0]).is_loopback:
        return False
    if sys.platform != "linux":
        return True
    ends = [_as_listed(client[0], client[1]), _as_listed(server[0], server[1])]
    try:
        listed = SOCKETS[ip_address(client[0]).version].read_text()
    except OSError as error:  # without a free descriptor nobody is known
        log.warning("the owner cannot be told from other users: %s", error)
        return False
    for line in listed.splitlines():
        cells = line.split()
        if cells[1:3] == ends:
            return int(cells[7]) == os.geteuid() and cells[9] != "0"
    return False


def _as_listed(host: str, port: int) -> str:
    """An address as Linux lists it: words of 32 bits in the machine's order of bytes."""
    packed = ip_address(host).packed
    words = (int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4))
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
