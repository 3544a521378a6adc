"""Gives one job's newest events and partials, rendered once, to all of its readers in this process.

The feed gets each event when it is committed, and keeps the newest ones in memory. Only events of other processes are
read from the log. A reader that is farther behind reads pages of the log, so it costs a page of memory and delays
nobody. New events wake the readers in groups, so that the event loop can do other work in between.

A partial, words that may still change, belongs after one event of its job's log, and a reader gets it when it has this
event. So it never comes before the words that it follows or after those that replace it. Only the newest partial of
each channel is kept: a slow reader misses partials and nothing else.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

from msgspec.json import decode as json_decode

from server.model.errors import StorageAway
from server.model.events import Event
from server.model.jobs import TERMINAL_EVENTS
from server.storage.sql.timeline import Timelines
from server.storage.waiting import patiently
from server.waiting import racing

KEPT = 128  # events in memory for readers that are behind; up to twice as many for a while
WOKEN_AT_ONCE = 64  # readers, in one turn of the event loop
PAGE = 100  # events of the log that are read at once
PAGE_SHARED_S = 0.25  # how long a page stays in memory for other readers at the same place


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
        """Let the job's partials belong after event *after*, because the log has grown."""
        shown = self._newest.get(job_id, {})
        for channel, one in shown.items():
            shown[channel] = replace(one, after=after)
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


T = TypeVar("T")
ORIGINAL = "original"
"""Among the languages that a reader wants: the words as they are spoken."""
Languages: TypeAlias = frozenset[str] | None
"""ORIGINAL and codes of translations; None: everything."""
_OF_WORDS = frozenset({"word", "segment", "partial", "language", "speakers.revised"})
Seen: TypeAlias = Event | ShownPartial


