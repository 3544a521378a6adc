"""Tests of live jobs in the store: claimed by id, waiting for their writer, and never lost."""

from server.model.jobs import LIVE_GRACE_MS, State
from tests.server.storing import HOUR, LEASE_S, completion, refusals, submit


async def test_a_live_job_goes_only_to_who_asks_for_it_by_name(storage, clock):
    job_id = await submit(storage, live=True)
    batch = await submit(storage)
    assert await storage.jobs.claim_live(batch, "w1", lease_s=LEASE_S) is None
    assert await storage.jobs.claim_live("job_none", "w1", lease_s=LEASE_S) is None
    first = await storage.jobs.claim_live(job_id, "w1", lease_s=LEASE_S)
    assert await storage.jobs.claim_live(job_id, "w2", lease_s=LEASE_S) is None  # a second writer
    clock.advance(s=LEASE_S)
    second = await storage.jobs.claim_live(job_id, "w2", lease_s=LEASE_S)  # it was not reaped yet
    assert second.epoch == 2
    assert all(await refusals(storage, first))
    assert await storage.jobs.finish(second, completion())
    assert await storage.jobs.claim_live(job_id, "w1", lease_s=LEASE_S) is None


async def test_a_writer_may_return_after_the_clock_was_set_back(storage, clock):
    job_id = await submit(storage, live=True)
    assert await storage.jobs.claim_live(job_id, "w1", lease_s=LEASE_S) is not None
    clock.advance(s=-3600)
    assert await storage.jobs.claim_live(job_id, "w2", lease_s=LEASE_S) is not None


async def test_a_session_that_lost_its_writer_before_the_clock_was_set_back_ends(storage, clock):
    job_id = await submit(storage, live=True)
    assert await storage.jobs.list_stale_live(limit=10) == []
    clock.advance(s=-3600)
    assert [job.id for job in await storage.jobs.list_stale_live(limit=10)] == [job_id]


async def test_a_live_job_may_lose_its_writer_often_and_waits_for_it_each_time(storage, clock):
    job_id = await submit(storage, live=True)
    for _ in range(6):
        assert await storage.jobs.claim_live(job_id, "w1", lease_s=LEASE_S) is not None
        clock.advance(s=LEASE_S)
        assert await storage.jobs.reap(limit=10) == 1
        assert await storage.jobs.claim("w2", environments=["production"], lease_s=LEASE_S) is None
    clock.advance(ms=LIVE_GRACE_MS - 1)
    assert await storage.jobs.list_stale_live(limit=10) == []
    clock.advance(ms=1)
    assert [job.id for job in await storage.jobs.list_stale_live(limit=10)] == [job_id]


async def test_a_live_job_that_nobody_ever_finished_ends_after_a_day(storage, clock):
    job_id = await submit(storage, live=True)
    clock.advance(ms=24 * HOUR)
    assert await storage.jobs.reap(limit=10) == 1
    job = await storage.jobs.get(job_id)
    assert job.state is State.FAILED
