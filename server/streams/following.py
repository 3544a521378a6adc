"""Follows a job or a channel for its readers: the log from any event on, and the newest partials between its events.

Server-Sent Events and WebSockets both use it. Events for readers at the same place are read and rendered once
(feed.py). A reader that is behind reads the log page by page, at its own speed. A reader of a channel gets the events
of the session that it shows, then those of the next one.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Self

from server.clock import now_ms
from server.jobs.housekeeping import Eraser
from server.metrics import Metrics
from server.model.accounts import Channel
from server.model.events import Event
from server.model.jobs import TERMINAL_EVENTS
from server.records.records import Records
from server.storage.sql.storage import Storage
from server.streams.feed import Feed, Partials, Rendered, RenderedBatch, Seen, event_body
from server.waiting import set_within

_NOTHING_ELSE = nullcontext()


@dataclass(frozen=True, slots=True)
class Following:
    """Makes EventReaders for all streams and WebSockets of the process."""

    storage: Storage
    partials: Partials
    records: Records
    eraser: Eraser
    metrics: Metrics
    closing: asyncio.Event  # set when the server stops; readers come back later with their last id
    feeds: dict[tuple[str, float], Feed] = field(default_factory=dict, init=False)  # by job and quiet_s

    @contextmanager
    def open_reader(self, job_id: str, *, after: int, quiet_s: float) -> Iterator["EventReader"]:
        """Open a reader of every event after number *after*, while the block lasts."""
        key = (job_id, quiet_s)
        feed = self.feeds.get(key)
        if feed is None or feed.over:
            feed = self.feeds[key] = Feed(
                job_id,
                timelines=self.storage.timelines,
                partials=self.partials,
                render=self.render,
                closing=self.closing,
                quiet_s=quiet_s,
            )
        feed.readers += 1
        try:
            with self.eraser.holding(job_id):
                yield EventReader(job_id, after, feed=feed, following=self)
        finally:
            feed.readers -= 1
            if not feed.readers:
                feed.close()
                if self.feeds.get(key) is feed:
                    del self.feeds[key]

    async def follow(self, job_id: str, *, after: int, quiet_s: float) -> AsyncGenerator[Seen | None]:
        """Yield events and partials one by one, and None after each *quiet_s* seconds without any."""
        with self.open_reader(job_id, after=after, quiet_s=quiet_s) as reader:
            async for batch in reader:
                if batch is None:
                    yield None
                else:
                    for item in batch.items:
                        yield item.seen

    async def render(self, event: Event) -> Rendered:
        """Render the event. The last event of a job has the record as it is now, with valid links."""
        if event.type in TERMINAL_EVENTS and (job := await self.storage.jobs.get(event.stream)) is not None:
            announcement = await self.records.announcement(job, seq=event.seq)
            return Rendered(event, announcement.body, delivers_results=announcement.delivers_results)
        return Rendered(event, event_body(event))


class EventReader:
    """Iterates over batches of events and partials in order, with None after each *quiet_s* seconds without any.

    It ends after the job's last event, when the job is deleted, and when the server stops.
    """

    def __init__(self, job_id: str, after: int, *, feed: Feed, following: Following) -> None:
        self._job_id = job_id
        self._after = after
        self._shown = 0  # the number of the newest partial
        self._feed = feed
        self._following = following
        self._began = now_ms()
        self._over = False  # the reader has the job's last event

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RenderedBatch | None:
        feed = self._feed
        while not self._over and not self._following.closing.is_set():
            version = feed.version
            if feed.started:
                at_hand = feed.has(self._after)
                batch = feed.batch_after(self._after, self._shown) if at_hand else await feed.page_after(self._after)
                if batch is not None:
                    self._advance(batch)
                    return batch
            if feed.over:
                feed.check()
                break
            if not await feed.wait(version):
                return None
        raise StopAsyncIteration

    def record_delivery(self, batch: RenderedBatch | None) -> AbstractAsyncContextManager[None]:
        """Send the batch in the block. Results of a job that keeps none then count as delivered, if it has them."""
        if batch is None or not batch.delivers_results:
            return _NOTHING_ELSE
        return self._following.eraser.sending(self._job_id)

    def _advance(self, batch: RenderedBatch) -> None:
        """Note that the reader has the batch."""
        if (event := batch.event) is not None:
            self._after = event.seq
            self._over = event.type in TERMINAL_EVENTS
            if event.at > self._began:
                self._following.metrics.event_lag.observe((now_ms() - event.at) / 1000)
        if (partial := batch.partial) is not None:
            self._shown = partial.number


LOOK_S = 1.0  # for this time a channel is taken from memory
MAX_KNOWN = 1000  # channels in memory
OVER = -1  # the seq of a ChannelPosition whose reader has everything of its session


@dataclass(frozen=True, slots=True)
class ChannelPosition:
    """Where a reader of a channel is: its session, and the number of the last event that it has."""

    job_id: str | None = None
    seq: int = 0


@dataclass(frozen=True, slots=True)
class ChannelBatch:
    """The next batch for a reader of a channel. EventReader.record_delivery() must be called with it."""

    batch: RenderedBatch
    reader: EventReader


@dataclass(frozen=True, slots=True)
class ChannelFollowing:
    """Follows channels. Each process has one, so that a thousand readers cause one request to the storage."""

    following: Following
    _known: dict[str, tuple[float, Channel | None]] = field(default_factory=dict, init=False)

    async def look(self, channel_id: str) -> Channel | None:
        """The channel as it was at most LOOK_S ago; None if it was deleted."""
        asked, channel = self._known.get(channel_id, (-LOOK_S, None))
        now = time.monotonic()
        if now - asked >= LOOK_S:
            channel = await self.following.storage.channels.get(channel_id)
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[channel_id] = (now, channel)
        return channel

    async def follow(self, channel_id: str, position: ChannelPosition) -> AsyncGenerator[ChannelBatch | None]:
        """Yield the batches for a reader at *position*, and None about every LOOK_S seconds while there is nothing.

        A session that ended before the reader came is left out, unless the reader was following it. The iteration ends
        when the channel is deleted and when the server stops.
        """
        position = await self._start_position(channel_id, position)
        while not self.following.closing.is_set() and (channel := await self.look(channel_id)) is not None:
            session = await self._next_position(channel, position)
            if session is None:
                yield None
                await set_within(self.following.closing, LOOK_S)
                continue
            async for batch in self._follow_session(channel_id, session):
                yield batch
            position = ChannelPosition(session.job_id, OVER)

    async def _start_position(self, channel_id: str, position: ChannelPosition) -> ChannelPosition:
        channel = await self.look(channel_id)
        if channel is None or channel.job in (None, position.job_id):
            return position
        job = await self.following.storage.jobs.get(channel.job)
        return ChannelPosition(channel.job, OVER if job is None or job.terminal else 0)

    async def _next_position(self, channel: Channel, position: ChannelPosition) -> ChannelPosition | None:
        """Where to read next: in the reader's session, or at the start of a newer one. None if there is nothing."""
        if channel.job is None or (channel.job == position.job_id and position.seq == OVER):
            return None
        if await self.following.storage.jobs.get(channel.job) is None:
            return None
        return position if channel.job == position.job_id else ChannelPosition(channel.job)

    async def _follow_session(self, channel_id: str, position: ChannelPosition) -> AsyncGenerator[ChannelBatch | None]:
        """Yield the batches of one session, until it ends or the channel shows another."""
        assert position.job_id is not None
        async with AsyncExitStack() as stack:
            reader = stack.enter_context(
                self.following.open_reader(position.job_id, after=position.seq, quiet_s=LOOK_S)
            )
            async for batch in reader:
                yield None if batch is None else ChannelBatch(batch, reader)
                channel = await self.look(channel_id)
                if channel is None or channel.job != position.job_id:
                    return
