"""The newest partial of every live job: what is heard but may still change. Nothing older is kept, and nothing queued.

A partial belongs behind one place of its job's log. Readers send it when they are at that place, so it never comes
before the words that it follows nor after those that replace it; whoever is slow misses partials and nothing else.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class ShownPartial:
    """*body* is its JSON; *number* tells it from the one before."""

    number: int
    after: int  # the last event of the log when it was heard
    body: bytes


class Partials:
    """For one event loop. Holds one partial per job that is being heard here."""

    def __init__(self) -> None:
        self._newest: dict[str, ShownPartial] = {}
        self._watches: dict[str, set[asyncio.Event]] = {}
        self._number = 0

    def newest(self, job_id: str) -> ShownPartial | None:
        return self._newest.get(job_id)

    def show(self, job_id: str, body: bytes, *, after: int) -> None:
        """*body* replaces the job's partial and stands behind event *after*."""
        self._number += 1
        self._newest[job_id] = ShownPartial(self._number, after, body)
        self._wake(job_id)

    def move(self, job_id: str, *, after: int) -> None:
        """The partial holds although the log went on to *after*."""
        if (partial := self._newest.get(job_id)) is not None:
            self._newest[job_id] = replace(partial, after=after)
            self._wake(job_id)

    def end(self, job_id: str) -> None:
        """Its words are in the log now, or were never said."""
        self._newest.pop(job_id, None)

    @contextmanager
    def watch(self, job_id: str) -> Iterator[asyncio.Event]:
        """Set whenever a partial may have become readable; the watcher clears it before he looks."""
        watch = asyncio.Event()
        self._watches.setdefault(job_id, set()).add(watch)
        try:
            yield watch
        finally:
            self._watches[job_id].discard(watch)
            if not self._watches[job_id]:
                del self._watches[job_id]

    def _wake(self, job_id: str) -> None:
        for watch in self._watches.get(job_id, ()):
            watch.set()
