"""The live sessions of this process. The first writer of a job creates its session; later writers join it."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from weakref import WeakValueDictionary

import orjson

from pipeline.audio import seconds
from pipeline.errors import DecodersBusy, PipelineError
from pipeline.ingest.memory import LIVE_SHARE, SANDBOX_SHARE, MemoryPart
from pipeline.speakers.live import LiveSpeakers
from pipeline.speakers.options import NOT_INSTALLED, SpeakerOptions
from pipeline.speakers.state import SpeakerState
from server.background import compute, total_bytes
from server.faults import contain
from server.jobs.leases import HeldLease
from server.jobs.voices import known_recordings
from server.live.ending import Endings, FinalSpeakers, LiveResult
from server.live.event_rendering import turn_ended
from server.live.intake import bytes_up_to
from server.live.parts import SessionParts
from server.live.recording import RECORDING_FAILED
from server.live.resuming import SessionPast, read_past
from server.live.rules import LiveRules
from server.live.session import LiveSession
from server.live.session_lease import SessionLease
from server.live.speaker_store import SpeakerStore
from server.live.writers import finished_refusal
from server.model.errors import Refused
from server.model.jobs import Job, LiveProgress, State
from server.model.leases import LeaseLost
from server.model.orders import CONTAINER, SEMANTIC, LiveOptions, Order
from server.waiting import racing

STALE_AT_ONCE = 20
RETRY_AFTER_S = 10
GIVING_UP_S = 3.0  # how long a writer waits until another node releases its session
MEMORY_WAIT_S = 3.0  # how long a writer of a container waits for the memory of its decoder
WEIGHED_S = 5.0  # after this time a session's load shows in the model's own figures


class SessionRegistry:
    """Opens sessions and finds them again. Sessions are tasks of run()."""

    def __init__(self, parts: SessionParts) -> None:
        self._parts = parts
        self._endings = Endings(parts)
        self._lives: dict[str, LiveSession] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # of the jobs being opened
        self._starting: dict[str, Job] = {}  # by id, of sessions that are admitted but not started
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def rules(self) -> LiveRules:
        return self._parts.rules

    @property
    def closing(self) -> bool:
        """Whether the server is stopping. Its sessions are released, and continue elsewhere or later."""
        return self._parts.closing.is_set()

    def admit(self, environment: str, order: Order, *, begun: bool = False) -> None:
        """Raise Refused queue_full or shutting_down if there is no capacity for a session with this order.

        A session that has *begun* before comes back even while words are late: after the death of a server all come at
        once, and the model has to catch up with them.

        A session with separate channels counts as several (Order.counted_sessions). Labelling its speakers counts as a
        fraction of a session (LiveModels.load_of).
        """
        if self.closing or self._tasks is None:
            raise Refused("shutting_down", "the server is restarting", retry_after_s=5)
        if not self._parts.takes_writers:
            raise self._full("this node takes no live audio")
        engine = self._parts.engines[environment]
        now = time.monotonic()
        present = [(now - live.began, live.job) for live in self._lives.values()]
        present += [(0.0, job) for job in self._starting.values()]
        present = [(age_s, job) for age_s, job in present if job.environment == environment]
        ages_s = [age_s for age_s, job in present for _ in range(job.order.counted_sessions)]
        weighed = sum(min(1.0, age_s / WEIGHED_S) for age_s in ages_s)
        try:
            if not begun:
                engine.models.admit((len(ages_s) + order.counted_sessions) / max(1.0, weighed))
        except PipelineError as error:
            raise self._full(str(error)) from None
        if (most := engine.max_sessions) is None:
            return
        load = sum(engine.load_of(job.order) for _, job in present)
        if len(ages_s) + order.counted_sessions > most or (load and load + engine.load_of(order) > most):
            raise self._full(f"this machine carries {most} live sessions, and {round(load, 2):g} are in use")

    def _full(self, why: str) -> Refused:
        self._parts.metrics.refused.labels("queue_full").inc()
        return Refused("queue_full", why, retry_after_s=RETRY_AFTER_S)

    async def run(self) -> None:
        """Run sessions until the server stops and all have ended."""
        if (relay := self._parts.storage.relay) is not None:
            relay.listen(self._on_request)
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            await self._parts.closing.wait()
        self._tasks = None

    async def open(self, job: Job) -> LiveSession:
        """The job's session; a new one if this process has none.

        Raises Refused ingest_finished, ingest_busy (another process has the session), shutting_down and queue_full. The
        last one also if the order has speaker labels and this node has no models for them.
        """
        async with self._lock(job.id):
            live = self._lives.get(job.id)
            if live is not None and not live.over.is_set():
                return live
            self.admit(job.environment, job.order, begun=job.epoch > 0)
            self._starting[job.id] = job
            try:
                return await self._start(job)
            finally:
                del self._starting[job.id]

    def _lock(self, job_id: str) -> asyncio.Lock:
        """A lock for opening or finishing this job."""
        return self._locks.setdefault(job_id, asyncio.Lock())

    async def check_end(self, live: LiveSession) -> None:
        """Raise a Refused with the reason unless the session came to the end that its writer asked for."""
        job = await self._parts.storage.jobs.get(live.job.id)
        if job is None:
            raise Refused("job_not_found", "there is no such job")
        if live.ended_by is not None:
            raise live.ended_by
        if not job.terminal and (live.over.is_set() or self.closing):
            raise Refused("shutting_down", "the server is restarting; connect again to go on", retry_after_s=5)

    async def wait_for_session_end(self, account: str, *, max_s: float) -> bool:
        """Wait until one of the account's sessions that are ending has ended.

        Returns False if none is ending, or if none ends within *max_s* seconds.
        """
        ending = [live for live in self._lives.values() if live.job.account == account and live.ending]
        if not ending:
            return False
        try:
            async with asyncio.timeout(max_s), racing(*(live.over.wait() for live in ending)):
                return True
        except TimeoutError:
            return False

    async def progress(self, job: Job) -> LiveProgress:
        """How much of the job's audio has arrived, so that the next writer knows where to continue."""
        assert job.order.live is not None
        if job.terminal:
            return LiveProgress(job.source.bytes, job.duration_s or 0.0, settled_bytes=job.source.bytes)
        live = self._lives.get(job.id)
        if live is not None and not live.over.is_set():
            return live.progress()
        before = await self._past(job, await self._parts.storage.jobs.chunks(job.id))
        reached = _bytes_up_to(before, job.order.live)
        return LiveProgress(reached, seconds(before.resumes_at), settled_bytes=reached)

    async def _start(self, job: Job) -> LiveSession:
        if job.order.diarize and not self._parts.engines[job.environment].labels_speakers:
            raise self._full(f"the session's speakers are told apart, which this node cannot do: {NOT_INSTALLED}")
        part = await self._claim_memory(job)
        try:
            return await self._begin(job, part)
        except BaseException:
            if part is not None:
                part.release()
            raise

    async def _claim_memory(self, job: Job) -> MemoryPart | None:
        """Claim memory for the job's decoder; None if it needs none. Raises Refused queue_full after MEMORY_WAIT_S."""
        assert job.order.live is not None
        if job.order.live.encoding != CONTAINER:
            return None
        share = LIVE_SHARE if job.environment == "production" else SANDBOX_SHARE
        try:
            return await self._parts.isolation.memory.claim_soon(share=share, wait_s=MEMORY_WAIT_S)
        except DecodersBusy as error:
            raise self._full(str(error)) from None

    async def _begin(self, job: Job, part: MemoryPart | None) -> LiveSession:
        held = await self._claim(job) or await self._claim_from_elsewhere(job)
        if held is None:
            now = await self._parts.storage.jobs.get(job.id)
            if now is None or now.terminal:
                raise finished_refusal()
            raise Refused("ingest_busy", "the session is held elsewhere; try again soon", retry_after_s=5)
        before = await self._close_open_words(held)
        assert job.order.live is not None
        # The rest of a container cannot be decoded without its beginning.
        if before.has_final_speakers or (job.order.live.encoding == CONTAINER and before.chunks):
            await self._complete(held, before)
            raise finished_refusal()
        live = await self._session(held, before, part)
        self._lives[job.id] = live
        assert self._tasks is not None
        self._tasks.create_task(self._live(live), name=f"live session {job.id}")
        return live

    async def _session(self, held: HeldLease, before: SessionPast, part: MemoryPart | None) -> LiveSession:
        parts, job = self._parts, held.job
        engine = parts.engines[job.environment]
        session = engine.stream(job.order, tenant=job.account, starts=before.starts)
        store = self._speaker_store(held)
        speakers = await self._speakers(held, before, store) if job.order.diarize else None
        return LiveSession(
            held,
            before,
            session,
            parts=parts,
            plan=await parts.plans.of_job(job),
            speakers=speakers,
            speaker_store=store,
            part=part,
        )

    def _speaker_store(self, held: HeldLease) -> SpeakerStore | None:
        """Make the store of a session whose speakers are labelled by voice; None for others."""
        hears = self._parts.engines[held.job.environment].hears_speakers(held.job.order)
        return SpeakerStore(held, self._parts.storage.blobs) if hears else None

    async def _speakers(self, held: HeldLease, before: SessionPast, store: SpeakerStore | None) -> LiveSpeakers:
        job, blobs = held.job, self._parts.storage.blobs
        recordings = await known_recordings(job.id, blobs) if job.order.known_speakers else {}
        state = SpeakerState() if store is None else await store.read()
        engine, isolation = self._parts.engines[job.environment], self._parts.isolation
        make = partial(engine.live_speakers, job.order, isolation=isolation, recordings=recordings, state=state)
        return await asyncio.to_thread(make, start=before.resumes_at, words=before.labelled)

    async def _live(self, live: LiveSession) -> None:
        try:
            with contain("live session", self._parts.metrics, job=live.job.id):
                await live.run()
        finally:
            if self._lives.get(live.job.id) is live:
                del self._lives[live.job.id]

    async def stop_canceled(self) -> None:
        """Let the sessions whose jobs were canceled or deleted stop soon."""
        if self._lives:
            for job_id in await self._parts.storage.jobs.list_canceled([*self._lives]):
                if (live := self._lives.get(job_id)) is not None:
                    live.renew_soon()

    async def finish_stale(self) -> None:
        """Finish jobs whose process died and whose writer did not come back, with the words so far."""
        for job in await self._parts.storage.jobs.list_stale_live(limit=STALE_AT_ONCE):
            with contain("finishing forgotten live sessions", self._parts.metrics, job=job.id):
                async with self._lock(job.id):
                    held = await self._claim(job)
                    if held is not None:
                        with suppress(LeaseLost):  # then another process finishes it
                            await self._complete(held, await self._close_open_words(held))

    async def _claim(self, job: Job) -> HeldLease | None:
        requested_at, lease_s = time.monotonic(), self.rules.lease_s
        jobs, worker = self._parts.storage.jobs, self._parts.worker
        lease = await jobs.claim_live(job.id, worker, lease_s=lease_s)
        if lease is None:
            return None
        return SessionLease(lease, jobs, worker=worker, lease_s=lease_s, requested_at=requested_at)

    async def _claim_from_elsewhere(self, job: Job) -> HeldLease | None:
        """Ask the other nodes to release the session. The node that has it does so if its writer has left."""
        jobs, relay = self._parts.storage.jobs, self._parts.storage.relay
        now = await jobs.get(job.id)
        if relay is None or now is None or now.state is not State.PROCESSING:
            return None
        await relay.send(orjson.dumps({"give_up": job.id}))
        until = time.monotonic() + GIVING_UP_S
        while now is not None and now.state is State.PROCESSING and (left := until - time.monotonic()) > 0:
            now = await jobs.wait_for_change(now, timeout_s=left)
        return None if now is None or now.terminal else await self._claim(job)

    def _on_request(self, message: bytes) -> None:
        """Release the session that another node asks for in *message*, if it runs here."""
        live = self._lives.get(orjson.loads(message).get("give_up", ""))
        if live is not None:
            live.give_up()

    async def _complete(self, held: HeldLease, before: SessionPast) -> None:
        """End a session that no writer can continue, with the words so far."""
        live = held.job.order.live
        assert live is not None
        if live.endpointing == SEMANTIC and before.open_turns:
            await held.log([turn_ended(end, None, channel) for channel, end in before.open_turns.items()])
        result = LiveResult(
            duration=before.duration,
            received_bytes=held.job.source.bytes if before.has_final_speakers else None,
            warnings=[RECORDING_FAILED] if live.record else [],
            speakers=await self._last_speakers(held, before),
        )
        await self._endings.complete(held, result)

    async def _last_speakers(self, held: HeldLease, before: SessionPast) -> FinalSpeakers | None:
        """Return the speakers that readers know, for every word.

        Returns None if none are ordered, or if readers have them.
        """
        if before.has_final_speakers or not held.job.order.diarize:
            return None
        return await asyncio.to_thread(LiveSpeakers(None, SpeakerOptions(), {}, before.labelled).finish)

    async def _close_open_words(self, held: HeldLease) -> SessionPast:
        return await self._endings.close_open_words(held, await self._past(held.job, held.lease.chunks))

    async def _past(self, job: Job, chunks: Sequence[bytes]) -> SessionPast:
        log = await self._parts.storage.events.read_all(job.id)
        size = total_bytes(chunks) + total_bytes(event.body for event in log)
        return await compute(job.account, size, read_past, chunks, log, job.order.live_channels)


def _bytes_up_to(before: SessionPast, options: LiveOptions) -> int | None:
    """The byte at which a writer of raw audio continues; None for a container, which cannot be continued."""
    if options.encoding == CONTAINER:
        return None if before.begun else 0
    return bytes_up_to(before.resumes_at, options)
