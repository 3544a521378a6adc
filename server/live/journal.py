"""Stores the events of a live session before readers see them: events in the log, closed segments as chunks.

Partials are not stored. Readers get the newest one, which the next one replaces.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from types import MappingProxyType

from pipeline.attribution import SpeakerRun
from pipeline.audio import position, seconds
from pipeline.events import SegmentClosed
from pipeline.speakers.live import LiveSpeakers
from pipeline.timed_events import TimedEvent
from pipeline.words import Chunk, Segment
from server.jobs.leases import HeldLease
from server.live.event_rendering import EventRenderer, LogBatch, revised_event, warning_event
from server.live.parts import SessionParts
from server.live.resuming import REPEATED, SessionPast, resume_position
from server.model.events import NewEvent

QUIET = position(5)
"""The shortest silence on a channel that is stored, together with a segment, so that a restart can skip it."""

LONG_QUIET = position(30)
"""The shortest silence that is stored by itself, so that a writer need not keep its audio."""


class Journal:
    """Writes a session's events. Once the lease is lost, its methods write nothing and raise LeaseLost."""

    def __init__(
        self,
        held: HeldLease,
        past: SessionPast,
        parts: SessionParts,
        speakers: LiveSpeakers | None = None,
    ) -> None:
        self.warnings: dict[str, Mapping[str, str]] = {}
        # By channel, the position before which everything is decided.
        self._settled = {channel: past.settled_position(channel) for channel in past.channels}
        self._said = {channel: past.last_words(channel, REPEATED) for channel in past.channels}  # the last words
        self._held = held
        self._job_id = held.job.id
        self._renderer = EventRenderer(speakers, words=past.words, segments=past.segments)
        assert held.job.order.live is not None
        self._interim = held.job.order.live.interim_results
        self._partials = parts.partials
        self._metrics = parts.metrics
        self._languages = {channel: past.language(channel) for channel in past.channels}
        if (language := held.job.order.language) is not None:
            self._languages = {channel: (language, past.language(channel)[1]) for channel in past.channels}
        self.finalized_s = seconds(past.resumes_at)  # up to where a writer's finalize decided everything
        self._finalizing = asyncio.Lock()  # held while a finalize is being stored
        self._chunks = len(past.chunks)  # only their number is kept, since a session may last for hours
        self._closed = {channel: past.end(channel) for channel in past.channels}  # end of the last chunk
        self._writing = asyncio.Lock()

    @property
    def resume_position(self) -> int:
        """The position from which a restart needs the audio again."""
        return min(resume_position(settled, self._said[channel]) for channel, settled in self._settled.items())

    @property
    def reached(self) -> int:
        """The end of everything that is stored."""
        return max(self._settled.values())

    async def has_finalized(self, at_s: float) -> bool:
        """Return whether *finalized_s* has reached *at_s*, after the write in progress, if any.

        Readers may see the event a moment before its write is confirmed.
        """
        async with self._finalizing:
            return self.finalized_s >= at_s

    async def write(
        self, happened: Sequence[TimedEvent], *, received: int, decided: Mapping[int | None, int] = MappingProxyType({})
    ) -> None:
        """Store what happened, then show it to readers.

        *received*: the end of the audio so far.
        *decided*: by channel, the position before which everything is decided.
        """
        async with self._writing:
            for some in _by_chunk(happened):
                batch = self._renderer.batch(some)
                async with nullcontext() if batch.finalized is None else self._finalizing:
                    await self._write(batch, received)
            if any(isinstance(one.event, SegmentClosed) for one in happened):
                for channel, reached in decided.items():
                    await self._settle_silence(channel, min(reached, received))

    async def store_long_silence(self, decided: Callable[[], Mapping[int | None, int]], *, received: int) -> None:
        """Store the silence of each channel that has lasted for LONG_QUIET. *decided* returns what write() takes."""
        if self._writing.locked():
            return  # what is decided may not be stored yet
        async with self._writing:
            for channel, reached in decided().items():
                end = min(reached, received)
                if end >= self._closed[channel] + LONG_QUIET:
                    await self._settle_silence(channel, end)

    async def revise(self, runs: Sequence[SpeakerRun]) -> None:
        """Log the new speakers of words that readers already have."""
        await self._log_alone(revised_event(runs, final=False))

    async def report(self, note: str) -> None:
        """Log a warning, "code: message", that is about no words."""
        code, _, message = note.partition(": ")
        self.warn(code, message)
        await self._log_alone(warning_event(code, message))

    async def _log_alone(self, event: NewEvent) -> None:
        async with self._writing:
            await self._held.log([event])
            self._partials.move(self._job_id, after=self._held.last_seq)

    async def _write(self, batch: LogBatch, received: int) -> None:
        self._count(batch)
        for warning in batch.warnings:
            self.warn(warning.code, warning.message)
        for channel, found in batch.languages.items():
            self._languages[channel] = found.language, found.probability
        if batch.events:
            await self._keep(batch, received)
        for channel, words in batch.said.items():
            self._settled[channel] = max(self._settled[channel], min(words[-1].end, received))
            self._said[channel] = [*self._said[channel], *words][-REPEATED:]
        if batch.finalized is not None:
            self.finalized_s = seconds(batch.finalized)
        self._show(batch)

    def _show(self, batch: LogBatch) -> None:
        """Show the newest partials behind the log's last event, and withdraw those that words have replaced."""
        for channel, partial in batch.shown.items():
            if partial is None:
                self._partials.clear(self._job_id, channel=channel)
        self._partials.move(self._job_id, after=self._held.last_seq)
        for channel, partial in batch.shown.items():
            if partial is not None and self._interim:
                self._partials.show(self._job_id, partial, after=self._held.last_seq, channel=channel)

    def warn(self, code: str, message: str) -> None:
        """Add a warning to the job's record. The first message of each code is kept."""
        self.warnings.setdefault(code, {"code": code, "message": message})

    def conclude(self, notes: Sequence[str]) -> None:
        """Put what is known at the end, "code: message", in place of earlier warnings of the same codes."""
        told: dict[str, list[str]] = {}
        for code, _, message in (note.partition(": ") for note in notes):
            told.setdefault(code, []).append(message)
        for code, messages in told.items():
            self.warnings[code] = {"code": code, "message": " ".join(messages)}

    def close(self) -> None:
        """Withdraw the last partial."""
        for channel in self._closed:
            self._partials.clear(self._job_id, channel=channel)

    async def _keep(self, batch: LogBatch, received: int) -> None:
        """Log the events. Closed segments, all of one channel, are stored as a chunk in the same commit."""
        if batch.segments:
            last = batch.segments[-1]
            await self._store(last.channel, min(last.end, received), batch.segments, batch.events)
        else:
            await self._held.log(batch.events)

    async def _settle_silence(self, channel: int | None, end: int) -> None:
        """Store that a channel has been silent up to *end* for at least QUIET, so that a restart skips the silence."""
        if end >= self._closed[channel] + QUIET and self._settled[channel] == self._closed[channel]:
            await self._store(channel, end, (), ())
            self._settled[channel] = end

    async def _store(
        self, channel: int | None, end: int, segments: Sequence[Segment], events: Sequence[NewEvent]
    ) -> None:
        language, probability = self._languages[channel]
        chunk = Chunk(
            index=self._chunks,
            jobs_done=0,
            start=self._closed[channel],
            end=max(self._closed[channel], end),
            segments=tuple(segments),
            language=language,
            language_probability=probability,
            channel=channel,
        )
        await self._held.checkpoint(chunk, events)
        self._chunks += 1
        self._closed[channel] = chunk.end

    def _count(self, batch: LogBatch) -> None:
        self._metrics.live_partials.inc(batch.partials)
        self._metrics.live_words.inc(len(batch.lags_s))
        for lag_s in batch.lags_s:
            self._metrics.word_lag.observe(lag_s)


def _by_chunk(happened: Sequence[TimedEvent]) -> Iterator[Sequence[TimedEvent]]:
    """Cut *happened* into parts that each close segments of one channel only, because a chunk has one channel."""
    begin, closing = 0, None
    for at, one in enumerate(happened):
        if isinstance(one.event, SegmentClosed):
            if closing is not None and closing != one.channel:
                yield happened[begin:at]
                begin = at
            closing = one.channel
    yield happened[begin:]
