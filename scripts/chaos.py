"""Kills (SIGKILL) and pauses (SIGSTOP) the processes of a service at random, and counts: scripts/chaos [BACKEND]

With sqlite, the backend without an argument, there are a server without workers and two workers on one folder. With
postgres there are two nodes and two workers that share a database, which is stopped as if its machine had lost power,
and a bucket, which goes away for a while; a balancer picks a node at random for each request.

Meanwhile clients submit jobs of the scripted engine, each with an Idempotency-Key and a webhook, and retry until they
have an answer, and writers speak into live sessions, resending from received_bytes. Then everything runs undisturbed,
and every accepted job must have ended exactly once: one usage row, one webhook id, events numbered 1, 2, 3, ... without
a gap and none behind the last one, and live sessions must have the transcript of an undisturbed one. The seed is
printed; the same seed gives the same plan, but not the same times.
"""

import argparse
import asyncio
import io
import json
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psycopg
import soundfile
from websockets.exceptions import WebSocketException

from pipeline.recognition.engines.scripted import SCRIPT
from server.client import Client, ServiceError
from tests.processes import free_port
from tests.server.buckets import BucketService, bucket_service
from tests.server.clustering import Balancer
from tests.server.postgres import FAST, new_cluster
from tests.server.running import ROOT, environment

CLIENTS, SPEAKERS = 6, 2
SPOKEN_S = 40
RATE, PIECE_S = 16_000, 0.25
LEASE_S = 30  # of the workers: a pause longer than it loses the job
BUCKET_AWAY_S = 20.0
ACCIDENTS = 5  # of the database and the bucket
START_S = 120
PEACE_S = 150  # without a job that ends, after which the rest is stuck
PATIENCE_S = 240  # within which each client must have its last answer
DURABLE = tuple(setting for setting in FAST if setting != "fsync=off")  # what was confirmed must survive
LOG_LINES = 60  # that are shown of each process if jobs are stuck

Ask = Callable[[str], list[tuple[Any, ...]]]
"""Answers an SQL question from the service's database."""


@dataclass
class Process:
    """A server or worker process, which is started again after it was killed."""

    words: Sequence[str]
    env: Mapping[str, str]
    log: Path
    child: "subprocess.Popen[bytes]" = field(init=False)

    def start(self) -> None:
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "server", *self.words]
            self.child = subprocess.Popen(command, cwd=ROOT, env=self.env, stderr=log)

    def kill(self) -> None:
        self.child.kill()
        self.child.wait()

    def stop(self) -> int:
        """End it with SIGTERM, and return its exit status."""
        self.child.terminate()
        return self.child.wait(60)

    def start_again_if_over(self) -> None:
        """Do what an operator's supervisor does with a process that ended by itself."""
        if self.child.poll() is not None:
            self.start()


@dataclass
class Seen:
    """What the clients and the receiver of webhooks saw."""

    jobs: dict[str, str] = field(default_factory=dict)  # idempotency key, or the id of a live session -> job id
    hooks: "defaultdict[str, set[str]]" = field(default_factory=lambda: defaultdict(set))  # job id -> webhook ids
    doubled: list[str] = field(default_factory=list)  # keys that were answered with two jobs
    wrong: list[str] = field(default_factory=list)  # live transcripts that are not those of an undisturbed session
    said: int = 0  # live sessions with a transcript
    refused: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Service:
    """The processes under test, how its database is asked, and what else may fail for a moment."""

    base: str
    folder: Path
    processes: Sequence[Process]
    ask: Ask
    accidents: Sequence[Callable[[random.Random], None]] = ()

    @property
    def key(self) -> str:
        return (self.folder / "node0" / "operator-key").read_text().strip()


# --- the two backends ------------------------------------------------------------------------------------------------


@contextmanager
def sqlite_service(folder: Path) -> Iterator[Service]:
    port = free_port()
    own = environment(folder / "node0", ENGINE="scripted", LOG_LEVEL="warning", PORT=str(port))
    server = Process(["serve"], {**own, "SCRIBEWIRE_WORKERS": "0"}, folder / "server.log")
    workers = [Process(["worker"], {**own, "SCRIBEWIRE_WORKERS": "2"}, folder / f"worker{n}.log") for n in range(2)]
    yield Service(f"http://127.0.0.1:{port}", folder, [server, *workers], partial(ask_sqlite, folder / "node0"))