@dataclass(slots=True, eq=False)
class Rendered:
    """An event or partial with its JSON, which contains the job's id and the event's number."""

    seen: Seen
    body: bytes
    delivers_results: bool = False  # it has all results of a job that keeps none
    _forms: dict[Callable[..., Any], Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The type of the event, or "partial"."""
        return "partial" if isinstance(self.seen, ShownPartial) else self.seen.type

    @property
    def seq(self) -> int | None:
        """The number of the event; a partial has none."""
        return None if isinstance(self.seen, ShownPartial) else self.seen.seq

    def is_for(self, languages: Languages) -> bool:
        """Whether a reader of these *languages* gets it. What is in no language is for all."""
        if languages is None:
            return True
        if self.kind == "translation":
            return self.form(_target_of) in languages
        return self.kind not in _OF_WORDS or ORIGINAL in languages

    def form(self, make: Callable[["Rendered"], T]) -> T:
        """The result of *make*, which is called once for all readers."""
        if make not in self._forms:
            self._forms[make] = make(self)
        made: T = self._forms[make]
        return made


@dataclass(slots=True, eq=False)
class RenderedBatch:
    """Events in order, then perhaps partials, that a reader gets together. Never empty."""

    items: Sequence[Rendered]
    event: Event | None = field(init=False)
    """The last of the events; None if there is only a partial."""
    partial: ShownPartial | None = field(init=False)
    """The newest of the partials; None if there are only events."""
    delivers_results: bool = field(init=False)
    """Whether it has all results of a job that keeps none. Only a job's last event has them."""
    _joined: dict[tuple[Callable[..., bytes], Languages], bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Look once at the items for all readers."""
        last = self.items[-1]
        self.event = next((item.seen for item in reversed(self.items) if isinstance(item.seen, Event)), None)
        self.partial = last.seen if isinstance(last.seen, ShownPartial) else None
        self.delivers_results = last.delivers_results

    def join_bytes(self, make: Callable[[Rendered], bytes], languages: Languages = None) -> bytes:
        """The forms that *make* gives the items for readers of *languages*, joined: once for all of them."""
        key = (make, languages)
        if key not in self._joined:
            self._joined[key] = b"".join(item.form(make) for item in self.items if item.is_for(languages))
        return self._joined[key]


def _target_of(item: Rendered) -> str:
    target: str = json_decode(item.body)["target"]
    return target


def partial_body(job_id: str, shown: ShownPartial) -> bytes:
    return _with_members(f'"job_id":"{job_id}"', shown.body)


def event_body(event: Event) -> bytes:
    """The JSON of an event that is not a job's last one."""
    return _with_members(f'"job_id":"{event.stream}","seq":{event.seq}', event.body)


def json_with_type(item: Rendered) -> bytes:
    """The JSON with the member `type`, for WebSockets. Server-Sent Events have the type outside the JSON."""
    return item.body if item.kind in TERMINAL_EVENTS else _with_members(f'"type":"{item.kind}"', item.body)


def _with_members(members: str, body: bytes) -> bytes:
    """The JSON object *body*, with *members* in front of its own members."""
    return b"{" + members.encode() + (b"," + body[1:] if len(body) > len(b"{}") else b"}")


class Feed:
    """Follows one job for its readers, until the job is over, the server stops, or the last reader has left."""

    def __init__(
        self,
        job_id: str,
        *,
        timelines: Timelines,
        partials: Partials,
        render: Callable[[Event], Awaitable[Rendered]],
        closing: asyncio.Event,
        quiet_s: float,
    ) -> None:
        """*quiet_s* is the number of seconds without an event after which a waiting reader gets None."""
        self.readers = 0  # the number of readers, which Following.open_reader() counts
        self.version = 0  # grows whenever there may be something new
        self._job_id = job_id
        self._timelines = timelines
        self._partials = partials
        self._render = render
        self._closing = closing
        self._quiet_s = quiet_s
        self._loop = asyncio.get_running_loop()
        self._last: int | None = None  # the number of the newest event; None before the log was looked at
        self._newest: list[Rendered] = []  # events up to the last one
        self._rendered: dict[int | None, Rendered] = {}  # the partials, by channel
        self._batches: dict[tuple[int, tuple[int, ...]], RenderedBatch] = {}  # of this version, by start and partials
        self._pages: dict[int, asyncio.Task[RenderedBatch | None]] = {}  # being read, by the number before them
        # By reader: the version it has seen, since when, and its newest event.
        self._waiting: OrderedDict[asyncio.Future[bool], tuple[int, float, int | None]] = OrderedDict()
        self._waking = False
        self._timer: asyncio.TimerHandle | None = None
        self._task = asyncio.create_task(self._follow())
        self._task.add_done_callback(lambda _: self._note_change())

    # --- for readers -------------------------------------------------------------------------------------------------

    @property
    def started(self) -> bool:
        """Whether the feed knows how long the log is."""
        return self._last is not None or self.over

    @property
    def over(self) -> bool:
        """Whether no further event can come."""
        return self._task.done()

    def check(self) -> None:
        """Raise the error that ended the feed, if one did."""
        if self.over and not self._task.cancelled():
            self._task.result()

    def has(self, after: int) -> bool:
        """Whether the events after number *after* are still in memory."""
        return self._last is not None and after >= self._last - len(self._newest)

    def batch_after(self, after: int, shown: int) -> RenderedBatch | None:
        """Return the next batch for a reader, or None without news. Readers at the same place get the same batch.

        *after*: the reader's last event. has() must be true for it.
        *shown*: the number of its newest partial.
        """
        assert self._last is not None, "has() is asked first"
        place, behind = max(after, self._last), max(0, self._last - after)
        partials = [one for one in self._partials.newest(self._job_id) if one.after == place and one.number > shown]
        if not behind and not partials:
            return None
        key = (after, tuple(one.number for one in partials))
        if key not in self._batches:
            events = self._newest[len(self._newest) - behind :]
            self._batches[key] = RenderedBatch([*events, *self._render_partials(partials)])
        return self._batches[key]

    async def page_after(self, after: int) -> RenderedBatch | None:
        """The log's next events after number *after*, for a reader whose place is no longer in memory; None if none.

        Readers that ask for the same page at the same time share one read of the log.
        """
        reading = self._pages.get(after)
        if reading is None:
            reading = self._pages[after] = self._loop.create_task(self._read_page(after))
            self._loop.call_later(PAGE_SHARED_S, self._forget_page, after, reading)
        return await asyncio.shield(reading)

    async def wait(self, version: int) -> bool:
        """Wait until *version* is no longer the newest. Returns False if it still was after *quiet_s* seconds."""
        if version != self.version:
            return True
        waiter: asyncio.Future[bool] = self._loop.create_future()
        since = self._loop.time()
        self._waiting[waiter] = version, since, self._last
        self._wake_readers_at(since + self._quiet_s)
        try:
            return await waiter
        finally:
            self._waiting.pop(waiter, None)

    def close(self) -> None:
        """Stop following. Call it when the last reader has left."""
        self._task.cancel()
        if self._timer is not None:
            self._timer.cancel()

    # --- following the job -------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Read the log until it is over or the server stops. Raises what the log raises."""
        with self._partials.watch(self._job_id, self._note_change):
            async with racing(self._read_log(), self._closing.wait()) as (reading, _):
                pass
        if not reading.cancelled():
            reading.result()

    async def _read_log(self) -> None:
        self._last = await patiently(lambda: self._timelines.last(self._job_id))
        self._note_change()
        async with aclosing(self._timelines.tail(self._job_id, after=self._last)) as tail:
            async for event in tail:
                rendered = await patiently(partial(self._render, event))
                if self._all_wait:
                    self._newest.clear()
                elif len(self._newest) >= 2 * KEPT:
                    del self._newest[:KEPT]
                self._newest.append(rendered)
                self._last = event.seq
                self._pages.clear()  # pages that were read before lack this event
                self._note_change()

    async def _read_page(self, after: int) -> RenderedBatch | None:
        try:
            page = await self._timelines.read(self._job_id, after=after, limit=PAGE)
            return RenderedBatch([await self._render(event) for event in page]) if page else None
        except StorageAway:
            return None  # the reader asks again when the database is back

    def _forget_page(self, after: int, reading: "asyncio.Task[RenderedBatch | None]") -> None:
        if self._pages.get(after) is reading:
            del self._pages[after]

    @property
    def _all_wait(self) -> bool:
        """Whether every reader has all events and waits for more."""
        if not self._waiting or len(self._waiting) < self.readers:
            return False
        _, _, newest = next(iter(self._waiting.values()))
        return newest == self._last

    def _render_partials(self, partials: Sequence[ShownPartial]) -> list[Rendered]:
        """Render the partials, each once for all readers."""
        for one in partials:
            if (made := self._rendered.get(one.channel)) is None or made.seen is not one:
                self._rendered[one.channel] = Rendered(one, partial_body(self._job_id, one))
        return [self._rendered[one.channel] for one in partials]

    # --- waking readers ----------------------------------------------------------------------------------------------

    def _note_change(self) -> None:
        self.version += 1
        self._batches.clear()
        self._wake_readers_soon()

    def _wake_readers_soon(self) -> None:
        if not self._waking:
            self._waking = True
            self._loop.call_soon(self._wake_readers)

    def _wake_readers(self) -> None:
        """Wake a group of readers that have waited longest, if there is news or they waited for *quiet_s* seconds."""
        self._waking = False
        now = self._loop.time()
        for _ in range(min(WOKEN_AT_ONCE, len(self._waiting))):
            waiter, (version, since, _) = next(iter(self._waiting.items()))
            news = version != self.version
            if not news and now < since + self._quiet_s:
                self._wake_readers_at(since + self._quiet_s)
                return
            del self._waiting[waiter]
            if not waiter.done():  # else its reader has just left
                waiter.set_result(news)
        if self._waiting:
            self._wake_readers_soon()

    def _wake_readers_at(self, at: float) -> None:
        """Plan a call of _wake_readers() at the time *at*, unless an earlier one is planned."""
        if self._timer is None:
            self._timer = self._loop.call_at(at, self._handle_timer)

    def _handle_timer(self) -> None:
        self._timer = None
        self._wake_readers_soon()
