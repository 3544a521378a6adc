"""What the tests of workers share: workers on real storage, with a recogniser that says what it is told."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from pipeline.words import Chunk
from server.accounts.limits import Plans
from server.egress.fetch import Fetcher
from server.egress.guard import Egress
from server.jobs.attempts import WorkerTools
from server.jobs.finishing import Finisher
from server.jobs.housekeeping import Chore, Housekeeping, JobChores
from server.jobs.leases import WorkerRules
from server.jobs.probing import Prober
from server.jobs.workers import Workers
from server.metrics import Metrics
from server.model.jobs import Job
from server.model.orders import Order
from server.storage.ports import BlobStore
from server.storage.sql.storage import Storage
from tests.server.serving import LIMITS, ScriptedBatch, chunk, config, isolation, wav
from tests.server.storing import ManualClock, new_job, with_stores
from tests.waiting import eventually

PATIENT = WorkerRules()
MOST_S = 30  # for what is over at once or never


@dataclass
class WorkerHarness:
    """Workers, what they work with, and what tests want to know of it."""

    storage: Storage
    clock: ManualClock
    batch: ScriptedBatch
    metrics: Metrics

    def workers(self, rules: WorkerRules = PATIENT, *, count: int = 1, blobs: Any = None, jobs: Any = None) -> Workers:
        stores = {name: store for name, store in (("blobs", blobs), ("jobs", jobs)) if store is not None}
        storage, closing = with_stores(self.storage, **stores), asyncio.Event()
        egress = Egress(allowed=config(EGRESS_ALLOW_CIDRS="127.0.0.0/8").egress_allow_cidrs, allow_http=True)
        return Workers(
            name="test",
            tools=WorkerTools(
                storage=storage,
                fetcher=Fetcher(egress, storage.blobs),
                prober=Prober(isolation(), storage.blobs),
                finisher=Finisher(storage, self.metrics, closing),
                rules=rules,
            ),
            batches={"production": self.batch, "sandbox": self.batch},
            plans=Plans(self.storage.accounts, LIMITS),
            metrics=self.metrics,
            count=count,
            closing=closing,
        )

    @asynccontextmanager
    async def run_workers(
        self, rules: WorkerRules = PATIENT, *, every_s: float = 0.05, **options: Any
    ) -> AsyncIterator[Workers]:
        """Workers at work inside the block, with their chores *every_s* seconds; stopped in order at its end."""
        workers = self.workers(rules, **options)
        chores = self.chores(workers.tools.storage.blobs)
        repeated = [Chore("tidying", every_s, chores.reap), Chore("deleting audio", every_s, chores.delete_spent_audio)]
        housekeeping = Housekeeping(repeated, self.metrics, workers.closing)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(workers.run())
            tasks.create_task(housekeeping.run())
            try:
                yield workers
            finally:
                workers.closing.set()

    def chores(self, blobs: BlobStore | None = None) -> JobChores:
        return JobChores(self.storage.jobs, blobs or self.storage.blobs, self.metrics)

    @asynccontextmanager
    async def run_dying_workers(self, rules: WorkerRules = PATIENT) -> AsyncIterator[None]:
        """Workers that end with the block as if their machine had died: they write nothing on the way out."""
        running = asyncio.create_task(self.workers(rules).run())
        yield
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    async def submit(self, prompt: str = "", *, seconds: float = 1.0, **members: Any) -> str:
        """A job whose audio is stored; *prompt* picks the script."""
        order = replace(members.pop("order", Order()), prompt=prompt)
        new = new_job(order=order, **{"audio_s": seconds, **members})
        if new.source.type == "upload":
            async with self.storage.blobs.create(f"{new.id}/source") as sink:
                await sink.write(wav(seconds))
            new = replace(new, blob=f"{new.id}/source")
        return (await self.storage.jobs.submit(new, idempotency=None)).job.id

    async def until(self, job_id: str, holds: Callable[[Job], bool]) -> Job:
        async with asyncio.timeout(MOST_S):
            job = await self.storage.jobs.get(job_id)
            while job is not None and not holds(job):
                job = await self.storage.jobs.wait_for_change(job, timeout_s=MOST_S)
        assert job is not None
        return job

    async def wait_for_end(self, job_id: str) -> Job:
        return await self.until(job_id, lambda job: job.terminal)

    async def audio_gone(self, job_id: str) -> None:

        async def is_gone() -> bool:
            return not await self.storage.jobs.list_with_audio(limit=1)

        await eventually(is_gone)
        folder = [path for path, _ in await self.storage.blobs.prefixes() if path == job_id]
        assert all([await self.storage.blobs.size(f"{name}/source") is None for name in folder])

    async def events(self, job_id: str) -> list[tuple[str, dict[str, Any]]]:
        logged = await self.storage.timelines.read(job_id, after=0, limit=1000)
        return [(event.type, orjson.loads(event.body)) for event in logged]

    async def output(self, job_id: str, name: str) -> bytes:
        artifact = await self.storage.jobs.artifact(job_id, name)
        return b"".join([piece async for piece in self.storage.blobs.read(artifact.blob)])

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


SPOKEN = (("so", "my"), ("fellow", "americans"), (), ("ask", "not"))


async def speak(_path: Path, _options: object, done: tuple[Chunk, ...]) -> AsyncGenerator[Chunk]:
    for index, texts in enumerate(SPOKEN[len(done) :], len(done)):
        yield chunk(index, *texts)


class Gate:
    """A script that says one chunk of SPOKEN and then waits to be let on; it tells when it waits and when it ended."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()
        self.left = asyncio.Event()
        self.resumed_behind: list[int] = []

    async def script(self, path: Path, options: object, done: tuple[Chunk, ...]) -> AsyncGenerator[Chunk]:
        self.resumed_behind.append(len(done))
        try:
            async for made in speak(path, options, done):
                if made.index == 1:
                    self.reached.set()
                    await self.open.wait()
                yield made
        finally:
            self.left.set()


class BlobsOfDeletedJob:
    """The blob store, but a job is deleted once a blob of it has its name: too late for that blob to go with it."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @asynccontextmanager
    async def create(self, key: str, **options: bool) -> AsyncIterator[object]:
        async with self._storage.blobs.create(key, **options) as sink:
            yield sink
        await self._storage.jobs.delete(key.split("/", maxsplit=1)[0])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage.blobs, name)
