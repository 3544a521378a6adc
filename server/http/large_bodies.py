"""Limits the large request bodies that are kept in memory while they arrive: those with recordings.

A small body takes as much memory as a connection. A large one takes a hundred times as much, for as long as its client
sends it. So there are few places, and an account has one. If none is free, a new body gets the place of the one that
has been arriving longest, if that has taken longer than KEPT_S.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from server.http.problems import Problem
from server.keyed_limits import KeyedTurns, NoTurn
from server.model.errors import ConcurrencyLimited

PLACES = 16  # a body has up to 16 MB, and is copied while it is parsed
WAIT_S = 10.0  # longest wait for the account's place
KEPT_S = 60.0  # after which a place can be lost; the largest body needs 270 kB/s
LARGE_BYTES = 64 * 1024  # smaller bodies are parsed in less time than a thread takes to start

P = ParamSpec("P")
T = TypeVar("T")


class LargeBodies:
    """The places of this process."""

    def __init__(self) -> None:
        self._arriving: list[_Held] = []  # the oldest first
        self._used = 0
        self._turns = KeyedTurns()  # of accounts

    @asynccontextmanager
    async def body(self, account: str) -> AsyncIterator["Place"]:
        """A place in memory for one body, while the block lasts."""
        async with AsyncExitStack() as stack:
            yield Place(self, account, stack)

    @asynccontextmanager
    async def place(self, account: str) -> AsyncIterator["_Held"]:
        try:
            async with self._turns.turn(account, wait_s=WAIT_S), self._place_of_all() as held:
                yield held
        except NoTurn:
            raise ConcurrencyLimited("large bodies", limit=1, used=1) from None

    @asynccontextmanager
    async def _place_of_all(self) -> AsyncIterator["_Held"]:
        now = asyncio.get_running_loop().time()
        if self._used >= PLACES:
            oldest = self._arriving[0] if self._arriving else None
            if oldest is None or now - oldest.since < KEPT_S:
                soon = {"Retry-After": "10", "Connection": "close"}
                raise Problem("queue_full", "too many large bodies are arriving", headers=soon)
            self.settle(oldest)
            oldest.limit.reschedule(now)
        held = _Held(now, asyncio.timeout(None))
        self._arriving.append(held)
        self._used += 1
        try:
            async with held.limit:
                yield held
        except TimeoutError:
            if not held.limit.expired():
                raise
            text = f"the body took longer than {KEPT_S:g} s, and others wait"
            raise Problem("request_timeout", text, headers={"Connection": "close"}) from None
        finally:
            self.settle(held)
            self._used -= 1

    def settle(self, held: "_Held") -> None:
        """Note that the body has arrived or was given up, so its place can no longer be lost."""
        if held in self._arriving:
            self._arriving.remove(held)


@dataclass(slots=True, eq=False)
class _Held:
    since: float
    limit: asyncio.Timeout


@dataclass(slots=True)
class Place:
    """The place of one body, if it needs one."""

    _bodies: LargeBodies
    _account: str
    _stack: AsyncExitStack
    _held: _Held | None = field(default=None, init=False)

    async def claim(self) -> None:
        """Take a place, because the body is large.

        Raises ConcurrencyLimited if the account's place is not free within WAIT_S, and Problem queue_full. From now on
        until settle(), the block of LargeBodies.body() may end with Problem request_timeout.
        """
        if self._held is None:
            self._held = await self._stack.enter_async_context(self._bodies.place(self._account))

    def settle(self) -> None:
        """Note that the body has arrived."""
        if self._held is not None:
            self._bodies.settle(self._held)


async def off_loop(size: int, parse: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Call *parse*; on a thread if the *size* of its input, in bytes, would hold up the event loop."""
    if size <= LARGE_BYTES:
        return parse(*given, **named)
    return await asyncio.to_thread(parse, *given, **named)
