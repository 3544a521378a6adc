"""The live sessions of this process. The first writer of a job creates its session; later writers join it."""

import asyncio
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from weakref import WeakValueDictionary

import orjson

from pipeline.audio import seconds
from pipeline.errors import DecodersBusy, PipelineError
from pipeline.ingest.memory import LIVE_SHARE, SANDBOX_SHARE, MemoryClaim
from pipeline.speakers.live import LabelledWord, LiveSpeakers, SpeakerState
from pipeline.speakers.options import NOT_INSTALLED, SpeakerOptions
from pipeline.timeline import TurnEnd, turns_of, unpack
from pipeline.transcription import Transcription
from server.background import compute, contain, total_bytes
from server.jobs.finishing import Finisher, Recognised
from server.jobs.leases import HeldLease, SessionLease
from server.jobs.probing import known_recordings
from server.live.intake import bytes_up_to
from server.live.parts import LiveRules, SessionParts
from server.live.recording import RECORDING_FAILED
from server.live.reporting import audio_resumes_at, known_notices, resumes_at, starts
from server.live.session import LiveSession, finished_refusal
from server.live.speakers import SpeakerStore
from server.model.errors import Refused
from server.model.jobs import Job, LeaseLost, LiveProgress, Renewal, State
from server.model.orders import CONTAINER, SEMANTIC, Order, Source
from server.translation.translations import Translations
from server.waiting import racing, set_within, until_first

STALE_AT_ONCE = 20
STALE_TRANSLATION_S = 10.0  # how long such a job waits for the next translation of its last words
RETRY_AFTER_S = 10
GIVING_UP_S = 3.0  # how long a writer waits until another node releases its session
MEMORY_WAIT_S = 3.0  # how long a writer of a container waits for the memory of its decoder
WEIGHED_S = 5.0  # after this time a session's load shows in the model's own figures


