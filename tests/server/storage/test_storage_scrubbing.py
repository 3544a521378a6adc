"""What was deleted stands nowhere in the files: not in pages, not in their gaps, not in the log. SQLite's own tests."""

import asyncio
import random
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from server.storage.sqlite import database as database_module
from server.storage.sqlite.database import SqliteDatabase, SqliteTransaction
from server.storage.sqlite.slack import Layout, find_used_gaps, gap, layout
from tests.server.storing import ManualClock, completion, in_a_loop, storage_in, submit
from tests.server.storing import claim as claimed

PAGE = Layout(512, 512, mapped=False)


def files_with(folder: Path, mark: str) -> list[str]:
    """The files in *folder* that hold *mark*. Read by another process: closing a file here would drop its locks."""
    done = subprocess.run(["grep", "-rlaF", mark, str(folder)], capture_output=True, text=True, check=False)
    return done.stdout.split()


def page(kind: int, cells: int, content: int, *, stale: bytes = b"", start: int = 0) -> bytes:
    """A page of a search tree with *stale* in the last bytes of its gap."""
    made = bytearray(PAGE.page_bytes)
    made[start] = kind
    made[start + 3 : start + 7] = cells.to_bytes(2) + content.to_bytes(2)
    made[content - len(stale) : content] = stale
    made[content:] = b"c" * (len(made) - content)
    return bytes(made)


@pytest.mark.parametrize(
    ("kind", "cells", "content", "start", "unused"),
    [
        (13, 3, 400, 0, range(14, 400)),
        (10, 0, 512, 0, range(8, 512)),
        (5, 1, 500, 0, range(14, 500)),
        (2, 1, 500, 100, range(114, 500)),
        (0, 3, 400, 0, range(0)),  # overflow or free
        (13, 300, 400, 0, range(0)),  # damaged
    ],
)
def test_the_gap_lies_between_the_list_of_cells_and_the_cells(kind, cells, content, start, unused):
    assert gap(page(kind, cells, content, start=start), PAGE, number=1 if start else 2) == unused


def test_pages_with_something_in_their_gaps_are_found():
    pages = [page(13, 2, 400), page(13, 2, 400, stale=b"words"), page(0, 2, 400, stale=b"words")]
    assert list(find_used_gaps(b"".join(pages), PAGE, first_page=7)) == [8]


def test_maps_of_auto_vacuum_are_not_taken_for_trees():
    shape = layout(bytes(16) + (512).to_bytes(2) + bytes(34) + (1).to_bytes(4) + bytes(44))
    assert shape == Layout(512, 512, mapped=True)
    assert gap(page(5, 1, 500, stale=b"map"), shape, number=2) == range(0)


@pytest.mark.parametrize("seed", [2, 5, 10, 11])
@in_a_loop
async def test_after_a_scrub_no_byte_of_a_deleted_row_is_left(tmp_path, seed):
    """These orders of inserting and deleting leave copies of rows in gaps, in SQLite 3.40."""
    chance = random.Random(seed)
    database = SqliteDatabase(tmp_path / "file.db", ManualClock())
    deleted: list[str] = []

    def fill(tx: SqliteTransaction) -> None:
        tx.run("CREATE TABLE words (job, number, body, PRIMARY KEY (job, number)) WITHOUT ROWID")
        kept: list[tuple[int, str]] = []
        for made in range(300):
            job, mark = chance.randrange(10**6), f"MARK{made}y"
            rows = [(job, number, mark * chance.randint(1, 60)) for number in range(chance.randint(1, 8))]
            tx.run_many("INSERT OR REPLACE INTO words VALUES (?, ?, ?)", rows)
            kept.append((job, mark))
            while kept and chance.random() < 0.45:
                gone, mark = kept.pop(chance.randrange(len(kept)))
                tx.run("DELETE FROM words WHERE job = ?", (gone,))
                deleted.append(mark)

    await database.write(fill)
    before = await database.read(lambda tx: tx.all("SELECT * FROM words"))
    assert await database.scrub()
    traces = b"".join(path.read_bytes() for path in await asyncio.to_thread(copy_database, tmp_path))
    assert [mark for mark in deleted if mark.encode() in traces] == []
    assert await database.read(lambda tx: tx.all("SELECT * FROM words")) == before
    await database.write(lambda tx: tx.run("INSERT INTO words VALUES (-1, 0, 'more')"))
    assert [tuple(row) for row in await database.read(lambda tx: tx.all("PRAGMA integrity_check"))] == [("ok",)]
    await database.close()


def copy_database(folder: Path) -> list[Path]:
    """Copies of the database's files, made by another process."""
    copy = folder / "copy"
    copy.mkdir()
    subprocess.run(["sh", "-c", 'cp "$1"/file.db* "$2"', "-", str(folder), str(copy)], check=True)
    return sorted(copy.iterdir())


@in_a_loop
async def test_a_scrub_that_readers_are_in_the_way_of_can_be_repeated(tmp_path):
    database = SqliteDatabase(tmp_path / "file.db", ManualClock())
    await database.write(lambda tx: tx.run("CREATE TABLE words (body)"))
    await database.write(lambda tx: tx.run("INSERT INTO words VALUES ('MARKER')"))
    with closing(database_module._connect(tmp_path / "file.db")) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM words").fetchall()
        await database.write(lambda tx: tx.run("DELETE FROM words"))
        assert not await database.scrub()
        reader.execute("ROLLBACK")
    assert await database.scrub()
    assert await asyncio.to_thread(files_with, tmp_path, "MARKER") == []
    await database.close()


@in_a_loop
async def test_writes_go_on_while_the_files_are_scrubbed(tmp_path):
    async with storage_in(tmp_path) as storage:
        for _ in range(30):
            gone = await submit(storage)
            await storage.jobs.finish(await claimed(storage), completion())
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(storage.jobs.delete(gone))
                scrub = tasks.create_task(storage.upkeep.scrub())
                kept = tasks.create_task(submit(storage, account=f"acct_{gone}"))
            assert isinstance(scrub.result(), bool)
            assert await storage.jobs.cancel(kept.result()) is not None
        assert await storage.upkeep.scrub()
