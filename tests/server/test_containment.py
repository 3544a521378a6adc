"""A fault ends what it belongs to: loops begin anew, and one job's files hold up no other's."""

import asyncio
import sqlite3
import sys
from pathlib import Path

import pytest

from server import background
from server.background import contain, keep_running
from server.jobs import housekeeping
from server.jobs.attempts import source_key
from server.jobs.housekeeping import Eraser, Sweeper
from server.metrics import Metrics
from server.model.jobs import ErasureReason
from server.storage.sqlite.open import FILE_NAME
from tests.processes import few_files
from tests.server.running import run_server
from tests.server.serving import serve, wav
from tests.server.storing import HOUR, ManualClock, claim, completion, storage_in, submit
from tests.server.talking import Caller, open_talk, script_words, silence
from tests.waiting import until


def count_of(metrics: Metrics, what: str) -> float:
    return metrics.registry.get_sample_value("scribewire_faults_total", {"what": what}) or 0.0


async def test_a_loop_that_a_fault_ended_begins_anew(monkeypatch):
    monkeypatch.setattr(background, "AGAIN_S", 0.01)
    metrics, runs = Metrics(), 0

    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs < 3:
            raise KeyError("offer")

    await keep_running("loop", work, metrics=metrics, stopping=asyncio.Event())
    assert (runs, count_of(metrics, "loop")) == (3, 2.0)


async def test_a_loop_that_fails_while_the_server_stops_is_left(monkeypatch):
    monkeypatch.setattr(background, "AGAIN_S", 60)
    metrics, stopping = Metrics(), asyncio.Event()

    async def work() -> None:
        stopping.set()
        raise KeyError("offer")

    async with asyncio.timeout(5):
        await keep_running("loop", work, metrics=metrics, stopping=stopping)
    assert count_of(metrics, "loop") == 1.0


async def test_a_loop_that_a_cancellation_of_something_else_ended_begins_anew_and_its_own_ends_it(monkeypatch):
    monkeypatch.setattr(background, "AGAIN_S", 0.01)
    metrics, again = Metrics(), asyncio.Event()

    async def work() -> None:
        if count_of(metrics, "loop"):
            again.set()
            await asyncio.sleep(60)
        answer = asyncio.get_running_loop().create_future()
        answer.cancel()
        await answer

    async with asyncio.timeout(5):
        loop = asyncio.create_task(keep_running("loop", work, metrics=metrics, stopping=asyncio.Event()))
        await again.wait()
        loop.cancel()
        await asyncio.wait([loop])
    assert loop.cancelled()
    assert count_of(metrics, "loop") == 1.0


async def test_an_expired_job_that_cannot_be_deleted_does_not_keep_others(tmp_path, monkeypatch):
    monkeypatch.setattr(housekeeping, "AT_ONCE", 1)
    clock, metrics = ManualClock(), Metrics()
    async with storage_in(tmp_path, clock) as storage:
        jobs = [await submit(storage) for _ in range(3)]
        for _ in jobs:
            await storage.jobs.finish(await claim(storage), completion())
        clock.advance(ms=HOUR + 1)
        stuck = (await storage.jobs.list_expired(limit=1))[0]
        with sqlite3.connect(tmp_path / "data" / FILE_NAME) as database:
            database.execute(
                f"CREATE TRIGGER stuck BEFORE DELETE ON jobs WHEN old.id = '{stuck}'"
                " BEGIN SELECT RAISE(ABORT, 'stuck'); END"
            )
        for faults_so_far in (1.0, 2.0):
            await Sweeper(storage, Eraser(storage, metrics)).sweep()
            assert [job_id for job_id in jobs if await storage.jobs.get(job_id) is not None] == [stuck]
            assert count_of(metrics, "sweep") == faults_so_far


@pytest.mark.parametrize("passing", [asyncio.CancelledError, KeyboardInterrupt, SystemExit])
def test_what_ends_a_task_or_the_process_is_not_kept(passing):
    metrics = Metrics()
    with pytest.raises(passing), contain("loop", metrics):
        raise passing
    assert count_of(metrics, "loop") == 0.0