class SessionRegistry:
    """Opens sessions and finds them again. Sessions are tasks of run()."""

    def __init__(self, parts: SessionParts) -> None:
        self._parts = parts
        self._finisher = Finisher(parts.storage, parts.metrics, parts.closing)
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
            raise Refused("shutting_down", "The server is restarting. Try again soon.", retry_after_s=5)
        if not self._parts.takes_writers:
            raise self._full("This node takes no live audio. Send it to one with the role live.")
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
            used = f"{round(load, 2):g} are in use"
            raise self._full(f"This machine carries {most} live sessions, and {used}. Try again later.")

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
            raise Refused("job_not_found", "There is no such job.")
        if live.ended_by is not None:
            raise live.ended_by
        if not job.terminal and (live.over.is_set() or self.closing):
            raise Refused("shutting_down", "The server is restarting. Connect again to go on.", retry_after_s=5)

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
        past, options = await self._past(job), job.order.live
        position = audio_resumes_at(past, job.order, self._parts.translations.get(job.environment))
        unknown = options.encoding == CONTAINER and past.place.begun  # a container cannot be continued
        reached = None if unknown else bytes_up_to(position, options) if position else 0
        return LiveProgress(reached, seconds(position), settled_bytes=reached)

    async def _start(self, job: Job) -> LiveSession:
        if job.order.diarize and not self._parts.engines[job.environment].labels_speakers:
            raise self._full(f"This node cannot tell speakers apart: {NOT_INSTALLED}.")
        decoder_memory = await self._claim_memory(job)
        try:
            return await self._begin(job, decoder_memory)
        except BaseException:
            if decoder_memory is not None:
                decoder_memory.release()
            raise

    async def _claim_memory(self, job: Job) -> MemoryClaim | None:
        """Claim memory for the job's decoder; None if it needs none. Raises Refused queue_full after MEMORY_WAIT_S."""
        assert job.order.live is not None
        if job.order.live.encoding != CONTAINER:
            return None
        share = LIVE_SHARE if job.environment == "production" else SANDBOX_SHARE
        try:
            return await self._parts.isolation.memory.claim_soon(share=share, wait_s=MEMORY_WAIT_S)
        except DecodersBusy as error:
            raise self._full(str(error)) from None

    async def _begin(self, job: Job, decoder_memory: MemoryClaim | None) -> LiveSession:
        held = await self._claim(job) or await self._claim_from_elsewhere(job)
        if held is None:
            now = await self._parts.storage.jobs.get(job.id)
            if now is None or now.terminal:
                raise finished_refusal()
            raise Refused("ingest_busy", "Another process has the session. Try again soon.", retry_after_s=5)
        past = await self._end_segments(held)
        assert job.order.live is not None
        # No word may follow the final speakers. The rest of a container cannot be decoded without its beginning.
        if past.turns is not None or (job.order.live.encoding == CONTAINER and past.place.begun):
            await self._complete(held, past)
            raise finished_refusal()
        live = await self._session(held, past, decoder_memory)
        self._lives[job.id] = live
        assert self._tasks is not None
        self._tasks.create_task(self._live(live), name=f"live session {job.id}")
        return live

    async def _session(self, held: HeldLease, past: Transcription, decoder_memory: MemoryClaim | None) -> LiveSession:
        parts, job = self._parts, held.job
        engine = parts.engines[job.environment]
        session = engine.stream(job.order, tenant=job.account, starts=starts(past.place, job.order))
        store = self._speaker_store(held)
        speakers = await self._speakers(held, past, store) if job.order.diarize else None
        return LiveSession(
            held,
            past,
            session,
            parts=parts,
            finisher=self._finisher,
            plan=await parts.plans.of_job(job),
            speakers=speakers,
            speaker_store=store,
            decoder_memory=decoder_memory,
            translation=parts.translations[job.environment],
        )

    def _speaker_store(self, held: HeldLease) -> SpeakerStore | None:
        """Make the store of a session whose speakers are labelled by voice; None for others."""
        hears = self._parts.engines[held.job.environment].diarizes_by_voice(held.job.order)
        return SpeakerStore(held, self._parts.storage.blobs) if hears else None

    async def _speakers(self, held: HeldLease, past: Transcription, store: SpeakerStore | None) -> LiveSpeakers:
        job, blobs = held.job, self._parts.storage.blobs
        recordings = await known_recordings(job.id, blobs) if job.order.known_speakers else {}
        state = SpeakerState() if store is None else await store.read()
        engine, isolation = self._parts.engines[job.environment], self._parts.isolation
        make = partial(engine.live_speakers, job.order, isolation=isolation, recordings=recordings, state=state)
        return await asyncio.to_thread(make, start=resumes_at(past.place, job.order), words=_labelled(past))

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
                            await self._complete(held, await self._end_segments(held))

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

    async def _complete(self, held: HeldLease, past: Transcription) -> None:
        """End a session that no writer can continue, with the words so far."""
        order, models = held.job.order, self._parts.engines[held.job.environment]
        assert order.live is not None
        duration = max(past.place.channel(channel).settled for channel in order.live_channels)
        received = held.job.source.bytes if past.turns is not None else None
        await held.note(source=Source(type="live", bytes=received, format=order.live.encoding), stage="writing")
        open_turns = [(state.open_turn, channel) for channel, state in past.place.channels.items()]
        ends = [TurnEnd(end, None, channel) for end, channel in open_turns if end is not None]
        if order.live.endpointing == SEMANTIC and ends:
            await held.append(ends)
        if order.diarize and past.turns is None:
            words = _labelled(past)
            turns = await asyncio.to_thread(LiveSpeakers(None, SpeakerOptions(), {}, words).finish)
            await held.append([turns_of(turns, until=duration)])
        if order.translate_to:
            await until_first(self._translate_rest(held, past), self._keep(held))
        warnings = [{"code": code, "message": message} for code, message in known_notices(past).items()]
        warnings += [RECORDING_FAILED] if order.live.record else []
        recognised = Recognised(
            engine=models.engine, model_of=models.models.name_for, duration=duration, warnings=warnings
        )
        await self._finisher.complete(held, recognised)

    async def _translate_rest(self, held: HeldLease, past: Transcription) -> None:
        """Translate what the process that died did not. Its audio is gone, so translators that need audio skip it."""
        job, translation = held.job, self._parts.translations[held.job.environment]
        patient = replace(translation, wait_s=min(translation.wait_s, STALE_TRANSLATION_S))
        targets = patient.targets(job.order, tenant=job.account, past=past)
        translations = Translations(job.order, targets, lambda entry: held.append([entry]), self._parts.metrics)
        translations.finish()
        try:
            await translations.run()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from group

    async def _keep(self, held: HeldLease) -> None:
        """Renew the lease, until this is cancelled. Raises LeaseLost, also if the server stops."""
        while not await set_within(self._parts.closing, self.rules.renew_s):
            if await held.renew() is Renewal.LOST:
                break
        raise LeaseLost

    async def _end_segments(self, held: HeldLease) -> Transcription:
        """Read the timeline of a session that died, and end the segments that were open."""
        past = await self._past(held.job)
        labels = past.labels if held.job.order.diarize else ()
        ends = [segment.end(labels) for segment in past.place.open.values()]
        if ends:
            await held.append(ends)
        for entry in ends:
            past.add(entry)
        return past

    async def _past(self, job: Job) -> Transcription:
        stored = await self._parts.storage.timelines.entries(job.id)
        return await compute(job.account, total_bytes(stored), Transcription.of, map(unpack, stored))


def _labelled(past: Transcription) -> list[LabelledWord]:
    """Every word with the speaker that readers know."""
    pairs = zip(past.said, past.labels, strict=True)
    return [LabelledWord(word, channel, label) for (word, channel), label in pairs]
