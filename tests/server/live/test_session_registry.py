"""Tests of session_registry.py on real storage: who is admitted, and what becomes of sessions that nobody serves."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest

from pipeline.audio import RATE, WINDOW, position
from pipeline.errors import PipelineError
from pipeline.events import WordsCommitted
from pipeline.recognition.engines.scripted import ScriptedEngine
from pipeline.recognition.model_set import KnownModel, ModelSet
from pipeline.recognition.scheduler import Overloaded, Scheduler
from pipeline.timeline import SpeakersRevised, StoredRun
from server.accounts.limits import Plans
from server.capacity import Capacity
from server.jobs import leases
from server.live.reporting import MARGIN, resumes_at, starts
from server.live.session_registry import WEIGHED_S
from server.model.errors import Refused
from server.model.jobs import LIVE_GRACE_MS, State
from server.storage.postgres.open import open_storage
from server.storage.sql.storage import Storage
from server.storage.sqlite.blobs import FileBlobs
from server.storage.sqlite.open import make_private
from tests.server.cutting import line
from tests.server.postgres import shared_cluster
from tests.server.serving import LIMITS
from tests.server.session_registries import RULES, after, begin_session, is_over, open_new, order, session_registry
from tests.server.storing import LEASE_S, ManualClock, storage_in, submit, with_stores
from tests.server.talking import script_words
from tests.server.working import BlobsOfDeletedJob
from tests.waiting import eventually


class NoAdmission(ModelSet):
    """Admits nobody."""

    def admit(self, growth: float = 1.0) -> None:  # noqa: ARG002  ModelSet gives the name
        raise PipelineError("busy")


class CautiousAdmission(ModelSet):
    """Admits sessions until there are twice as many."""

    def admit(self, growth: float = 1.0) -> None:
        if growth > 2:
            raise PipelineError("busy")


@pytest.mark.parametrize("encoding", ["pcm_s16le", "container"])
async def test_a_session_that_nobody_came_back_to_ends_with_every_word_that_was_told(sqlite, clock, encoding):
    job_id = await submit(sqlite, order=order(encoding=encoding))
    await begin_session(sqlite, job_id)
    clock.advance(s=LEASE_S)
    assert await sqlite.jobs.reap(limit=10) == 1
    async with session_registry(sqlite):
        clock.advance(ms=LIVE_GRACE_MS)
        assert await is_over(sqlite, job_id) is State.COMPLETED
    job = await sqlite.jobs.get(job_id)
    assert (job.text, job.duration_s, job.language) == ("so my fellow Americans", 2.0, "en")
    told = [(event.type, orjson.loads(event.body)) for event in await sqlite.timelines.read(job_id, after=0, limit=99)]
    assert [body["text"] for kind, body in told if kind == "segment"] == ["so my", "fellow Americans"]
    assert [body["index"] for kind, body in told if kind == "word"] == [0, 1, 2, 3]


async def test_a_session_that_never_had_a_writer_ends_without_words(sqlite, clock):
    job_id = await submit(sqlite, order=order())
    async with session_registry(sqlite):
        clock.advance(ms=LIVE_GRACE_MS)
        assert await is_over(sqlite, job_id) is State.COMPLETED


async def test_raw_audio_goes_on_behind_the_last_word_and_a_container_cannot(sqlite, clock):
    raw, container = await submit(sqlite, order=order()), await submit(sqlite, order=order(encoding="container"))
    for job_id in (raw, container):
        await begin_session(sqlite, job_id)
    clock.advance(s=LEASE_S)
    async with session_registry(sqlite) as made:
        jobs = [await sqlite.jobs.get(job_id) for job_id in (raw, container)]
        begin = -(-(RATE - MARGIN) // WINDOW) * WINDOW
        assert (await made.progress(jobs[0])).received_bytes == 2 * begin
        assert (await made.progress(jobs[1])).received_bytes is None
        live = await made.open(jobs[0])
        assert live.progress().received_bytes == 2 * begin
        assert await made.open(jobs[0]) is live
        with pytest.raises(Refused, match="ingest_finished"):
            await made.open(jobs[1])
        assert await is_over(sqlite, container) is State.COMPLETED
        async with live.seat() as seat:
            assert await seat.write(bytes(2 * (4 * RATE - begin)))
            seat.finish()
        assert await is_over(sqlite, raw) is State.COMPLETED
    job = await sqlite.jobs.get(raw)
    assert job.duration_s == 4.0
    assert job.text.startswith("so my fellow Americans ")


class Late(ModelSet):
    """A model whose live windows wait for long."""

    def admit(self, growth: float = 1.0) -> None:  # noqa: ARG002  ModelSet gives the name
        raise Overloaded("words are late")


async def test_while_words_are_late_sessions_that_had_begun_come_back_and_new_ones_wait(sqlite):
    begun, fresh = [await submit(sqlite, order=order()) for _ in range(2)]
    await sqlite.jobs.release(await begin_session(sqlite, begun), delay_s=0.0, error=None, count=False)
    async with session_registry(sqlite, models=Late.of(ScriptedEngine())) as made:
        jobs = [await sqlite.jobs.get(job_id) for job_id in (begun, fresh)]
        assert None not in jobs
        assert (await made.open(jobs[0])).resumed
        with pytest.raises(Refused, match="queue_full"):
            await made.open(jobs[1])


@pytest.mark.parametrize("older_s", [0.0, -1.0])
async def test_a_sessions_age_is_told_by_the_storages_clock_and_not_by_this_machines(sqlite, clock, older_s):
    """That clock stands at another year here; a session that is a second younger than it may be ends a second later."""
    job_id = await submit(sqlite, order=order())
    async with session_registry(sqlite) as made:
        job = await sqlite.jobs.get(job_id)
        plan = await Plans(sqlite.accounts, LIMITS).of_job(job)
        clock.advance(s=plan.audio_s_per_file + RULES.margin_s + older_s)
        began = asyncio.get_running_loop().time()
        live = await made.open(job)
        async with asyncio.timeout(10):
            await live.over.wait()
        assert live.ended_by.code == "audio_too_long"
        assert asyncio.get_running_loop().time() - began >= -older_s


async def test_who_cannot_tell_speakers_apart_leaves_a_session_to_others_and_ends_it_with_the_labels_it_had(
    sqlite, clock
):
    job_id = await submit(sqlite, order=replace(order(), diarize=True))
    revised = SpeakersRevised((StoredRun(0, 2, "S1"), StoredRun(3, 3, "S2")))
    lease = await begin_session(sqlite, job_id)
    assert await sqlite.jobs.append(lease, [revised]) is not None
    clock.advance(s=LEASE_S)
    assert await sqlite.jobs.reap(limit=10) == 1
    async with session_registry(sqlite, engine="whisper") as made:
        job = await sqlite.jobs.get(job_id)
        with pytest.raises(Refused, match=r"queue_full.*scripts/setup speakers"):
            await made.open(job)
        clock.advance(ms=LIVE_GRACE_MS)
        assert await is_over(sqlite, job_id) is State.COMPLETED
    job = await sqlite.jobs.get(job_id)
    assert job.speakers == {"S1": 1.5, "S2": 0.5}


THREE = {"scripted": Capacity("scripted", "scripted", 3, 1.0, 1.0, 0.75)}


async def test_telling_speakers_apart_takes_room_from_other_sessions(sqlite):
    async with session_registry(sqlite, capacities=THREE) as made:
        for wanted in (replace(order(), diarize=True), order()):
            await open_new(made, sqlite, wanted)
        with pytest.raises(Refused, match=r"carries 3 live sessions, and 2\.75 are in use"):
            made.admit("production", order())


SLOW_AND_QUICK = {
    "scripted": Capacity("scripted", "scripted", 4, 1.0, 1.0),
    "slow": Capacity("scripted", "slow", 2, 1.0, 1.0),
}


async def test_a_session_of_a_slower_model_takes_the_room_of_several(sqlite):
    languages = ScriptedEngine().languages
    models = ModelSet([KnownModel(name, languages) for name in SLOW_AND_QUICK], lambda _: ScriptedEngine())
    async with session_registry(sqlite, models=models, capacities=SLOW_AND_QUICK) as made:
        for wanted in (replace(order(), model="slow"), order()):
            await open_new(made, sqlite, wanted)
        made.admit("production", order())
        with pytest.raises(Refused, match=r"carries 4 live sessions, and 3 are in use"):
            made.admit("production", replace(order(), model="slow"))


async def test_a_session_that_another_process_holds_is_busy(sqlite):
    job_id = await submit(sqlite, order=order())
    await begin_session(sqlite, job_id)
    async with session_registry(sqlite) as made:
        job = await sqlite.jobs.get(job_id)
        with pytest.raises(Refused, match="ingest_busy"):
            await made.open(job)


async def test_a_full_recogniser_takes_no_new_session_and_keeps_those_it_has(sqlite):
    async with session_registry(sqlite, models=NoAdmission.of(ScriptedEngine())) as made:
        job = await sqlite.jobs.get(await submit(sqlite, order=order()))
        for attempt in (made.open(job), asyncio.to_thread(made.admit, "production", order())):
            with pytest.raises(Refused) as refusal:
                await attempt
            assert (refusal.value.code, refusal.value.retry_after_s) == ("queue_full", 10)
        again = await sqlite.jobs.get(job.id)
        assert again.state is State.QUEUED


async def test_sessions_that_only_just_began_count_as_load_to_come(sqlite):
    async with session_registry(sqlite, models=CautiousAdmission.of(ScriptedEngine())) as made:
        lives = [await open_new(made, sqlite, order()) for _ in range(2)]
        with pytest.raises(Refused, match="queue_full"):
            made.admit("production", order())
        for live in lives:
            live.began -= WEIGHED_S
        made.admit("production", order())


async def test_a_session_counts_once_for_each_channel_that_is_heard_by_itself(sqlite):
    async with session_registry(sqlite, models=CautiousAdmission.of(ScriptedEngine())) as made:
        live = await open_new(made, sqlite, order(separate=True, channels=2))
        with pytest.raises(Refused, match="queue_full"):
            made.admit("production", order())
        live.began -= WEIGHED_S
        made.admit("production", order(separate=True, channels=2))
        with pytest.raises(Refused, match="queue_full"):
            made.admit("production", order(separate=True, channels=3))


class SlowTimelines:
    """The timelines, but those of the *slow* jobs are read only once *go* is set."""

    def __init__(self, storage: Storage, *slow: str) -> None:
        self._timelines = storage.timelines
        self._slow = slow
        self.go = asyncio.Event()

    async def entries(self, job_id: str) -> list[bytes]:
        if job_id in self._slow:
            await self.go.wait()
        return await self._timelines.entries(job_id)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._timelines, name)


async def test_a_session_with_a_long_log_keeps_no_other_session_waiting(sqlite):
    long, other = [await sqlite.jobs.get(await submit(sqlite, order=order())) for _ in range(2)]
    log = SlowTimelines(sqlite, long.id)
    async with session_registry(with_stores(sqlite, timelines=log)) as made:
        opening = [asyncio.create_task(made.open(long)) for _ in range(2)]
        async with asyncio.timeout(10):
            assert (await made.open(other)).job.id == other.id
        assert not any(task.done() for task in opening)
        log.go.set()
        first, second = await asyncio.gather(*opening)
        assert first is second


async def test_sessions_that_still_read_their_log_count_as_load_to_come(sqlite):
    jobs = [await sqlite.jobs.get(await submit(sqlite, order=order())) for _ in range(2)]
    log = SlowTimelines(sqlite, *[job.id for job in jobs if job])
    models = CautiousAdmission.of(ScriptedEngine())
    async with session_registry(with_stores(sqlite, timelines=log), models=models) as made:
        opening = [asyncio.create_task(made.open(job)) for job in jobs if job]
        await asyncio.sleep(0.1)
        with pytest.raises(Refused, match="queue_full"):
            made.admit("production", order())
        log.go.set()
        await asyncio.gather(*opening)


async def test_nothing_is_left_of_a_session_that_was_deleted_while_it_wrote_its_outputs(sqlite):
    job = await sqlite.jobs.get(await submit(sqlite, order=order()))
    async with session_registry(with_stores(sqlite, blobs=BlobsOfDeletedJob(sqlite))) as made:
        live = await made.open(job)
        async with live.seat() as seat:
            assert await seat.write(bytes(2 * RATE))
            seat.finish()
        async with asyncio.timeout(20):
            await live.over.wait()
    assert await sqlite.jobs.get(job.id) is None
    assert await sqlite.blobs.prefixes() == []


async def test_a_session_that_waited_too_long_for_the_database_ends_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(leases, "AWAY_S", 0.5)
    monkeypatch.setattr("tests.server.live.test_session_registry.RULES", replace(RULES, lease_s=0.5, renew_s=0.1))
    make_private(tmp_path)
    with line(shared_cluster().port) as between:
        url = shared_cluster().new_database().replace(str(shared_cluster().port), str(between.port))
        storage = open_storage(url, FileBlobs(tmp_path), name="test")
        async with session_registry(storage) as made:
            job = await storage.jobs.get(await submit(storage, live=True))
            live = await made.open(job)
            async with live.seat() as seat:
                assert await seat.write(bytes(2 * RATE))
            await asyncio.sleep(0.5)
            between.close()
            await asyncio.wait_for(live.over.wait(), 20)
        await storage.close()


async def test_a_desk_that_closes_hands_its_sessions_back_but_finishes_containers(sqlite):
    raw, container = await submit(sqlite, order=order()), await submit(sqlite, order=order(encoding="container"))
    async with session_registry(sqlite) as made:
        for job_id in (raw, container):
            job = await sqlite.jobs.get(job_id)
            await made.open(job)
    states = [(await sqlite.jobs.get(job_id)).state for job_id in (raw, container)]  # type: ignore[union-attr]  # the jobs exist
    assert states == [State.QUEUED, State.COMPLETED]


async def test_a_session_that_goes_on_tells_no_word_of_what_was_settled_before(sqlite):
    """The scripted engine says words at fixed times, so words of audio that is sent again would come twice."""
    async with session_registry(sqlite) as made:
        engine = made._parts.engines["production"]
        settled = position(4.32)
        place = after(silent_until=settled)
        session = engine.stream(order(), tenant="t", starts=starts(place, order()))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(session.run())
            await session.feed(np.zeros(position(8) - resumes_at(place, order()), np.float32))
            session.finish()
            events = [one.event async for one in session.events()]
        words = [word for event in events if isinstance(event, WordsCommitted) for word in event.words]
        assert [word.text for word in words] == script_words(8)[11:]
        assert min(word.start for word in words) >= settled


@pytest.mark.parametrize("separate", [False, True])
async def test_writers_that_leave_while_they_wait_lose_no_audio(tmp_path, monkeypatch, separate):
    """However many come while the recogniser is stuck: what was taken of each is kept, and the rest not taken."""
    going, recognise = asyncio.Event(), Scheduler.recognise_newest

    async def stuck(self: Scheduler, *given: Any, **named: Any) -> Any:
        await going.wait()
        return await recognise(self, *given, **named)

    monkeypatch.setattr(Scheduler, "recognise_newest", stuck)
    piece = bytes(RATE * (2 if separate else 1))  # half a second
    async with storage_in(tmp_path, ManualClock()) as storage, session_registry(storage) as made:
        job = await storage.jobs.get(
            await submit(storage, order=order(separate=separate, channels=2 if separate else 1))
        )
        live = await made.open(job)
        for _ in range(80):
            with suppress(TimeoutError):
                async with live.seat() as seat, asyncio.timeout(0.01):
                    await seat.write(piece)
        going.set()
        taken = live.progress()
        live.finish()
        assert await is_over(storage, job.id) is State.COMPLETED
        ended = await storage.jobs.get(job.id)
        assert taken.received_bytes <= 20 * len(piece)
        assert ended.duration_s == pytest.approx(taken.received_bytes / len(piece) / 2)


async def test_a_writer_need_not_keep_the_audio_of_a_long_silence(sqlite):
    async with session_registry(sqlite) as made:
        live = await open_new(made, sqlite, order())
        live._session._vad = lambda windows: [0.0] * len(windows)  # type: ignore[attr-defined]  # nobody speaks
        async with live.seat() as seat, asyncio.timeout(20):
            await seat.write(bytes(2 * 65 * RATE))
            await eventually(lambda: (live.progress().settled_bytes or 0) >= 2 * 29 * RATE)
            assert len(await sqlite.timelines.entries(live.job.id)) <= 2 + 2
            seat.finish()
        assert await is_over(sqlite, live.job.id) is State.COMPLETED
        ended = await sqlite.jobs.get(live.job.id)
        assert (ended.duration_s, ended.text) == (65, "")
