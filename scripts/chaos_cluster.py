"""Kills and pauses the nodes of a cluster at random, restarts its database, takes its bucket away, and checks the jobs.

Two nodes answer requests and take live audio, two workers work on files, one database and one bucket are shared, and a
balancer picks a node at random for each request. Meanwhile clients submit jobs of the scripted engine, each with an
Idempotency-Key and a webhook, and writers speak, resending from received_bytes. Then everything runs undisturbed, and
every accepted job must have ended exactly once, as scripts/chaos.py says; live sessions must have the transcript of an
undisturbed one. The seed is printed; the same seed gives the same plan, but not the same times.
"""

import asyncio
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg
from websockets.exceptions import WebSocketException

from scripts.chaos import (
    CLIENTS,
    ENDS,
    LATE,
    LEASE_S,
    PEACE_S,
    Facts,
    Process,
    Seen,
    answers,
    judge,
    parse_plan,
    receive,
    use,
    wait_until,
)
from scripts.soak_clients import scripted_words
from server.client import Client, ServiceError
from tests.server.buckets import BucketService, bucket_service
from tests.server.clustering import Balancer
from tests.server.postgres import FAST, Cluster, new_cluster
from tests.server.running import environment, free_port

SPEAKERS = 2
SPOKEN_S = 40
RATE = 16_000
PIECE_S = 0.25
RESTARTS = 3  # of the database
BUCKET_AWAY_S = 20.0
BUCKET_TIMES = 2
ONE_AT_A_TIME = threading.Lock()
SETTINGS = tuple(setting for setting in FAST if setting != "fsync=off")  # what was confirmed must survive
REST_S = 240  # within which a session must be over
PATIENCE_S = 120  # how long clients are waited for in the end
MAX_TOLD, LOG_LINES = 20, 60  # of jobs that do not end, and of each log
QUESTIONS = {
    "states": "SELECT id, state FROM jobs",
    "usage": "SELECT job, count(*) FROM usage GROUP BY job",
    "hooks": "SELECT job, count(*) FROM deliveries GROUP BY job",
    "terminal": f"SELECT stream, count(*) FROM events WHERE {ENDS} GROUP BY stream",  # noqa: S608  a constant
    "late": LATE,
}
SPANS = "SELECT stream, count(*), min(seq), max(seq) FROM events GROUP BY stream"
ATTEMPTS = "SELECT max(attempt), count(*) FILTER (WHERE attempt > 1) FROM jobs WHERE class = 1"


@dataclass
class Live:
    """What the writers saw."""

    said: int = 0
    wrong: list[str] = field(default_factory=list)  # jobs whose transcript is not that of an undisturbed session
    failed: Counter[str] = field(default_factory=Counter)  # why clients gave sessions up


@dataclass(frozen=True)
class Machines:
    """Everything that can be disturbed."""

    nodes: list[Process]
    workers: list[Process]
    database: Cluster
    bucket: BucketService


def main() -> int:
    seconds, chance = parse_plan(__doc__)
    with tempfile.TemporaryDirectory() as folder, bucket_service(Path(folder)) as bucket:
        return run(Path(folder), bucket, seconds, chance)


def run(folder: Path, bucket: BucketService, seconds: int, chance: random.Random) -> int:
    seen, live = Seen(), Live()
    receiver = receive(seen, random.Random(chance.random()))
    database = new_cluster(free_port(), settings=SETTINGS)
    url, balancer = database.new_database(), Balancer(chance.randrange(10**6))
    machines = start(folder, url, balancer, database, bucket)
    base = f"http://127.0.0.1:{balancer.port}"
    wait_until(lambda: answers(base), 120)
    key = (folder / "node0" / "operator-key").read_text().strip()
    stop = threading.Event()
    users: list[Callable[[random.Random], object]] = [
        *[lambda own: use((base, key), receiver.server_port, seen, stop, own)] * CLIENTS,
        *[lambda own: asyncio.run(speak(base, key, live, stop, own))] * SPEAKERS,
    ]
    threads = [threading.Thread(target=user, args=(random.Random(chance.random()),), daemon=True) for user in users]
    for thread in threads:
        thread.start()
    disturb(machines, seconds, chance)
    stop.set()
    until = time.monotonic() + PATIENCE_S
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    live.failed["still waiting"] += sum(thread.is_alive() for thread in threads)
    for process in (*machines.nodes, *machines.workers):
        process.start_again_if_over()
    wait_while_jobs_end(url)
    tell_stuck(url, folder)
    wait_until(lambda: set(seen.hooks) >= set(seen.jobs.values()), 60, must=False)
    for process in (*machines.nodes, *machines.workers):
        process.send(signal.SIGTERM)
    for process in (*machines.nodes, *machines.workers):
        assert process.child is not None
        process.child.wait(60)
    receiver.shutdown()
    print(f"{live.said} live sessions of {SPOKEN_S} s, given up: {dict(live.failed)}")
    return judge(facts(url), seen, more={"live transcripts that differ": live.wrong})


def start(folder: Path, url: str, balancer: Balancer, database: Cluster, bucket: BucketService) -> Machines:
    """Start the nodes and the workers."""
    common = {
        "ENGINE": "scripted",
        "LOG_LEVEL": "warning",
        "DATABASE_URL": url,
        "BLOBS": bucket.prefix(),
        "PUBLIC_BASE_URL": f"http://127.0.0.1:{balancer.port}",
    }

    def process(word: str, name: str, **more: str) -> Process:
        env = {**environment(folder / name, **common, NODE=name, **more), **bucket.env}
        return Process([word], env, folder / f"{name}.log")

    nodes = []
    for number in range(2):
        port = free_port()
        balancer.nodes.append(port)
        nodes.append(process("serve", f"node{number}", PORT=str(port), ROLES="api,live,courier"))
    workers = [process("worker", f"worker{number}", WORKERS="4") for number in range(2)]
    for one in (*nodes, *workers):
        one.start()
        wait_until((folder / "node0" / "operator-key").exists, 120)  # the first node is asked for it
    return Machines(nodes, workers, database, bucket)


