"""How other readers disturb the readers of a live session: python -m benchmarks.disturbances [--seconds 15]

Starts a server (scripted engine) and a process that speaks in real time, and lets --calm readers follow. They note how
late the words come: undisturbed, with a reader that takes nothing, with readers that come and go all the time,
with a reader on each of many other sessions, and while thousands join within ten seconds. Writes
benchmarks/results/disturbances.json.
"""

import argparse
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import httpx

from benchmarks.measure import ROOT, write
from benchmarks.readers import ANSWERED, MANY, QUIET_EVERY_S, WAYS, measure_readers, readers, speak_in_process
from benchmarks.serving import Serving, serving
from server.transport.descriptors import raise_descriptor_limit

JOIN_S = 10.0
JOIN_STEPS = 100  # in which they come
AT_ONCE = 16  # requests of this process
LIMITS = {**MANY, "live_sessions = 100\n": "live_sessions = 10000\n"}


@dataclass(frozen=True)
class Place:
    """A server, and the session whose words are read."""

    server: Serving
    job: str

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.server.base.removeprefix("http://").split(":")
        return host, int(port)

    def open_reader(self, *, job: str | None = None, kept_bytes: int | None = None) -> socket.socket:
        """Return the connection of a new reader of *job*, else of the session, once the answer has begun.

        *kept_bytes* is the size of its receive buffer.
        """
        connection = self.send_request(job=job, kept_bytes=kept_bytes)
        check_answer(connection)
        return connection

    def send_request(self, *, job: str | None = None, kept_bytes: int | None = None) -> socket.socket:
        """Return the same without waiting for the answer."""
        connection = socket.socket()
        if kept_bytes is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, kept_bytes)
        connection.connect(self.address)
        request = WAYS["SSE"].format(job=job or self.job, key=self.server.key, host=self.address[0])
        connection.sendall(request.encode())
        return connection


def check_answer(connection: socket.socket) -> None:
    """Wait until the answer begins. Raises SystemExit if it is a refusal."""
    if not connection.recv(12).startswith(ANSWERED):
        raise SystemExit("a reader was refused")


@contextmanager
def hold_slow_reader(place: Place) -> Iterator[None]:
    """Hold one reader that takes nothing."""
    with place.open_reader(kept_bytes=2048):
        yield


@contextmanager
def hold_visitors(place: Place, number: int) -> Iterator[None]:
    """Let *number* readers come and go, in a process of their own."""
    with run_elsewhere(place, "--pass", number):
        yield


@contextmanager
def hold_other_sessions(place: Place, number: int) -> Iterator[None]:
    """Hold a reader on each of *number* other sessions, which get a moment of silence from time to time."""
    over, key = threading.Event(), {"Authorization": f"Bearer {place.server.key}"}
    audio = {**key, "Content-Type": "application/octet-stream"}
    limits = httpx.Limits(max_connections=AT_ONCE)
    with (
        httpx.Client(base_url=place.server.base, timeout=60, limits=limits) as client,
        ThreadPoolExecutor(AT_ONCE) as threads,
        ExitStack() as stack,
    ):

        def open_job(_number: int) -> str:
            return str(client.post("/v1/live", json={}, headers=key).raise_for_status().json()["job_id"])

        def keep_open(jobs: list[str]) -> None:
            while not over.wait(QUIET_EVERY_S / len(jobs)):
                jobs.append(jobs.pop(0))
                client.post(f"/v1/jobs/{jobs[0]}/audio", content=bytes(320), headers=audio).raise_for_status()

        jobs = list(threads.map(open_job, range(number)))
        keeping = threads.submit(keep_open, list(jobs))
        for job in jobs:
            stack.enter_context(place.open_reader(job=job))
        try:
            yield
        finally:
            over.set()
            keeping.result()


@contextmanager
def let_readers_join(place: Place, number: int) -> Iterator[None]:
    """Let *number* readers join within JOIN_S from now on, in a process of their own."""
    with run_elsewhere(place, "--join", number):
        yield


@contextmanager
def run_elsewhere(place: Place, act: str, number: int) -> Iterator[None]:
    """Run *act* for *number* readers in another process of this program, while the block lasts."""
    where = ("--base", place.server.base, "--job", place.job, "--key", place.server.key)
    command = [sys.executable, "-m", "benchmarks.disturbances", act, str(number), *where]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.wait()


def come_and_go(place: Place, number: int) -> None:
    """Hold *number* readers, and replace the oldest one by a new one again and again, until killed."""
    held = [place.open_reader() for _ in range(number)]
    print("begun", flush=True)
    while True:
        held.pop(0).close()
        held.append(place.open_reader())


def join(place: Place, number: int) -> None:
    """Join in steps, and take what comes until killed."""
    held: list[socket.socket] = []
    print("begun", flush=True)
    begin = time.monotonic()
    while True:
        share = min(1.0, (time.monotonic() - begin) / JOIN_S)
        new = [place.send_request() for _ in range(round(number * share) - len(held))]
        for one in new:
            check_answer(one)
            one.setblocking(False)
        held += new
        for one in held:
            try:
                one.recv(262_144)
            except BlockingIOError:
                continue
        time.sleep(JOIN_S / JOIN_STEPS)


def subscribers(server: Serving) -> int:
    """Return how many readers the server has now."""
    found = re.search(r"^scribewire_subscribers (\S+)", server.metrics(), re.MULTILINE)
    return int(float(found[1])) if found else 0


def report(given: argparse.Namespace) -> dict[str, Any]:
    settings = {"ENGINE": "scripted", "MAX_CONNECTIONS_PER_ADDRESS": "100000"}
    others: dict[str, Callable[[Place], AbstractContextManager[None]]] = {
        "undisturbed": lambda _: nullcontext(),
        "a reader that takes nothing": hold_slow_reader,
        f"{given.passing} readers that come and go": lambda place: hold_visitors(place, given.passing),
        f"a reader on each of {given.sessions} sessions": lambda place: hold_other_sessions(place, given.sessions),
        f"{given.joining} that join within {JOIN_S:g} s": lambda place: let_readers_join(place, given.joining),
    }
    rows: list[dict[str, Any]] = []
    with serving(LIMITS, **settings) as server:
        for name, disturbance in others.items():
            with (
                speak_in_process(server) as job,
                readers(given.calm, "SSE", server.base, job=job, key=server.key) as calm,
                disturbance(Place(server, job)),
            ):
                row = {"name": name, **measure_readers(server.pid, calm, given.seconds)}
                row["readers"] = subscribers(server)
            late_s = row["late_s"]["p95"] - (rows[0]["late_s"]["p95"] if rows else row["late_s"]["p95"])
            rows.append({**row, "later_p95_s": round(late_s, 3)})
            print(rows[-1], flush=True)
    return {"seconds": given.seconds, "calm": given.calm, "beside": rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15, help="of each measurement")
    parser.add_argument("--calm", type=int, default=20, help="readers whose words are timed")
    parser.add_argument("--passing", type=int, default=500, help="readers that come and go")
    parser.add_argument("--sessions", type=int, default=500, help="other sessions with a reader each")
    parser.add_argument("--joining", type=int, default=5000, help="readers that join")
    parser.add_argument("--no-write", action="store_true", help="print only")
    for name in ("pass", "join", "base", "job", "key"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    given = parser.parse_args()
    raise_descriptor_limit()
    acts = {"pass": come_and_go, "join": join}
    for name, act in acts.items():
        if (number := getattr(given, name)) is not None:
            act(Place(Serving(given.base, given.key, 0, ROOT), given.job), int(number))
    result = report(given)
    if not given.no_write:
        print(write("disturbances", result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
