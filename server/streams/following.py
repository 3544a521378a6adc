"""One reader's view of a job: its log from any point on, and the newest partial between its events.

The log is read page by page as fast as the reader takes it, so a slow reader costs one page of memory and delays
nobody. Server-Sent Events and WebSockets are written from the same view.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import orjson

from server.clock import now_ms
from server.jobs.erasing import Eraser
from server.metrics import Metrics
from server.model.events import Event
from server.model.jobs import TERMINAL_EVENTS
from server.records.records import Records
from server.storage.ports import EventLog, JobStore
from server.streams.partials import Partials, ShownPartial

Seen: TypeAlias = Event | ShownPartial | None
"""What a reader is given next; None: nothing happened for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """Makes readers' views. One for each process, used by every stream and WebSocket."""

    events: EventLog
    partials: Partials
    jobs: JobStore
    records: Records
    eraser: Eraser
    metrics: Metrics
    closing: asyncio.Event  # set when the server stops: readers leave and resume later by their last id

    async def follow(self, job_id: str, *, after: int, quiet_s: float) -> AsyncGenerator[Seen]:
        """Yield every event after number *after* once and in order, partials in their places, None after *quiet_s* of
        silence.

        Ends after the job's last event, when the job is deleted, and when the server stops.
        """
        tail = self.events.tail(job_id, after=after)
        shown, began = 0, now_ms()
        with self.partials.watch(job_id) as news, self.eraser.holding(job_id):
            closed = asyncio.ensure_future(self.closing.wait())
            following: asyncio.Future[Event | None] | None = None
            partial_news: asyncio.Future[bool] | None = None
            try:
                while not closed.done():
                    news.clear()
                    partial = self.partials.newest(job_id)
                    if partial is not None and partial.number != shown and partial.after == after:
                        shown = partial.number
                        yield partial
                        continue
                    following = following or asyncio.ensure_future(anext(tail, None))
                    partial_news = partial_news or asyncio.ensure_future(news.wait())
                    waiting: set[asyncio.Future[Any]] = {following, partial_news, closed}
                    await asyncio.wait(waiting, timeout=quiet_s, return_when=asyncio.FIRST_COMPLETED)
                    if following.done():
                        event, following = following.result(), None
                        if event is None:
                            return
                        after = event.seq
                        if event.at > began:
                            self.metrics.event_lag.observe((now_ms() - event.at) / 1000)
                        yield event
                    elif not partial_news.done() and not closed.done():
                        yield None
                    if partial_news.done():
                        partial_news = None
            finally:
                for task in (closed, following, partial_news):
                    if task is not None:
                        task.cancel()

    async def body(self, job_id: str, seen: Event | ShownPartial) -> bytes:
        """The JSON of an event or partial, with its job and, for events, its number.

        The last event of a job shows the record as it is now, with valid links.
        """
        if isinstance(seen, ShownPartial):
            return _joined(f'"job_id":"{job_id}"', seen.body)
        if seen.type in TERMINAL_EVENTS and (job := await self.jobs.get(job_id)) is not None:
            told = await self.records.announcement(job)
            return orjson.dumps({**told.body, "job_id": job_id, "seq": seen.seq})
        return _joined(f'"job_id":"{job_id}","seq":{seen.seq}', seen.body)

    @asynccontextmanager
    async def handing_over(self, job_id: str, seen: Event | ShownPartial) -> AsyncIterator[None]:
        """The block sends *seen*. If that has all results of a job that keeps none, they were handed over then."""
        last = isinstance(seen, Event) and seen.type in TERMINAL_EVENTS
        job = await self.jobs.get(job_id) if last else None
        if job is None or not job.passing or not (await self.records.announcement(job)).hands_over:
            yield
            return
        async with self.eraser.sending(job_id):
            yield

    async def typed(self, job_id: str, seen: Event | ShownPartial) -> bytes:
        """The same with its type inside, as WebSockets need it. Server-Sent Events have it outside."""
        body = await self.body(job_id, seen)
        kind = "partial" if isinstance(seen, ShownPartial) else seen.type
        return body if kind in TERMINAL_EVENTS else _joined(f'"type":"{kind}"', body)


def _joined(members: str, body: bytes) -> bytes:
    """The JSON object *body* with *members* before its own."""
    return b"{" + members.encode() + (b"," + body[1:] if len(body) > len(b"{}") else b"}")
