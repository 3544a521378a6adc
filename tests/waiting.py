"""Waiting for a condition, with a deadline: tests never wait for a time."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


def until(look: Callable[[], T | None], *, max_s: float = 30) -> T:
    """Call *look* a few times a second until its result is true, and return that."""
    end = time.monotonic() + max_s
    while not (seen := look()):
        if time.monotonic() > end:
            raise AssertionError(f"still nothing after {max_s} s")
        time.sleep(0.05)
    return seen


async def eventually(look: Callable[[], T | Awaitable[T]], *, max_s: float = 30) -> T:
    """Do the same in an event loop. *look* may be a coroutine function."""
    async with asyncio.timeout(max_s):
        while True:
            seen = look()
            if inspect.isawaitable(seen):
                seen = await seen
            if seen:
                return seen
            await asyncio.sleep(0.01)
