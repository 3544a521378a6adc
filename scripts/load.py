"""Uses a server for a time while faults are played, then counts: scripts/load [BACKEND] [--faults F,...] [--seconds N]

With sqlite, the backend without an argument, there are a server without workers and two workers on one folder. With
postgres there are two nodes and two workers that share a database and a bucket; a balancer picks a node at random for
each request. All faults that the backend knows are played, unless --faults names some of them, or none:

- kill, stop, pause: a process gets SIGKILL, SIGTERM or SIGSTOP, and comes back.
- disk: the disk is full for a while (sqlite, where this user may mount one).
- power: the database stops as if its machine had lost power (postgres).
- bucket: the bucket does not answer for a while (postgres).

Meanwhile clients submit jobs, each with an Idempotency-Key and a webhook, and retry until they have an answer; they
read and delete some, and writers speak into live sessions. Faults come in the first three quarters of the time.

Then every accepted job must have ended exactly once: one usage row, one webhook id, events numbered 1, 2, 3, ...
without a gap and none after the last one, the transcript of an undisturbed job, and nothing left of it once deleted. In
runs of an hour or more no figure may grow: memory, descriptors, threads, processes, temporary files. The seed is
printed; the same seed gives the same plan, but not the same times. The exit status is 1 if anything was wrong.
"""

import argparse
import asyncio
import io
import json
import random
import shutil
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
from itertools import combinations
from os import SEEK_END, posix_fallocate
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import numpy as np
import psycopg
import soundfile
from websockets.exceptions import WebSocketException

from benchmarks.measure import machine, process_tree, rss_mb
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
FAULTS_OF_THE_TIME = 0.75  # after it, the rest of the time is undisturbed
DISK_MB, FULL_S = 1024, 20.0
START_S = 120
PEACE_S = 150  # without a job that ends, after which the rest is stuck
PATIENCE_S = 240  # within which each client must have its last answer
DURABLE = tuple(setting for setting in FAST if setting != "fsync=off")  # what was confirmed must survive
LOG_LINES = 60  # that are shown of each process if jobs are stuck

PROCESS_FAULTS = ("kill", "stop", "pause")
READ = 0.3  # of the files: these clients wait for the end
PASSING = (httpx.HTTPError, ServiceError, OSError, WebSocketException, TimeoutError)
"""The errors that an interrupted client may get."""

EMPTIED = ("jobs", "metadata", "timeline", "terms", "artifacts", "deliveries", "attempts")
"""The tables that must have no row of a deleted job."""

Ask = Callable[[str], list[tuple[Any, ...]]]
"""Answers an SQL question from the service's database."""


@dataclass
class Process:
    """A server or worker process, which is started again after it was killed."""

    words: Sequence[str]
    env: Mapping[str, str]
    log: Path
    starts: int = 0
    child: "subprocess.Popen[bytes]" = field(init=False)

    def start(self) -> None:
        self.starts += 1
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "server", *self.words]
            self.child = subprocess.Popen(command, cwd=ROOT, env=self.env, stderr=log)

    def kill(self) -> list[str]:
        """End it with SIGKILL. Returns which of its children did not end with it."""
        children = set(process_tree(self.child.pid)) - {self.child.pid}
        self.child.kill()
        self.child.wait()
        wait_until(lambda: not any(map(lives, children)), 15, must=False)
        return [f"process {child} outlived {self.log.stem}" for child in children if lives(child)]

    def stop(self) -> list[str]:
        """End it with SIGTERM. Returns what was wrong with its exit status."""
        self.child.terminate()
        status = self.child.wait(60)
        right = (0, -signal.SIGTERM)  # the second one if it was only just starting
        return [] if status in right else [f"{self.log.stem} ended with status {status}"]

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
    wrong: list[str] = field(default_factory=list)  # transcripts that are not those of an undisturbed job
    texts: dict[int, str] = field(default_factory=dict)  # seconds of a file -> its text
    faults: list[str] = field(default_factory=list)  # of the processes
    done: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Service:
    """The processes under test, how its database is asked, and which faults it knows beside those of processes."""

    base: str
    folder: Path
    processes: Sequence[Process]
    ask: Ask
    faults: Mapping[str, Callable[[random.Random], None]]

    @property
    def data(self) -> Path:
        return self.folder / "node0"

    @property
    def key(self) -> str:
        return (self.data / "operator-key").read_text().strip()


