"""One live stream whose channels are separate speakers: a LiveStream for each channel, behind the interface of one.

    stream = MultichannelStream([LiveStream(...), LiveStream(...)])
    await stream.feed(frames)                      # of shape (n, channels)
    async for happened in stream.events(): ...     # of all channels, each with its channel

server/live/models.py makes one if a client ordered separate channels, such as the two sides of a telephone call. Each
channel has its own voice detector, turns, words and requests. So no speaker waits for another one to finish.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import fields, replace

from pipeline.audio import WINDOW, Samples
from pipeline.events import Finalized
from pipeline.ingest.crosstalk import CrosstalkGate
from pipeline.live_stream import LiveStream, StreamStatistics
from pipeline.recognition.stream_options import StreamCounts
from pipeline.timed_events import MAX_UNREAD, TimedEvent, read_events
from pipeline.waking import Changes


class MultichannelStream:
    """Like a LiveStream. It starts where the first of its channels does; the others skip what is before their start."""

    def __init__(self, streams: Sequence[LiveStream], *, gate: CrosstalkGate | None = None) -> None:
        """Take a stream for each channel. *gate* silences what is a copy of another channel."""
        self._streams = streams
        self._gate = gate
        # The end of the audio so far, of what the gate has let pass, and of the last finalize().
        self._received = self._added = self._finalized = min(stream.start for stream in streams)
        # by position of finalize(), the channels that have not decided everything before it
        self._deciding: dict[int, set[int]] = {}
        self._unread: deque[TimedEvent] = deque()
        self._changes = Changes()
        self._ended = self._over = False

    async def feed(self, samples: Samples) -> None:
        """Add the next samples of every channel, of shape (n, channels), then wait as LiveStream.feed() does.

        Raises what LiveStream.feed() raises.
        """
        self._received += len(samples)
        self._add(samples if self._gate is None else self._gate.add(samples))
        await self.wait_for_room()

    def _add(self, samples: Samples) -> None:
        begins = self._added
        self._added += len(samples)
        for channel, stream in enumerate(self._streams):
            fresh = samples[max(0, stream.start - begins) :, channel]
            if len(fresh):
                stream.add(fresh)

    def _add_held(self) -> None:
        """Add what the gate still holds."""
        if self._gate is not None:
            self._add(self._gate.flush())

    async def wait_for_room(self) -> None:
        """Wait while more than ENOUGH_BUFFERED is buffered on a channel."""
        for stream in self._streams:
            await stream.wait_for_room()

    def finalize(self) -> int:
        """Decide all words fed so far on every channel. See LiveStream.finalize(). One event reports all channels."""
        reached = self._received - self._received % WINDOW
        if reached > self._finalized and not self._ended:
            self._add_held()
            self._finalized = reached
            self._deciding[reached] = set()
            for channel, stream in enumerate(self._streams):
                if reached > stream.start:
                    stream.finalize()
                    self._deciding[reached].add(channel)
        return self._finalized

    def finish(self) -> None:
        """End the audio. Calling it again does nothing."""
        if not self._ended:
            self._add_held()
        self._ended = True
        for stream in self._streams:
            stream.finish()

    def events(self) -> AsyncIterator[TimedEvent]:
        """Yield the events of all channels as they are decided. Only one reader may call it."""
        return read_events(self._unread, self._changes, lambda: self._over)

    def decided_positions(self) -> Mapping[int | None, int]:
        """By channel, the position before which everything is decided. Channels with unread events are left out."""
        if self._unread:
            return {}
        each = [stream.decided_positions() for stream in self._streams]
        return {channel: decided[None] for channel, decided in enumerate(each) if decided}

    def redacted_spans(self) -> Sequence[tuple[int, int]]:
        """Where something was said on any channel that is redacted."""
        return [span for stream in self._streams for span in stream.redacted_spans()]

    def copies(self) -> Mapping[int, int]:
        """The channels that are a copy of another one in all that was heard, and which one that is."""
        return {} if self._gate is None else self._gate.copies

    def statistics(self) -> StreamStatistics:
        """The sums over all channels, and of times and waiting audio the largest."""
        each = [stream.statistics() for stream in self._streams]
        names = [one.name for one in fields(StreamCounts)]
        return StreamStatistics(
            received=self._received,
            waiting=max(one.waiting for one in each),
            unread=len(self._unread),
            round_s=max(one.round_s for one in each),
            lag_s=max(one.lag_s for one in each),
            retractions=sum(one.retractions for one in each),
            counts=StreamCounts(**{name: sum(getattr(one.counts, name) for one in each) for name in names}),
        )

    async def run(self) -> None:
        """Process the audio of all channels until everything fed before finish() is decided. See LiveStream.run()."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for channel, stream in enumerate(self._streams):
                    tasks.create_task(stream.run(), name=f"channel {channel}")
                    tasks.create_task(self._pass_on(channel, stream), name=f"events of channel {channel}")
        finally:
            self._over = True
            self._changes.notify()

    async def _pass_on(self, channel: int, stream: LiveStream) -> None:
        """Queue the events of a channel. There is no wait before one is queued, so decided_positions() is right."""
        async for happened in stream.events():
            reported = self._event_of(channel, happened)
            if reported is not None:
                self._unread.append(reported)
                self._changes.notify()
            await self._changes.until(lambda: len(self._unread) < MAX_UNREAD)

    def _event_of(self, channel: int, happened: TimedEvent) -> TimedEvent | None:
        """Return the event of a channel for the readers; None for Finalized if other channels are not there yet."""
        event = happened.event
        if isinstance(event, Finalized):
            owing = self._deciding.get(event.at, set())
            if channel in owing:
                owing.remove(channel)
                if owing:
                    return None
                del self._deciding[event.at]
                return happened
        return replace(happened, channel=channel)
