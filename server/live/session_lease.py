"""The lease of a live session. It can be regained after the database was away for longer than the lease lasts."""

import time

from server.jobs.leases import HeldLease
from server.model.errors import DiskFull, StorageBusy
from server.model.jobs import Lease, LeaseLost, Renewal
from server.storage.sql.jobs import JobStore
from server.storage.waiting import patiently

AWAY_S = 30.0  # how long a session waits for the database; its new words are kept in memory meanwhile


class SessionLease(HeldLease):
    """A HeldLease that is claimed again if it expired and no other process has had the job since.

    If another process has had the job, LeaseLost is raised, and the session ends here. The lease waits for space on a
    full disk as it waits for the database.
    """

    despite = (StorageBusy, DiskFull)

    def __init__(self, lease: Lease, jobs: JobStore, *, worker: str, lease_s: float, requested_at: float) -> None:
        super().__init__(lease, jobs, lease_s=lease_s, requested_at=requested_at)
        self._worker = worker

    def check(self) -> None:
        """Raise LeaseLost when the database has been away for too long."""
        if time.monotonic() >= self.until - self._lease_s + max(AWAY_S, self._lease_s):
            raise LeaseLost

    async def renew(self) -> Renewal:
        answer = await super().renew()
        return Renewal.OK if answer is Renewal.LOST and await self._regain() else answer

    async def _regain(self) -> bool:
        requested_at = time.monotonic()
        lease = await patiently(
            lambda: self._jobs.claim_live(self.job.id, self._worker, lease_s=self._lease_s),
            check=self.check,
            despite=self.despite,
        )
        if lease is None:
            return False
        if lease.epoch != self.lease.epoch + 1:  # another process had the job and may have written more words
            await self._jobs.release(lease, delay_s=0.0, error=None, count=False)
            return False
        self.lease, self.until, self.last_seq = lease, requested_at + self._lease_s, lease.last_seq
        return True
