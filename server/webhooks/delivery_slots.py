"""Limits the webhooks that are under way at once: in all, of one account, to one host and to one network address.

Deliveries and tests on demand share these slots. So no account, no dead receiver and no receiver with a thousand names
can delay the others.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from server.accounts.addresses import address_key
from server.accounts.limits import Tally
from server.config import Address
from server.model.deliveries import Crowding
from server.model.errors import Refused

MAX_AT_ONCE = 64
KEPT = 16  # of them for accounts that have none on their way
MAX_PER_HOST = 4  # so that a dead host does not delay the others,
MAX_PER_ACCOUNT = 16  # nor a customer with a hundred of them,
MAX_PER_ACCOUNT_AND_ADDRESS = 8  # nor a dead receiver with a thousand names,
MAX_PER_ADDRESS = 16  # nor one that many accounts name
MAX_TURNS = 10_000  # accounts whose last turn is remembered; beyond it all are forgotten


class Crowded(Exception):
    """The receiver's network address has as many messages on their way as it may have. Try again in a while."""


@dataclass(slots=True)
class DeliverySlots:
    """Counts the messages under way. It belongs to one event loop."""

    _hosts: Tally[str] = field(default_factory=Tally)
    _accounts: Tally[str] = field(default_factory=Tally)
    _addresses: Tally[str] = field(default_factory=Tally)
    _account_addresses: Tally[tuple[str, str]] = field(default_factory=Tally)
    _turns: dict[str, int] = field(default_factory=dict)
    _turn: int = 0
    _left: asyncio.Event = field(default_factory=asyncio.Event)  # somebody left a seat

    @property
    def free(self) -> int:
        return MAX_AT_ONCE - self._accounts.total()

    def crowding(self) -> Crowding:
        """What Outbox.claim_due() needs to know. Its numbers follow those of this object."""
        return Crowding(
            per_host=MAX_PER_HOST,
            per_account=MAX_PER_ACCOUNT,
            kept=KEPT,
            hosts=self._hosts,
            accounts=self._accounts,
            turns=self._turns,
        )

    async def wait_for_free(self) -> None:
        """Return once a seat is free."""
        while self.free <= 0:
            self._left.clear()
            await self._left.wait()

    def take(self, account: str, host: str) -> None:
        """Take a seat for a message of *account* to *host* that claim_due() found room for. leave() gives it back."""
        if len(self._turns) >= MAX_TURNS:
            self._turns.clear()
        self._turn += 1
        self._turns[account] = self._turn
        self._accounts[account] += 1
        self._hosts[host] += 1

    def leave(self, account: str, host: str) -> None:
        self._accounts.leave(account)
        self._hosts.leave(host)
        self._left.set()

    @contextmanager
    def taken(self, account: str, host: str) -> Iterator[None]:
        """A seat while the block lasts, for a message that nobody claimed. Raises Refused too_many_connections."""
        busy = self._accounts[account]
        if self.free <= (KEPT if busy else 0) or busy >= MAX_PER_ACCOUNT or self._hosts[host] >= MAX_PER_HOST:
            raise crowding_refusal()
        self.take(account, host)
        try:
            yield
        finally:
            self.leave(account, host)

    @contextmanager
    def at(self, account: str, address: Address) -> Iterator[None]:
        """A slot for a delivery to the network *address* while the block lasts. Raises Crowded.

        An account may have MAX_PER_ACCOUNT_AND_ADDRESS slots there, under any number of names. When all slots are
        taken, an account without one still gets one, because customers may share a receiver that one of them keeps
        busy.
        """
        place = address_key(address)
        mine = self._account_addresses[account, place]
        if mine >= MAX_PER_ACCOUNT_AND_ADDRESS or (mine and self._addresses[place] >= MAX_PER_ADDRESS):
            raise Crowded(f"{place} has {self._addresses[place]} messages on their way")
        with self._addresses.adding(place), self._account_addresses.adding((account, place)):
            yield


def crowding_refusal() -> Refused:
    return Refused("too_many_connections", "too many webhooks are on their way; try again soon", retry_after_s=5)
