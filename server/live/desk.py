"""The live sessions of this process: who writes is led to the job's session, which is made for the first who comes."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pipeline.audio import seconds
from pipeline.errors import PipelineError
from pipeline.ingest.isolation import Isolation
from server.accounts.plans import Plans
from server.jobs.running import LeaseLost
from server.live.ending import Endings, Heard
from server.live.hearing import Hearing
from server.live.intake import bytes_up_to
from server.live.journal import Held, Journal
from server.live.resuming import Past, past
from server.live.session import LiveRules, LiveSession, finished
from server.logs import log
from server.metrics import Metrics
from server.model.errors import Refused
from server.model.events import Event
from server.model.jobs import Job, LiveProgress
from server.model.leases import Lease
from server.model.orders import CONTAINER, LiveOptions
from server.storage.ports import BlobStore, EventLog, JobStore
from server.streams.partials import Partials
from server.waiting import set_within

PAGE = 500  # events of a log that are read at once
STALE_AT_ONCE = 20
RETRY_AFTER_S = 10
WEIGHED_S = 5.0  # after so long, what a session asks of the model shows in how busy it is


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskParts:
    """What sessions are made of."""

    worker: str
    jobs: JobStore
    events: EventLog
    blobs: BlobStore
    partials: Partials
    hearings: Mapping[str, Hearing]  # by environment
    isolation: Isolation
    plans: Plans
    metrics: Metrics
    closing: asyncio.Event
    rules: LiveRules


class Desk:
    """run() is open meanwhile; sessions end with it."""

    def __init__(self, parts: DeskParts) -> None:
        self._parts = parts
        self._endings = Endings(parts.jobs, parts.blobs, parts.hearings, parts.metrics)
        self._lives: dict[str, LiveSession] = {}
        self._opening = asyncio.Lock()
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def rules(self) -> LiveRules:
        return self._parts.rules

    @property
    def closing(self) -> bool:
        """The server stops: sessions are handed back, and go on elsewhere or later."""
        return self._parts.closing.is_set()

    def admit(self, environment: str) -> None:
        """Returns iff there is room for one more session. Raises Refused queue_full, shutting_down."""
        if self.closing or self._tasks is None:
            raise Refused("shutting_down", "the server is restarting", retry_after_s=5)
        hearing = self._parts.hearings[environment]
        now = time.monotonic()
        ages_s = [now - live.began for live in self._lives.values() if live.job.environment == environment]
        weighed = sum(min(1.0, age_s / WEIGHED_S) for age_s in ages_s)
        try:
            hearing.admission.admit((len(ages_s) + 1) / max(1.0, weighed))
        except PipelineError as error:
            raise self._full(str(error)) from None
        if hearing.most is not None and len(ages_s) >= hearing.most:
            raise self._full(f"this machine carries {hearing.most} live sessions, and has them")

    def _full(self, why: str) -> Refused:
        self._parts.metrics.refused.labels("queue_full").inc()
        return Refused("queue_full", why, retry_after_s=RETRY_AFTER_S)

    async def run(self) -> None:
        """Sessions live, and those that nobody came back to are finished, until the server stops and all are over."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            while not self._parts.closing.is_set():
                try:
                    await self._finish_stale()
                except Exception:  # noqa: BLE001  the next round may succeed
                    log.exception("finishing forgotten live sessions failed")
                await set_within(self._parts.closing, self.rules.stale_s)
        self._tasks = None

    async def open(self, job: Job) -> LiveSession:
        """The job's session, a new one if it has none here.

        Raises Refused: ingest_finished, ingest_busy (it is in another process), queue_full, shutting_down.
        """
        async with self._opening:
            live = self._lives.get(job.id)
            return await self._opened(job) if live is None or live.over.is_set() else live

    async def standing(self, job: Job) -> LiveProgress:
        """How far the job's audio has come: what the next writer is told."""
        assert job.order.live is not None
        live = self._lives.get(job.id)
        if live is not None and not live.over.is_set():
            return live.standing()
        if job.terminal:
            return LiveProgress(job.source.bytes, job.duration_s or 0.0, settled_bytes=job.source.bytes)
        before = await self._past(job.id, await self._parts.jobs.chunks(job.id))
        reached = _bytes_up_to(before, job.order.live)
        return LiveProgress(reached, seconds(before.origin.position), settled_bytes=reached)

    async def _opened(self, job: Job) -> LiveSession:
        self.admit(job.environment)
        asked = time.monotonic()
        lease = await self._parts.jobs.claim_live(job.id, self._parts.worker, lease_s=self.rules.lease_s)
        if lease is None:
            now = await self._parts.jobs.get(job.id)
            if now is None or now.terminal:
                raise finished()
            raise Refused("ingest_busy", "the session is held elsewhere; try again soon", retry_after_s=5)
        before = await self._closed_past(lease)
        assert job.order.live is not None
        if job.order.live.encoding == CONTAINER and before.chunks:
            await self._complete(lease, before)  # what follows in the container means nothing without what came before
            raise finished()
        live = await self._made(lease, before, asked)
        self._lives[job.id] = live
        assert self._tasks is not None
        self._tasks.create_task(self._lived(live), name=f"live session {job.id}")
        return live

    async def _made(self, lease: Lease, before: Past, asked: float) -> LiveSession:
        parts, order = self._parts, lease.job.order
        assert order.live is not None
        session = parts.hearings[lease.job.environment].session(
            order,
            tenant=lease.job.account,
            language=order.language or before.language,
            origin=before.origin.position,
            settled=before.settled,
        )
        held = Held(lease, self.rules.lease_s, asked + self.rules.lease_s)
        journal = Journal(
            held,
            before,
            jobs=parts.jobs,
            events=parts.events,
            partials=parts.partials,
            interim=order.live.interim_results,
            metrics=parts.metrics,
        )
        return LiveSession(
            held,
            before,
            session,
            journal=journal,
            endings=self._endings,
            isolation=parts.isolation,
            plan=await parts.plans.of_id(lease.job.account, environment=lease.job.environment),
            metrics=parts.metrics,
            rules=self.rules,
            closing=parts.closing,
        )

    async def _lived(self, live: LiveSession) -> None:
        try:
            await live.run()
        finally:
            if self._lives.get(live.job.id) is live:
                del self._lives[live.job.id]

    async def _finish_stale(self) -> None:
        """Jobs that lost their process and whose writer did not come back end with what was heard."""
        for job in await self._parts.jobs.stale_live(limit=STALE_AT_ONCE):
            async with self._opening:
                lease = await self._parts.jobs.claim_live(job.id, self._parts.worker, lease_s=self.rules.lease_s)
                if lease is not None:
                    with suppress(LeaseLost):  # then it is somebody else's to finish
                        await self._complete(lease, await self._closed_past(lease))

    async def _complete(self, lease: Lease, before: Past) -> None:
        await self._endings.complete(lease, Heard(duration=before.end))

    async def _closed_past(self, lease: Lease) -> Past:
        return await self._endings.close_open_words(lease, await self._past(lease.job.id, lease.chunks))

    async def _past(self, job_id: str, chunks: Sequence[bytes]) -> Past:
        log: list[Event] = []
        while page := await self._parts.events.read(job_id, after=log[-1].seq if log else 0, limit=PAGE):
            log += page
        return past(chunks, log)


def _bytes_up_to(before: Past, options: LiveOptions) -> int | None:
    """Where a writer of raw audio would go on; a container's bytes say nothing about time."""
    if options.encoding == CONTAINER:
        return None if before.settled else 0
    return bytes_up_to(before.origin.position, options)