@contextmanager
def postgres_service(folder: Path) -> Iterator[Service]:
    with bucket_service(folder) as bucket:
        database, balancer = new_cluster(free_port(), settings=DURABLE), Balancer()
        base, url = f"http://127.0.0.1:{balancer.port}", database.new_database()
        common = {
            "ENGINE": "scripted", "LOG_LEVEL": "warning", "DATABASE_URL": url, "BLOBS": bucket.prefix(),
            "PUBLIC_BASE_URL": base,
        }  # fmt: skip

        def process(word: str, name: str, **more: str) -> Process:
            own = {**environment(folder / name, **common, NODE=name, **more), **bucket.env}
            return Process([word], own, folder / f"{name}.log")

        balancer.nodes += [free_port(), free_port()]
        nodes = [
            process("serve", f"node{number}", PORT=str(port), ROLES="api,live,courier")
            for number, port in enumerate(balancer.nodes)
        ]
        workers = [process("worker", f"worker{number}", WORKERS="4") for number in range(2)]

        def lose_power(chance: random.Random) -> None:
            database.stop("immediate")
            time.sleep(chance.uniform(0, 2))
            database.start()

        accidents: list[Callable[[random.Random], None]] = [lose_power, partial(take_away, bucket)]
        yield Service(base, folder, [*nodes, *workers], partial(ask_postgres, url), accidents)


BACKENDS = {"sqlite": sqlite_service, "postgres": postgres_service}


def ask_sqlite(data: Path, question: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"file:{data / 'scribewire.db'}?mode=ro", uri=True)) as database:
        return database.execute(question).fetchall()


