"""The other process of test_storage_processes.py: it reports in lines of JSON, and waits for lines."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import orjson

from server.model.errors import DiskFull
from server.model.ids import CHANCE_BYTES, Prefix, new_id
from server.model.orders import Order
from server.storage.sql.storage import Storage
from tests.server.storing import (
    FileClock,
    checkpoint,
    claim,
    completion,
    open_by_folder,
    parts_done,
    quota,
    refusals,
    submit,
)


def tell(what: object) -> None:
    sys.stdout.write(orjson.dumps(what).decode() + "\n")
    sys.stdout.flush()


async def next_order() -> str:
    return (await asyncio.to_thread(sys.stdin.readline)).strip()


async def be_late(storage: Storage) -> None:
    """Claim a job, begin it, and when told so try every write; say which were refused."""
    lease = await claim(storage, "late")
    await checkpoint(storage, lease)
    tell(lease.job.id)
    await next_order()
    tell(await refusals(storage, lease))


async def work(storage: Storage) -> None:
    """Do all jobs, with a line for every step."""
    while lease := await storage.jobs.claim("worker", environments=["production"], lease_s=30.0):
        tell("claimed")
        for index in range(await parts_done(storage, lease.job.id), 3):
            await checkpoint(storage, lease, index, progress=(index + 1) / 3)
            tell(index)
        await storage.jobs.finish(lease, completion())
        tell(lease.job.id)


async def submit_for_ever(storage: Storage) -> None:
    """Submit jobs from eight clients at once, with a line for each accepted job."""

    def job_id() -> str:
        return new_id(Prefix.JOB, ms=0, chance=os.urandom(CHANCE_BYTES))

    async def client() -> None:
        while True:
            tell(await submit(storage, job_id(), quotas=(quota(limit=None),)))

    await asyncio.gather(*(client() for _ in range(8)))


async def fill_the_disk(storage: Storage) -> None:
    """Write until nothing fits any more; say what was acknowledged, and what is found after some space is freed."""
    async with storage.blobs.create("job_1/source") as sink:
        await sink.write(b"x" * 100_000)
    accepted = []
    order = Order(metadata={f"key{number}": "x" * 500 for number in range(16)})
    try:
        while True:
            accepted.append(await submit(storage, order=order))
    except DiskFull:
        tell(accepted)
    try:
        async with storage.blobs.create("job_2/source") as sink:
            await sink.write(b"x" * 2_000_000)
    except DiskFull:
        tell([await storage.blobs.size("job_2/source"), await storage.blobs.size("job_1/source")])
    await storage.blobs.delete("job_1")
    tell([job_id for job_id in accepted if await storage.jobs.get(job_id) is None])
    tell(await submit(storage))


COMMANDS: dict[str, Callable[[Storage], Awaitable[None]]] = {
    "be_late": be_late,
    "work": work,
    "submit_for_ever": submit_for_ever,
    "fill_the_disk": fill_the_disk,
}


def main() -> None:
    command, folder, clock = sys.argv[1:4]

    async def run() -> None:
        storage = open_by_folder(Path(folder), clock=FileClock(Path(clock)))
        try:
            await COMMANDS[command](storage)
        finally:
            await storage.close()

    asyncio.run(run())


if __name__ == "__main__":
    main()
