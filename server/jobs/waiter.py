"""Waiting for a job on behalf of a request that is held open."""

import asyncio
import time
from dataclasses import dataclass

from server.model.jobs import Job
from server.storage.job_store import JobStore
from server.waiting import racing


@dataclass(frozen=True, slots=True)
class JobWaiter:
    """Lets requests wait for the end of a job."""

    jobs: JobStore
    closing: asyncio.Event  # set when the server stops: held requests are answered then

    async def until_over(self, job: Job, *, wait_s: float) -> Job:
        """The job when it has ended, or its state after *wait_s* seconds or when the server stops."""
        until = time.monotonic() + wait_s
        while not job.terminal and not self.closing.is_set() and (left_s := until - time.monotonic()) > 0:
            now = await self._change(job, left_s)
            if now is None:
                return job  # deleted meanwhile: the last known state is the answer
            job = now
        return job

    async def _change(self, job: Job, left_s: float) -> Job | None:
        async with racing(self.jobs.wait_for_change(job, timeout_s=left_s), self.closing.wait()) as (change, _):
            now: Job | None = change.result() if change.done() else job
            return now
