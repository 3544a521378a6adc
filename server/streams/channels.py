"""Follows a channel for its readers: the events of the session that it shows, then those of the next one."""

import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from server.model.accounts import Channel
from server.streams.following import EventReader, Following
from server.streams.rendering import RenderedBatch
from server.waiting import set_within

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
