"""Waiting for a database that is away or busy: the one place in which anything is asked of it again."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from server.model.errors import OutcomeUnknown, StorageBusy

AGAIN_S = 0.5

T = TypeVar("T")


def _go_on() -> None:
    """Nothing ends the waiting."""


async def patiently(
    ask: Callable[[], Awaitable[T]],
    *,
    check: Callable[[], None] = _go_on,
    despite: tuple[type[Exception], ...] = (StorageBusy,),
    repeatable: bool = False,
) -> T:
    """Return what *ask* answers, calling it again while the database is away or locked for too long.

    *despite* has the errors after which it is called again. *check* is called before each new call, and raises to end
    the waiting. A write whose outcome is unknown raises OutcomeUnknown, unless it is *repeatable*.
    """
    while True:
        try:
            return await ask()
        except despite as error:
            if isinstance(error, OutcomeUnknown) and not repeatable:
                raise
            check()
            await asyncio.sleep(AGAIN_S)
            check()
