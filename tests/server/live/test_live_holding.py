"""The lease of a live session that ran out: taken again if nobody else had the job, and never otherwise."""

import time

import pytest

from server.jobs.leases import SessionLease
from server.model.errors import DiskFull
from server.model.jobs import LeaseLost, Renewal
from server.storage import waiting
from server.storage.sql.storage import Storage
from tests.server.storing import WORD, ManualClock, completion, submit, types_of

LEASE_S = 15.0


async def claim_session(storage: Storage, job_id: str) -> SessionLease:
    lease = await storage.jobs.claim_live(job_id, "ours", lease_s=LEASE_S)
    return SessionLease(lease, storage.jobs, worker="ours", lease_s=LEASE_S, requested_at=time.monotonic())


async def test_a_session_whose_lease_ran_out_goes_on_if_nobody_had_its_job(storage, clock):
    session = await claim_session(storage, await submit(storage, "job_a", live=True))
    clock.advance(s=LEASE_S + 5)
    await session.append([WORD])
    clock.advance(s=LEASE_S + 5)
    assert await storage.jobs.reap(limit=10) == 1
    assert await session.renew() is Renewal.OK
    clock.advance(s=LEASE_S + 5)
    await session.finish(completion())
    kinds = await types_of(storage, "job_a")
    assert (kinds.count("word"), kinds[-1]) == (1, "job.completed")


async def test_a_session_that_somebody_else_had_meanwhile_is_lost_and_free_for_the_next(storage, clock):
    session = await claim_session(storage, await submit(storage, "job_a", live=True))
    clock.advance(s=LEASE_S + 5)
    other = await claim_session(storage, "job_a")
    with pytest.raises(LeaseLost):
        await session.append([WORD])
    await other.release()
    with pytest.raises(LeaseLost):
        await session.append([WORD])
    assert "word" not in await types_of(storage, "job_a")
    assert await storage.jobs.claim_live("job_a", "next", lease_s=LEASE_S) is not None


async def test_a_session_waits_for_room_on_the_disk(backend, tmp_path, monkeypatch):
    monkeypatch.setattr(waiting, "AGAIN_S", 0.01)
    async with backend.storage_in(tmp_path, ManualClock()) as storage:
        session = await claim_session(storage, await submit(storage, "job_a", live=True))
        append, full = storage.jobs.append, [DiskFull("no space left")] * 3

        async def when_there_is_room(*given):
            if full:
                raise full.pop()
            return await append(*given)

        monkeypatch.setattr(type(storage.jobs), "append", lambda _, *given: when_there_is_room(*given))
        await session.append([WORD])
        full += [DiskFull("no space left")] * 1000
        session.until = time.monotonic() - 2 * LEASE_S
        with pytest.raises(LeaseLost):
            await session.append([WORD])
