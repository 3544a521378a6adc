"""What readers of a live session cost: python -m benchmarks.readers [--readers 1000 5000] [--quiet 9000]

Starts a server (scripted engine) and a writer that speaks in real time, and lets many readers follow its session, by
Server-Sent Events and by WebSocket. The readers are raw sockets in a process of their own, so that their cost is not
the server's. A bare asyncio server then writes as many bytes as often to as many readers and does nothing else, which
is the least that any server costs. Then readers of a session in which nothing happens show what memory each takes.
Writes benchmarks/results/readers.json. The CPU times of both servers are taken in the same minutes, so their ratio is
valid although other work disturbs the machine.
"""

import argparse
import asyncio
import json
import re
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import httpx
from websockets.asyncio.client import connect

from benchmarks.children import address_of, child, raise_descriptor_limit
from benchmarks.measure import cpu_s, own_rss_mb, spread, write
from benchmarks.serving import Serving, serving

SECOND = 32_000  # bytes of audio
PIECE_S = 0.1
WARM_UP_S = 3.0
QUIET_EVERY_S = 10.0  # some samples, so that the quiet session stays open
AT_ONCE = 100  # connections that are opened before the answers of all are awaited
WAYS = {
    "SSE": "GET /v1/jobs/{job}/events HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n\r\n",
    "WebSocket": "GET /v1/jobs/{job}/stream HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n"
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
}
PONG, PONG_S = b"\x8a\x80" + bytes(4), 10.0  # an empty pong that nobody asked for: a sign of life
ANSWERED = (b"HTTP/1.1 200", b"HTTP/1.1 101")
EVENT, WORD = b'"job_id":', re.compile(rb'"emitted_at":"([^"]+)"')
MANY = {
    "per_session = 5000 ": "per_session = 100000 ",
    "requests_per_minute = 3000": "requests_per_minute = 1000000",
}


# --- readers, in a process of their own ------------------------------------------------------------------------------


@dataclass
class Seen:
    """Counts what all readers together have received."""

    events: int = 0
    reads: int = 0
    late_s: list[float] = field(default_factory=list)  # of words, behind their emission
    _emitted: dict[bytes, float] = field(default_factory=dict)

    def count(self, data: bytes) -> None:
        """Note what a reader has received just now."""
        if not data:
            raise SystemExit("the server closed a reader's connection")
        now = time.time()
        self.reads += 1
        self.events += data.count(EVENT)
        for text in WORD.findall(data):
            if text not in self._emitted:
                self._emitted[text] = datetime.fromisoformat(text.decode()).timestamp()
            self.late_s.append(now - self._emitted[text])


