"""Limits the webhooks that are under way at once: in all, of one account and to one host.

Deliveries and tests on demand share these slots. So a receiver that does not answer keeps 4 of them until its time is
over, an account with many such receivers 16, and the others go on.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from server.keyed_limits import Tally
from server.model.deliveries import Crowding
from server.model.errors import Refused

MAX_AT_ONCE = 256
MAX_PER_HOST = 4
MAX_PER_ACCOUNT = 16


@dataclass(slots=True)
class DeliverySlots:
    """Counts the messages under way. Used in one event loop only."""

    _hosts: Tally[str] = field(default_factory=Tally)
    _accounts: Tally[str] = field(default_factory=Tally)
    _left: asyncio.Event = field(default_factory=asyncio.Event)  # set when a slot becomes free

    @property
    def free(self) -> int:
        return MAX_AT_ONCE - self._accounts.total()

    def crowding(self) -> Crowding:
        """The numbers for Outbox.claim_due(). They change with those of this object."""
        return Crowding(per_host=MAX_PER_HOST, per_account=MAX_PER_ACCOUNT, hosts=self._hosts, accounts=self._accounts)

    async def wait_for_free(self) -> None:
        while self.free <= 0:
            self._left.clear()
            await self._left.wait()

    def claim(self, account: str, host: str) -> None:
        """Take a slot for a claimed message of *account* to *host*. leave() frees it."""
        self._accounts[account] += 1
        self._hosts[host] += 1

    def leave(self, account: str, host: str) -> None:
        self._accounts.leave(account)
        self._hosts.leave(host)
        self._left.set()

    @contextmanager
    def hold(self, account: str, host: str) -> Iterator[None]:
        """Take a slot while the block lasts, for a message that is no delivery. Raises Refused too_many_connections."""
        if self.free <= 0 or self._accounts[account] >= MAX_PER_ACCOUNT or self._hosts[host] >= MAX_PER_HOST:
            raise Refused("too_many_connections", "too many webhooks are on their way; try again soon", retry_after_s=5)
        self.claim(account, host)
        try:
            yield
        finally:
            self.leave(account, host)
