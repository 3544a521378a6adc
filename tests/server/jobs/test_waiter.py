"""Tests of waiter.py: a held request ends when the job is over, when the wait is over, or when the server stops."""

import asyncio

from server.jobs.waiter import JobWaiter
from server.model.jobs import State
from tests.server.storing import CANCELED, checkpoint, claim, completion, in_a_loop, storage_in, submit

MOST_S = 30


async def job_of(storage, job_id):
    job = await storage.jobs.get(job_id)
    assert job is not None
    return job


@in_a_loop
async def test_the_end_of_the_job_ends_the_wait(tmp_path):
    async with storage_in(tmp_path) as storage, asyncio.TaskGroup() as tasks:
        job = await job_of(storage, await submit(storage))
        held = tasks.create_task(JobWaiter(storage.jobs, asyncio.Event()).wait_for_end(job, wait_s=MOST_S))
        lease = await claim(storage)
        await checkpoint(storage, lease)
        await asyncio.sleep(0.05)
        assert not held.done()  # being claimed and making progress is no end
        await storage.jobs.finish(lease, completion())
        assert (await asyncio.wait_for(held, MOST_S)).state is State.COMPLETED


@in_a_loop
async def test_a_job_that_is_over_is_not_waited_for(tmp_path):
    async with storage_in(tmp_path) as storage:
        job_id = await submit(storage)
        await storage.jobs.finish(await claim(storage), CANCELED)
        job = await job_of(storage, job_id)
        assert await JobWaiter(storage.jobs, asyncio.Event()).wait_for_end(job, wait_s=MOST_S) == job


@in_a_loop
async def test_after_the_wait_the_job_is_as_it_is(tmp_path):
    async with storage_in(tmp_path) as storage:
        job = await job_of(storage, await submit(storage))
        waiter = JobWaiter(storage.jobs, asyncio.Event())
        assert await waiter.wait_for_end(job, wait_s=0) is job
        await claim(storage)
        assert (await waiter.wait_for_end(job, wait_s=0.05)).state is State.PROCESSING


@in_a_loop
async def test_a_server_that_stops_answers_whom_it_holds(tmp_path):
    async with storage_in(tmp_path) as storage, asyncio.TaskGroup() as tasks:
        closing = asyncio.Event()
        job = await job_of(storage, await submit(storage))
        held = tasks.create_task(JobWaiter(storage.jobs, closing).wait_for_end(job, wait_s=60))
        await asyncio.sleep(0.05)
        closing.set()
        assert await asyncio.wait_for(held, MOST_S) == job


@in_a_loop
async def test_a_job_deleted_meanwhile_is_answered_as_it_was_last(tmp_path):
    async with storage_in(tmp_path) as storage, asyncio.TaskGroup() as tasks:
        job = await job_of(storage, await submit(storage))
        held = tasks.create_task(JobWaiter(storage.jobs, asyncio.Event()).wait_for_end(job, wait_s=60))
        await asyncio.sleep(0.05)
        await storage.jobs.delete(job.id)
        assert await asyncio.wait_for(held, MOST_S) == job