def ask_postgres(url: str, question: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as database:
        return database.execute(question.encode()).fetchall()


def take_away(bucket: BucketService, _chance: random.Random) -> None:
    """Let the bucket fail for BUCKET_AWAY_S, while processes are killed too."""

    def fail() -> None:
        with bucket.fail_with("away"):
            time.sleep(BUCKET_AWAY_S)

    if not any(thread.name == "bucket" and thread.is_alive() for thread in threading.enumerate()):
        threading.Thread(target=fail, name="bucket").start()


# --- what happens ----------------------------------------------------------------------------------------------------


def run(service: Service, seconds: float, chance: random.Random) -> dict[str, Sequence[object]]:
    """Disturb the service for *seconds*, and return what was wrong, by the name of the promise."""
    seen, stop = Seen(), threading.Event()
    receiver = receive(seen.hooks, random.Random(chance.random()))
    hooks = f"http://127.0.0.1:{receiver.server_port}"
    for process in service.processes:
        process.start()
        wait_until((service.folder / "node0" / "operator-key").exists, START_S)  # the first one makes it
    wait_until(partial(answers, service.base), START_S)
    users: list[Callable[[random.Random], object]] = [
        *[partial(submit_jobs, service, hooks, seen, stop)] * CLIENTS,
        *[lambda own: asyncio.run(speak(service, hooks, seen, stop, own))] * SPEAKERS,
    ]
    threads = [threading.Thread(target=user, args=(random.Random(chance.random()),), daemon=True) for user in users]
    for thread in threads:
        thread.start()
    try:
        disturb(service, seconds, chance)
        stop.set()
        until = time.monotonic() + PATIENCE_S
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        for process in service.processes:
            process.start_again_if_over()
        wait_while_jobs_end(service)
        wait_until(lambda: set(seen.hooks) >= set(seen.jobs.values()), 60, must=False)
    finally:
        for process in service.processes:
            process.stop()
        receiver.shutdown()
    print(f"{len(seen.jobs)} jobs, {seen.said} of them live; refusals that clients met: {dict(seen.refused)}")
    waiting = [f"client {number}" for number, thread in enumerate(threads) if thread.is_alive()]
    return {**broken_promises(service.ask, seen), "clients that still wait": waiting}


def disturb(service: Service, seconds: float, chance: random.Random) -> None:
    """Kill and pause processes one after the other, and bring each back; now and then something else fails."""
    began = time.monotonic()
    moments = sorted(chance.uniform(0.05, 0.85) * seconds for _ in range(ACCIDENTS if service.accidents else 0))
    while (past := time.monotonic() - began) < seconds:
        time.sleep(chance.uniform(1, 6))
        for process in service.processes:
            process.start_again_if_over()
        if moments and past >= moments[0]:
            moments.pop(0)
            chance.choice(service.accidents)(chance)
            continue
        victim = chance.choice(service.processes)
        if chance.random() < 0.6:
            victim.kill()
            time.sleep(chance.uniform(0, 1))
            victim.start()
        else:
            pause_s = chance.choice((0.5, 3, 3, LEASE_S + 6))
            victim.child.send_signal(signal.SIGSTOP)
            time.sleep(min(pause_s, max(0.5, began + seconds - time.monotonic())))
            victim.child.send_signal(signal.SIGCONT)


def submit_jobs(service: Service, hooks: str, seen: Seen, stop: threading.Event, chance: random.Random) -> None:
    """Submit job after job until *stop*, and retry each one, also the last, until it has an answer."""
    while not stop.is_set():
        name = f"{chance.getrandbits(64):x}"
        audio = silence(chance.choice((5, 60, 900)))
        fields = {"wait": "0", "word_timestamps": "true", "webhook_url": f"{hooks}/{name}"}
        headers = {"Authorization": f"Bearer {service.key}", "Idempotency-Key": name}
        url, again = f"{service.base}/v1/transcribe", True
        while again:
            try:
                answer = httpx.post(url, files={"file": audio}, data=fields, headers=headers, timeout=20)
            except httpx.TransportError:
                seen.refused["connection"] += 1
            else:
                if answer.is_success:
                    job = answer.json()["job_id"]
                    if seen.jobs.setdefault(name, job) != job:
                        seen.doubled.append(name)
                    again = chance.random() < 0.2  # one answer in five is "lost": the client asks again
                else:
                    seen.refused[answer.json()["code"]] += 1
            time.sleep(0.3)
        time.sleep(chance.uniform(0, 0.5))


async def speak(service: Service, hooks: str, seen: Seen, stop: threading.Event, chance: random.Random) -> None:
    """Speak in session after session until *stop*. The client reconnects and resends by itself."""
    async with Client(service.base, service.key) as client:
        while not stop.is_set():
            await asyncio.sleep(chance.uniform(0, 2))
            try:
                async with (
                    asyncio.timeout(PATIENCE_S),
                    client.live(max_utterance_s=3, webhook_url=f"{hooks}/live") as stream,
                ):
                    seen.jobs[stream.job_id] = stream.job_id
                    for _ in range(int(SPOKEN_S / PIECE_S)):
                        await stream.send(bytes(2 * int(RATE * PIECE_S)))
                        await asyncio.sleep(PIECE_S / 2)
            except* (ServiceError, httpx.HTTPError, OSError, WebSocketException, TimeoutError) as group:
                seen.refused[type(group.exceptions[0]).__name__] += 1
            else:
                await compare_words(client, stream.job_id, seen)


async def compare_words(client: Client, job_id: str, seen: Seen) -> None:
    """Compare the transcript of a session that is over with that of an undisturbed one of the same length."""
    while True:
        try:
            record = await client.wait(job_id)
        except (ServiceError, httpx.HTTPError, OSError):
            await asyncio.sleep(0.5)
            continue
        words = (record.get("text") or "").split()
        if words != scripted_words(record.get("duration") or 0.0):
            seen.wrong.append(f"{job_id}: {len(words)} words in {record.get('duration')} s, {words[-3:]}")
        if (record.get("duration") or 0.0) < SPOKEN_S:
            seen.refused["its writer came back too late"] += 1
        seen.said += 1
        return


def scripted_words(length_s: float) -> list[str]:
    """Return the words of the scripted engine in *length_s* seconds of live audio: each that fits into it."""
    return [SCRIPT[number % len(SCRIPT)] for number in range(int((length_s - 0.32 + 1e-9) / 0.4) + 1)]


def silence(seconds: int) -> bytes:
    out = io.BytesIO()
    soundfile.write(out, np.zeros(8000 * seconds, np.int16), 8000, format="FLAC")
    return out.getvalue()


def receive(hooks: "defaultdict[str, set[str]]", chance: random.Random) -> ThreadingHTTPServer:
    """Receive webhooks on a thread, sometimes answering with an error. *hooks* gets their ids by job."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            hooks[body["data"]["job_id"]].add(self.headers["webhook-id"])
            self.send_response(500 if chance.random() < 0.1 else 204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    receiver = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    return receiver


# --- what must hold in the end ---------------------------------------------------------------------------------------

LATE = """SELECT job FROM timeline JOIN (SELECT job, min(seq) AS ending FROM timeline WHERE kind = 'x' GROUP BY job)
    AS ends USING (job) WHERE seq > ending GROUP BY job"""


def broken_promises(ask: Ask, seen: Seen) -> dict[str, Sequence[object]]:
    """Compare the database with what clients saw. Returns by the name of each promise the jobs that break it."""
    states: dict[str, str] = dict(ask("SELECT id, state FROM jobs"))
    usage: dict[str, int] = dict(ask("SELECT job, count(*) FROM usage GROUP BY job"))
    deliveries: dict[str, int] = dict(ask("SELECT job, count(*) FROM deliveries GROUP BY job"))
    terminal: dict[str, int] = dict(ask("SELECT job, count(*) FROM timeline WHERE kind = 'x' GROUP BY job"))
    counted = "SELECT job, count(*), max(number), max(seq), last_seq FROM timeline JOIN jobs ON id = job"
    numbers = ask(f"{counted} GROUP BY job, last_seq")
    accepted = set(seen.jobs.values())
    kept = accepted & set(states)
    return {
        "keys answered with two jobs": seen.doubled,
        "accepted and lost": sorted(accepted - set(states)),
        "not completed": sorted(job for job in kept if states[job] != "completed"),
        "not ended": sorted(job for job, state in states.items() if state in ("queued", "processing")),
        "not one usage row": sorted(job for job in kept if usage.get(job) != 1),
        "not one delivery": sorted(job for job in kept if deliveries.get(job) != 1),
        "not one terminal event": sorted(job for job in states if terminal.get(job) != 1),
        "events after the last one": sorted(job for (job,) in ask(LATE)),
        "entries or events with holes": sorted(
            job for job, count, entries, seq, last in numbers if (count, seq) != (entries, last)
        ),
        "not one webhook id": sorted(job for job in kept if len(seen.hooks.get(job, ())) != 1),
        "live transcripts that differ": seen.wrong,
    }


def wait_while_jobs_end(service: Service) -> None:
    """Wait until all jobs have ended, or none has for PEACE_S. What is stuck then is printed, with the logs."""
    question = (
        "SELECT id, state, attempt, owner, lease_until, last_error FROM jobs WHERE state IN ('queued', 'processing')"
    )
    stuck, moved_at = service.ask(question), time.monotonic()
    while stuck and time.monotonic() - moved_at < PEACE_S:
        time.sleep(0.5)
        before, stuck = stuck, service.ask(question)
        if len(stuck) < len(before):
            moved_at = time.monotonic()
    for row in stuck[:20]:
        print("stuck:", *row)
    for log in sorted(service.folder.glob("*.log")) if stuck else ():
        print(f"--- {log.name}", *log.read_text(errors="replace").splitlines()[-LOG_LINES:], sep="\n")


def answers(base: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(f"{base}/healthz", timeout=2).is_success
    return False


def wait_until(holds: Callable[[], bool], most_s: float, *, must: bool = True) -> None:
    until = time.monotonic() + most_s
    while not holds():
        if time.monotonic() > until:
            if must:
                raise SystemExit(f"still not so after {most_s:.0f} s: {holds}")
            return
        time.sleep(0.2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backend", choices=BACKENDS, nargs="?", default="sqlite")
    parser.add_argument("--seconds", type=float, default=300, help="how long the killing goes on")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        service = stack.enter_context(BACKENDS[given.backend](folder))
        found = run(service, given.seconds, random.Random(given.seed))
    for name, broken in found.items():
        print(f"{'FAIL' if broken else 'ok  '} {name}: {len(broken)} {list(broken)[:3]}")
    return 1 if any(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
