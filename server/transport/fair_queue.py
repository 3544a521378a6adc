"""Shares the turns of the event loop among the addresses from which work comes.

Everything runs on one thread, so every client waits for all that one turn of the event loop does. A turn reads every
connection that has data and runs every task that is ready. Without a rule, an address that keeps a hundred connections
busy makes each turn a hundred requests long, and another client with one request waits for two such turns.

The rule is fair queueing (Nagle, RFC 970; RFC 8290). Work comes in pieces: to start a request, which
takes some 0.05 ms, or to parse some frames or headers, which takes up to 0.3 ms. A turn has room for WORKS pieces and
TURN_S of parsing. What has no room waits, and the next turns take it from one address after the other. An address that
has nothing waiting and had no piece in this turn is served at once: it asks seldom, so it can take little. Of a crowd
of such addresses a turn serves MOST. An address alone gets all turns, only shorter ones.

What a piece starts, such as the work for a request, runs in later turns, and how long it takes is known only then. So
after a turn that was too long the next ones have room for as many pieces as would have taken as long as a turn may, at
least LEAST on average, and after each shorter one for one more. How long a turn may be depends on who waits for it.
Requests of one turn share some work, such as the look at the database, so an address that has asked alone for SHARED_S
gets turns of LONG_TURN_S. While two or more ask, each waits for the turns of the others, and a turn has SHARED_TURN_S.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable

WORKS = 16
"""Pieces of work in one turn of the event loop. Addresses that have nothing waiting may add to them."""

MOST = 64
"""The most pieces of work in one turn, for all addresses together."""

TURN_S = 0.0004
"""The time after which a turn does no more work of addresses that have had a piece."""

LEAST = 0.5
"""Pieces of work for which every turn has room: one in two turns. What it starts then has a turn of its own."""

LONG_TURN_S = 0.0012
"""The CPU time of a whole turn, with all that runs in it, beyond which the next turns have room for fewer pieces."""

SHARED_TURN_S = 0.0004
"""The same while more than one address asks."""

SHARED_S = 1.0
"""How long two addresses that ask after each other count as asking at the same time."""


class FairQueue:
    """Work that waits for its turn, by party. A party is an address, or one connection of a proxy."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[Hashable, deque[Callable[[], None]]] = OrderedDict()  # the next party first
        self._served: set[Hashable] = set()  # parties that had a piece in this turn
        self._room: float = WORKS  # pieces for which a turn has room at present
        self._left = 0.0  # pieces for which this turn still has room
        self._until = 0.0  # the end of this turn
        self._scheduled_at = 0.0  # in CPU time of the event loop's thread
        self._scheduled = False
        self._newest: Hashable = None  # the party that asked last
        self._shared_until = 0.0  # until when more than one party counts as asking

    def take(self, party: Hashable) -> bool:
        """Whether *party* may do a piece of work at once. If not, it should join()."""
        if not self._scheduled:
            self._begin_turn()
            self._schedule()
        if party != self._newest:
            self._newest, self._shared_until = party, self._until + SHARED_S
        if party in self._waiting or (party in self._served and (self._waiting or not self._has_room())):
            return False
        if self._left <= self._room - MOST:
            return False
        self._served.add(party)
        self._left -= 1
        return True

    def join(self, party: Hashable, work: Callable[[], None]) -> None:
        """Call *work* in one of the next turns of the event loop, after all waiting work of *party*."""
        self._waiting.setdefault(party, deque()).append(work)
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        self._scheduled_at = time.thread_time()
        asyncio.get_running_loop().call_soon(self._serve)

    def _begin_turn(self) -> None:
        self._served.clear()
        self._left = self._room + self._left % 1  # a part of a piece counts in the next turn
        self._until = time.monotonic() + TURN_S

    def _has_room(self) -> bool:
        return self._left >= 1 and time.monotonic() < self._until

    def _serve(self) -> None:
        """Begin the next turn with the waiting work."""
        self._scheduled = False
        took_s = time.thread_time() - self._scheduled_at
        most_s = SHARED_TURN_S if self._until < self._shared_until else LONG_TURN_S
        fitting = self._room * most_s / took_s if took_s > most_s else self._room + 1
        self._room = min(max(LEAST, fitting), WORKS)
        if not self._waiting:
            return
        self._begin_turn()
        self._schedule()  # first, because work that raises must not hold up the rest
        while self._waiting and self._has_room():
            party, works = self._waiting.popitem(last=False)
            if len(works) > 1:
                self._waiting[party] = works  # behind all others
            self._served.add(party)
            self._left -= 1
            works.popleft()()
