"""Tests of accepting jobs: what refuses them, what is counted, and that a repeated request makes one job."""

import asyncio

import pytest

from pipeline.documents.cues import SubtitleShape
from server.model.errors import ConcurrencyLimited, IdempotencyInProgress, IdempotencyReused, QueueFull, QuotaExceeded
from server.model.jobs import IdempotencyKey, State
from server.model.orders import Order
from tests.server.storing import HOUR, NOON, claim, completion, new_job, quota, submit, types_of

KEY = IdempotencyKey(account="acct_1", path="/v1/transcribe", key="k", fingerprint="f")
TRANSCRIPTIONS = [("transcriptions", "2026-11")]


async def test_an_accepted_job_is_queued_with_its_first_event(storage):
    order = Order(
        output_formats=("srt", "vtt"),
        metadata={"a": "b"},
        webhook_events=("job.failed",),
        subtitles=SubtitleShape(max_columns=32),
    )
    made = await storage.jobs.submit(new_job("job_1", order=order), idempotency=None)
    assert (made.replayed, made.job.state, made.job.created_at) == (False, State.QUEUED, NOON)
    assert made.job.order == order
    assert await storage.jobs.get("job_1") == made.job
    assert await types_of(storage, "job_1") == ["job.status"]


async def test_an_accepted_job_is_there_when_the_folder_is_opened_again(backend, tmp_path):
    async with backend.storage_in(tmp_path) as storage:
        made = await storage.jobs.submit(new_job("job_1"), idempotency=None)
    async with backend.storage_in(tmp_path) as storage:
        assert await storage.jobs.get("job_1") == made.job


async def test_a_limit_holds_across_everyone_who_has_the_folder_open(backend, tmp_path):
    async with backend.storage_in(tmp_path) as ours, backend.storage_in(tmp_path) as theirs:
        results = await asyncio.gather(
            *(submit(storage, quotas=(quota(limit=5),)) for _ in range(5) for storage in (ours, theirs)),
            return_exceptions=True,
        )
        assert sum(isinstance(result, QuotaExceeded) for result in results) == 5
        assert await ours.jobs.counts() == {"queued": 5, "processing": 0}


async def test_a_job_refused_by_its_second_quota_takes_nothing_of_the_first(storage):
    with pytest.raises(QuotaExceeded, match="audio_seconds"):
        await submit(storage, quotas=(quota(), quota("audio_seconds", limit=9, amount=10)))
    assert await storage.counters.amounts_used("acct_1", TRANSCRIPTIONS) == [0]


async def test_what_submit_would_refuse_is_known_before_and_takes_nothing(backend, tmp_path):
    async with backend.storage_in(tmp_path, max_queued=3) as storage:

        async def check(account: str = "acct_1", *, limit: int = 2, max_active: int | None = None) -> None:
            await storage.jobs.check_capacity(
                account, "production", quotas=(quota(limit=limit),), max_active=max_active
            )

        for _ in range(2):
            await check()
            await submit(storage, quotas=(quota(limit=2),))
        with pytest.raises(QuotaExceeded) as refused:
            await check()
        assert (refused.value.limit, refused.value.used) == (2, 2)
        with pytest.raises(ConcurrencyLimited):
            await check(limit=3, max_active=2)
        for _ in range(9):
            await check(limit=3, max_active=3)
        assert await storage.counters.amounts_used("acct_1", TRANSCRIPTIONS) == [2]
        await submit(storage, account="acct_2")
        with pytest.raises(QueueFull):
            await check("acct_3")


def test_a_quota_never_takes_less_than_nothing():
    assert quota(amount=0).amount == 0
    with pytest.raises(ValueError, match="audio_seconds"):
        quota("audio_seconds", amount=-3_600_000)


async def test_unfinished_jobs_are_capped_per_account_environment_and_kind(storage):
    first = await submit(storage, max_active=1)
    with pytest.raises(ConcurrencyLimited) as refused:
        await submit(storage, max_active=1)
    assert (refused.value.limit, refused.value.used) == (1, 1)
    await submit(storage, max_active=1, live=True)
    await submit(storage, max_active=1, environment="sandbox")
    await submit(storage, max_active=1, account="acct_2")
    lease = await claim(storage)
    assert lease.job.id == first
    with pytest.raises(ConcurrencyLimited):  # processing is unfinished too
        await submit(storage, max_active=1)
    await storage.jobs.finish(lease, completion())
    await submit(storage, max_active=1)


async def test_a_full_queue_refuses_batch_jobs_and_counts_nothing(backend, tmp_path):
    async with backend.storage_in(tmp_path, max_queued=2) as storage:
        await submit(storage)
        await submit(storage)
        with pytest.raises(QueueFull):
            await submit(storage, quotas=(quota(),))
        await submit(storage, live=True)
        assert await storage.counters.amounts_used("acct_1", TRANSCRIPTIONS) == [0]


