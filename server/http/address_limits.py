"""What the layers of HTTP ask about an address or a connection before they let it go on, or write a line about it."""

from typing import Protocol

from starlette.types import Scope

PAUSE_S = 1.0
"""Before an answer to an address that was refused too often."""


class ConnectionUse(Protocol):
    """What is told of a connection while it is used, as scope["state"]["connection"]. See TrackedConnection."""

    def count_for(self, account: str) -> bool:
        """Count it among those of *account* until it rests. Returns False if the account has as many as it may."""
        ...

    def count_forwarded(self, address: str) -> bool:
        """The same for the address that a trusted proxy tells."""
        ...

    def work(self) -> None:
        """It is needed."""
        ...

    def idle(self) -> None:
        """Nothing is sent over it for now, so it may be closed if others need the room."""
        ...


class AddressLimits(Protocol):
    """Counts by address. The server's own is in routes/address_counters.py."""

    def check_connections(self, scope: Scope) -> None:
        """Count the connection for the address that a proxy tells. Raises Problem too_many_connections."""
        ...

    def check_refusals(self, scope: Scope) -> None:
        """Count a refusal of a client without a key. Raises RateLimited if its address was refused too often."""
        ...

    def may_log(self, scope: Scope, line_bytes: int) -> bool:
        """Whether a line of this length may be written about the request of *scope*. Those left out are summed up."""
        ...
