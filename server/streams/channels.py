"""What the readers of a channel get: the events of the session that it shows, then those of the next one."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from server.model.channels import Channel
from server.storage.ports import ChannelStore, JobStore
from server.streams.following import Following, Reader
from server.streams.rendering import Batch
from server.waiting import set_within

LOOK_S = 1.0  # how old the answer to "which session is shown there?" may be
MAX_KNOWN = 1000  # channels whose answer is in memory
OVER = -1  # of a Place: the reader has everything of its session


@dataclass(frozen=True, slots=True)
class Place:
    """How far a reader of a channel is: the session, and the number of its last event."""

    job_id: str | None = None
    seq: int = 0


@dataclass(frozen=True, slots=True)
class Told:
    """What a reader is sent next. *reader* says whether it hands over results."""

    batch: Batch
    reader: Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelFollowing:
    """Makes readers' views of channels. One for each process, so that a thousand readers ask the storage once."""

    channels: ChannelStore
    jobs: JobStore
    following: Following
    closing: asyncio.Event
    _known: dict[str, tuple[float, Channel | None]] = field(default_factory=dict, init=False)

    async def look(self, channel_id: str) -> Channel | None:
        """The channel as it was at most LOOK_S ago; None if it was deleted."""
        asked, channel = self._known.get(channel_id, (-LOOK_S, None))
        now = time.monotonic()
        if now - asked >= LOOK_S:
            channel = await self.channels.get(channel_id)
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[channel_id] = (now, channel)
        return channel

    async def follow(self, channel_id: str, place: Place) -> AsyncGenerator[Told | None]:
        """Yield what a reader at *place* is sent, and None about once a LOOK_S while there is nothing.

        A session that was over before the reader came is not shown to it, but for the rest of the reader's own. Ends
        when the channel is deleted and when the server stops.
        """
        place = await self._beginning(channel_id, place)
        while not self.closing.is_set() and (channel := await self.look(channel_id)) is not None:
            session = await self._next(channel, place)
            if session is None:
                yield None
                await set_within(self.closing, LOOK_S)
                continue
            async for told in self._session(channel_id, session):
                yield told
            place = Place(session.job_id, OVER)

    async def _beginning(self, channel_id: str, place: Place) -> Place:
        channel = await self.look(channel_id)
        if channel is None or channel.job in (None, place.job_id):
            return place
        job = await self.jobs.get(channel.job)
        return Place(channel.job, OVER if job is None or job.terminal else 0)

    async def _next(self, channel: Channel, place: Place) -> Place | None:
        """Where to read next: the rest of the reader's session, or the whole of a newer one, which may be over too."""
        if channel.job is None or (channel.job == place.job_id and place.seq == OVER):
            return None
        if await self.jobs.get(channel.job) is None:
            return None
        return place if channel.job == place.job_id else Place(channel.job)

    async def _session(self, channel_id: str, place: Place) -> AsyncGenerator[Told | None]:
        """What one session has, until it ends or the channel shows another."""
        assert place.job_id is not None
        async with AsyncExitStack() as stack:
            reader = stack.enter_context(self.following.reading(place.job_id, after=place.seq, quiet_s=LOOK_S))
            async for batch in reader:
                yield None if batch is None else Told(batch, reader)
                channel = await self.look(channel_id)
                if channel is None or channel.job != place.job_id:
                    return
