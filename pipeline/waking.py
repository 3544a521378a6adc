"""Waiting on one event loop until something holds. The sessions of live streams use it between their tasks."""

import asyncio
from collections.abc import Callable


class Changes:
    """Whoever changes what others wait for calls tell(); they look again whether it holds now."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def tell(self) -> None:
        """Wake everything that waits in until()."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until *holds* is true. Returns at once if it is already."""
        while not holds():
            await self._changed.wait()
