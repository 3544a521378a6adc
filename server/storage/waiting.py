"""Lets tasks wait: for a topic, which wakes them from any thread, or for a database that is away or busy.

Each backend announces topics in its own way. Only patiently() repeats calls of the storage.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeAlias, TypeVar

from server.model.errors import OutcomeUnknown, StorageBusy
from server.model.events import Event
from server.waiting import set_within

AGAIN_S = 0.5
T = TypeVar("T")

Announced: TypeAlias = dict[str, list[Event] | None]
"""The topics of one commit, each with the events that it added to the log of that name, in order.

None: the database must be read, because something else changed too, or because it is not known what changed.
"""


def announce(announced: Announced, topic: str, events: Sequence[Event]) -> None:
    """Note that *topic* changed by *events*; without events, that something else changed."""
    earlier = announced.setdefault(topic, [])
    announced[topic] = None if earlier is None or not events else [*earlier, *events]


Wake: TypeAlias = tuple[asyncio.AbstractEventLoop, Callable[[], None]]
"""A function and the event loop to call it in."""


def call_all(wakes: Iterable[Wake]) -> None:
    """Call the functions in their event loops, from any thread, in order and those of a loop in one turn of it."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Callable[[], None]]] = {}
    for loop, call in wakes:
        by_loop.setdefault(loop, []).append(call)
    for loop, calls in by_loop.items():
        with suppress(RuntimeError):  # the loop has ended, so nobody waits in it
            loop.call_soon_threadsafe(_call_each, calls)


def _call_each(calls: Sequence[Callable[[], None]]) -> None:
    for call in calls:
        call()


class Watch:
    """Wakes one waiting task when a topic is announced after the watch began."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._events: list[Event] | None = []

    def wake(self, events: Sequence[Event] | None = None) -> None:
        """Wake the task, in its own event loop. *events* is the topic's entry in Announced."""
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

    def wakes(self, *commits: Mapping[str, Sequence[Event] | None]) -> list[Wake]:
        """What wakes the watches of these commits, in their order."""
        with self._lock:
            return [
                (watch.loop, partial(watch.wake, events))
                for announced in commits
                for topic, events in announced.items()
                for watch in self._watches.get(topic, ())
            ]

    def wake(self, announced: Mapping[str, Sequence[Event] | None]) -> None:
        """Wake the watches of a commit, from any thread."""
        call_all(self.wakes(announced))

    def wake_all(self) -> None:
        """Wake every task, because it is not known which topics changed."""
        with self._lock:
            everything = dict.fromkeys(self._watches)
        self.wake(everything)


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
