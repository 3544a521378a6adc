"""What was erased is in no file of the data folder: not in pages, not in their gaps, not in the log."""

import asyncio
import random
import subprocess
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from server.jobs.housekeeping import Eraser
from server.metrics import Metrics
from server.model.jobs import ErasureReason
from server.model.orders import Order
from server.storage.sql.storage import Storage
from server.storage.sqlite import connections
from server.storage.sqlite.database import SqliteDatabase
from tests.server.storing import LEASE_S, ManualClock, claim, completion, submit, word

SEEDS = (5, 10)  # with these, SQLite leaves copies in gaps


def files_with(folder: Path, mark: str) -> list[str]:
    """The files in *folder* that hold *mark*. Read by another process: closing a file here would drop its locks."""
    done = subprocess.run(["grep", "-rlaF", mark, str(folder)], capture_output=True, text=True, check=False)
    return done.stdout.split()


@pytest.mark.parametrize("seed", SEEDS)
async def test_after_upkeep_no_byte_of_an_erased_job_is_in_any_file(sqlite, tmp_path, seed):
    """The jobs are erased in no order, so SQLite moves rows of others, and leaves copies of them in pages."""
    chance = random.Random(seed)
    kept: list[str] = []
    eraser = Eraser(sqlite, Metrics())
    for number in range(300):
        job_id = f"job_{chance.randrange(10**12):026}"
        await complete(sqlite, job_id, chance)
        kept.append(job_id)
        while number > 30 and chance.random() < 0.48:
            await eraser.delete(kept.pop(chance.randrange(len(kept))), why=ErasureReason.REQUESTED)
    await eraser.tidy()
    found = await asyncio.to_thread(words_found, tmp_path)
    assert found == {f"words of {job_id}" for job_id in kept}
    (checked,) = await sqlite.jobs.database.read(lambda tx: tx.all("PRAGMA integrity_check"))
    assert checked == {"integrity_check": "ok"}


def words_found(folder: Path) -> set[str]:
    """The marks of all jobs that stand in any file of *folder*."""
    found = subprocess.run(["grep", "-rhaoE", "words of job_[0-9]{26}", str(folder)], capture_output=True, check=True)
    return set(found.stdout.decode().splitlines())


async def complete(storage: Storage, job_id: str, chance: random.Random) -> None:
    """A completed job whose every part has "words of " and its id: audio, prompt, metadata, events, webhook, text."""
    mark = f"words of {job_id} "
    async with storage.blobs.create(f"{job_id}/source") as sink:
        await sink.write(mark.encode())
    order = Order(prompt=mark, metadata={"k": mark}, webhook_url=f"https://a/{mark}", webhook_events=("job.completed",))
    await submit(storage, job_id, order=order, blob=f"{job_id}/source")
    lease = await claim(storage)
    for index in range(chance.randint(1, 5)):
        entries = [word(index, mark * chance.randint(1, 60)) for _ in range(chance.randint(1, 6))]
        await storage.jobs.checkpoint(lease, entries, progress=0.5, lease_s=LEASE_S)
    await storage.jobs.finish(lease, replace(completion(), text=mark * chance.randint(1, 200)))


async def test_a_scrub_that_readers_are_in_the_way_of_can_be_repeated(tmp_path):
    database = SqliteDatabase(tmp_path / "file.db", ManualClock())
    await database.write(lambda tx: tx.run("CREATE TABLE words (body)"))
    await database.write(lambda tx: tx.run("INSERT INTO words VALUES ('MARKER')"))
    with closing(connections.connect(tmp_path / "file.db")) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM words").fetchall()
        await database.write(lambda tx: tx.run("DELETE FROM words"))
        assert not await database.scrub()
        reader.execute("ROLLBACK")
    assert await database.scrub()
    assert await asyncio.to_thread(files_with, tmp_path, "MARKER") == []
    await database.close()
