"""Kills (SIGKILL) and pauses (SIGSTOP) a server without workers and two workers at random, and checks the jobs.

Meanwhile clients submit jobs of the scripted engine, each with an Idempotency-Key and a webhook, and retry until they
have an answer. Then everything runs undisturbed, and every accepted job must have ended exactly once: one usage row,
one webhook id, events numbered 1, 2, 3, ... without a gap. The seed is printed; the same seed gives the same plan, but
not the same times.
"""

import argparse
import io
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import soundfile

ROOT = Path(__file__).resolve().parents[1]
CLIENTS = 6
LEASE_S = 30  # of the server's workers: a pause longer than it loses the job
PEACE_S = 150  # within which everything must have ended once nobody is killed any more


@dataclass
class Process:
    """A server or worker process, which is restarted after it was killed."""

    words: list[str]
    env: dict[str, str]
    log: Path
    child: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.child = subprocess.Popen(
                [sys.executable, "-m", "server", *self.words], cwd=ROOT, env=self.env, stderr=log
            )

    def send(self, number: signal.Signals) -> None:
        assert self.child is not None
        os.kill(self.child.pid, number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        assert self.child is not None
        self.child.wait()

    def start_again_if_over(self) -> None:
        """Do what an operator's supervisor does with a process that ended by itself."""
        if self.child is not None and self.child.poll() is not None:
            self.start()


@dataclass
class Seen:
    """What the clients and the webhook receiver saw."""

    jobs: dict[str, str] = field(default_factory=dict)  # idempotency key -> job id
    hooks: "defaultdict[str, set[str]]" = field(default_factory=lambda: defaultdict(set))  # job id -> webhook ids
    doubled: list[str] = field(default_factory=list)  # keys that were answered with two jobs
    refused: Counter[str] = field(default_factory=Counter)


def parse_plan(description: str | None) -> tuple[int, random.Random]:
    """Return the seconds of the killing and the random generator, and print its seed."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seconds", type=int, default=300, help="how long the killing goes on")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    return given.seconds, random.Random(given.seed)


def main() -> int:
    seconds, chance = parse_plan(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        return run(Path(folder), seconds, chance)


def run(folder: Path, seconds: int, chance: random.Random) -> int:
    seen = Seen()
    receiver = receive(seen, random.Random(chance.random()))
    port = free_port()
    common = {
        **os.environ,
        "SCRIBEWIRE_DATA_DIR": str(folder / "data"),
        "SCRIBEWIRE_ENGINE": "scripted",
        "SCRIBEWIRE_EGRESS_ALLOW_CIDRS": "127.0.0.0/8",
        "SCRIBEWIRE_ALLOW_HTTP_SOURCES": "1",
        "SCRIBEWIRE_PORT": str(port),
        "SCRIBEWIRE_LOG_LEVEL": "warning",
    }
    server = Process(["serve"], {**common, "SCRIBEWIRE_WORKERS": "0"}, folder / "server.log")
    workers = [Process(["worker"], {**common, "SCRIBEWIRE_WORKERS": "2"}, folder / f"worker-{n}.log") for n in range(2)]
    for process in (server, *workers):
        process.start()
    base = f"http://127.0.0.1:{port}"
    wait_until(lambda: answers(base), 60)
    key = (folder / "data" / "operator-key").read_text().strip()
    stop = threading.Event()
    clients = [
        threading.Thread(
            target=use, args=((base, key), receiver.server_port, seen, stop, random.Random(chance.random()))
        )
        for _ in range(CLIENTS)
    ]
    for client in clients:
        client.start()
    disturb(server, workers, seconds, chance)
    stop.set()
    for client in clients:
        client.join()
    wait_until(lambda: count_unfinished(folder / "data") == 0, PEACE_S)
    wait_until(lambda: set(seen.hooks) >= set(seen.jobs.values()), 60, must=False)
    for process in (server, *workers):
        process.send(signal.SIGTERM)
    for process in (server, *workers):
        assert process.child is not None
        process.child.wait(60)
    receiver.shutdown()
    return judge(facts(folder / "data"), seen)


def disturb(server: Process, workers: list[Process], seconds: int, chance: random.Random) -> None:
    """Kill and pause processes one after the other, and bring each back."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(chance.uniform(1, 6))
        victim = chance.choice([server, *workers, *workers])
        if chance.random() < 0.7:
            victim.kill()
            time.sleep(chance.uniform(0, 1))
            victim.start()
        else:
            pause_s = chance.choice([0.5, 3, LEASE_S + 6]) if victim is not server else chance.choice([0.5, 3])
            victim.send(signal.SIGSTOP)
            time.sleep(min(pause_s, max(0.5, until - time.monotonic())))
            victim.send(signal.SIGCONT)


def use(server: tuple[str, str], hook_port: int, seen: Seen, stop: threading.Event, chance: random.Random) -> None:
    """Submit job after job until *stop*, and retry each one, also the last, until it has an answer."""
    base, key = server
    while not stop.is_set():
        name = f"{chance.getrandbits(64):x}"
        audio = silence(chance.choice([5, 60, 900]))
        fields = {"wait": "0", "word_timestamps": "true", "webhook_url": f"http://127.0.0.1:{hook_port}/{name}"}
        headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": name}
        while True:
            try:
                answer = httpx.post(
                    base + "/v1/transcribe", files={"file": audio}, data=fields, headers=headers, timeout=20
                )
            except httpx.TransportError:
                seen.refused["connection"] += 1
                time.sleep(0.3)
                continue
            if answer.is_success:
                if seen.jobs.setdefault(name, answer.json()["job_id"]) != answer.json()["job_id"]:
                    seen.doubled.append(name)
                if chance.random() > 0.2:
                    break  # one answer in five is "lost": the client asks again
            else:
                seen.refused[answer.json()["code"]] += 1
            time.sleep(0.3)
        time.sleep(chance.uniform(0, 0.8))


def silence(seconds: int) -> bytes:
    out = io.BytesIO()
    soundfile.write(out, np.zeros(8000 * seconds, np.int16), 8000, format="FLAC")
    return out.getvalue()


def receive(seen: Seen, chance: random.Random) -> ThreadingHTTPServer:
    """Receive webhooks, and sometimes answer with an error."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            seen.hooks[body["data"]["job_id"]].add(self.headers["webhook-id"])
            self.send_response(500 if chance.random() < 0.1 else 204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    receiver = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    return receiver


@dataclass(frozen=True)
class Facts:
    """What the database says in the end, by job."""

    states: Mapping[str, str]
    usage: Mapping[str, int]  # rows
    hooks: Mapping[str, int]  # deliveries
    terminal: Mapping[str, int]  # last events
    late: Mapping[str, int]  # events behind the last one
    spans: Sequence[tuple[str, int, int, int]]  # job, number of events, lowest and highest number
    attempts: tuple[int, int]  # most of one job; jobs with more than one
    live: frozenset[str] = frozenset()  # sessions, which ordered no webhook
    broken: Sequence[str] = ()  # what the database finds wrong with itself


ENDS = "type IN ('job.completed', 'job.failed', 'job.canceled')"
LATE = (
    f"SELECT stream, count(*) FROM events JOIN (SELECT stream, min(seq) AS ending FROM events WHERE {ENDS} GROUP BY"  # noqa: S608  a constant
    " stream) AS ends USING (stream) WHERE seq > ending GROUP BY stream"
)


def facts(data: Path) -> Facts:
    database = sqlite3.connect(f"file:{data / 'scribewire.db'}?mode=ro", uri=True)

    def ask(question: str) -> list[Any]:
        return database.execute(question).fetchall()

    ended = f"SELECT stream FROM events WHERE {ENDS}"  # noqa: S608  a constant
    return Facts(
        states=dict(ask("SELECT id, state FROM jobs")),
        usage=Counter(job for (job,) in ask("SELECT job FROM usage")),
        hooks=Counter(job for (job,) in ask("SELECT job FROM deliveries")),
        terminal=Counter(stream for (stream,) in ask(ended)),
        late=dict(ask(LATE)),
        spans=ask("SELECT stream, count(*), min(seq), max(seq) FROM events GROUP BY stream"),
        attempts=ask("SELECT max(attempt), sum(attempt > 1) FROM jobs")[0],
        broken=[found for (found,) in ask("PRAGMA integrity_check") if found != "ok"],
    )


def judge(facts: Facts, seen: Seen, *, more: Mapping[str, Sequence[str]] | None = None) -> int:
    """Compare the database with what was promised, and return the exit status. *more* names further faults."""
    states, accepted = facts.states, set(seen.jobs.values())
    faults: dict[str, Sequence[str]] = {
        "keys answered with two jobs": seen.doubled,
        "accepted and lost": sorted(accepted - set(states)),
        "not completed": sorted(job for job, state in states.items() if state != "completed"),
        "not one usage row": sorted(job for job in states if facts.usage.get(job) != 1),
        "not one delivery": sorted(job for job in states if facts.hooks.get(job) != 1 and job not in facts.live),
        "not one terminal event": sorted(job for job in states if facts.terminal.get(job) != 1),
        "events behind the terminal one": sorted(facts.late),
        "events with holes": sorted(job for job, count, low, high in facts.spans if (low, high) != (1, count)),
        "several webhook ids": sorted(job for job, ids in seen.hooks.items() if len(ids) != 1),
        "integrity": facts.broken,
        **(more or {}),
    }
    print(
        f"{len(states)} jobs, {len(accepted)} answered, most attempts {facts.attempts[0]}, resumed {facts.attempts[1]}"
    )
    print(f"refusals that clients met: {dict(seen.refused)}")
    for name, found in faults.items():
        print(f"{'ok  ' if not found else 'FAIL'} {name}: {len(found)} {found[:3]}")
    return 1 if any(faults.values()) else 0


def count_unfinished(data: Path) -> int:
    with sqlite3.connect(f"file:{data / 'scribewire.db'}?mode=ro", uri=True) as database:
        return int(database.execute("SELECT count(*) FROM jobs WHERE state IN ('queued', 'processing')").fetchone()[0])


def answers(base: str) -> bool:
    try:
        return httpx.get(base + "/healthz", timeout=2).is_success
    except httpx.TransportError:
        return False


def wait_until(holds: Callable[[], bool], most_s: float, *, must: bool = True) -> None:
    until = time.monotonic() + most_s
    while not holds():
        if time.monotonic() > until:
            if must:
                raise SystemExit(f"still not so after {most_s:.0f} s: {holds.__name__}")
            return
        time.sleep(0.5)


def free_port() -> int:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as probe:
        return probe.server_port


if __name__ == "__main__":
    sys.exit(main())
