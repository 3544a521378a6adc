"""Tests of the lease protocol: who may write, what each write includes, and what happens when a lease ends."""

import asyncio
from dataclasses import replace

import orjson
import pytest

from server.model.jobs import Artifact, JobError, Renewal, State
from server.model.orders import Source
from tests.server.storing import (
    HOUR,
    LEASE_S,
    NOON,
    WORD,
    checkpoint,
    claim,
    completion,
    failure,
    parts_done,
    quota,
    refusals,
    submit,
    types_of,
)

ENGINE_ERROR = JobError(code="engine_error", message="out of memory", retryable=True)


async def test_a_claimed_job_is_processing_and_nobody_elses(storage):
    job_id = await submit(storage)
    lease = await claim(storage)
    assert (lease.job.id, lease.job.state, lease.epoch, lease.job.attempt) == (job_id, State.PROCESSING, 1, 1)
    assert (lease.until, lease.job.started_at) == (NOON + 30_000, NOON)
    assert await storage.jobs.claim("w2", environments=["production"], lease_s=LEASE_S) is None


async def test_a_worker_is_given_only_batch_jobs_of_its_environments(storage):
    await submit(storage, live=True)
    await submit(storage, environment="sandbox")
    assert await storage.jobs.claim("w1", environments=["production"], lease_s=LEASE_S) is None
    assert await storage.jobs.claim("w1", environments=["production", "sandbox"], lease_s=LEASE_S) is not None


async def test_a_waiting_claim_is_woken_by_a_submit(storage):
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(storage.jobs.claim("w1", environments=["production"], lease_s=LEASE_S, wait_s=60.0))
        await asyncio.sleep(0)
        job_id = await submit(storage)
        lease = await waiting
        assert lease.job.id == job_id


async def test_a_canceled_claim_leaves_no_lease_behind(storage):
    await submit(storage)
    for turns in range(6):  # at any moment of the call
        claiming = asyncio.create_task(storage.jobs.claim("w1", environments=["production"], lease_s=LEASE_S))
        for _ in range(turns):
            await asyncio.sleep(0)
        claiming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claiming
        assert await storage.jobs.counts() == {"queued": 1, "processing": 0}
    assert (await claim(storage)).job.attempt == 1


async def test_a_checkpoint_keeps_entries_and_progress_together(storage):
    job_id = await submit(storage)
    lease = await claim(storage)
    assert await checkpoint(storage, lease, 0, progress=0.4)
    assert await checkpoint(storage, lease, 1, progress=0.3)  # progress never decreases
    job = await storage.jobs.get(job_id)
    assert job.progress == 0.4
    assert await parts_done(storage, job_id) == 2
    assert await types_of(storage, job_id) == ["job.status", "job.status", "word", "job.progress", "word"]


async def test_what_became_known_is_on_the_record(storage):
    await submit(storage)
    lease = await claim(storage)
    assert await storage.jobs.note(lease, stage="decoding", source=Source(type="upload", format="mp3"))
    assert await storage.jobs.note(lease, duration_s=12.5, blob="job/source")
    job = await storage.jobs.get(lease.job.id)
    assert (job.stage, job.source.format, job.duration_s) == ("decoding", "mp3", 12.5)
    await storage.jobs.release(lease, delay_s=0, error=None, count=True)
    assert (await claim(storage)).job.blob == "job/source"


async def test_a_finished_job_has_its_state_outputs_usage_and_message_at_once(storage):
    made = Artifact(kind="srt", blob="job/1/srt", sha256="00", bytes=7)
    warning = {"code": "fallback_model"}
    reserved = (quota(), quota("audio_seconds", limit=None, amount=60))
    job_id = await submit(storage, quotas=reserved, hook=True, warnings=(warning,))
    lease = await claim(storage)
    outcome = completion(artifacts=(made,), entries=(WORD,), warnings=(warning, {"code": "new"}))
    assert await storage.jobs.finish(lease, outcome)
    job = await storage.jobs.get(job_id)
    assert (job.state, job.progress, job.text, job.duration_s) == (State.COMPLETED, 1.0, "hello", 9.2)
    assert (job.finished_at, job.expires_at) == (NOON, NOON + HOUR)
    assert job.warnings == (warning, {"code": "new"})
    assert await storage.jobs.artifact(job_id, "srt") == made
    assert await storage.jobs.artifact(job_id, "vtt") is None
    windows = [("transcriptions", "2026-11"), ("audio_seconds", "2026-11")]
    assert await storage.counters.amounts_used("acct_1", windows) == [1, 10]  # 9.2 s, rounded up
    assert [row.event for row in await storage.outbox.of_job(job_id)] == ["job.completed"]
    events = await storage.timelines.read(job_id, after=0, limit=10)
    assert [(event.seq, event.type) for event in events] == [
        (1, "job.status"),
        (2, "job.status"),
        (3, "word"),
        (4, "job.completed"),
    ]
    assert orjson.loads(events[-1].body) == {"type": "job.completed"}
    assert orjson.loads(events[1].body) == {"status": "processing", "progress": 0.0}


