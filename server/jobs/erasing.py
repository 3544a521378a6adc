"""Erasing jobs so that no byte of them stays in the data folder."""

import time
from dataclasses import dataclass, field

from server.logs import log
from server.model.erasures import What, Why
from server.storage.ports import Storage

SCRUB_SHARE = 0.05  # of the time at most: a large storage is scrubbed less often


@dataclass(slots=True)
class Eraser:
    """Erases jobs. One for each server process; its sweeper calls tidy() every few seconds."""

    storage: Storage
    _erased: list[str] = field(default_factory=list)  # since the last tidy()
    _next_scrub: float = 0.0

    async def delete(self, job_id: str, *, why: Why) -> None:
        """Delete the job with everything that is its own. It is fine if there is none."""
        prefix = await self.storage.jobs.delete(job_id, why=why)
        if prefix is not None:
            await self._finish(prefix, What.JOB, why)

    async def tidy(self) -> None:
        """Wipe the traces of what was erased since the last call.

        A worker that learned of a deletion too late may have stored something after it, so that is deleted again.
        """
        erased, self._erased = self._erased, []
        for prefix in erased:
            await self.storage.blobs.delete(prefix)
        began = time.monotonic()
        if began >= self._next_scrub and await self.storage.upkeep.scrub():
            now = time.monotonic()
            self._next_scrub = now + (now - began) / SCRUB_SHARE

    async def _finish(self, prefix: str, what: What, why: Why) -> None:
        await self.storage.blobs.delete(prefix)
        self._erased.append(prefix)
        log.info("erased", extra={"job": prefix, "what": what.value, "why": why.value})
