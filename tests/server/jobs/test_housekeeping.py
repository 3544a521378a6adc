"""Tests of the sweeper: expired jobs are removed with everything that belongs to them, and so are stray files."""

import asyncio
import os

from server.clock import now_ms
from server.jobs import housekeeping as module
from server.jobs.housekeeping import ORPHAN_MS, Chore, Eraser, Housekeeping, Sweeper
from server.metrics import Metrics
from server.model.errors import StorageError
from tests.server.storing import HOUR, ManualClock, claim, completion, storage_in, submit


async def blob(storage, key: str) -> None:
    async with storage.blobs.create(key) as sink:
        await sink.write(b"audio")


def sweeper_of(storage) -> Sweeper:
    return Sweeper(storage, Eraser(storage, Metrics()))


def set_age(folder, prefix: str, *, ms: int) -> None:
    """Set the time of the last change of a prefix."""
    at = (now_ms() - ms) / 1000
    os.utime(folder / "data" / "blobs" / prefix, (at, at))


async def test_expired_jobs_go_with_their_bytes_and_others_stay(sqlite, clock):
    old, young, waiting = await submit(sqlite), await submit(sqlite), await submit(sqlite)
    for job_id in (old, young):
        await blob(sqlite, f"{job_id}/1.json")
    await sqlite.jobs.finish(await claim(sqlite), completion())
    clock.advance(ms=HOUR // 2)
    await sqlite.jobs.finish(await claim(sqlite), completion())
    clock.advance(ms=HOUR // 2 + 1)
    await sweeper_of(sqlite).sweep()
    assert await sqlite.jobs.get(old) is None
    assert [prefix for prefix, _ in await sqlite.blobs.prefixes()] == [young]
    assert await sqlite.jobs.get(young) is not None
    assert await sqlite.jobs.get(waiting) is not None


async def test_more_than_one_page_of_expired_jobs_goes_in_one_sweep(tmp_path, monkeypatch):
    clock = ManualClock()
    monkeypatch.setattr(module, "AT_ONCE", 2)
    async with storage_in(tmp_path, clock) as storage:
        for _ in range(5):
            await storage.jobs.finish(await _claim_new_job(storage), completion())
        clock.advance(ms=HOUR + 1)
        await sweeper_of(storage).sweep()
        assert await storage.jobs.list_expired(limit=10) == []


async def _claim_new_job(storage):
    await submit(storage)
    return await claim(storage)


async def test_bytes_without_a_job_go_once_nobody_can_be_about_to_make_it(sqlite, tmp_path):
    job_id = await submit(sqlite)
    for prefix in (job_id, "job_orphan", "job_uploading"):
        await blob(sqlite, f"{prefix}/source")
    for prefix in (job_id, "job_orphan"):
        set_age(tmp_path, prefix, ms=ORPHAN_MS + 60_000)
    set_age(tmp_path, "job_uploading", ms=ORPHAN_MS - 60_000)
    await sweeper_of(sqlite).sweep()
    assert sorted(prefix for prefix, _ in await sqlite.blobs.prefixes()) == sorted([job_id, "job_uploading"])


async def test_bytes_that_a_killed_server_left_go_with_the_first_sweep_of_the_next(sqlite, tmp_path):
    job_id = await submit(sqlite)
    for prefix in (job_id, "job_orphan", "job_uploading"):
        await blob(sqlite, f"{prefix}/source")
    for prefix in (job_id, "job_orphan"):
        set_age(tmp_path, prefix, ms=60_000)
    await Sweeper(sqlite, Eraser(sqlite, Metrics()), alone_since=now_ms() - 30_000).sweep()
    assert sorted(prefix for prefix, _ in await sqlite.blobs.prefixes()) == sorted([job_id, "job_uploading"])


async def test_a_chore_that_failed_is_done_again_and_nobody_elses_chore_is_done():
    done = []

    async def fail_once() -> None:
        done.append("ours")
        if len(done) == 1:
            raise StorageError("disk gone")
        housekeeping.closing.set()

    async def do_others() -> None:
        done.append("theirs")

    chores = [Chore("sweep", 0.01, fail_once), Chore("other", 0.01, do_others, is_ours=lambda: False)]
    metrics = Metrics()
    housekeeping = Housekeeping(chores, metrics, asyncio.Event())
    await asyncio.wait_for(housekeeping.run(), 10)
    assert done == ["ours", "ours"]
    assert metrics.registry.get_sample_value("scribewire_faults_total", {"what": "sweep"}) == 1.0


async def test_stopping_does_not_wait_for_the_next_time_of_a_chore():
    async def rest() -> None: ...

    async with asyncio.TaskGroup() as tasks:
        housekeeping = Housekeeping([Chore("sweep", 600.0, rest)], Metrics(), asyncio.Event())
        running = tasks.create_task(housekeeping.run())
        await asyncio.sleep(0.05)
        housekeeping.closing.set()
        await asyncio.wait_for(running, 10)
