"""Tests of real processes that share the data folder, and die, sleep or fill the disk at the worst moment."""

import asyncio
import random
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import pytest

from server.storage.sql.storage import Storage
from server.storage.sqlite.database import SqliteDatabase
from tests.server.storing import LEASE_S, NOON, FileClock, checkpoint, claim, parts_done, submit, types_of

ROOT = Path(__file__).resolve().parents[3]
RUN = "from tests.server.storing_child import main; main()"


@pytest.fixture
def clock(tmp_path):
    clock = FileClock(tmp_path / "clock")
    clock.set(NOON)
    return clock


@asynccontextmanager
async def child(command: str, folder: Path, *, inside: tuple[str, ...] = ()) -> AsyncIterator[Process]:
    """Start a process that runs *command* of storing_child."""
    words = [*inside, sys.executable, "-c", RUN, command, str(folder / "data"), str(folder / "clock")]
    process = await asyncio.create_subprocess_exec(*words, cwd=ROOT, stdin=PIPE, stdout=PIPE)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):  # it has ended by itself
            process.kill()
        await process.communicate()


async def next_line(process: Process) -> Any:
    """Return the next line of *process*, or None when it has ended."""
    line = await process.stdout.readline()
    return orjson.loads(line) if line else None


async def lines_to_the_end(process: Process) -> list[Any]:
    return [orjson.loads(line) for line in (await process.stdout.read()).splitlines()]


async def send(process: Process, line: str) -> None:
    process.stdin.write(line.encode() + b"\n")
    await process.stdin.drain()


async def rows(storage: Storage, table: str, job_id: str) -> int:
    (row,) = await storage.database.read(
        lambda tx: tx.all(f"SELECT count(*) AS n FROM {table} WHERE job = ?", (job_id,))
    )
    return int(row["n"])


async def assert_ended_once(storage: Storage, job_id: str) -> None:
    job = await storage.jobs.get(job_id)
    assert job.terminal
    assert await rows(storage, "usage", job_id) == 1
    assert len({row.webhook_id for row in await storage.outbox.of_job(job_id)}) == 1
    events = await storage.timelines.read(job_id, after=0, limit=1000)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.type for event in events].count(f"job.{job.state}") == 1


async def assert_intact(storage: Storage) -> None:
    if not isinstance(storage.database, SqliteDatabase):
        return  # PostgreSQL checks its own files
    (check,) = await storage.database.read(lambda tx: tx.all("PRAGMA integrity_check"))
    assert check == {"integrity_check": "ok"}
    assert await storage.database.read(lambda tx: tx.all("PRAGMA foreign_key_check")) == []


@pytest.mark.parametrize("reaped", [True, False])
async def test_a_worker_that_slept_past_its_lease_may_write_nothing(storage, tmp_path, clock, reaped):
    job_id = await submit(storage, hook=True)
    async with child("be_late", tmp_path) as worker:
        assert await next_line(worker) == job_id
        worker.send_signal(signal.SIGSTOP)
        clock.advance(s=LEASE_S)
        if reaped:
            await storage.jobs.reap(limit=10)
            await checkpoint(storage, await claim(storage), 1)
        worker.send_signal(signal.SIGCONT)
        await send(worker, "go")
        assert all(await next_line(worker))
    kinds = await types_of(storage, job_id)
    assert kinds.count("word") == (2 if reaped else 1)
    assert "job.completed" not in kinds


async def test_workers_killed_anywhere_leave_each_job_ended_exactly_once(storage, tmp_path, clock):
    chance = random.Random(20)
    jobs = [await submit(storage, hook=True) for _ in range(6)]
    for _ in range(5):
        async with child("work", tmp_path) as worker:
            for _ in range(chance.randrange(1, 9)):
                await next_line(worker)
            with suppress(ProcessLookupError):  # it ends by itself when no job is left
                worker.kill()
        clock.advance(s=LEASE_S)
        await storage.jobs.reap(limit=10)
    async with child("work", tmp_path) as worker:
        await lines_to_the_end(worker)
    for job_id in jobs:
        await assert_ended_once(storage, job_id)
        job = await storage.jobs.get(job_id)
        assert await parts_done(storage, job_id) == 3 or (job.state, job.attempt) == ("failed", 4)
    await assert_intact(storage)


async def test_two_workers_never_get_the_same_job(storage, tmp_path):
    jobs = {await submit(storage) for _ in range(30)}
    async with child("work", tmp_path) as one, child("work", tmp_path) as two:
        told = await asyncio.gather(lines_to_the_end(one), lines_to_the_end(two))
    assert sorted(line for lines in told for line in lines if line in jobs) == sorted(jobs)
    for job_id in jobs:
        job = await storage.jobs.get(job_id)
        assert (job.attempt, job.state) == (1, "completed")


async def test_a_submit_loop_killed_anywhere_has_kept_all_it_acknowledged(backend, tmp_path, clock):
    chance = random.Random(7)
    acknowledged: list[str] = []
    await backend.new_storage(tmp_path, clock).close()  # makes it
    for _ in range(3):
        async with child("submit_for_ever", tmp_path) as clients:
            acknowledged += [await next_line(clients) for _ in range(chance.randrange(1, 120))]
            clients.kill()
            acknowledged += await lines_to_the_end(clients)
    async with backend.storage_in(tmp_path, clock) as storage:
        await assert_intact(storage)
        for job_id in acknowledged:
            assert await types_of(storage, job_id) == ["job.status"]
        queued = (await storage.jobs.counts())["queued"]
        assert queued >= len(acknowledged)
        assert await storage.counters.amounts_used("acct_1", [("transcriptions", "2026-11")]) == [queued]


@pytest.mark.usefixtures("clock")
async def test_a_full_disk_refuses_clearly_and_loses_nothing_acknowledged(tmp_path):
    """The test mounts a file system of 2 MiB, which disappears with the process."""
    data = tmp_path / "data"
    data.mkdir()
    mount = f'mount -t tmpfs -o size=2m,mode=0700 tmpfs "{data}" && exec "$@"'
    private = ("unshare", "--map-root-user", "--mount", "sh", "-c", mount, "sh")
    if shutil.which("unshare") is None or await returncode(*private, "true"):
        pytest.skip("may not mount a file system here")
    async with child("fill_the_disk", tmp_path, inside=private) as process:
        accepted = await next_line(process)
        assert len(accepted) > 3
        assert await next_line(process) == [None, 100_000]  # nothing of the blob that did not fit
        assert await next_line(process) == []  # no accepted job is lost
        assert await next_line(process)  # after space was freed
        assert await process.wait() == 0


async def returncode(*words: str) -> int:
    process = await asyncio.create_subprocess_exec(*words)
    return await process.wait()
