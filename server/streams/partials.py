"""The newest partial of every live job: words that may still change. Older partials are dropped.

A job with separate channels has a partial for each channel. A partial belongs behind one event of its job's log, and a
reader gets it when it has this event. So a partial never comes before the words that it follows or after those that
replace it. A slow reader misses partials and nothing else.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class ShownPartial:
    """A partial for readers. *body* is its JSON; each partial has a higher *number* than those before."""

    number: int
    after: int  # the log's last event at the time
    body: bytes
    channel: int | None = None


class Partials:
    """The newest partials of each job. Used in one event loop only."""

    def __init__(self) -> None:
        self._newest: dict[str, dict[int | None, ShownPartial]] = {}  # by job and channel, in the order of numbers
        self._watches: dict[str, set[Callable[[], None]]] = {}
        self.on_change: Callable[[str], None] | None = None  # called with each job whose partial changes
        self._number = 0

    @property
    def watched_jobs(self) -> Collection[str]:
        """The jobs whose partials are watched."""
        return self._watches.keys()

    def newest(self, job_id: str) -> Collection[ShownPartial]:
        """The job's partials, at most one of each channel, in the order of their numbers."""
        return self._newest.get(job_id, {}).values()

    def show(self, job_id: str, body: bytes, *, after: int, channel: int | None = None) -> None:
        """Replace the partial of the job's channel by *body*, which belongs after event *after*."""
        self._number += 1
        shown = self._newest.setdefault(job_id, {})
        shown.pop(channel, None)
        shown[channel] = ShownPartial(self._number, after, body, channel)
        self._wake(job_id)

    def move(self, job_id: str, *, after: int) -> None:
        """Let the job's partials belong behind event *after*, because the log has grown."""
        shown = self._newest.get(job_id, {})
        for channel, partial in shown.items():
            shown[channel] = replace(partial, after=after)
        if shown:
            self._wake(job_id)

    def clear(self, job_id: str, *, channel: int | None = None) -> None:
        """Drop the partial of the job's channel, because its words are in the log or were withdrawn."""
        shown = self._newest.get(job_id, {})
        if shown.pop(channel, None) is not None:
            if not shown:
                del self._newest[job_id]
            if self.on_change is not None:
                self.on_change(job_id)

    @contextmanager
    def watch(self, job_id: str, wake: Callable[[], None]) -> Iterator[None]:
        """Call *wake* whenever there may be a new partial, while the block lasts."""
        self._watches.setdefault(job_id, set()).add(wake)
        try:
            yield
        finally:
            self._watches[job_id].discard(wake)
            if not self._watches[job_id]:
                del self._watches[job_id]

    def _wake(self, job_id: str) -> None:
        if self.on_change is not None:
            self.on_change(job_id)
        for wake in self._watches.get(job_id, ()):
            wake()
