"""How other readers disturb the readers of a live session: python -m benchmarks.disturbances [--seconds 15]

Starts a server (scripted engine) and a process that speaks in real time, and lets --calm readers follow. They note how
late the words come: undisturbed, with a reader that takes nothing, with readers that come and go all the time,
with a reader on each of many other sessions, and while thousands join within ten seconds. Writes
benchmarks/results/disturbances.json.
"""

import argparse
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx

from benchmarks.children import child
from benchmarks.measure import write
from benchmarks.readers import ANSWERED, MANY, QUIET_EVERY_S, WAYS, measure_readers, readers, speak_in_process
from benchmarks.serving import serving

JOIN_S, JOIN_STEPS = 10.0, 100
LIMITS = {**MANY, "live_sessions = 1000 ": "live_sessions = 10000 "}


@dataclass(frozen=True)
class Place:
    """A server, and the session whose words are read."""

    base: str
    key: str
    job: str

    def open_reader(self, *, job: str | None = None, kept_bytes: int | None = None) -> socket.socket:
        """Return the connection of a new reader of *job*, or of the session. The answer has not begun.

        *kept_bytes* is the size of its receive buffer.
        """
        host, port = self.base.removeprefix("http://").split(":")
        connection = socket.socket()
        if kept_bytes is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, kept_bytes)
        connection.connect((host, int(port)))
        connection.sendall(WAYS["SSE"].format(job=job or self.job, key=self.key, host=host).encode())
        return connection

    @contextmanager
    def slow_reader(self) -> Iterator[None]:
        """Hold one reader that takes nothing."""
        with begun(self.open_reader(kept_bytes=2048)):
            yield

    @contextmanager
    def elsewhere(self, act: str, number: int) -> Iterator[None]:
        """Let *number* readers come and go ("pass") or join within JOIN_S ("join"), in a process of their own."""
        where = ("--base", self.base, "--job", self.job, "--key", self.key)
        with child("disturbances", f"--{act}", str(number), *where) as process:
            assert process.stdout is not None
            process.stdout.readline()
            yield

    @contextmanager
    def other_sessions(self, number: int) -> Iterator[None]:
        """Hold a reader on each of *number* other sessions, which get a moment of silence from time to time."""
        over, key = threading.Event(), {"Authorization": f"Bearer {self.key}"}
        with httpx.Client(base_url=f"{self.base}/v1", timeout=60, headers=key) as client, ExitStack() as stack:
            jobs = [client.post("/live", json={}).raise_for_status().json()["job_id"] for _ in range(number)]

            def keep_open() -> None:
                audio = {"Content-Type": "application/octet-stream"}
                while not over.wait(QUIET_EVERY_S / number):
                    jobs.append(jobs.pop(0))
                    client.post(f"/jobs/{jobs[0]}/audio", content=bytes(320), headers=audio).raise_for_status()

            for job in tuple(jobs):
                stack.enter_context(begun(self.open_reader(job=job)))
            keeping = threading.Thread(target=keep_open)
            keeping.start()
            try:
                yield
            finally:
                over.set()
                keeping.join()


def begun(connection: socket.socket) -> socket.socket:
    """Return *connection* once the answer begins. Raises SystemExit if it is a refusal."""
    if not connection.recv(12).startswith(ANSWERED):
        raise SystemExit("a reader was refused")
    return connection


def come_and_go(place: Place, number: int) -> None:
    """Hold *number* readers, and replace the oldest one by a new one again and again, until killed."""
    held = [begun(place.open_reader()) for _ in range(number)]
    print("begun", flush=True)
    while True:
        held.pop(0).close()
        held.append(begun(place.open_reader()))


def join(place: Place, number: int) -> None:
    """Join in steps, and take what comes until killed."""
    held: list[socket.socket] = []
    print("begun", flush=True)
    begin = time.monotonic()
    while True:
        share = min(1.0, (time.monotonic() - begin) / JOIN_S)
        held += [begun(one) for one in [place.open_reader() for _ in range(round(number * share) - len(held))]]
        for one in held:
            one.setblocking(False)
            try:
                one.recv(262_144)
            except BlockingIOError:
                continue
        time.sleep(JOIN_S / JOIN_STEPS)


def report(given: argparse.Namespace) -> dict[str, Any]:
    others: dict[str, Callable[[Place], AbstractContextManager[None]]] = {
        "undisturbed": lambda _: nullcontext(),
        "a reader that takes nothing": Place.slow_reader,
        f"{given.passing} readers that come and go": partial(Place.elsewhere, act="pass", number=given.passing),
        f"a reader on each of {given.sessions} sessions": partial(Place.other_sessions, number=given.sessions),
        f"{given.joining} that join within {JOIN_S:g} s": partial(Place.elsewhere, act="join", number=given.joining),
    }
    rows: list[dict[str, Any]] = []
    with serving(LIMITS, ENGINE="scripted", MAX_CONNECTIONS_PER_ADDRESS="100000") as server:
        for name, disturbance in others.items():
            with (
                speak_in_process(server) as job,
                readers(given.calm, "SSE", server.base, job=job, key=server.key) as calm,
                disturbance(Place(server.base, server.key, job)),
            ):
                rows.append({"name": name, **measure_readers(server.pid, calm, given.seconds)})
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
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each reader is one
    for name, act in {"pass": come_and_go, "join": join}.items():
        if (number := getattr(given, name)) is not None:
            act(Place(given.base, given.key, given.job), int(number))
    result = report(given)
    if not given.no_write:
        print(write("disturbances", result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
