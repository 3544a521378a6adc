"""The limits of addresses and connections, as the layers of HTTP use them. The routes implement them."""

from typing import Protocol

from starlette.types import Scope

PAUSE_S = 1.0
"""Before an answer to an address that was refused too often."""


class ConnectionUse(Protocol):
    """The use of a connection, as scope["state"]["connection"]. TrackedConnection implements it."""

    def count_for(self, account: str) -> bool:
        """Count it as one of *account* until it is idle. Returns False if the account has too many."""

    def count_forwarded(self, address: str) -> bool:
        """The same for an address that a trusted proxy forwarded."""

    def work(self) -> None:
        """Note that it is needed, so it must not be closed to make room."""

    def idle(self) -> None:
        """Note that nothing is sent over it for now, so it may be closed if others need the room."""


class IdleReport:
    """Reports to the connection of *scope* whether a stream on it has nothing to send at the moment."""

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
    """Refuses what is too much from one network address. routes/address_counters.py implements it."""

    def check_connections(self, scope: Scope) -> None:
        """Count the connection for the address that a proxy forwarded. Raises Problem too_many_connections."""

    def check_refusals(self, scope: Scope) -> None:
        """Count a refusal of a client without a key. Raises RateLimited if its address was refused too often."""

    def may_log(self, scope: Scope, line_bytes: int) -> bool:
        """Whether a line of this length may be logged about the request of *scope*. Left-out lines are counted."""
