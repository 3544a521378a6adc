"""Tests of database.py: shared commits, separate failures, and wakes by commits of other connections."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from server.model.errors import DiskFull, StorageBusy, StorageError
from server.storage.scratch import SOFTWARE
from server.storage.sqlite import connections
from server.storage.sqlite.connections import FIRST, MIGRATIONS
from server.storage.sqlite.database import READERS, SqliteDatabase, SqliteTransaction, Watch
from tests.processes import ROOT, few_files
from tests.server.storing import LEASE_S, ManualClock, claim, completion, storage_in, submit

WRITER_FAILS = """
import asyncio, sys
from pathlib import Path
from server.storage.sqlite.database import SqliteDatabase

async def main():
    database = SqliteDatabase(Path(sys.argv[1]), lambda: 0)
    database._commit = None
    await database.write(lambda tx: None)

asyncio.run(main())
"""


@asynccontextmanager
async def open_database(folder: Path) -> AsyncIterator[SqliteDatabase]:
    database = SqliteDatabase(folder / "test.db", ManualClock())
    try:
        yield database
    finally:
        await database.close()


def insert(name: str, size: int = 0):
    def run(tx: SqliteTransaction) -> str:
        tx.run("INSERT INTO fairness VALUES (?, 0)", (name + "x" * size,))
        return name

    return run


def names(tx: SqliteTransaction) -> list[str]:
    return [row["account"] for row in tx.all("SELECT account FROM fairness ORDER BY account")]


@asynccontextmanager
async def hold_writer(database: SqliteDatabase) -> AsyncIterator[None]:
    """Keep the writing thread busy while the block runs."""
    held, go = threading.Event(), threading.Event()

    def hold_up(tx: SqliteTransaction) -> None:  # noqa: ARG001  write() passes it
        held.set()
        go.wait()

    holding = asyncio.create_task(database.write(hold_up))
    await asyncio.to_thread(held.wait)
    try:
        yield
    finally:
        go.set()
        await holding


async def at_once(database: SqliteDatabase, *functions) -> list[object]:
    """Give all *functions* to the database while its writing thread is busy; return what each returned or raised."""
    async with hold_writer(database):
        writing = [asyncio.create_task(database.write(function)) for function in functions]
        await asyncio.sleep(0)
    return await asyncio.gather(*writing, return_exceptions=True)


async def test_every_commit_reaches_the_disk(tmp_path):
    async with open_database(tmp_path) as database:
        pragmas = ("journal_mode", "synchronous", "foreign_keys")
        values = await database.write(lambda tx: [tx.one(f"PRAGMA {name}")[name] for name in pragmas])
        assert values == ["wal", 2, 1]  # 2 is FULL


async def test_writes_that_wait_at_the_same_time_share_one_commit(tmp_path):
    async with open_database(tmp_path) as database:
        statements: list[str] = []
        database._writing.set_trace_callback(statements.append)
        made = await at_once(database, *(insert(f"{number:03}") for number in range(100)))
        assert made == [f"{number:03}" for number in range(100)]
        assert statements.count("COMMIT") == 2  # one that kept the thread busy, and one for all hundred
        assert len(await database.read(names)) == 100


async def test_the_failure_of_one_write_undoes_nothing_of_another(tmp_path):
    def half(tx: SqliteTransaction) -> None:
        insert("half")(tx)
        raise ValueError("changed my mind")

    async with open_database(tmp_path) as database:
        results = await at_once(database, insert("a"), half, insert("a"), insert("b"))
        assert isinstance(results[1], ValueError)
        assert isinstance(results[2], StorageError)
        assert results[::3] == ["a", "b"]
        assert await database.read(names) == ["a", "b"]


async def test_a_write_that_does_not_fit_fails_alone_and_the_database_goes_on(tmp_path):
    async with open_database(tmp_path) as database:
        await limit_pages(database, 20)
        results = await at_once(database, insert("a"), insert("big", 1_000_000), insert("b"))
        assert isinstance(results[1], DiskFull)
        assert results[::2] == ["a", "b"]
        await limit_pages(database, 1_000_000)
        await database.write(insert("big", 1_000_000))
        assert [name[:3] for name in await database.read(names)] == ["a", "b", "big"]
        (check,) = await database.read(lambda tx: tx.all("PRAGMA integrity_check"))
        assert check == {"integrity_check": "ok"}


@pytest.mark.skipif(sys.platform != "linux", reason="reads which files are open from /proc")
async def test_a_process_that_can_open_no_file_still_reads_on_each_thread(tmp_path):
    together = threading.Barrier(READERS)

    def read(tx: SqliteTransaction) -> list[str]:
        together.wait(10)
        return names(tx)

    async with open_database(tmp_path) as database:
        await database.write(insert("a"))
        with few_files(os.getpid()):
            assert await asyncio.gather(*(database.read(read) for _ in range(READERS))) == [["a"]] * READERS


async def limit_pages(database: SqliteDatabase, more: int) -> None:
    def limit(tx: SqliteTransaction) -> None:
        (count,) = tx.all("PRAGMA page_count")
        tx.all(f"PRAGMA max_page_count = {count['page_count'] + more}")

    await database.write(limit)


async def test_a_write_given_up_before_its_turn_never_happens(tmp_path):
    async with open_database(tmp_path) as database:
        async with hold_writer(database):
            given_up = asyncio.create_task(database.write(insert("never")))
            await asyncio.sleep(0)
            given_up.cancel()
            await asyncio.gather(given_up, return_exceptions=True)
        await database.write(insert("after"))
        assert await database.read(names) == ["after"]


async def test_a_read_is_of_one_moment(tmp_path):
    async with open_database(tmp_path) as database:
        looked, written = threading.Event(), threading.Event()

        def look_twice(tx: SqliteTransaction) -> list[list[str]]:
            first = names(tx)
            looked.set()
            written.wait()
            return [first, names(tx)]

        reading = asyncio.create_task(database.read(look_twice))
        await asyncio.to_thread(looked.wait)
        await database.write(insert("a"))
        written.set()
        assert await reading == [[], []]
        assert await database.read(names) == ["a"]


async def test_a_lock_held_too_long_by_another_process_is_an_error_and_not_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(connections, "BUSY_S", 0.05)
    async with open_database(tmp_path) as database:
        with closing(sqlite3.connect(tmp_path / "test.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StorageBusy):
                await database.write(insert("a"))
            other.execute("ROLLBACK")
        await database.write(insert("b"))
        assert await database.read(names) == ["b"]


async def test_closing_commits_what_was_handed_over_and_refuses_what_comes_later(tmp_path):
    async with open_database(tmp_path) as database:
        writing = [asyncio.create_task(database.write(insert(f"{number}"))) for number in range(5)]
        await asyncio.sleep(0)
        await database.close()
        assert await asyncio.gather(*writing) == ["0", "1", "2", "3", "4"]
        for late in (database.write, database.read):
            with pytest.raises(StorageError, match="closed"):
                await late(names)
    async with open_database(tmp_path) as database:
        assert len(await database.read(names)) == 5


async def test_an_older_database_is_brought_forward_with_its_content(tmp_path, monkeypatch):
    async with open_database(tmp_path) as database:
        await database.write(insert("a"))
    broken = (*MIGRATIONS, "CREATE TABLE first (n); CREATE TABLE fairness (n);")
    monkeypatch.setattr(connections, "MIGRATIONS", broken)
    with pytest.raises(StorageError, match="already exists"):
        SqliteDatabase(tmp_path / "test.db", ManualClock())
    sound = (*MIGRATIONS, "CREATE TABLE first (n);")  # the broken one left nothing
    monkeypatch.setattr(connections, "MIGRATIONS", sound)
    async with open_database(tmp_path) as database:
        assert await database.read(names) == ["a"]
        assert await database.read(lambda tx: tx.all("SELECT * FROM first")) == []


async def test_a_database_that_is_too_old_is_refused_and_stays_as_it_is(tmp_path):
    async with open_database(tmp_path) as database:
        await database.write(insert("a"))
    with closing(sqlite3.connect(tmp_path / "test.db")) as older:
        older.execute(f"PRAGMA user_version = {FIRST - 2}")
        older.commit()
        with pytest.raises(StorageError, match="too old"):
            SqliteDatabase(tmp_path / "test.db", ManualClock())
        older.execute(f"PRAGMA user_version = {FIRST}")
        assert older.execute("SELECT account FROM fairness").fetchall() == [("a",)]


async def test_a_database_of_a_newer_program_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(connections, "MIGRATIONS", (*MIGRATIONS, "CREATE TABLE later (n);"))
    async with open_database(tmp_path):
        pass
    monkeypatch.undo()
    with pytest.raises(StorageError, match="newer version"):
        SqliteDatabase(tmp_path / "test.db", ManualClock())


def test_a_file_that_is_no_database_is_refused_by_name(tmp_path):
    (tmp_path / "test.db").write_bytes(b"these are not the pages you are looking for" * 100)
    with pytest.raises(StorageError, match=r"test\.db: file is not a database"):
        SqliteDatabase(tmp_path / "test.db", ManualClock())


async def test_a_look_up_on_the_event_loop_fails_like_other_reading(tmp_path):
    async with open_database(tmp_path) as database:
        with pytest.raises(StorageError, match="no such table"):
            await database.look_up(lambda tx: tx.one("SELECT * FROM missing"))


async def test_what_is_announced_before_the_wait_but_after_the_watch_is_not_missed(tmp_path):
    async with open_database(tmp_path) as database:
        with database.watch("topic") as watch, database.watch("other") as other:
            await database.write(lambda tx: tx.announce("topic"))
            assert await watch.wait(60)
            assert not await other.wait(0)
            assert not await watch.wait(0)  # once


async def test_a_write_that_failed_wakes_nobody(tmp_path):
    def announce(tx: SqliteTransaction) -> None:
        tx.announce("topic")
        raise ValueError

    async with open_database(tmp_path) as database:
        with database.watch("topic") as watch:
            await asyncio.gather(database.write(announce), return_exceptions=True)
            await database.write(names)
            assert not await watch.wait(0)


async def test_the_commits_of_another_connection_wake_every_kind_of_waiter(tmp_path):
    """Two stores on one folder see each other only through the file, as two processes do."""
    async with storage_in(tmp_path) as ours, storage_in(tmp_path) as theirs, asyncio.TaskGroup() as tasks:
        claiming = tasks.create_task(ours.jobs.claim("w1", environments=["production"], lease_s=LEASE_S, wait_s=60.0))
        sending = tasks.create_task(ours.outbox.claim_due(limit=1, busy_s=30.0, wait_s=60.0))
        await asyncio.sleep(0)
        job_id = await submit(theirs, hook=True)
        lease = await claiming
        assert lease.job.id == job_id

        async def follow() -> list[str]:
            return [event.type async for event in theirs.timelines.tail(job_id, after=0)]

        following = tasks.create_task(follow())
        watching = tasks.create_task(theirs.jobs.wait_for_change(lease.job, timeout_s=60.0))
        await asyncio.sleep(0.01)
        await ours.jobs.finish(lease, completion())
        assert await following == ["job.status", "job.status", "job.completed"]
        assert (await watching) == await ours.jobs.get(job_id)
        assert [row.job_id for row in await sending] == [job_id]


async def test_a_waiter_that_comes_after_a_long_silence_misses_nothing(tmp_path):
    async with storage_in(tmp_path) as ours, storage_in(tmp_path) as theirs:
        for _ in range(3):  # nothing waits between the rounds, so nothing polls
            job_id = await submit(theirs)
            lease = await claim(ours)
            assert lease.job.id == job_id
            changed = asyncio.create_task(ours.jobs.wait_for_change(lease.job, timeout_s=60.0))
            await asyncio.sleep(0)
            await theirs.jobs.cancel(job_id)
            job = await changed
            assert job.cancel_requested_at is not None


@pytest.mark.parametrize("turns", range(8))
async def test_a_wait_that_is_canceled_just_as_it_is_woken_ends(turns):
    """The order in the event loop does not matter; a worker waits for the end of what it has cancelled."""
    watch = Watch()

    async def look_for_ever() -> None:
        while True:
            await watch.wait(30)

    looking = asyncio.create_task(look_for_ever())
    for _ in range(3):
        await asyncio.sleep(0)
    watch.wake()
    for _ in range(turns):
        await asyncio.sleep(0)
    looking.cancel()
    done, _ = await asyncio.wait({looking}, timeout=5)
    assert done


def test_a_process_whose_writing_thread_fails_does_not_live_on_without_it(tmp_path):
    program = [sys.executable, "-c", WRITER_FAILS, str(tmp_path / "test.db")]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == SOFTWARE
    assert "this process ends" in done.stderr
    assert "TypeError" in done.stderr
