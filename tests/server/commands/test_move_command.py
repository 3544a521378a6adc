"""scribewire move: a stopped installation goes on in a database and a bucket, with everything that it had."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from pipeline.timeline import unpack
from server.config import PREFIX
from server.model.jobs import ErasureReason
from server.storage.postgres.open import open_storage as open_database
from server.storage.s3.open import open_bucket
from server.storage.sql.storage import Storage
from server.storage.sqlite.open import claim_folder
from tests.processes import ROOT
from tests.server.buckets import BucketService
from tests.server.postgres import shared_cluster
from tests.server.session_registries import begin_session, order
from tests.server.storing import HOUR, checkpoint, claim, completion, new_storage, submit

OUTPUT = b"so my fellow Americans\n" * 50_000


async def fill(storage: Storage) -> dict[str, str]:
    """Make a finished job, one half done, a session within a segment, and the record of an erasure."""
    done, half, live, gone = [await submit(storage, hook=True) for _ in range(2)] + [
        await submit(storage, order=order()), await submit(storage)
    ]  # fmt: skip
    lease = await claim(storage)
    await checkpoint(storage, lease)
    async with storage.blobs.create(f"{done}/1.txt") as sink:
        await sink.write(OUTPUT)
    await storage.jobs.finish(lease, completion())
    lease = await claim(storage)
    await checkpoint(storage, lease, progress=0.5)
    await storage.jobs.release(lease, delay_s=0, error=None, count=False)
    lease = await begin_session(storage, live)
    await storage.jobs.release(lease, delay_s=0, error=None, count=False)
    await storage.jobs.delete(gone, why=ErasureReason.REQUESTED)
    return {"done": done, "half": half, "live": live}


def move(folder: Path, database: str, place: str, bucket: BucketService) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "server", "move", "--to-database", database, "--to-blobs", place]
    environ = {**os.environ, **bucket.env, f"{PREFIX}DATA_DIR": str(folder)}
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=100, check=False)


async def test_everything_is_there_after_a_move_and_a_second_one_changes_nothing(tmp_path, bucket, monkeypatch):
    for name, value in bucket.env.items():
        monkeypatch.setenv(name, value)
    database, place = shared_cluster().new_database(), bucket.prefix()
    storage = new_storage(tmp_path)
    jobs = await fill(storage)
    entries = {name: await storage.timelines.entries(job_id) for name, job_id in jobs.items()}
    records = {name: await storage.jobs.get(job_id) for name, job_id in jobs.items()}
    deliveries, keys = await storage.outbox.of_job(jobs["done"]), storage.signing_keys
    erasures = await storage.upkeep.erasures(limit=9)
    await storage.close()
    for _ in range(2):
        told = await asyncio.to_thread(move, tmp_path / "data", database, place, bucket)
        assert told.returncode == 0, told.stderr
        assert "jobs                  3 rows" in told.stdout
        assert "files                 1" in told.stdout
    moved = open_database(database, open_bucket(place, tmp_path / "node", env=bucket.env), name="node")
    try:
        assert {name: await moved.timelines.entries(job_id) for name, job_id in jobs.items()} == entries
        assert [unpack(body) for body in entries["live"]]
        assert {name: await moved.jobs.get(job_id) for name, job_id in jobs.items()} == records
        assert await moved.outbox.of_job(jobs["done"]) == deliveries
        assert (moved.signing_keys, await moved.upkeep.erasures(limit=9)) == (keys, erasures)
        assert b"".join([piece async for piece in moved.blobs.read(f"{jobs['done']}/1.txt")]) == OUTPUT
        await moved.jobs.delete(jobs["done"], why=ErasureReason.REQUESTED)
        assert len(await moved.upkeep.erasures(limit=9)) == len(erasures) + 1
        lease = await moved.jobs.claim("node", environments=["production"], lease_s=HOUR / 1000)
        assert lease is not None
        assert lease.job.id == jobs["half"]
    finally:
        await moved.close()


async def test_a_move_is_refused_while_the_server_runs_or_where_others_are(tmp_path, bucket):
    database, place = shared_cluster().new_database(), bucket.prefix()
    await new_storage(tmp_path).close()
    with claim_folder(tmp_path / "data"):
        told = await asyncio.to_thread(move, tmp_path / "data", database, place, bucket)
    assert (told.returncode != 0, "stop it" in told.stderr) == (True, True)
    other = open_database(database, open_bucket(place, tmp_path / "node", env=bucket.env), name="node")
    try:
        told = await asyncio.to_thread(move, tmp_path / "data", database, place, bucket)
    finally:
        await other.close()
    assert (told.returncode != 0, "stop all nodes" in told.stderr) == (True, True)
