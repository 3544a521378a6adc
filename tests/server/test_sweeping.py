"""Tests of the sweeper: expired jobs are removed with everything that belongs to them, and so are stray files."""

import asyncio
import os

import pytest

from server.clock import now_ms
from server.jobs import sweeping
from server.jobs.erasing import Eraser
from server.jobs.sweeping import ORPHAN_MS, Sweeper
from server.metrics import Metrics
from server.model.errors import StorageError
from tests.server.storing import HOUR, ManualClock, claim, completed, in_a_loop, stored, submit


async def blob(storage, key: str) -> None:
    async with storage.blobs.create(key) as sink:
        await sink.write(b"audio")


def sweeper_of(storage) -> Sweeper:
    return Sweeper(storage, Eraser(storage, Metrics()))


def aged(folder, prefix: str, *, ms: int) -> None:
    """Set the time of the last change of a prefix."""
    at = (now_ms() - ms) / 1000
    os.utime(folder / "data" / "blobs" / prefix, (at, at))


@in_a_loop
async def test_expired_jobs_go_with_their_bytes_and_others_stay(tmp_path):
    clock = ManualClock()
    async with stored(tmp_path, clock) as storage:
        old, young, waiting = await submit(storage), await submit(storage), await submit(storage)
        for job_id in (old, young):
            await blob(storage, f"{job_id}/1.json")
        await storage.jobs.finish(await claim(storage), completed())
        clock.advance(ms=HOUR // 2)
        await storage.jobs.finish(await claim(storage), completed())
        clock.advance(ms=HOUR // 2 + 1)
        await sweeper_of(storage).sweep()
        assert await storage.jobs.get(old) is None
        assert [prefix for prefix, _ in await storage.blobs.prefixes()] == [young]
        assert await storage.jobs.get(young) is not None
        assert await storage.jobs.get(waiting) is not None


@in_a_loop
async def test_more_than_one_page_of_expired_jobs_goes_in_one_sweep(tmp_path):
    clock = ManualClock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweeping, "AT_ONCE", 2)
        async with stored(tmp_path, clock) as storage:
            for _ in range(5):
                await storage.jobs.finish(await _claimed(storage), completed())
            clock.advance(ms=HOUR + 1)
            await sweeper_of(storage).sweep()
            assert await storage.jobs.expired(limit=10) == []


async def _claimed(storage):
    await submit(storage)
    return await claim(storage)


@in_a_loop
async def test_bytes_without_a_job_go_once_nobody_can_be_about_to_make_it(tmp_path):
    async with stored(tmp_path) as storage:
        job_id = await submit(storage)
        for prefix in (job_id, "job_orphan", "job_uploading"):
            await blob(storage, f"{prefix}/source")
        for prefix in (job_id, "job_orphan"):
            aged(tmp_path, prefix, ms=ORPHAN_MS + 60_000)
        aged(tmp_path, "job_uploading", ms=ORPHAN_MS - 60_000)
        await sweeper_of(storage).sweep()
        assert sorted(prefix for prefix, _ in await storage.blobs.prefixes()) == sorted([job_id, "job_uploading"])


@in_a_loop
async def test_bytes_that_a_killed_server_left_go_with_the_first_sweep_of_the_next(tmp_path):
    async with stored(tmp_path) as storage:
        job_id = await submit(storage)
        for prefix in (job_id, "job_orphan", "job_uploading"):
            await blob(storage, f"{prefix}/source")
        for prefix in (job_id, "job_orphan"):
            aged(tmp_path, prefix, ms=60_000)
        await Sweeper(storage, Eraser(storage, Metrics()), alone_since=now_ms() - 30_000).sweep()
        assert sorted(prefix for prefix, _ in await storage.blobs.prefixes()) == sorted([job_id, "job_uploading"])


@in_a_loop
async def test_a_failed_sweep_is_followed_by_the_next(tmp_path):
    async with stored(tmp_path) as storage:
        sweeper = sweeper_of(storage)
        tries = []

        async def sweep() -> None:
            tries.append(len(tries))
            if len(tries) == 1:
                raise StorageError("disk gone")
            sweeper.stop()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sweeping, "EVERY_S", 0.0)
            patch.setattr(sweeping, "TIDY_S", 0.01)
            patch.setattr(sweeper, "sweep", sweep)
            await asyncio.wait_for(sweeper.run(), 10)
        assert tries == [0, 1]


@in_a_loop
async def test_stopping_does_not_wait_for_the_next_sweep(tmp_path):
    async with stored(tmp_path) as storage, asyncio.TaskGroup() as tasks:
        sweeper = sweeper_of(storage)
        running = tasks.create_task(sweeper.run())
        await asyncio.sleep(0.05)
        sweeper.stop()
        await asyncio.wait_for(running, 10)
