"""Waiting for a database that is away."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from server.model.errors import OutcomeUnknown, StorageAway

AGAIN_S = 0.5

T = TypeVar("T")


def _go_on() -> None:
    """Nothing ends the waiting."""


async def patiently(ask: Callable[[], Awaitable[T]], *, check: Callable[[], None] = _go_on) -> T:
    """What *ask* answers, asked again while the database is away. *check* raises what ends the waiting.

    Raises OutcomeUnknown: what *ask* writes may be written already.
    """
    while True:
        try:
            return await ask()
        except OutcomeUnknown:
            raise
        except StorageAway:
            check()
            await asyncio.sleep(AGAIN_S)
            check()
