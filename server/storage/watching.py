"""Lets tasks wait for a topic, and wakes them from any thread. Each backend announces topics in its own way."""

import asyncio
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from server.waiting import set_within


class Watch:
    """Wakes one waiting task when a topic is announced after the watch began."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def wake(self) -> None:
        """Wake the task, from any thread."""
        with suppress(RuntimeError):  # the waiter's loop has ended, so there is nothing to wake
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Return True when woken, False after *timeout_s*."""
        if not await set_within(self._event, timeout_s):
            return False
        self._event.clear()
        return True


class Watches:
    """The watches of one process, by topic."""

    def __init__(self) -> None:
        self._watches: dict[str, set[Watch]] = {}
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        """Whether anybody waits for anything."""
        return bool(self._watches)

    @contextmanager
    def watch(self, topic: str) -> Iterator[Watch]:
        """See Database.watch()."""
        watch = Watch()
        with self._lock:
            self._watches.setdefault(topic, set()).add(watch)
        try:
            yield watch
        finally:
            with self._lock:
                self._watches[topic].discard(watch)
                if not self._watches[topic]:
                    del self._watches[topic]

    def wake(self, topics: Collection[str]) -> None:
        with self._lock:
            woken = [watch for topic in topics for watch in self._watches.get(topic, ())]
        for watch in woken:
            watch.wake()

    def wake_all(self) -> None:
        """Wake every task, because it is not known which topics changed."""
        with self._lock:
            everything = set(self._watches)
        self.wake(everything)
