"""Limits the webhooks that are under way at once: in all, of one account, to one host and to one network address.

Deliveries and tests on demand share these slots, so that no account, no dead receiver and no receiver with a thousand
names can delay the others.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from server.accounts.addresses import address_key
from server.config import Address
from server.keyed_limits import Tally
from server.model.deliveries import Crowding
from server.model.errors import Refused

MAX_AT_ONCE = 64
KEPT = 16  # of these slots, for accounts with no message under way
MAX_PER_HOST = 4  # against a dead host
MAX_PER_ACCOUNT = 16  # against an account with many dead hosts
MAX_PER_ACCOUNT_AND_ADDRESS = 8  # against a dead receiver with many host names
MAX_PER_ADDRESS = 16  # against a dead receiver that many accounts use
MAX_TURNS = 10_000  # accounts whose last turn is in memory; beyond it all turns are dropped


class Crowded(Exception):
    """The receiver's network address has too many messages under way. Try again in some seconds."""


@dataclass(slots=True)
class DeliverySlots:
    """Counts the messages under way. Used in one event loop only."""

    _hosts: Tally[str] = field(default_factory=Tally)
    _accounts: Tally[str] = field(default_factory=Tally)
    _addresses: Tally[str] = field(default_factory=Tally)
    _account_addresses: Tally[tuple[str, str]] = field(default_factory=Tally)
    _turns: dict[str, int] = field(default_factory=dict)
    _turn: int = 0
    _left: asyncio.Event = field(default_factory=asyncio.Event)  # set when a slot becomes free

    @property
    def free(self) -> int:
        return MAX_AT_ONCE - self._accounts.total()

    def crowding(self) -> Crowding:
        """The numbers for Outbox.claim_due(). They change with those of this object."""
        return Crowding(
            per_host=MAX_PER_HOST,
            per_account=MAX_PER_ACCOUNT,
            kept=KEPT,
            hosts=self._hosts,
            accounts=self._accounts,
            turns=self._turns,
        )

    async def wait_for_free(self) -> None:
        while self.free <= 0:
            self._left.clear()
            await self._left.wait()

    def take(self, account: str, host: str) -> None:
        """Take a slot for a claimed message of *account* to *host*. leave() frees it."""
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
    def hold(self, account: str, host: str) -> Iterator[None]:
        """Take a slot while the block lasts, for a message that is no delivery. Raises Refused too_many_connections."""
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
        """Take a slot for the network *address* while the block lasts. Raises Crowded.

        An account may have MAX_PER_ACCOUNT_AND_ADDRESS slots of an address, for any number of host names. If all
        MAX_PER_ADDRESS slots are taken, an account without one still gets one, because accounts may share a receiver
        that one of them keeps busy.
        """
        place = address_key(address)
        mine = self._account_addresses[account, place]
        if mine >= MAX_PER_ACCOUNT_AND_ADDRESS or (mine and self._addresses[place] >= MAX_PER_ADDRESS):
            raise Crowded(f"{place} has {self._addresses[place]} messages on their way")
        with self._addresses.adding(place), self._account_addresses.adding((account, place)):
            yield


def crowding_refusal() -> Refused:
    return Refused("too_many_connections", "too many webhooks are on their way; try again soon", retry_after_s=5)
