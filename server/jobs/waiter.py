"""Waits for the end of a job while a request is held open."""

import asyncio
import time
from dataclasses import dataclass

from server.model.jobs import Job
from server.storage.sql.jobs import JobStore
from server.waiting import racing


@dataclass(frozen=True, slots=True)
class JobWaiter:
    jobs: JobStore
    closing: asyncio.Event  # set when the server stops: held requests are answered then

    async def wait_for_end(self, job: Job, *, wait_s: float) -> Job:
        """The job when it has ended; as it is, after *wait_s* seconds or when the server stops."""
        until = time.monotonic() + wait_s
        while not job.terminal and not self.closing.is_set() and (left_s := until - time.monotonic()) > 0:
            async with racing(self.jobs.wait_for_change(job, timeout_s=left_s), self.closing.wait()) as (change, _):
                now: Job | None = change.result() if change.done() else job
            if now is None:
                return job  # deleted meanwhile
            job = now
        return job