async def test_the_queue_is_fair_to_an_account_that_asks_for_little(storage):
    for number in range(5):
        await submit(storage, f"job_a{number}", account="many", audio_s=600.0)
    await submit(storage, "job_b", account="one", audio_s=60.0)
    assert [(await claim(storage)).job.id for _ in range(3)] == ["job_b", "job_a0", "job_a1"]


async def test_an_account_that_was_away_gets_no_credit_for_it(storage):
    for number in range(4):
        await submit(storage, f"job_a{number}", account="busy", audio_s=100.0)
    for _ in range(3):
        await claim(storage)
    for number in range(3):  # starts at the queue's current level, not at 0
        await submit(storage, f"job_b{number}", account="away", audio_s=70.0)
    assert [(await claim(storage)).job.id for _ in range(4)] == ["job_b0", "job_a3", "job_b1", "job_b2"]


async def test_a_job_taken_a_second_time_does_not_turn_the_queue_back(sqlite):
    await submit(sqlite, "job_a0", account="a", audio_s=10.0)
    await submit(sqlite, "job_a1", account="a", audio_s=500.0)
    first = await claim(sqlite)
    await claim(sqlite)
    await sqlite.jobs.release(first, delay_s=0, error=None, count=True)
    assert (await claim(sqlite)).job.id == "job_a0"
    await submit(sqlite, "job_b", account="b", audio_s=10.0)  # at 520, the level of the queue, not at 20
    await submit(sqlite, "job_c", account="c", audio_s=5.0)
    assert [(await claim(sqlite)).job.id for _ in range(2)] == ["job_c", "job_b"]


async def test_a_plan_with_twice_the_weight_gets_twice_the_turns(storage):
    for number in range(4):
        await submit(storage, f"job_free{number}", account="free", audio_s=100.0)
    for number in range(4):
        await submit(storage, f"job_pro{number}", account="pro", audio_s=100.0, weight=2.0)
    turns = [(await claim(storage)).job.account for _ in range(6)]
    assert (turns.count("pro"), turns.count("free")) == (4, 2)


async def test_a_repeated_request_is_the_same_job_and_is_counted_once(storage):
    first = await storage.jobs.submit(new_job("job_1", quotas=(quota(),)), idempotency=KEY)
    again = await storage.jobs.submit(new_job("job_2", quotas=(quota(),)), idempotency=KEY)
    assert (again.replayed, again.job) == (True, first.job)
    assert await storage.jobs.get("job_2") is None
    assert await storage.counters.amounts_used("acct_1", TRANSCRIPTIONS) == [1]


async def test_a_replay_is_answered_even_when_quota_and_queue_are_full(backend, tmp_path):
    async with backend.storage_in(tmp_path, max_queued=1) as storage:
        await storage.jobs.submit(new_job("job_1", quotas=(quota(limit=1),)), idempotency=KEY)
        again = await storage.jobs.submit(new_job("job_2", quotas=(quota(limit=1),)), idempotency=KEY)
        assert again.replayed


async def test_a_key_used_for_another_request_is_refused(storage):
    other = IdempotencyKey(account="acct_1", path="/v1/transcribe", key="k", fingerprint="g")
    await storage.jobs.submit(new_job(), idempotency=KEY)
    with pytest.raises(IdempotencyReused):
        await storage.jobs.submit(new_job(), idempotency=other)
    elsewhere = IdempotencyKey(account="acct_1", path="/v1/live", key="k", fingerprint="g")
    assert not (await storage.jobs.submit(new_job(), idempotency=elsewhere)).replayed


async def test_a_key_whose_request_still_arrives_is_in_progress_until_abandoned(storage):
    assert await storage.jobs.begin(KEY) is None
    with pytest.raises(IdempotencyInProgress):
        await storage.jobs.begin(KEY)
    await storage.jobs.abandon(KEY)
    assert await storage.jobs.begin(KEY) is None
    await storage.jobs.submit(new_job("job_1"), idempotency=KEY)
    assert await storage.jobs.begin(KEY) == "job_1"
    await storage.jobs.abandon(KEY)  # too late: there is a job
    assert await storage.jobs.begin(KEY) == "job_1"


async def test_a_key_that_a_dead_server_was_taking_in_is_free_again(backend, tmp_path):
    async with backend.storage_in(tmp_path) as storage:
        await storage.jobs.begin(KEY)
    async with backend.storage_in(tmp_path) as storage:
        assert await storage.jobs.begin(KEY) is None


async def test_a_key_is_forgotten_after_24_hours_or_with_its_job(storage, clock):
    await storage.jobs.submit(new_job("job_1"), idempotency=KEY)
    clock.advance(ms=24 * HOUR - 1)
    assert await storage.jobs.begin(KEY) == "job_1"
    clock.advance(ms=1)
    assert await storage.jobs.begin(KEY) is None
    await storage.jobs.submit(new_job("job_2"), idempotency=KEY)
    await storage.jobs.delete("job_2")
    assert await storage.jobs.begin(KEY) is None