async def test_audio_that_was_heard_twice_counts_twice(storage):
    job_id = await submit(storage, quotas=(quota("audio_seconds", limit=None, amount=10),))
    assert await storage.jobs.finish(await claim(storage), completion(heard_s=18.4))
    job = await storage.jobs.get(job_id)
    assert job.duration_s == 9.2
    assert await storage.counters.amounts_used("acct_1", [("audio_seconds", "2026-11")]) == [19]  # 18.4 s


@pytest.mark.parametrize("end", ["engine error", "canceled in the queue", "deleted at work", "attempts used up"])
@pytest.mark.parametrize("told", ["a part", "a word", "nothing"])
async def test_the_allowance_goes_back_only_where_no_word_was_told(storage, clock, end, told):
    job_id = await submit(storage, quotas=(quota(),), audio_s=None)
    lease = await claim(storage)
    if told == "a part":
        assert await checkpoint(storage, lease, progress=0.0)  # a file without a stated length makes no progress
    elif told == "a word":
        assert await storage.jobs.append(lease, [WORD])
    if end == "engine error":
        assert await storage.jobs.finish(lease, failure("engine_error", return_quota=True))
    elif end == "canceled in the queue":
        await storage.jobs.release(lease, delay_s=0, error=None, count=True)
        await storage.jobs.cancel(job_id)
    elif end == "deleted at work":
        await storage.jobs.delete(job_id)
    else:
        for _ in range(4):
            clock.advance(s=LEASE_S)
            await storage.jobs.reap(limit=10)
            await storage.jobs.claim("w1", environments=["production"], lease_s=LEASE_S)
    used = await storage.counters.amounts_used("acct_1", [("transcriptions", "2026-11")])
    assert used == [0 if told == "nothing" else 1]


async def test_a_lease_that_was_given_up_is_refused_everywhere(storage):
    job_id = await submit(storage)
    lease = await claim(storage)
    assert await storage.jobs.release(lease, delay_s=0, error=None, count=True)
    assert all(await refusals(storage, lease))
    newer = await claim(storage, "w2")
    assert newer.epoch == 2
    assert all(await refusals(storage, lease))
    assert await storage.jobs.finish(newer, completion())
    assert all(await refusals(storage, newer))
    assert await types_of(storage, job_id) == ["job.status"] * 4 + ["job.completed"]


async def test_a_lease_from_before_the_clock_was_set_back_is_reaped(storage, clock):
    job_id = await submit(storage)
    lost = await claim(storage)
    clock.advance(s=-3600)
    assert await storage.jobs.reap(limit=10) == 1
    assert all(await refusals(storage, lost))
    assert (await claim(storage)).job.id == job_id


async def test_a_renewal_after_the_clock_was_set_back_lets_the_lease_end_in_time(storage, clock):
    await submit(storage)
    lease = await claim(storage)
    clock.advance(s=-3600)
    assert await storage.jobs.renew(lease, lease_s=LEASE_S) is Renewal.OK
    assert await storage.jobs.reap(limit=10) == 0
    clock.advance(s=LEASE_S)
    assert await storage.jobs.reap(limit=10) == 1


async def test_a_renewal_never_shortens_a_lease(storage, clock):
    await submit(storage)
    lease = await claim(storage)
    await storage.jobs.renew(lease, lease_s=1.0)
    clock.advance(s=LEASE_S - 1)
    assert await storage.jobs.renew(lease, lease_s=LEASE_S) is Renewal.OK


@pytest.mark.parametrize("number", [1, 12])
async def test_the_next_worker_goes_on_after_the_last_part(storage, clock, number):
    job_id, first = await submit(storage), await claim(storage)
    for index in range(number):
        await checkpoint(storage, first, index)
    clock.advance(s=LEASE_S)
    assert await storage.jobs.reap(limit=10) == 1
    lease = await claim(storage, "w2")
    assert await parts_done(storage, job_id) == number
    assert (lease.epoch, lease.job.attempt, lease.job.progress) == (2, 2, 0.5)
    assert lease.job.started_at == NOON  # when its first worker took it


async def test_a_job_whose_leases_keep_running_out_fails_after_four_attempts(storage, clock):
    job_id = await submit(storage, quotas=(quota(),), hook=True)
    await storage.jobs.release(await claim(storage), delay_s=0, error=ENGINE_ERROR, count=True)
    for _ in range(3):
        await claim(storage)
        clock.advance(s=LEASE_S)
        await storage.jobs.reap(limit=10)
    job = await storage.jobs.get(job_id)
    assert (job.state, job.attempt, job.error.code) == (State.FAILED, 4, "engine_error")
    assert "out of memory" in job.error.message
    assert await storage.counters.amounts_used("acct_1", [("transcriptions", "2026-11")]) == [0]
    assert [row.event for row in await storage.outbox.of_job(job_id)] == ["job.failed"]
    other = await submit(storage)
    assert (await claim(storage)).job.id == other


