"""Limits the large request bodies that are kept in memory while they arrive: those with recordings.

A small body takes as much memory as a connection. A large one takes a hundred times as much, for as long as its client
sends it. So there are few places, an account has one, and a body must arrive within ARRIVAL_S.
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
ARRIVAL_S = 180.0  # the longest that a body may take; the largest needs 90 kB/s
LARGE_BYTES = 64 * 1024  # smaller bodies are parsed in less time than a thread takes to start

P = ParamSpec("P")
T = TypeVar("T")


class LargeBodies:
    """The places of this process."""

    def __init__(self) -> None:
        self._used = 0
        self._turns = KeyedTurns()  # of accounts

    @asynccontextmanager
    async def body(self, account: str) -> AsyncIterator["Place"]:
        """A place in memory for one body, while the block lasts."""
        async with AsyncExitStack() as stack:
            yield Place(self, account, stack)

    @asynccontextmanager
    async def hold_place(self, account: str) -> AsyncIterator[asyncio.Timeout]:
        """Hold a place. The block gets the limit of the time that the body may take to arrive."""
        try:
            async with self._turns.turn(account, wait_s=WAIT_S):
                if self._used >= PLACES:
                    soon = {"Retry-After": "10", "Connection": "close"}
                    raise Problem("queue_full", "too many large bodies are arriving", headers=soon)
                self._used += 1
                limit = asyncio.timeout(ARRIVAL_S)
                try:
                    async with limit:
                        yield limit
                except TimeoutError:
                    if not limit.expired():
                        raise
                    text = f"the body took longer than {ARRIVAL_S:g} s to arrive"
                    raise Problem("request_timeout", text, headers={"Connection": "close"}) from None
                finally:
                    self._used -= 1
        except NoTurn:
            raise ConcurrencyLimited("large bodies", limit=1, used=1) from None


@dataclass(slots=True)
class Place:
    """The place of one body, if it needs one."""

    _bodies: LargeBodies
    _account: str
    _stack: AsyncExitStack
    _limit: asyncio.Timeout | None = field(default=None, init=False)

    async def claim(self) -> None:
        """Take a place, because the body is large.

        Raises ConcurrencyLimited if the account's place is not free within WAIT_S, and Problem queue_full. From now on
        until settle(), the block of LargeBodies.body() may end with Problem request_timeout.
        """
        if self._limit is None:
            self._limit = await self._stack.enter_async_context(self._bodies.hold_place(self._account))

    def settle(self) -> None:
        """Note that the body has arrived."""
        if self._limit is not None:
            self._limit.reschedule(None)


async def off_loop(size: int, parse: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Call *parse*; on a thread if the *size* of its input, in bytes, would hold up the event loop."""
    if size <= LARGE_BYTES:
        return parse(*given, **named)
    return await asyncio.to_thread(parse, *given, **named)