def read(number: int, way: str, request: bytes, address: tuple[str, int]) -> None:
    """Connect *number* readers and print a line. For each line of input print what they received since the last one."""
    with selectors.DefaultSelector() as selector:
        connected = _connect(number, request, address)
        for one in connected:
            selector.register(one, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        print("connected", flush=True)
        seen, alive_at = Seen(), time.monotonic()
        while True:
            if way == "WebSocket" and time.monotonic() > alive_at + PONG_S:
                alive_at = time.monotonic()
                for one in connected:
                    one.send(PONG)
            for key, _ in selector.select(1.0):
                if isinstance(key.fileobj, socket.socket):
                    seen.count(key.fileobj.recv(262_144))
                elif sys.stdin.readline():
                    print(json.dumps({**spread(seen.late_s), "events": seen.events, "reads": seen.reads}), flush=True)
                    seen = Seen()
                else:
                    return


def _connect(number: int, request: bytes, address: tuple[str, int]) -> list[socket.socket]:
    connected: list[socket.socket] = []
    while len(connected) < number:
        new = [socket.create_connection(address) for _ in range(min(AT_ONCE, number - len(connected)))]
        for one in new:
            one.sendall(request)
        for one in new:
            answer = one.recv(65_536)
            if not answer.startswith(ANSWERED):
                raise SystemExit(f"a reader was refused: {answer[:400]!r}")
            one.setblocking(False)
        connected += new
    return connected


class Readers:
    """The readers' process, seen from this one."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline() or sys.exit("the readers' process ended")

    def read_counts(self) -> dict[str, Any]:
        """Return what they have received since the last call."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        found: dict[str, Any] = json.loads(self.line())
        return found


@contextmanager
def readers(number: int, way: str, base: str, *, job: str = "", key: str = "") -> Iterator[Readers]:
    """Connect *number* readers in a process of their own, while the block lasts."""
    with child("readers", "--read", str(number), "--way", way, "--base", base, "--job", job, "--key", key) as process:
        found = Readers(process)
        found.line()
        yield found


# --- the bare server, in a process of its own ------------------------------------------------------------------------


async def bare(size: int, per_s: float) -> None:
    """Print a port, and write *size* bytes to every connection *per_s* times a second, until killed."""
    transports: list[asyncio.WriteTransport] = []

    class Bare(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.WriteTransport)
            transports.append(transport)
            transport.write(b"HTTP/1.1 200 OK\r\n\r\n")

    server = await asyncio.get_running_loop().create_server(Bare, "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    begin, ticks = time.monotonic(), 0
    while True:
        ticks += 1
        await asyncio.sleep(max(0.0, begin + ticks / per_s - time.monotonic()))
        emitted = datetime.now().astimezone().isoformat(timespec="milliseconds")
        head = f'{{"job_id":"","emitted_at":"{emitted}","rest":"'.encode()
        data = head + b"x" * (size - len(head))
        for place, transport in enumerate(transports):
            transport.write(data)
            if place % AT_ONCE == 0:
                await asyncio.sleep(0)


# --- measuring -------------------------------------------------------------------------------------------------------


@contextmanager
def speak_in_process(server: Serving) -> Iterator[str]:
    """Yield the id of a session into which a process speaks in real time, while the block lasts."""
    with child("readers", "--speak", "--base", server.base, "--key", server.key) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()


async def speak(base: str, key: str) -> None:
    """Open a session, print its id, and speak until killed."""
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=base, headers=headers) as client:
        job = (await client.post("/v1/live", json={})).json()["job_id"]
    address = f"ws{base.removeprefix('http')}/v1/jobs/{job}/audio"
    async with connect(address, additional_headers=headers, proxy=None, max_queue=None) as writer:
        print(job, flush=True)
        begin, pieces = time.monotonic(), 0
        while True:
            pieces += 1
            await asyncio.sleep(max(0.0, begin + pieces * PIECE_S - time.monotonic()))
            await writer.send(bytes(round(SECOND * PIECE_S)))
            with suppress(TimeoutError):
                while True:
                    async with asyncio.timeout(0.001):
                        await writer.recv()


def measure_readers(pid: int, reading: Readers, seconds: float) -> dict[str, Any]:
    """Return what the readers receive in *seconds*, and what the process *pid* uses for it."""
    time.sleep(WARM_UP_S)
    reading.read_counts()
    began, cpu = time.monotonic(), cpu_s(pid)
    time.sleep(seconds)
    cpu, took = cpu_s(pid) - cpu, time.monotonic() - began
    seen = reading.read_counts()
    return {
        "cores": round(cpu / took, 3),
        "events_per_s": round(seen["events"] / took),
        "reads_per_s": round(seen["reads"] / took),
        "late_s": {name: seen[name] for name in ("p50", "p95", "p99") if name in seen},
    }


def of_session(
    server: Serving, way: str, number: int, seconds: float, *, speaker: Serving | None = None
) -> dict[str, Any]:
    """Return what *number* readers of a session receive and cost at *server*, less what it costs without readers.

    *speaker* is the node of its cluster that has the session; None: itself.
    """
    speaker = speaker or server
    with speak_in_process(speaker) as job:
        with readers(1, way, server.base, job=job, key=speaker.key) as alone:
            session = measure_readers(server.pid, alone, seconds / 2)
        with readers(number, way, server.base, job=job, key=speaker.key) as many:
            row = measure_readers(server.pid, many, seconds)
    cost = max(0.0, row["cores"] - session["cores"])
    return {
        "system": f"{number} by {way}",
        **row,
        "events_per_reader_s": round(row["events_per_s"] / number, 2),
        "cpu_us_per_event": round(cost / row["events_per_s"] * 1e6, 1),
    }


def of_bare(number: int, per_s: float, seconds: float) -> dict[str, Any]:
    bare_server = child("readers", "--bare", "--size", "330", "--per-s", str(per_s))
    with bare_server as process, readers(number, "SSE", address_of(process)) as many:
        row = measure_readers(process.pid, many, seconds)
    cpu_us = round(row["cores"] / row["events_per_s"] * 1e6, 1)
    return {"system": f"{number}, bare asyncio", **row, "events_per_reader_s": per_s, "cpu_us_per_event": cpu_us}


def quiet(server: Serving, way: str, number: int) -> dict[str, Any]:
    """Return the memory that readers take of a session in which nothing is said."""
    key = {"Authorization": f"Bearer {server.key}"}
    job = httpx.post(f"{server.base}/v1/live", json={}, headers=key).json()["job_id"]
    over = threading.Event()

    def keep_open() -> None:
        audio = {**key, "Content-Type": "application/octet-stream"}
        while not over.wait(QUIET_EVERY_S):
            httpx.post(f"{server.base}/v1/jobs/{job}/audio", content=bytes(320), headers=audio, timeout=30)

    keeper = threading.Thread(target=keep_open)
    keeper.start()
    try:
        with readers(100, way, server.base, job=job, key=server.key):
            before = own_rss_mb(server.pid)
            with readers(number, way, server.base, job=job, key=server.key):
                after = own_rss_mb(server.pid)
    finally:
        over.set()
        keeper.join()
    return {"name": f"{number} by {way}", "kb_each": round((after - before) * 1024 / number, 1)}


def compare_ways(server: Serving, number: int, seconds: float) -> Iterator[dict[str, Any]]:
    rows = [of_session(server, way, number, seconds) for way in WAYS]
    least = of_bare(number, rows[0]["events_per_reader_s"], seconds)
    for row in rows:
        yield {**row, "share_of_bare": round(least["cpu_us_per_event"] / row["cpu_us_per_event"], 2)}
    yield least


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30, help="of each measurement")
    parser.add_argument("--readers", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--quiet", type=int, default=9000, help="readers of a session in which nothing happens")
    parser.add_argument("--no-write", action="store_true", help="print only")
    for name in ("read", "way", "base", "job", "key", "size", "per-s"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--speak", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    raise_descriptor_limit()
    if given.read:
        host, port = given.base.removeprefix("http://").split(":")
        request = WAYS[given.way].format(job=given.job, key=given.key, host=host)
        read(int(given.read), given.way, request.encode(), (host, int(port)))
    elif given.bare:
        asyncio.run(bare(int(given.size), float(given.per_s)))
    elif given.speak:
        asyncio.run(speak(given.base, given.key))
    else:
        report(given)
    return 0


def report(given: argparse.Namespace) -> None:
    settings = {"ENGINE": "scripted", "MAX_CONNECTIONS_PER_ADDRESS": "100000"}
    with serving(MANY, **settings) as server:
        rows = [row for number in given.readers for row in compare_ways(server, number, given.seconds)]
    memory = []
    for way in WAYS:
        with serving(MANY, **settings) as server:
            memory.append(quiet(server, way, given.quiet))
    result = {"seconds": given.seconds, "readers": rows, "quiet": memory}
    print(json.dumps(result, indent=1))
    if not given.no_write:
        print(write("readers", result))


if __name__ == "__main__":
    sys.exit(main())
