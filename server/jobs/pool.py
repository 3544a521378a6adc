"""Works on a bounded number of jobs at a time. Neither one account nor the sandbox can take all places."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from server.jobs.leases import HeldLease, WorkerRules
from server.logs import log
from server.metrics import Metrics
from server.model.jobs import Job
from server.storage.sql.jobs import JobStore
from server.waiting import racing, set_within


@dataclass(slots=True, kw_only=True)
class Pool:
    """Claims jobs while it has free places, and works on each job in a task of its own.

    One account has at most *per_account* of the *size* places. The sandbox has at most half of the places, and gets
    one only while no job of production waits.
    """

    owner: str  # the name in its leases
    jobs: JobStore
    rules: WorkerRules
    environments: Sequence[str]
    unfetched: bool  # True: it claims jobs whose audio must be downloaded; False: all others
    size: int
    per_account: int
    work: Callable[[HeldLease], Awaitable[None]]
    metrics: Metrics
    _working: dict[str, Job] = field(init=False, default_factory=dict)  # by lease
    _freed: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until *stopping* is set and the jobs in work have ended."""
        async with asyncio.TaskGroup() as tasks:
            while not stopping.is_set():
                try:
                    held = await self._next(stopping)
                except Exception:  # noqa: BLE001  a full disk or a busy database may be gone at the next claim
                    self.metrics.faults.labels("claiming").inc()
                    log.exception("claiming failed", extra={"worker": self.owner})
                    await set_within(stopping, self.rules.retry_s)
                    continue
                if held is not None:
                    self._working[held.lease.lease_id] = held.job
                    tasks.create_task(self._work_on(held, stopping), name=f"{self.owner} {held.job.id}")

    async def _next(self, stopping: asyncio.Event) -> HeldLease | None:
        """Claim the next job. None if there is none yet, if a place became free meanwhile, or at a stop: look again."""
        self._freed.clear()
        if len(self._working) >= self.size:
            async with racing(self._freed.wait(), stopping.wait()):
                return None
        async with racing(self._claim(), self._freed.wait(), stopping.wait()) as (claiming, *_):
            held: HeldLease | None = claiming.result() if claiming.done() else None
            return held

    async def _claim(self) -> HeldLease | None:
        requested_at = time.monotonic()
        in_work = Counter(job.account for job in self._working.values())
        lease = await self.jobs.claim(
            self.owner,
            environments=self._open_environments(),
            unfetched=self.unfetched,
            passing_over=[account for account, count in in_work.items() if count >= self.per_account],
            lease_s=self.rules.lease_s,
            wait_s=self.rules.claim_s,
        )
        if lease is None:
            return None
        return HeldLease(lease, self.jobs, lease_s=self.rules.lease_s, requested_at=requested_at)

    def _open_environments(self) -> list[str]:
        """The environments whose jobs may be claimed now, production first."""
        sandboxed = sum(job.environment == "sandbox" for job in self._working.values())
        full = sandboxed >= max(1, self.size // 2)
        return [name for name in sorted(self.environments) if not (full and name == "sandbox")]

    async def _work_on(self, held: HeldLease, stopping: asyncio.Event) -> None:
        try:
            await self.work(held)
        except Exception:  # noqa: BLE001  an error of one job must not end the pool
            self.metrics.faults.labels("job").inc()
            log.exception("worker failed", extra={"worker": self.owner, "job": held.job.id})
            await set_within(stopping, self.rules.retry_s)
        finally:
            del self._working[held.lease.lease_id]
            self._freed.set()