def make_undeletable(blobs: Path, key: str) -> Path:
    """Make what is stored under *key* a link to a folder, which is never deleted as if it were one."""
    beyond = blobs.parent / "beyond"
    beyond.mkdir(exist_ok=True)
    place = blobs / key
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(beyond)
    return place


async def test_audio_that_cannot_be_deleted_does_not_keep_that_of_others(harness, tmp_path):
    stuck, free = await harness.submit(), await harness.submit()
    for _ in (stuck, free):
        await harness.storage.jobs.finish(await claim(harness.storage), completion())
    await harness.storage.blobs.delete(source_key(stuck))
    link = make_undeletable(tmp_path / "data" / "blobs", source_key(stuck))
    await harness.chores().delete_spent_audio()
    assert await harness.storage.blobs.size(source_key(free)) is None
    assert await harness.storage.jobs.list_with_audio(limit=10) == [stuck]
    assert count_of(harness.metrics, "deleting audio") == 1.0
    link.unlink()
    await harness.chores().delete_spent_audio()
    assert await harness.storage.jobs.list_with_audio(limit=10) == []


async def test_an_erased_job_whose_files_stay_for_now_does_not_keep_those_of_others(sqlite, tmp_path):
    metrics = Metrics()
    eraser = Eraser(sqlite, metrics)
    stuck, free = [await submit(sqlite, f"job_{name}") for name in "ab"]
    link = make_undeletable(tmp_path / "data" / "blobs", stuck)
    for job_id in (stuck, free):
        await eraser.delete(job_id, why=ErasureReason.REQUESTED)
    async with sqlite.blobs.create(f"{free}/1.txt") as sink:
        await sink.write(b"late")
    await eraser.tidy()
    assert link.is_symlink()
    assert await sqlite.blobs.size(f"{free}/1.txt") is None
    assert count_of(metrics, "erasing") == 1.0
    await Sweeper(sqlite, eraser).sweep()
    assert count_of(metrics, "sweep") == 1.0
    link.unlink()
    await eraser.tidy()
    assert await sqlite.blobs.prefixes() == []


def test_a_session_whose_files_cannot_be_deleted_ends_alone(tmp_path):
    """It is erased while it is under way, and learns of that by its lost lease."""
    with serve(tmp_path) as server:
        asyncio.run(_end_one_of_two(tmp_path / "data" / "blobs", Caller(server, server.key())))


async def _end_one_of_two(blobs: Path, me: Caller) -> None:
    bystander, victim = await me.start(), await me.start()
    make_undeletable(blobs, victim["job_id"])
    async with open_talk(me.socket(bystander), me.headers) as kept, open_talk(me.socket(victim), me.headers) as lost:
        for one in (kept, lost):
            await one.send(silence(2.0))
            await one.until("word")
        async with me.client() as client:
            answer = await client.delete(f"/v1/jobs/{victim['job_id']}", params={"force": "true"})
            assert answer.status_code == 204
        await lost.to_the_end()
        await kept.send(silence(1.0))
        await kept.close()
    record = await me.job(bystander["job_id"], wait=10)
    assert (record["status"], record["text"].split()) == ("completed", script_words(3.0))


@pytest.mark.skipif(sys.platform != "linux", reason="sets a limit of another process")
def test_a_server_that_can_open_no_file_says_so_and_continues(tmp_path):
    with run_server(tmp_path / "data", ENGINE="scripted") as server:
        client = server.client(server.new_key())
        assert client.get("/healthz").is_success
        with few_files(server.process.pid):
            tried = [client.post("/v1/transcribe", files={"file": wav(1.0)}) for _ in range(2)]
            page = client.get("/")
        assert [(answer.status_code, answer.json()["code"]) for answer in tried] == [(503, "not_ready")] * 2
        assert page.is_success
        assert client.post("/v1/transcribe", files={"file": wav(1.0)}).json()["status"] == "completed"
        until(lambda: [line for line in server.log if "Too many open files" in line])
        assert not [line for line in server.log if "Traceback" in line]
