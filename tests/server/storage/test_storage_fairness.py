"""Whose turn it is: what claims take and pass over, and what a job's turn costs its account."""

from dataclasses import replace

import pytest

from server.model.jobs import JobError, Outcome, State
from server.model.orders import Source
from server.storage.sql.storage import Storage
from tests.server.storing import CANCELED, LEASE_S, claim, completion, submit

AT_AN_ADDRESS = Source(type="url", url="https://example.org/talk.mp3")
TIMED_OUT = JobError(code="source_timeout", message="too slow", retryable=True)


async def next_job(storage: Storage, **which: object) -> str | None:
    """The job that a claim takes now, asking for *which*."""
    asked = {"environments": ["production"], "lease_s": LEASE_S, **which}
    lease = await storage.jobs.claim("w1", **asked)
    return None if lease is None else lease.job.id


# --- what a claim takes --------------------------------------------------------------------------------------------


async def test_jobs_that_must_be_downloaded_are_claimed_apart_until_their_audio_is_there(storage):
    job_id = await submit(storage, source=AT_AN_ADDRESS, audio_s=None)
    assert await next_job(storage) is None
    lease = await storage.jobs.claim("w1", environments=["production"], unfetched=True, lease_s=LEASE_S)
    assert (lease.job.id, lease.job.blob) == (job_id, None)
    assert await storage.jobs.note(lease, blob=f"{job_id}/source/1", duration_s=12.5)
    assert await storage.jobs.release(lease, delay_s=0, error=None, count=False)
    assert await next_job(storage, unfetched=True) is None
    again = await claim(storage)
    assert (again.job.id, again.job.blob) == (job_id, f"{job_id}/source/1")
    assert (again.job.attempt, again.epoch) == (1, 2)  # the download was no attempt


async def test_a_job_goes_back_to_the_downloads_if_its_download_failed(storage):
    job_id = await submit(storage, source=AT_AN_ADDRESS)
    lease = await storage.jobs.claim("w1", environments=["production"], unfetched=True, lease_s=LEASE_S)
    await storage.jobs.release(lease, delay_s=0, error=TIMED_OUT, count=True)
    assert await next_job(storage) is None
    assert await next_job(storage, unfetched=True) == job_id


async def test_a_later_environment_is_served_where_the_earlier_one_has_nothing(storage):
    rehearsed = await submit(storage, environment="sandbox", audio_s=1.0)
    real = await submit(storage, account="acct_2", audio_s=3600.0)
    both = {"environments": ["production", "sandbox"]}
    assert [await next_job(storage, **both) for _ in range(3)] == [real, rehearsed, None]


async def test_accounts_that_have_enough_are_passed_over(storage):
    first = await submit(storage, account="acct_1", audio_s=1.0)
    second = await submit(storage, account="acct_2", audio_s=600.0)
    assert await next_job(storage, passing_over={"acct_1"}) == second
    assert await next_job(storage, passing_over={"acct_1", "acct_2"}) is None
    assert await next_job(storage, passing_over={"acct_2"}) == first


async def test_a_job_submitted_with_a_delay_waits_for_its_time(storage, clock):
    job_id = await submit(storage, delay_s=20.0)
    clock.advance(ms=19_999)
    assert await next_job(storage) is None
    clock.advance(ms=1)
    assert await next_job(storage) == job_id


async def test_a_clock_that_is_set_back_keeps_no_job_waiting(storage, clock):
    job_id = await submit(storage)
    clock.advance(s=-3600)
    lease = await claim(storage)
    await storage.jobs.release(lease, delay_s=0, error=None, count=False)
    clock.advance(s=-3600)
    assert await next_job(storage) == job_id


# --- what a turn costs ---------------------------------------------------------------------------------------------


async def test_an_attempt_that_failed_costs_the_time_that_it_held_its_lease(storage, clock):
    slow = [await submit(storage, account="slow", audio_s=None) for _ in range(2)]
    other = await submit(storage, account="other", audio_s=600.0, weight=1.5)  # at 400: between 300 and 600
    lease = await claim(storage, lease_s=600.0)
    assert lease.job.id == slow[0]
    clock.advance(s=300)
    await storage.jobs.release(lease, delay_s=0, error=TIMED_OUT, count=True)
    assert [await next_job(storage) for _ in range(3)] == [other, *slow]  # at 400, 600 and 600
    later = await submit(storage, account="slow", audio_s=100.0)  # behind 600 and the 300 s that were held
    fresh = await submit(storage, account="fresh", audio_s=399.0)
    assert [await next_job(storage) for _ in range(2)] == [fresh, later]


async def test_an_attempt_that_a_shutdown_ended_costs_nothing(storage, clock):
    first = await submit(storage, audio_s=10.0)
    await submit(storage, account="acct_2", audio_s=20.0)
    lease = await claim(storage, lease_s=600.0)
    clock.advance(s=300)
    await storage.jobs.release(lease, delay_s=0, error=None, count=False)
    assert await next_job(storage) == first


async def test_a_lease_that_ran_out_costs_its_own_time_and_not_that_until_somebody_noticed(storage, clock):
    first = await submit(storage, audio_s=10.0)
    second = await submit(storage, account="acct_2", audio_s=39.0)
    third = await submit(storage, account="acct_3", audio_s=41.0)
    await claim(storage, lease_s=30.0)
    clock.advance(s=3600)
    await storage.jobs.reap(limit=10)
    assert [await next_job(storage) for _ in range(3)] == [second, first, third]


@pytest.mark.parametrize(("seconds", "turn"), [(9.0, 0), (110.0, 1)])
async def test_a_file_that_was_longer_than_it_stated_costs_the_difference(storage, seconds, turn):
    await submit(storage, account="liar", audio_s=10.0)
    assert await storage.jobs.finish(await claim(storage), replace(completion(), duration_s=seconds))
    jobs = [await submit(storage, account=account, audio_s=50.0) for account in ("liar", "other")]
    assert await next_job(storage) == jobs[turn]


@pytest.mark.parametrize(
    "outcome", [CANCELED, Outcome(state=State.FAILED, error=TIMED_OUT, return_quota=True)], ids=["canceled", "failed"]
)
async def test_a_job_that_ends_without_a_result_costs_the_time_that_it_held_its_lease(storage, clock, outcome):
    await submit(storage, account="waster", audio_s=10.0)
    lease = await claim(storage, lease_s=600.0)
    clock.advance(s=100)
    assert await storage.jobs.finish(lease, outcome)
    jobs = [await submit(storage, account=account, audio_s=50.0) for account in ("waster", "other")]
    assert await next_job(storage) == jobs[1]