async def test_an_attempt_that_got_further_does_not_count(storage, clock):
    job_id = await submit(storage)
    for index in range(9):
        assert await checkpoint(storage, await claim(storage), index)
        clock.advance(s=LEASE_S)
        await storage.jobs.reap(limit=10)
        assert (await storage.jobs.get(job_id)).state is State.QUEUED, "each went on where the last one stopped"
    for _ in range(4):
        assert (await storage.jobs.get(job_id)).state is State.QUEUED
        await claim(storage)
        clock.advance(s=LEASE_S)
        await storage.jobs.reap(limit=10)
    job = await storage.jobs.get(job_id)
    assert (job.state, job.error.code) == (State.FAILED, "engine_error")
    assert "13 attempts were made" in job.error.message


async def test_a_job_given_back_with_an_error_four_times_fails_with_it(storage):
    job_id = await submit(storage)
    for attempt in range(4):
        error = replace(ENGINE_ERROR, message=f"attempt {attempt}")
        assert await storage.jobs.release(await claim(storage), delay_s=0, error=error, count=True)
    job = await storage.jobs.get(job_id)
    assert (job.state, job.error) == (State.FAILED, replace(ENGINE_ERROR, message="attempt 3"))


async def test_a_shutdown_costs_no_attempt_not_even_the_last(storage):
    await submit(storage)
    for _ in range(3):
        assert await storage.jobs.release(await claim(storage), delay_s=0, error=ENGINE_ERROR, count=True)
    for _ in range(6):
        lease = await claim(storage)
        assert lease.job.attempt == 4
        assert await storage.jobs.release(lease, delay_s=0, error=None, count=False)


async def test_a_delayed_job_waits_for_its_time(storage, clock):
    await submit(storage)
    await storage.jobs.release(await claim(storage), delay_s=20.0, error=ENGINE_ERROR, count=True)
    clock.advance(s=19)
    assert await storage.jobs.claim("w1", environments=["production"], lease_s=LEASE_S) is None
    clock.advance(s=1)
    job = (await claim(storage)).job
    assert job.error is None  # the client sees an error only if the job has failed


async def test_a_job_that_waited_for_a_day_fails(storage, clock):
    job_id = await submit(storage, quotas=(quota(),))
    clock.advance(ms=24 * HOUR - 1)
    assert await storage.jobs.reap(limit=10) == 0
    clock.advance(ms=1)
    assert await storage.jobs.reap(limit=10) == 1
    job = await storage.jobs.get(job_id)
    assert (job.state, job.error.code) == (State.FAILED, "queue_timeout")
    assert await storage.counters.amounts_used("acct_1", [("transcriptions", "2026-11")]) == [0]


async def test_reaping_stops_at_its_limit(storage, clock):
    for _ in range(3):
        await submit(storage)
        await claim(storage)
    clock.advance(s=LEASE_S)
    assert [await storage.jobs.reap(limit=2) for _ in range(3)] == [2, 1, 0]


async def test_the_leases_of_a_worker_known_to_be_dead_run_out_at_once_and_those_of_others_do_not(storage):
    await submit(storage)
    await submit(storage)
    dead = await storage.jobs.claim("server a:1/0", environments=["production"], lease_s=LEASE_S)
    alive = await storage.jobs.claim("worker a:2/0", environments=["production"], lease_s=LEASE_S)
    assert alive is not None
    assert await storage.jobs.lapse("server ") == 1
    assert await storage.jobs.renew(dead, lease_s=LEASE_S) is Renewal.LOST
    assert await storage.jobs.renew(alive, lease_s=LEASE_S) is Renewal.OK
    again = await storage.jobs.claim("server a:3/0", environments=["production"], lease_s=LEASE_S)
    assert (again.job.id, again.job.attempt) == (dead.job.id, 2)


@pytest.mark.parametrize(
    ("column", "stored"),
    [
        ("options", '{"output_formats": 5, "live": null}'),
        ("options", "not JSON"),
        ("quotas", '[{"later": 1}]'),
        ("warnings", "5"),
    ],
)
async def test_a_job_that_cannot_be_read_is_set_aside_and_the_next_one_is_claimed(storage, column, stored):
    held, broken, sound = [await submit(storage) for _ in range(3)]
    assert (await claim(storage, "dead")).job.id == held
    change = f"UPDATE jobs SET {column} = ? WHERE id != ?"
    await storage.jobs.database.write(lambda tx: tx.run(change, (stored, sound)))
    assert (await claim(storage)).job.id == sound
    await storage.jobs.lapse("dead")
    for job_id in (broken, held):
        job = await storage.jobs.get(job_id)
        assert (job.state, job.error.code) == (State.FAILED, "internal")
        assert (await types_of(storage, job_id))[-1] == "job.failed"
    assert await storage.jobs.claim("w2", environments=["production"], lease_s=LEASE_S) is None


async def test_a_recording_without_speech_takes_nothing_from_an_allowance(storage):
    await submit(storage, quotas=(quota(), quota("audio_seconds", limit=None, amount=10)))
    assert await storage.jobs.finish(await claim(storage), replace(completion(), text=""))
    windows = [("transcriptions", "2026-11"), ("audio_seconds", "2026-11")]
    assert await storage.counters.amounts_used("acct_1", windows) == [0, 0]