def disturb(machines: Machines, seconds: int, chance: random.Random) -> None:
    """Kill and pause processes one after the other, and bring each back; now and then the database and the bucket."""
    until = time.monotonic() + seconds
    special = [*["database"] * RESTARTS, *["bucket"] * BUCKET_TIMES]
    chance.shuffle(special)
    moments = sorted(time.monotonic() + chance.uniform(0.05, 0.85) * seconds for _ in special)
    while time.monotonic() < until:
        time.sleep(chance.uniform(1, 6))
        for process in (*machines.nodes, *machines.workers):
            process.start_again_if_over()
        if moments and time.monotonic() >= moments[0]:
            moments.pop(0)
            if special.pop() == "database":
                machines.database.stop("immediate")
                time.sleep(chance.uniform(0, 2))
                machines.database.start()
            else:
                threading.Thread(target=_take_away, args=(machines.bucket, min(BUCKET_AWAY_S, seconds / 6))).start()
            continue
        victim = chance.choice([*machines.nodes, *machines.workers])
        if chance.random() < 0.6:
            victim.kill()
            time.sleep(chance.uniform(0, 1))
            victim.start()
        else:
            victim.send(signal.SIGSTOP)
            time.sleep(min(chance.choice([0.5, 3, 3, LEASE_S + 6]), max(0.5, until - time.monotonic())))
            victim.send(signal.SIGCONT)


def _take_away(bucket: BucketService, away_s: float) -> None:
    with ONE_AT_A_TIME, bucket.fail_with("away"):
        time.sleep(away_s)


async def speak(base: str, key: str, live: Live, stop: threading.Event, chance: random.Random) -> None:
    """Speak in session after session until *stop*. The client reconnects and resends by itself."""
    async with Client(base, key) as client:
        while not stop.is_set():
            await asyncio.sleep(chance.uniform(0, 2))
            job_id = None
            try:
                async with asyncio.timeout(REST_S), client.live(max_utterance_s=3) as stream:
                    for _ in range(int(SPOKEN_S / PIECE_S)):
                        await stream.send(bytes(2 * int(RATE * PIECE_S)))
                        await asyncio.sleep(PIECE_S / 2)
                    stream.close()
                    async for _ in stream.events():
                        pass
                    job_id = stream.job_id
            except* (ServiceError, httpx.HTTPError, OSError, WebSocketException, TimeoutError) as group:
                live.failed[type(group.exceptions[0]).__name__] += 1  # perhaps it could not begin
            if job_id is not None:
                await _compare(client, job_id, live)


async def _compare(client: Client, job_id: str, live: Live) -> None:
    """Compare the transcript of the session that has ended with that of an undisturbed one of the same length."""
    while True:
        try:
            record = await client.wait(job_id)
        except (ServiceError, httpx.HTTPError, OSError):
            await asyncio.sleep(0.5)
            continue
        live.said += 1
        words = (record.get("text") or "").split()
        if words != scripted_words(record.get("duration") or 0.0):
            live.wrong.append(f"{job_id}: {len(words)} words in {record.get('duration')} s, {words[-3:]}")
        elif record["duration"] < SPOKEN_S:
            live.failed["its writer came back too late"] += 1
        return


@contextmanager
def asking(url: str) -> Iterator[psycopg.Cursor]:
    with psycopg.connect(url) as connection:
        yield connection.cursor()


def facts(url: str) -> Facts:
    with asking(url) as cursor:
        found = {name: dict(cursor.execute(question).fetchall()) for name, question in QUESTIONS.items()}
        spans, attempts = cursor.execute(SPANS).fetchall(), cursor.execute(ATTEMPTS).fetchone()
        live = frozenset(job for (job,) in cursor.execute("SELECT id FROM jobs WHERE class = 0").fetchall())
    return Facts(**found, spans=spans, attempts=attempts or (0, 0), live=live)


def unfinished_jobs(url: str) -> list[tuple[Any, ...]]:
    """Return the rows of the jobs that have not ended."""
    with asking(url) as cursor:
        return cursor.execute(
            "SELECT id, class, state, attempt, owner, lease_until, last_error FROM jobs"
            " WHERE state IN ('queued', 'processing')"
        ).fetchall()


def wait_while_jobs_end(url: str) -> None:
    """Wait until all have ended, or none has for PEACE_S: on a busy machine the queue may be long."""
    left, moved_at = len(unfinished_jobs(url)), time.monotonic()
    while left and time.monotonic() - moved_at < PEACE_S:
        time.sleep(0.5)
        before, left = left, len(unfinished_jobs(url))
        if left < before:
            moved_at = time.monotonic()


def tell_stuck(url: str, folder: Path) -> None:
    """Print the jobs that have not ended, if there are any, and what the processes logged last."""
    stuck = unfinished_jobs(url)
    for job in stuck[:MAX_TOLD]:
        print("stuck:", *job)
    for log in sorted(folder.glob("*.log")) if stuck else ():
        print(f"--- {log.name}", *log.read_text(errors="replace").splitlines()[-LOG_LINES:], sep="\n")


if __name__ == "__main__":
    sys.exit(main())
