"""Tests of sessions with speakers that another process than their own ends."""

import asyncio
import io
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest
import soundfile

from pipeline.audio import RATE
from pipeline.text.options import TextOptions
from pipeline.timeline import DecidedUpTo, SpeakersRevised, StoredRun, turns_of
from pipeline.words import SpeakerTurn, Word
from server.live.recording import recording_key
from server.live.speakers import SpeakerListener
from server.model.errors import Refused
from server.model.jobs import LIVE_GRACE_MS, State
from server.model.orders import Source
from server.storage.sql.storage import Storage
from tests.pipeline.conversations import models
from tests.server.session_registries import begin_session, committed, ended, is_over, order, session_registry
from tests.server.storing import LEASE_S, ManualClock, storage_in, submit
from tests.server.talking import script_words


async def final_events(storage: Storage, job_id: str) -> list[dict[str, Any]]:
    events = await storage.timelines.read(job_id, after=0, limit=999)
    bodies = [orjson.loads(event.body) for event in events if event.type == "speakers.revised"]
    return [body for body in bodies if body["final"]]


async def test_an_abandoned_session_has_the_speakers_that_readers_know(sqlite, clock):
    job_id = await submit(sqlite, order=replace(order(), diarize=True))
    lease = await begin_session(sqlite, job_id)
    revised = {"words": [{"first": 0, "last": 2, "speaker": "S1"}, {"first": 3, "last": 3, "speaker": "S2"}]}
    runs = (StoredRun(0, 2, "S1"), StoredRun(3, 3, "S2"))
    assert await sqlite.jobs.append(lease, [SpeakersRevised(runs)]) is not None
    clock.advance(s=LEASE_S)
    assert await sqlite.jobs.reap(limit=10) == 1
    async with session_registry(sqlite, speakers=models()):
        clock.advance(ms=LIVE_GRACE_MS)
        assert await is_over(sqlite, job_id) is State.COMPLETED
    assert await final_events(sqlite, job_id) == [revised | {"final": True}]


async def test_after_the_final_speakers_no_word_follows(sqlite, clock):
    """Whose server died between the final speakers and the end of the job may not send more."""
    job_id = await submit(sqlite, order=replace(order(record=True), diarize=True))
    lease = await begin_session(sqlite, job_id)
    await sqlite.jobs.note(lease, source=Source(type="live", bytes=70_000, format="pcm_s16le"), stage="writing")
    words = Word("fellow", RATE, 24_000, 0.9), Word("Americans", 24_000, 2 * RATE, 0.9)
    turns = turns_of([SpeakerTurn("S1", 0, 2 * RATE)])
    assert await sqlite.jobs.append(lease, [ended(1, *words), DecidedUpTo(35_000), turns]) is not None
    runs = {"words": [{"first": 0, "last": 3, "speaker": "S1"}], "final": True}
    clock.advance(s=LEASE_S)
    async with session_registry(sqlite) as made:
        with pytest.raises(Refused, match="ingest_finished"):
            await made.open(await sqlite.jobs.get(job_id))
        assert await is_over(sqlite, job_id) is State.COMPLETED
    job = await sqlite.jobs.get(job_id)
    assert await final_events(sqlite, job_id) == [runs]
    assert (job.source.bytes, job.duration_s) == (70_000, 2.188)
    assert [warning["code"] for warning in job.warnings] == ["recording_failed"]


async def test_writers_that_leave_while_speakers_are_sought_lose_no_word(tmp_path, monkeypatch):
    going, listen = asyncio.Event(), SpeakerListener._listen

    async def stuck(self: SpeakerListener, *given: Any) -> Any:
        await going.wait()
        return await listen(self, *given)

    monkeypatch.setattr(SpeakerListener, "_listen", stuck)
    async with storage_in(tmp_path, ManualClock()) as storage, session_registry(storage) as made:
        job = await storage.jobs.get(await submit(storage, order=replace(order(), diarize=True)))
        live = await made.open(job)
        for _ in range(160):
            with suppress(TimeoutError):
                async with live.seat() as seat, asyncio.timeout(0.1):
                    await seat.write(bytes(2 * RATE))
        taken_s = live.progress().received_s
        going.set()
        live.finish()
        assert await is_over(storage, job.id) is State.COMPLETED
        assert 60 < taken_s < 70
        assert (await storage.jobs.get(job.id)).text == " ".join(script_words(taken_s))


