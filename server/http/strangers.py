"""What the layers of HTTP ask about an address before they refuse somebody, or write a line about somebody."""

from typing import Protocol

from starlette.types import Scope

PAUSE_S = 1.0
"""Before an answer to an address that was refused too often."""


class Strangers(Protocol):
    """Counts by address. The server's own is in routes/strangers.py."""

    def check_refusals(self, scope: Scope) -> None:
        """Count a refusal of a client without a key. Raises RateLimited if its address was refused too often."""
        ...

    def may_log(self, scope: Scope, line_bytes: int) -> bool:
        """Whether a line of this length may be written about the request of *scope*. Those left out are summed up."""
        ...