# --- the two backends ------------------------------------------------------------------------------------------------


@contextmanager
def sqlite_service(folder: Path) -> Iterator[Service]:
    port, data, temporary = free_port(), folder / "node0", folder / "tmp"
    temporary.mkdir()
    with small_disk(data) as mounted:
        shared = environment(data, ENGINE="scripted", LOG_LEVEL="warning", PORT=str(port), DISK_RESERVE_MIB="64")
        own = {**shared, "TMPDIR": str(temporary)}
        server = Process(["serve"], {**own, "SCRIBEWIRE_WORKERS": "0"}, folder / "server.log")
        workers = [Process(["worker"], {**own, "SCRIBEWIRE_WORKERS": "2"}, folder / f"worker{n}.log") for n in range(2)]
        faults = {"disk": partial(fill_for_a_while, data / "filler")} if mounted else {}
        yield Service(f"http://127.0.0.1:{port}", folder, [server, *workers], partial(ask_sqlite, data), faults)


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

        faults: dict[str, Callable[[random.Random], None]] = {"power": lose_power, "bucket": partial(take_away, bucket)}
        yield Service(base, folder, [*nodes, *workers], partial(ask_postgres, url), faults)


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


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """Mount a file system of DISK_MB at *folder*. Yields False, with a plain folder, if this user may not mount."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "scribewire-load", str(folder)]
    mounted = subprocess.run(command, check=False, capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill_for_a_while(filler: Path, chance: random.Random) -> None:
    """Leave no space on the file system of *filler*, not even for a page of the database."""
    with filler.open("wb") as file:
        for piece in (2**20, 4096):
            while count := shutil.disk_usage(filler.parent).free // piece:
                with suppress(OSError):  # the server was faster; the next round sees what is left
                    posix_fallocate(file.fileno(), file.seek(0, SEEK_END), count * piece)
    time.sleep(chance.uniform(1, FULL_S))
    filler.unlink()


def lives(pid: int) -> bool:
    with suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


# --- what happens ----------------------------------------------------------------------------------------------------


def run(service: Service, faults: Sequence[str], seconds: float, chance: random.Random) -> dict[str, Any]:
    """Use the service for *seconds* while *faults* are played. Returns what was done and what was wrong."""
    seen, stop = Seen(), threading.Event()
    receiver = receive(seen.hooks, random.Random(chance.random()))
    hooks = f"http://127.0.0.1:{receiver.server_port}"
    for process in service.processes:
        process.start()
        wait_until((service.data / "operator-key").exists, START_S)  # the first one makes it
    wait_until(partial(answers, service.base), START_S)
    users: list[Callable[[random.Random], object]] = [
        *[partial(submit_jobs, service, hooks, seen, stop)] * CLIENTS,
        *[lambda own: asyncio.run(speak(service, hooks, seen, stop, own))] * SPEAKERS,
    ]
    threads = [threading.Thread(target=user, args=(random.Random(chance.random()),), daemon=True) for user in users]
    rows: list[dict[str, Any]] = []
    began = time.monotonic()
    for thread in [*threads, threading.Thread(target=watch, args=(service, seconds, rows, stop), daemon=True)]:
        thread.start()
    try:
        disturb(service, faults, FAULTS_OF_THE_TIME * seconds, seen, chance)
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        stop.set()
        until = time.monotonic() + PATIENCE_S
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        for process in service.processes:
            process.start_again_if_over()
        wait_while_jobs_end(service)
        wait_until(lambda: set(seen.hooks) >= set(seen.jobs.values()), 60, must=False)
        promises = broken_promises(service.ask, seen)
        if "disk" in faults:
            del promises["not completed"]  # a full disk may fail a job, which says so
        left = find_leftovers(service)
    finally:
        for process in service.processes:
            seen.faults += process.stop()
        receiver.shutdown()
    waiting = [f"client {number}" for number, thread in enumerate(threads) if thread.is_alive()]
    grown = growth(rows)
    return {
        "plan": {"seconds": seconds, "faults": faults},
        "done": seen.done,
        "refused": seen.refused,
        "growth": grown,
        "promises": {
            **promises,
            "clients that still wait": waiting,
            "left of deleted jobs": left,
            "faults of processes": seen.faults,
            "figures that grow": [name for name, line in grown.items() if line["rise"] > ALLOWED[name]],
            "refusals without a fault": [] if faults else list(seen.refused),
        },
        "minutes": rows,
    }


def disturb(service: Service, faults: Sequence[str], seconds: float, seen: Seen, chance: random.Random) -> None:
    """Play each fault once, and go on by chance for *seconds*; what is killed or stopped is started again."""
    until, missing = time.monotonic() + seconds, list(faults)
    chance.shuffle(missing)
    while faults and (missing or time.monotonic() < until):
        time.sleep(chance.uniform(1, 6))
        for process in service.processes:
            process.start_again_if_over()
        name, victim = missing.pop() if missing else chance.choice(faults), chance.choice(service.processes)
        if name in service.faults:
            service.faults[name](chance)
        elif name == "pause":
            victim.child.send_signal(signal.SIGSTOP)
            time.sleep(min(chance.choice((0.5, 3, 3, LEASE_S + 6)), max(0.5, until - time.monotonic())))
            victim.child.send_signal(signal.SIGCONT)
        else:
            seen.faults += victim.kill() if name == "kill" else victim.stop()
            time.sleep(chance.uniform(0, 1))
            victim.start()
        seen.done[name] += 1


def submit_jobs(service: Service, hooks: str, seen: Seen, stop: threading.Event, chance: random.Random) -> None:
    """Submit job after job until *stop*, and retry each one, also the last, until it has an answer."""
    while not stop.is_set():
        name = f"{chance.getrandbits(64):x}"
        length_s = chance.choice((5, 60, 900))
        audio = silence(length_s)
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
        seen.done["files"] += 1
        if chance.random() < READ:
            asyncio.run(read_and_delete(service, name, length_s, seen))
        time.sleep(chance.uniform(0, 0.5))


async def read_and_delete(service: Service, name: str, length_s: int, seen: Seen) -> None:
    """Wait for the end and the webhook of a job, compare its text with that of others of its length, and delete it."""
    job_id, until = seen.jobs[name], time.monotonic() + PATIENCE_S
    async with Client(service.base, service.key) as client:
        while time.monotonic() < until:
            try:
                record = await client.wait(job_id)
                break
            except PASSING as error:
                seen.refused[type(error).__name__] += 1
                await asyncio.sleep(0.5)
        else:
            seen.wrong.append(f"{job_id} has no end")
            return
        if record["status"] != "completed":
            return  # broken_promises() says so
        if record["text"] != seen.texts.setdefault(length_s, record["text"]):
            seen.wrong.append(f"{job_id}: {len(record['text'].split())} words in a file of {length_s} s")
        await asyncio.to_thread(wait_until, lambda: job_id in seen.hooks, 60, must=False)
        if job_id in seen.hooks:
            del seen.jobs[name]
            with suppress(*PASSING):  # it may be deleted or not
                await client.delete(job_id)
                seen.done["deleted"] += 1


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
            except* PASSING as group:
                seen.refused[type(group.exceptions[0]).__name__] += 1
            else:
                await compare_words(client, stream.job_id, seen)


async def compare_words(client: Client, job_id: str, seen: Seen) -> None:
    """Compare the transcript of a session that is over with that of an undisturbed one of the same length."""
    while True:
        try:
            record = await client.wait(job_id)
        except PASSING:
            await asyncio.sleep(0.5)
            continue
        seen.done["live sessions"] += 1
        if record["status"] != "completed":
            return  # broken_promises() says so
        words = (record.get("text") or "").split()
        if words != scripted_words(record.get("duration") or 0.0):
            seen.wrong.append(f"{job_id}: {len(words)} words in {record.get('duration')} s, {words[-3:]}")
        if (record.get("duration") or 0.0) < SPOKEN_S:
            seen.refused["its writer came back too late"] += 1
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
        "transcripts that differ": seen.wrong,
    }


def find_leftovers(service: Service) -> list[str]:
    """Delete every job, and return what is still stored of them, and what is wrong with the database."""
    with httpx.Client(base_url=service.base, headers={"Authorization": f"Bearer {service.key}"}, timeout=60) as client:
        while jobs := client.get("/v1/jobs", params={"limit": 100}).raise_for_status().json()["data"]:
            for job in jobs:
                client.delete(f"/v1/jobs/{job['job_id']}", params={"force": "true"}).raise_for_status()
    rows = {table: service.ask(f"SELECT count(*) FROM {table}")[0][0] for table in EMPTIED}  # noqa: S608  constants
    left = [f"{count} rows of {table}" for table, count in rows.items() if count]
    left += [
        str(path) for place in ("blobs", "incoming") for path in (service.data / place).rglob("*") if path.is_file()
    ]
    if (service.data / "scribewire.db").exists():
        left += [why for (why,) in service.ask("PRAGMA integrity_check") if why != "ok"]
    return left


# --- growth ----------------------------------------------------------------------------------------------------------

ALLOWED = {"rss_mb": 16, "descriptors": 3, "threads": 3, "processes": 1, "temporary_files": 2}
"""How far each figure of the first process may rise while it is judged."""

LOOKS = 12  # a minute, of which each figure's lowest counts, because work in progress is no growth
WARM_UP = 1 / 3  # of the last life, in which caches fill
JUDGED_MIN = 15  # within less, memory and pools still settle, and floods come and go


def watch(service: Service, seconds: float, rows: list[dict[str, Any]], stop: threading.Event) -> None:
    """Add a row for each minute without a start of the server; a short run has thirty shorter "minutes"."""
    server, began, minute_s = service.processes[0], time.monotonic(), min(60.0, seconds / 30)
    while not stop.is_set():
        life, looks = server.starts, []
        for _ in range(LOOKS):
            stop.wait(minute_s / LOOKS)
            with suppress(FileNotFoundError, ProcessLookupError):  # a process has just ended
                looks.append(look(service, server.child.pid))
        if server.starts == life and len(looks) == LOOKS:
            row = {name: min(each[name] for each in looks) for name in ALLOWED}
            rows.append({"minute": round((time.monotonic() - began) / 60, 2), "life": life, **row})
            print(json.dumps(rows[-1]), flush=True)


def look(service: Service, pid: int) -> dict[str, float]:
    tree = [Path(f"/proc/{one}") for one in process_tree(pid)]
    return {
        "rss_mb": round(rss_mb(pid), 1),
        "descriptors": sum(entries(process / "fd") for process in tree),
        "threads": sum(entries(process / "task") for process in tree),
        "processes": len(tree),
        "temporary_files": entries(service.folder / "tmp") + entries(service.data / "incoming"),
    }


def entries(folder: Path) -> int:
    with suppress(FileNotFoundError):  # the process has just ended
        return sum(1 for _ in folder.iterdir())
    return 0


def growth(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return how far each figure of ALLOWED rises in the last life of the server; nothing if it is too short to say.

    *rows* have `minute` and `life` too. The line through them is Theil and Sen's: its slope is the median of the slopes
    of all pairs of points, so that single high or low minutes do not change it.
    """
    last = [row for row in rows if row["life"] == rows[-1]["life"]]
    judged = last[int(len(last) * WARM_UP) :]
    minutes = judged[-1]["minute"] - judged[0]["minute"] if judged else 0
    if minutes < JUDGED_MIN:
        return {}
    found = {}
    for name in ALLOWED:
        points = [(row["minute"], row[name]) for row in judged]
        per_min = median((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2))
        found[name] = {"per_hour": round(per_min * 60, 2), "rise": round(per_min * minutes, 2)}
    return found


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
    parser.add_argument("--seconds", type=float, default=300, help="how long the service is used")
    parser.add_argument("--faults", help="some of the faults above, with commas between them, or none")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--out", type=Path, help="a file for the result, with a row for each minute")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        service = stack.enter_context(BACKENDS[given.backend](folder))
        known = [*PROCESS_FAULTS, *service.faults]
        faults = known if given.faults is None else [name for name in given.faults.split(",") if name != "none"]
        if unknown := [name for name in faults if name not in known]:
            parser.error(f"Here {' and '.join(unknown)} cannot be played. Choose from {', '.join(known)} and none.")
        found = run(service, faults, given.seconds, random.Random(given.seed))
    for name, broken in found["promises"].items():
        print(f"{'FAIL' if broken else 'ok  '} {name}: {len(broken)} {list(broken)[:3]}")
    print(json.dumps({name: found[name] for name in ("done", "refused", "growth")}))
    if given.out:
        given.out.write_text(json.dumps({"seed": given.seed, "machine": machine(), **found}, indent=1) + "\n")
    return 1 if any(found["promises"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
