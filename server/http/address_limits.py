"""The interfaces of the limits of addresses and connections that http/ uses. routes/ and transport/ implement them."""

from typing import Protocol

from starlette.types import Scope

PAUSE_S = 1.0
"""The delay of an answer to an address that was refused too often."""


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


class AddressLimits(Protocol):
    """Limits what one network address may do. requests/limits.py implements it."""

    def check_connections(self, scope: Scope) -> None:
        """Count the connection for the address that a proxy forwarded. Raises Problem too_many_connections."""

    def check_refusals(self, scope: Scope) -> None:
        """Count a refusal of a client without a key. Raises RateLimited if its address was refused too often."""

    def may_log(self, scope: Scope) -> bool:
        """Whether a line about a request may be logged. Lines that are left out are counted."""
