"""Waits for a database that is away or busy. Only this file repeats calls of it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from server.model.errors import OutcomeUnknown, StorageBusy

AGAIN_S = 0.5

T = TypeVar("T")


async def patiently(
    ask: Callable[[], Awaitable[T]],
    *,
    check: Callable[[], None] = lambda: None,
    despite: tuple[type[Exception], ...] = (StorageBusy,),
    repeatable: bool = False,
) -> T:
    """Call *ask* every AGAIN_S seconds until it raises none of the errors in *despite*, and return its result.

    *check*: called between two calls. It ends the waiting by raising.
    *repeatable*: False raises OutcomeUnknown at once, because a second call might do the work twice.
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
