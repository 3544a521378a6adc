"""A held request ends when the job is over, when the wait is over, or when the server stops."""

import asyncio

from server.requests.request import wait_for_end
from tests.server.storing import submit

MOST_S = 30


async def test_a_job_deleted_meanwhile_is_answered_as_it_was_last(sqlite):
    async with asyncio.TaskGroup() as tasks:
        job = await sqlite.jobs.get(await submit(sqlite))
        held = tasks.create_task(wait_for_end(job, sqlite.jobs, asyncio.Event(), wait_s=60))
        await asyncio.sleep(0.05)
        await sqlite.jobs.delete(job.id)
        assert await asyncio.wait_for(held, MOST_S) == job
