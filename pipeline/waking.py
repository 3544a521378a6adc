"""Waiting on one event loop until something holds. The sessions of live streams use it between their tasks."""

import asyncio
from collections.abc import Callable


class Changes:
    """Wakes tasks that wait for a condition. A task that changes something calls notify() after the change."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}

    def notify(self) -> None:
        """Wake the tasks in until() whose condition holds now."""
        for waiter, holds in self._waiting.items():
            if not waiter.done() and holds():
                waiter.set_result(None)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until *holds* is true. Returns at once if it is already."""
        while not holds():
            waiter = asyncio.get_running_loop().create_future()
            self._waiting[waiter] = holds
            try:
                await waiter
            finally:
                del self._waiting[waiter]
