"""One reader's view of a job: its log from any point on, and the newest partial between its events.

Server-Sent Events and WebSockets use the same view. Events for readers at the same place are read and rendered once
(feed.py). A reader that is behind reads the log page by page, at its own speed.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Self

import orjson

from server.clock import now_ms
from server.jobs.erasing import Eraser
from server.metrics import Metrics
from server.model.events import Event
from server.model.jobs import TERMINAL_EVENTS
from server.records.records import Records
from server.storage.ports import Storage
from server.streams.feed import Feed
from server.streams.partials import Partials
from server.streams.rendering import Rendered, RenderedBatch, Seen, event_body

_NOTHING_ELSE = nullcontext()


@dataclass(frozen=True, slots=True)
class Following:
    """Makes readers' views. One for each process, used by every stream and WebSocket."""

    storage: Storage
    partials: Partials
    records: Records
    eraser: Eraser
    metrics: Metrics
    closing: asyncio.Event  # set when the server stops: readers leave and resume later by their last id
    feeds: dict[tuple[str, float], Feed] = field(default_factory=dict, init=False)  # by job and quiet_s

    @contextmanager
    def open_reader(self, job_id: str, *, after: int, quiet_s: float) -> Iterator["EventReader"]:
        """A reader of every event after number *after*, while the block lasts."""
        key = (job_id, quiet_s)
        feed = self.feeds.get(key)
        if feed is None or feed.over:
            feed = self.feeds[key] = Feed(
                job_id,
                events=self.storage.events,
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
        """Yield what a reader gets one by one: events, partials in their places, None after *quiet_s* of silence."""
        with self.open_reader(job_id, after=after, quiet_s=quiet_s) as reader:
            async for batch in reader:
                if batch is None:
                    yield None
                else:
                    for item in batch.items:
                        yield item.seen

    async def render(self, event: Event) -> Rendered:
        """The event with its JSON. The last event of a job shows the record as it is now, with valid links."""
        if event.type in TERMINAL_EVENTS and (job := await self.storage.jobs.get(event.stream)) is not None:
            announcement = await self.records.announcement(job)
            body = orjson.dumps({**announcement.body, "job_id": event.stream, "seq": event.seq})
            return Rendered(event, body, hands_over=announcement.hands_over)
        return Rendered(event, event_body(event))


class EventReader:
    """Iterate over it for every event once and in order, with partials in their places, and None for each silence.

    It ends after the job's last event, when the job is deleted, and when the server stops.
    """

    def __init__(self, job_id: str, after: int, *, feed: Feed, following: Following) -> None:
        self._job_id = job_id
        self._after = after
        self._shown = 0  # the number of the newest partial
        self._feed = feed
        self._following = following
        self._began = now_ms()
        self._over = False  # the job's last event was passed on

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RenderedBatch | None:
        feed = self._feed
        while not self._over and not self._following.closing.is_set():
            version = feed.version
            if feed.started and (batch := await self._next_batch()) is not None:
                self._advance(batch)
                return batch
            if feed.over:
                feed.check()
                break
            if not await feed.wait(version):
                return None
        raise StopAsyncIteration

    def record_delivery(self, batch: RenderedBatch | None) -> AbstractAsyncContextManager[None]:
        """The block sends the batch.

        If it has all results of a job that keeps none, they count as delivered after it.
        """
        if batch is None or not batch.hands_over:
            return _NOTHING_ELSE
        return self._following.eraser.sending(self._job_id)

    async def _next_batch(self) -> RenderedBatch | None:
        """The next batch, if there is one by now."""
        if self._feed.has(self._after):
            return self._feed.batch_after(self._after, self._shown)
        return await self._feed.page_after(self._after)

    def _advance(self, batch: RenderedBatch) -> None:
        """Note that the reader has the batch."""
        if (event := batch.event) is not None:
            self._after = event.seq
            self._over = event.type in TERMINAL_EVENTS
            if event.at > self._began:
                self._following.metrics.event_lag.observe((now_ms() - event.at) / 1000)
        if (partial := batch.partial) is not None:
            self._shown = partial.number