async def test_who_asks_for_the_end_of_a_container_after_a_restart_gets_it(me, live_server):
    record = await me.start(encoding="container", diarize=True)
    lease = await begin_session(live_server.storage, record["job_id"])
    await live_server.storage.jobs.release(lease, delay_s=0, error=None, count=False)
    async with me.client() as client:
        answer = await client.post(f"/v1/jobs/{record['job_id']}/finish")
    assert (answer.status_code, answer.json()["status"]) == (200, "completed")


async def test_a_session_that_ends_at_once_after_a_restart_received_all_that_has_words(sqlite, clock):
    job_id = await submit(sqlite, order=order())
    await begin_session(sqlite, job_id)
    clock.advance(s=LEASE_S)
    async with session_registry(sqlite) as made:
        (await made.open(await sqlite.jobs.get(job_id))).finish()
        assert await is_over(sqlite, job_id) is State.COMPLETED
        job = await sqlite.jobs.get(job_id)
        assert (job.source.bytes, job.duration_s) == (2 * 2 * RATE, 2.0)
        assert (await made.progress(job)).settled_bytes == 2 * 2 * RATE


async def test_the_open_segment_of_a_server_that_died_has_the_speaker_of_most_of_its_words(sqlite, clock):
    async with session_registry(sqlite) as made:
        job_id = await submit(sqlite, order=replace(order(channels=2, separate=True), diarize=True))
        lease = await sqlite.jobs.claim_live(job_id, "dead", lease_s=LEASE_S)
        spoken = [(0, "S1"), (1, "S3"), (0, "S1"), (1, None), (1, "S3"), (1, "S4")]
        for number, (channel, label) in enumerate(spoken):
            word = Word("so", number * RATE, number * RATE + RATE // 2, 0.9)
            said = committed(number, channel, word, channel=channel, speaker=label or "")
            assert await sqlite.jobs.append(lease, [said]) is not None
        runs = (StoredRun(0, 0, "S2"), StoredRun(2, 2, "S2"))
        assert await sqlite.jobs.append(lease, [SpeakersRevised(runs)]) is not None
        clock.advance(s=LEASE_S)
        (await made.open(await sqlite.jobs.get(job_id))).finish()
        assert await is_over(sqlite, job_id) is State.COMPLETED
        events = await sqlite.timelines.read(job_id, after=0, limit=999)
        segments = [orjson.loads(event.body) for event in events if event.type == "segment"]
        assert [(segment["channel"], segment["speaker"]) for segment in segments] == [(0, "S2"), (1, "S3")]


async def test_a_recording_that_begins_at_a_restart_has_nothing_of_a_redacted_word_before_it(sqlite, clock):
    async with session_registry(sqlite) as made:
        ordered = replace(order(record=True), text=TextOptions(redact=("pci",)))
        job_id = await submit(sqlite, order=ordered)
        lease = await sqlite.jobs.claim_live(job_id, "dead", lease_s=LEASE_S)
        card = Word("[CARD]", 0, 2 * RATE, 0.9, redacted=True)
        assert await sqlite.jobs.append(lease, [committed(0, 0, card), ended(0, card)]) is not None
        clock.advance(s=LEASE_S)
        live = await made.open(await sqlite.jobs.get(job_id))
        begin_s = live.progress().received_s
        assert 1.7 <= begin_s < 1.75
        async with live.seat() as seat:
            await seat.write(np.full(RATE, 8000, "<i2").tobytes())
            seat.finish()
        assert await is_over(sqlite, job_id) is State.COMPLETED
        pieces = [piece async for piece in sqlite.blobs.read(recording_key(job_id, epoch=2))]
        audio, _ = soundfile.read(io.BytesIO(b"".join(pieces)))
        assert np.flatnonzero(audio)[0] / RATE == pytest.approx(2 + 0.25 - begin_s, abs=0.001)
