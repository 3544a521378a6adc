"""What the tests of storage share: a clock that stands still, a store on real files, and jobs to put into it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from pipeline.audio import RATE
from pipeline.timeline import DecidedUpTo, Entry, StoredWord, Words, unpack
from server.model.accounts import Quota
from server.model.jobs import JobError, Lease, NewJob, Outcome, Renewal, State
from server.model.orders import LiveOptions, Order, Source
from server.storage.postgres.open import open_storage as open_cluster_storage
from server.storage.sql.storage import Storage
from server.storage.sqlite.blobs import FileBlobs
from server.storage.sqlite.open import make_private, open_storage
from tests.server.postgres import shared_cluster

NOON = 1_795_176_000_000  # 2026-11-20T12:00:00Z
RESET = NOON + 10 * 24 * 60 * 60 * 1000
HOUR = 60 * 60 * 1000
HOOK = "https://hooks.example/in"
LEASE_S = 30.0

_numbers = count(1)


class ManualClock:
    """A clock that moves only when a test says so."""

    def __init__(self, now: int = NOON) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now

    def advance(self, *, ms: int = 0, s: float = 0) -> None:
        self.now += ms + round(s * 1000)


class FileClock:
    """A ManualClock that several processes can read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self) -> int:
        return int(self._path.read_text())

    def set(self, now: int) -> None:
        written = self._path.with_suffix(".new")
        written.write_text(str(now))
        written.rename(self._path)

    def advance(self, *, s: float) -> None:
        self.set(self() + round(s * 1000))


@dataclass(frozen=True)
class Backend:
    """A storage backend. The contract tests run with each of BACKENDS."""

    open: Callable[..., Storage]

    def new_storage(self, folder: Path, clock: Callable[[], int] | None = None, **options: int) -> Storage:
        return self.open(folder / "data", clock=clock or ManualClock(), **options)

    @asynccontextmanager
    async def storage_in(
        self, folder: Path, clock: Callable[[], int] | None = None, **options: int
    ) -> AsyncIterator[Storage]:
        storage = self.new_storage(folder, clock, **options)
        try:
            yield storage
        finally:
            await storage.close()


def open_in_postgres(folder: Path, *, clock: Callable[[], int], reserve_bytes: int = 0, **options: Any) -> Storage:
    """Open the database that belongs to *folder*; its blobs are files in it."""
    make_private(folder)
    noted = folder / "database-url"
    if not noted.exists():
        noted.write_text(shared_cluster().new_database())
    blobs = FileBlobs(folder, reserve_bytes=reserve_bytes)
    return open_cluster_storage(noted.read_text(), blobs, name="test", clock=clock, **options)


@asynccontextmanager
async def open_at(folder: Path, url: str, *, notify: bool = True) -> AsyncIterator[Storage]:
    """Open the database at *url* as a node does, with blobs in *folder*."""
    make_private(folder)
    storage = open_cluster_storage(url, FileBlobs(folder), name="test", notify=notify)
    try:
        yield storage
    finally:
        await storage.close()


def open_by_folder(folder: Path, *, clock: Callable[[], int]) -> Storage:
    """Open what another process opened in *folder*, with the same backend."""
    open_again = open_in_postgres if (folder / "database-url").exists() else open_storage
    return open_again(folder, clock=clock)


BACKENDS = {"sqlite": Backend(open_storage), "postgres": Backend(open_in_postgres)}
new_storage, storage_in = BACKENDS["sqlite"].new_storage, BACKENDS["sqlite"].storage_in
"""For tests that need any storage, and for those that look inside of SQLite's."""


def quota(name: str = "transcriptions", *, limit: int | None = 5, amount: int = 1) -> Quota:
    return Quota(name=name, window="2026-11", limit=limit, amount=amount, resets_at=RESET)


def new_job(job_id: str | None = None, *, live: bool = False, hook: bool = False, **members: Any) -> NewJob:
    order = members.pop("order", Order())
    if live:
        order = replace(order, live=LiveOptions())
    if hook:
        order = replace(order, webhook_url=HOOK, webhook_events=("job.completed", "job.failed"))
    job = NewJob(
        id=job_id or f"job_{next(_numbers):026}",
        account="acct_1",
        environment="production",
        order=order,
        source=Source(type="live" if live else "upload"),
        blob=None,
        audio_s=10.0,
        retention_ms=HOUR,
    )
    return replace(job, **members)


async def submit(storage: Storage, job_id: str | None = None, **members: Any) -> str:
    return (await storage.jobs.submit(new_job(job_id, **members), idempotency=None)).job.id


async def claim(storage: Storage, worker: str = "w1", *, lease_s: float = LEASE_S) -> Lease:
    lease = await storage.jobs.claim(worker, environments=["production"], lease_s=lease_s)
    assert lease is not None, "nothing to claim"
    return lease


async def types_of(storage: Storage, job_id: str) -> list[str]:
    return [event.type for event in await storage.timelines.read(job_id, after=0, limit=10_000)]


def completion(**members: Any) -> Outcome:
    usual = {"duration_s": 9.2, "text": "hello", "engine": "scripted", "model": "m"}
    return Outcome(state=State.COMPLETED, **usual | members)


def failure(code: str = "invalid_audio", **members: Any) -> Outcome:
    return Outcome(state=State.FAILED, error=JobError(code=code, message="no", retryable=False), **members)


CANCELED = Outcome(state=State.CANCELED)


def word(number: int = 0, text: str = "and") -> Words:
    """The entry for word *number* of a job, which is half a second long."""
    start = number * RATE // 2
    return Words(number, 0, (StoredWord(text, start, start + RATE // 2, 0.9),))


WORD = word()


def part(index: int) -> list[Entry]:
    """The entries of part *index* of a file: a word, and the mark that its second is done."""
    return [word(index), DecidedUpTo((index + 1) * RATE, jobs_done=index + 1)]


async def parts_done(storage: Storage, job_id: str) -> int:
    """How many parts of a file are stored."""
    entries = map(unpack, await storage.timelines.entries(job_id))
    return sum(isinstance(entry, DecidedUpTo) for entry in entries)


async def checkpoint(storage: Storage, lease: Lease, index: int = 0, progress: float = 0.5) -> bool:
    return await storage.jobs.checkpoint(lease, part(index), progress=progress, lease_s=LEASE_S) is not None


async def refusals(storage: Storage, lease: Lease) -> list[bool]:
    """Try every write of a worker. Return for each whether it was refused."""
    return [
        not await checkpoint(storage, lease, index=7),
        await storage.jobs.append(lease, [WORD]) is None,
        not await storage.jobs.note(lease, stage="writing"),
        await storage.jobs.renew(lease, lease_s=LEASE_S) is Renewal.LOST,
        not await storage.jobs.release(lease, delay_s=0, error=None, count=True),
        not await storage.jobs.finish(lease, completion()),
    ]


def with_stores(storage: Any, **stores: Any) -> Any:
    """Return a copy of *storage* with these stores in place of its own."""
    changed = copy(storage)
    for name, store in stores.items():
        setattr(changed, name, store)
    return changed
