"""Reads what many tasks ask for at about the same time at once."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Generic, TypeVar

GATHER_S = 0.1  # how long the first one waits for others

T = TypeVar("T")


class SharedReads(Generic[T]):
    """Reads rows by key: those that are asked for within GATHER_S in one read. It belongs to one event loop."""

    def __init__(self, read: Callable[[Collection[str]], Awaitable[Mapping[str, T]]]) -> None:
        self._read = read
        self._keys: set[str] = set()
        self._reading: asyncio.Task[Mapping[str, T]] | None = None

    async def get(self, key: str) -> T | None:
        """What was read for *key*, None if there is nothing. Raises what the read raises."""
        if self._reading is None:
            self._keys = set()
            self._reading = asyncio.create_task(self._read_soon(), name="shared read")
            self._reading.add_done_callback(
                lambda read: read.cancelled() or read.exception()
            )  # its askers may have left
        self._keys.add(key)
        return (await asyncio.shield(self._reading)).get(key)

    async def _read_soon(self) -> Mapping[str, T]:
        await asyncio.sleep(GATHER_S)
        self._reading = None
        return await self._read(self._keys)
