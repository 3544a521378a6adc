"""Storing what a live session says before anyone sees it: events in the log, closed segments as chunks.

Partials are not stored: they are shown, then forgotten.
"""

from collections.abc import Mapping, Sequence

from pipeline.audio import seconds
from pipeline.session import Happened
from pipeline.words import Chunk
from server.jobs.leases import HeldLease
from server.live.resuming import Past
from server.live.telling import LogBatch, log_batch
from server.metrics import Metrics
from server.storage.ports import EventLog
from server.streams.partials import Partials


class Journal:
    """Writes a session's events. Its methods raise LeaseLost, and write nothing, when the job is no longer ours."""

    def __init__(
        self, held: HeldLease, past: Past, *, events: EventLog, partials: Partials, interim: bool, metrics: Metrics
    ) -> None:
        self.warnings: dict[str, Mapping[str, str]] = {}
        self.settled = past.settled  # everything before this is decided
        self._held = held
        self._job_id = held.job.id
        self._origin = past.origin
        self._events = events
        self._partials = partials
        self._interim = interim
        self._metrics = metrics
        self._language = held.job.order.language or past.language
        self._language_probability = past.language_probability
        self.finalized_s = self.seconds_at(0)  # up to where everything is decided because a writer asked for it
        self._chunks = len(past.chunks)  # only their number is kept, since a session may last for hours
        self._closed = past.end  # end of the last closed segment
        self._last = 0  # the log's last event; only the holder of the lease writes there

    def seconds_at(self, position: int) -> float:
        """A position of the session in seconds on the stream's clock."""
        return seconds(self._origin.position + position)

    async def open(self) -> None:
        """Find the end of the log. Must be called first."""
        self._last = await self._events.last(self._job_id)

    async def write(self, happened: Sequence[Happened], *, heard: int) -> None:
        """Store what happened, then show it. *heard* is the end of the audio so far, on the stream's clock."""
        batch = log_batch(happened, self._origin)
        self._count(batch)
        for warning in batch.warnings:
            self.warn(warning.code, warning.message)
        if batch.language is not None:
            self._language, self._language_probability = batch.language.language, batch.language.probability
        if batch.events:
            await self._keep(batch, heard)
        self.settled = max(self.settled, min(batch.settled, heard))
        if batch.finalized is not None:
            self.finalized_s = seconds(batch.finalized)
        if batch.partial is not None and self._interim:
            self._partials.show(self._job_id, batch.partial, after=self._last)
        elif batch.partial_ended:
            self._partials.end(self._job_id)
        else:
            self._partials.move(self._job_id, after=self._last)

    def warn(self, code: str, message: str) -> None:
        """Add a warning to the job's record. The first message of each code is kept."""
        self.warnings.setdefault(code, {"code": code, "message": message})

    def close(self) -> None:
        """Show the last partial no longer."""
        self._partials.end(self._job_id)

    async def _keep(self, batch: LogBatch, heard: int) -> None:
        if batch.segments:
            await self._checkpoint(batch, heard)
        else:
            self._last = (await self._held.log(batch.events))[-1].seq

    async def _checkpoint(self, batch: LogBatch, heard: int) -> None:
        """Store closed segments as one chunk, in one commit with their events."""
        chunk = Chunk(
            index=self._chunks,
            jobs_done=0,
            start=self._closed,
            end=max(self._closed, min(batch.segments[-1].end, heard)),
            segments=tuple(batch.segments),
            language=self._language,
            language_probability=self._language_probability,
        )
        await self._held.checkpoint(chunk, batch.events)
        self._chunks += 1
        self._closed = chunk.end
        self._last = await self._held.wait_for(lambda: self._events.last(self._job_id))

    def _count(self, batch: LogBatch) -> None:
        self._metrics.live_partials.inc(batch.partials)
        self._metrics.live_words.inc(len(batch.lags_s))
        for lag_s in batch.lags_s:
            self._metrics.word_lag.observe(lag_s)
