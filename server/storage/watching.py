"""Lets tasks wait for a topic, and wakes them from any thread. Each backend announces topics in its own way."""

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TypeAlias

from server.model.events import Event
from server.waiting import set_within

Announced: TypeAlias = dict[str, list[Event] | None]
"""The topics of one commit, each with the events that it added to the log of that name, in order.

None: the database must be read, because something else changed too, or because it is not known what changed.
"""


def announce(announced: Announced, topic: str, events: Sequence[Event]) -> None:
    """Note that *topic* changed by *events*; without events, that something else changed."""
    earlier = announced.setdefault(topic, [])
    announced[topic] = None if earlier is None or not events else [*earlier, *events]


class Watch:
    """Wakes one waiting task when a topic is announced after the watch began."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._events: list[Event] | None = []

    def wake(self, events: Sequence[Event] | None = None) -> None:
        """Wake the task, from any thread. *events* is the topic's entry in Announced."""
        with suppress(RuntimeError):  # the waiter's loop has ended, so there is nothing to wake
            self._loop.call_soon_threadsafe(self._note, events)

    def _note(self, events: Sequence[Event] | None) -> None:
        self._events = None if events is None or self._events is None else [*self._events, *events]
        self._event.set()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Return True when woken, False after *timeout_s*."""
        if not await set_within(self._event, timeout_s):
            return False
        self._event.clear()
        return True

    def drain_events(self) -> list[Event] | None:
        """The events since the last call, in the order in which commits announced them; None: read the database."""
        events, self._events = self._events, []
        return events


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

    def wake(self, announced: Mapping[str, Sequence[Event] | None]) -> None:
        with self._lock:
            woken = [(watch, events) for topic, events in announced.items() for watch in self._watches.get(topic, ())]
        for watch, events in woken:
            watch.wake(events)

    def wake_all(self) -> None:
        """Wake every task, because it is not known which topics changed."""
        with self._lock:
            everything = dict.fromkeys(self._watches)
        self.wake(everything)
