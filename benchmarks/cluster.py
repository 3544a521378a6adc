"""What the cluster's storage does a second, compared with the embedded one: python -m benchmarks.cluster [--seconds 5]

Both stores do the same work on the same machine, in turns: submitting, claiming and finishing jobs, chunks of files,
live sessions that log as fast as they can, and live sessions at the pace of speech whose words are read in another
process (in the cluster form, another node). PostgreSQL is started for it (Debian's package `postgresql`), with its
usual care for commits; blobs take no part. "database" are its processes, "writer" and "reader" the server's two. Other
work on the machine only slows things down, so each number is the best of some rounds. Writes
benchmarks/results/cluster.json, from which benchmarks/capacity.py computes.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.measure import ROOT, cpu_s, spread, write
from server.clock import now_ms
from server.model.events import NewEvent
from server.model.jobs import NewJob, State
from server.model.leases import Lease
from server.model.orders import LiveOptions, Order, Source
from server.model.outcomes import Outcome
from server.storage.postgres.open import open_storage as open_cluster
from server.storage.sql.storage import Storage
from server.storage.sqlite.files import FileBlobs
from server.storage.sqlite.open import open_storage as open_embedded
from tests.server.postgres import Cluster, new_cluster
from tests.server.running import free_port

STORES = ("embedded", "cluster")
CLIENTS = 32  # requests at once
ACCOUNTS = 20
SESSIONS = 100
WORDS_S = 2.5  # of a person who speaks
EVENTS_AT_ONCE = 3  # words that are decided together
CHUNK_EVERY = 10  # logs between two checkpoints
CHUNK, CHUNK_WORDS = bytes(6000), 70  # of some 28 s of a file
LEASE_S = 60.0
RATE = "_per_s"
DURABLE = ("max_connections=200", "shared_buffers=256MB")
OUTCOME = Outcome(state=State.COMPLETED, duration_s=600.0, text="hello", engine="none", model="none")

_numbers = count(1)


@asynccontextmanager
async def open_store(store: str, place: str) -> AsyncIterator[Storage]:
    """Open the *store* at *place*: a folder, or the URL of a database."""
    if store == "embedded":
        storage: Storage = open_embedded(Path(place), clock=now_ms, max_queued=10**9)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            storage = open_cluster(place, FileBlobs(Path(scratch)), name="benchmark", max_queued=10**9)
    try:
        yield storage
    finally:
        await storage.close()


def new_job(*, live: bool = False) -> NewJob:
    number = next(_numbers)
    return NewJob(
        id=f"job_{os.getpid():010}{number:016}",
        account=f"acct_{number % ACCOUNTS}",
        environment="production",
        order=Order(live=LiveOptions() if live else None),
        source=Source(type="live" if live else "upload"),
        blob=None,
        audio_s=600.0,
        retention_ms=3600_000,
    )


async def rate(seconds: float, clients: int, act: Callable[[], Awaitable[bool]]) -> tuple[int, float]:
    """Let *clients* repeat *act* until it returns False or *seconds* are over. Return (how often, seconds)."""
    end, done = time.monotonic() + seconds, 0

    async def repeat() -> None:
        nonlocal done
        while time.monotonic() < end and await act():
            done += 1

    began = time.monotonic()
    await asyncio.gather(*(repeat() for _ in range(clients)))
    return done, time.monotonic() - began


# --- jobs ------------------------------------------------------------------------------------------------------------


async def jobs(storage: Storage, seconds: float, cpu: Callable[[], float]) -> dict[str, float]:
    """Return how many jobs a second are submitted, claimed, and finished, and how many chunks are stored."""
    leases: list[Lease] = []
    chunks: dict[str, int] = {}  # of each lease

    async def submit() -> bool:
        await storage.jobs.submit(new_job(), idempotency=None)
        return True

    async def claim() -> bool:
        lease = await storage.jobs.claim("w", environments=["production"], lease_s=600.0)
        if lease is not None:
            leases.append(lease)
        return lease is not None

    async def chunk() -> bool:
        lease = leases.pop()
        index = chunks[lease.lease_id] = chunks.get(lease.lease_id, -1) + 1
        kept = await storage.jobs.checkpoint(
            lease, index=index, body=CHUNK, events=words(CHUNK_WORDS), progress=0.5, lease_s=600.0
        )
        leases.append(lease)
        return kept

    async def finish() -> bool:
        return bool(leases) and await storage.jobs.finish(leases.pop(), OUTCOME)

    found: dict[str, float] = {}
    for name, clients, act in (
        ("submits_per_s", CLIENTS, submit),
        ("claims_per_s", CLIENTS, claim),
        ("chunks_per_s", min(CLIENTS, 8), chunk),
        ("finishes_per_s", CLIENTS, finish),
    ):
        before = cpu()
        done, took_s = await rate(seconds, clients, act)
        found[name] = round(done / took_s, 1)
        found[f"database_cpu_ms {name.removesuffix(RATE)}"] = round(1000 * (cpu() - before) / max(1, done), 3)
    return found


def words(number: int) -> list[NewEvent]:
    body = {"word": "fellow", "start": 1.25, "end": 1.5, "confidence": 0.93, "at": time.time()}
    return [NewEvent("word", json.dumps(body).encode())] * number


# --- live sessions ---------------------------------------------------------------------------------------------------


async def live_leases(storage: Storage, sessions: int) -> list[Lease]:
    leases = []
    for _ in range(sessions):
        job = new_job(live=True)
        await storage.jobs.submit(job, idempotency=None)
        lease = await storage.jobs.claim_live(job.id, "node", lease_s=LEASE_S)
        assert lease is not None
        leases.append(lease)
    return leases


async def write_words(storage: Storage, lease: Lease, *, end: float, pause_s: float) -> int:
    """Log words of a session until *end*, with a checkpoint now and then. Returns how often something was written."""
    for turn in count():
        began = time.monotonic()
        if began >= end:
            return turn
        if turn % CHUNK_EVERY == CHUNK_EVERY - 1:
            index = turn // CHUNK_EVERY
            await storage.jobs.checkpoint(
                lease, index=index, body=CHUNK, events=words(EVENTS_AT_ONCE), progress=0, lease_s=LEASE_S
            )
        else:
            await storage.jobs.log(lease, words(EVENTS_AT_ONCE))
        await asyncio.sleep(max(0.0, pause_s - (time.monotonic() - began)))
    return 0


async def appends(storage: Storage, seconds: float) -> dict[str, float]:
    """Return how much live sessions write a second if they log as fast as they can."""
    leases = await live_leases(storage, SESSIONS)
    began = time.monotonic()
    turns = await asyncio.gather(*(write_words(storage, lease, end=began + seconds, pause_s=0) for lease in leases))
    took_s = time.monotonic() - began
    return {"appends_per_s": round(sum(turns) / took_s), "events_per_s": round(sum(turns) * EVENTS_AT_ONCE / took_s)}


async def at_pace(store: str, place: str, storage: Storage, seconds: float, cpu: Callable[[], float]) -> dict[str, Any]:
    """Return how late another process reads the words of live sessions, and what a second of a session costs."""
    leases = await live_leases(storage, SESSIONS)
    reader = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.cluster", "--read", store, place, *(lease.job.id for lease in leases)),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert reader.stdin is not None
    assert reader.stdout is not None
    await reader.stdout.readline()
    before_s, ours_s, theirs_s = cpu(), time.process_time(), cpu_s(reader.pid)
    began = time.monotonic()
    pause_s = EVENTS_AT_ONCE / WORDS_S

    async def speak(lease: Lease, number: int) -> None:
        await asyncio.sleep(pause_s * number / len(leases))
        await write_words(storage, lease, end=began + seconds, pause_s=pause_s)

    await asyncio.gather(*(speak(lease, number) for number, lease in enumerate(leases)))
    spent = {
        "database": cpu() - before_s,
        "writer": time.process_time() - ours_s,
        "reader": cpu_s(reader.pid) - theirs_s,
    }
    reader.stdin.close()
    late_s = json.loads(await reader.stdout.read())
    await reader.wait()
    milliseconds = {
        f"{who}_cpu_ms a live second": round(1000 * used / (seconds * SESSIONS), 3) for who, used in spent.items()
    }
    return {"words_read": len(late_s), "late_s": spread(late_s), **milliseconds}


async def read(store: str, place: str, streams: list[str]) -> None:
    """Follow *streams* as readers of another node do, until standard input ends. Print how late each word came."""
    late_s: list[float] = []

    async def follow(storage: Storage, stream: str) -> None:
        async for event in storage.events.tail(stream, after=0):
            late_s.extend([time.time() - json.loads(event.body)["at"]] if event.type == "word" else [])

    async with open_store(store, place) as storage:
        following = [asyncio.create_task(follow(storage, stream)) for stream in streams]
        await asyncio.sleep(1.0)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        for task in following:
            task.cancel()
        for task in following:
            with suppress(asyncio.CancelledError):
                await task
    print(json.dumps(late_s))


# --- both ------------------------------------------------------------------------------------------------------------


async def measure_store(store: str, place: str, seconds: float, cpu: Callable[[], float]) -> dict[str, Any]:
    async with open_store(store, place) as storage:
        done = {**await jobs(storage, seconds, cpu), **await appends(storage, seconds)}
        read_late = await at_pace(store, place, storage, 2 * seconds, cpu)
        return {**done, **read_late, "bytes an event": round(event_bytes(store, place))}


def event_bytes(store: str, place: str) -> float:
    """Return the bytes of a stored event with its indexes; 0 for the embedded store, whose tables share a file."""
    if store == "embedded":
        return 0.0
    with psycopg.connect(place) as connection:
        row = connection.execute(
            "SELECT pg_total_relation_size('events') / greatest(1, count(*)) FROM events"
        ).fetchone()
    assert row is not None
    return float(row[0])


def one_round(store: str, seconds: float, postgres: Cluster) -> dict[str, Any]:
    """Measure an empty *store*."""
    if store == "cluster":
        pid = postgres.pid()
        return asyncio.run(measure_store(store, postgres.new_database(), seconds, lambda: cpu_s(pid)))
    with tempfile.TemporaryDirectory(dir=ROOT) as folder:
        return asyncio.run(measure_store(store, folder, seconds, lambda: 0.0))


def best(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the best of each number: the highest rate, the lowest time."""
    return {
        name: best([one[name] for one in rounds])
        if isinstance(value, dict)
        else (max if name.endswith(RATE) else min)(one[name] for one in rounds)
        for name, value in rounds[0].items()
    }


def compare_stores(seconds: float, rounds: int) -> dict[str, Any]:
    postgres = new_cluster(free_port(), settings=DURABLE)
    found: dict[str, list[dict[str, Any]]] = {store: [] for store in STORES}
    for _ in range(rounds):
        for store in STORES:
            found[store].append(one_round(store, seconds, postgres))
    stores = {store: best(rows) for store, rows in found.items()}
    embedded, cluster = stores["embedded"], stores["cluster"]
    rates = [name for name in embedded if name.endswith(RATE)]
    return {
        "sessions": SESSIONS,
        "clients": CLIENTS,
        "seconds": seconds,
        "rounds": rounds,
        "stores": stores,
        "cluster_to_embedded": {name: round(cluster[name] / embedded[name], 2) for name in rates},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each kind of work (default: 5)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-write", action="store_true", help="print only")
    parser.add_argument("--read", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read:
        store, place, *streams = given.read
        asyncio.run(read(store, place, streams))
        return
    result = compare_stores(given.seconds, given.rounds)
    print(json.dumps(result, indent=1))
    if not given.no_write:
        print(write("cluster", result))


if __name__ == "__main__":
    main()
