"""Waiting for a database that is away or busy."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from server.model.errors import OutcomeUnknown, StorageBusy

AGAIN_S = 0.5

T = TypeVar("T")


def _go_on() -> None:
    """Nothing ends the waiting."""


async def patiently(ask: Callable[[], Awaitable[T]], *, check: Callable[[], None] = _go_on) -> T:
    """What *ask* answers, asked again while the database is away, or locked for longer than a statement waits.

    *check* raises what ends the waiting.

    Raises OutcomeUnknown: what *ask* writes may be written already.
    """
    while True:
        try:
            return await ask()
        except OutcomeUnknown:
            raise
        except StorageBusy:
            check()
            await asyncio.sleep(AGAIN_S)
            check()
