"""Many live sessions at once, with the scripted engine: what each costs, and how late its words are.

    .venv/bin/python -m benchmarks.crowd                                   # 20, 60 and 100; writes results/crowd.json
    .venv/bin/python -m benchmarks.crowd --sessions 200 --kill --no-write  # and what a killed server has lost
    .venv/bin/python -m benchmarks.crowd --sessions 1000 --cluster         # half of them at each of two nodes

Each session has its own WebSocket, which sends 200 ms of a person's speech at a time, at the speed of speech, and reads
what comes. The speakers are raw sockets in processes of their own, so that their cost is not the server's; sent_late_s
says how late they were themselves, and where that is large the machine was too small for the speakers. A word is late
by the time from its end in the audio to its arrival. With --kill the server is killed while all speak and is started
again on the same data: events_lost are those that a reader had seen and that are gone.
"""

import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np

from benchmarks.children import child, raise_descriptor_limit
from benchmarks.floods import two_nodes
from benchmarks.measure import cpu_s, rss_mb, write
from benchmarks.serving import Serving, replaced_limits, serving
from benchmarks.tracks import PEOPLE, clips

FRAME_S = 0.2
EACH = 125  # sessions of one process of speakers
OPENED_AT_ONCE = 20
WARM_UP_S = 5.0  # before anything counts
SETTLE_S = 20.0  # for a server that was killed, to show its events again
LIMITS = {
    "live_sessions = 1000 ": "live_sessions = 10000 ",
    "requests_per_minute = 3000": "requests_per_minute = 1000000",
}
SETTINGS = {"MAX_CONNECTIONS_PER_ADDRESS": "100000"}
WORD, END, NUMBER = b'"type":"word"', re.compile(rb'"end":([0-9.]+)'), re.compile(rb'"seq":([0-9]+)')


# --- speakers, in processes of their own -----------------------------------------------------------------------------


@dataclass
class Heard:
    """What all sessions of one process of speakers received."""

    late_s: list[float] = field(default_factory=list)  # of words
    sent_late_s: list[float] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)  # the last event of each job, by number
    dropped: int = 0  # connections that ended before their time


@dataclass(frozen=True)
class Connection:
    """The WebSocket of one session."""

    job: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


async def speak(base: str, key: str, count: int, seconds: float) -> Heard:
    """Open *count* sessions, wait for a line of input, and speak into all of them for *seconds*."""
    heard = Heard()
    own = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=base, headers=own, timeout=60) as client:
        free = asyncio.Semaphore(OPENED_AT_ONCE)

        async def open_one() -> Connection:
            async with free:
                made = (await client.post("/v1/live", json={})).raise_for_status().json()
                return await _connect(base, key, made["job_id"])

        sessions = await asyncio.gather(*(open_one() for _ in range(count)))
    print("connected", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    speech = np.concatenate([clip.samples for clip in clips(PEOPLE)])
    pcm = (speech * 32767).astype("<i2").tobytes()
    starts = random.Random(count)
    async with asyncio.TaskGroup() as tasks:
        for session in sessions:
            tasks.create_task(_session(heard, session, pcm, delay_s=starts.random(), seconds=seconds))
    return heard


async def _connect(base: str, key: str, job: str) -> Connection:
    address = urlsplit(base)
    reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=2**20)
    writer.write(
        f"GET /v1/jobs/{job}/audio HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {key}\r\n"
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
    )
    answer = await reader.readuntil(b"\r\n\r\n")
    if not answer.startswith(b"HTTP/1.1 101"):
        raise SystemExit(f"a session was refused: {answer[:400]!r}")
    return Connection(job, reader, writer)


async def _session(heard: Heard, session: Connection, pcm: bytes, *, delay_s: float, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time() + delay_s
    size = round(FRAME_S * 32_000)
    head = bytes([0x82, 0xFE]) + size.to_bytes(2, "big") + bytes(4)  # a binary frame, masked with zeros
    reading = asyncio.create_task(_read(heard, session, began))
    for number in range(round(seconds / FRAME_S)):
        due = began + (number + 1) * FRAME_S
        await asyncio.sleep(due - loop.time())
        if reading.done():
            break
        heard.sent_late_s.append(loop.time() - due)
        at = number * size % (len(pcm) - size)
        session.writer.write(head + pcm[at : at + size])
    heard.dropped += reading.done()
    reading.cancel()
    await asyncio.wait({reading})
    session.writer.transport.abort()


async def _read(heard: Heard, session: Connection, began: float) -> None:
    """Read frames of the server until the connection ends."""
    loop, reader = asyncio.get_running_loop(), session.reader
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = await reader.readexactly(2)
            size = head[1]
            if size == 126:
                size = int.from_bytes(await reader.readexactly(2), "big")
            message = await reader.readexactly(size)
            if number := NUMBER.search(message):
                heard.seen[session.job] = int(number[1])
            if WORD in message and (end := END.search(message)) and loop.time() - began > WARM_UP_S:
                heard.late_s.append(loop.time() - began - float(end[1]))


# --- measuring -------------------------------------------------------------------------------------------------------


@contextmanager
def speakers(nodes: Sequence[Serving], sessions: int, seconds: float) -> Iterator[list["subprocess.Popen[str]"]]:
    """Start processes whose speakers are connected, an equal number of them to each node."""
    with ExitStack() as stack:
        processes = []
        for number, node in enumerate(nodes):
            of_node = sessions // len(nodes) + (number < sessions % len(nodes))
            for at in range(0, of_node, EACH):
                words = ("--speak", str(min(EACH, of_node - at)), "--base", node.base, "--key", nodes[0].key)
                processes.append(stack.enter_context(child("crowd", *words, "--seconds", str(seconds))))
        for process in processes:
            _line(process)
        yield processes


def _line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline() or sys.exit("a process of speakers ended")


def measure(nodes: Sequence[Serving], sessions: int, seconds: float, *, kill: bool = False) -> dict[str, Any]:
    """Return what *sessions* cost for *seconds* at all *nodes* together. With *kill* the first node is killed then."""
    empty_mb = sum(rss_mb(node.pid) for node in nodes)
    spoken_s = WARM_UP_S + seconds + kill * SETTLE_S
    with speakers(nodes, sessions, spoken_s) as processes:
        for process in processes:
            assert process.stdin is not None
            print(file=process.stdin, flush=True)
        time.sleep(WARM_UP_S)
        before, began = sum(cpu_s(node.pid) for node in nodes), time.monotonic()
        time.sleep(seconds - 1)
        cores = (sum(cpu_s(node.pid) for node in nodes) - before) / (time.monotonic() - began)
        full_mb = sum(rss_mb(node.pid) for node in nodes)
        if kill:
            os.kill(nodes[0].pid, signal.SIGKILL)
        heard = [json.loads(_line(process)) for process in processes]
    late = [value for one in heard for value in one["late_s"]]
    sent = [value for one in heard for value in one["sent_late_s"]]
    row = {
        "sessions": sessions,
        "nodes": len(nodes),
        "cores_a_session": round(cores / sessions, 4),
        "late_s": _extent(late),
        "sent_late_s": _extent(sent),
        "kb_a_session": round((full_mb - empty_mb) * 1024 / sessions),
        "words": len(late),
    }
    if kill:
        return {**row, "seen": {job: number for one in heard for job, number in one["seen"].items()}}
    return {**row, "dropped": sum(one["dropped"] for one in heard)}


def _extent(values: Sequence[float]) -> dict[str, float]:
    return {
        name: round(float(value), 3)
        for name, value in zip(("p50", "p95", "max"), np.percentile(values, (50, 95, 100)), strict=True)
    }


async def count_lost(server: Serving, seen: dict[str, int]) -> int:
    """Return how many events up to the last *seen* of each job a new reader does not get from the server."""
    own = {"Authorization": f"Bearer {server.key}"}
    free = asyncio.Semaphore(OPENED_AT_ONCE)
    async with httpx.AsyncClient(base_url=server.base, headers=own, timeout=SETTLE_S) as client:

        async def lost(job: str, last: int) -> int:
            missing = set(range(1, last + 1))
            with suppress(httpx.ReadTimeout):  # nothing more comes: what is missing now is lost
                async with free, client.stream("GET", f"/v1/jobs/{job}/events") as answer:
                    async for line in answer.aiter_lines():
                        if line.startswith("id: "):
                            missing.discard(int(line.removeprefix("id: ")))
                        if not missing:
                            break
            return len(missing)

        return sum(await asyncio.gather(*(lost(job, last) for job, last in seen.items())))


def one_machine(sessions: int, seconds: float, *, kill: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        with serving(LIMITS, kept=Path(folder), ENGINE="scripted", **SETTINGS) as server:
            row = measure([server], sessions, seconds, kill=kill)
        if kill:
            with serving(LIMITS, kept=Path(folder), ENGINE="scripted", **SETTINGS) as server:
                row["events_lost"] = asyncio.run(count_lost(server, row.pop("seen")))
    return row


def two_machines(sessions: int, seconds: float) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as limits:
        limits.write(replaced_limits(LIMITS))
        limits.flush()
        with two_nodes(LIMITS_FILE=limits.name, **SETTINGS) as nodes:
            return measure(nodes, sessions, seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, nargs="+", default=[20, 60, 100])
    parser.add_argument("--seconds", type=float, default=30, help="of each measurement")
    parser.add_argument("--cluster", action="store_true", help="on two nodes that share a database")
    parser.add_argument("--kill", action="store_true", help="kill the server while all speak, and count lost events")
    parser.add_argument("--no-write", action="store_true", help="print only")
    parser.add_argument("--speak", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--base", help=argparse.SUPPRESS)
    parser.add_argument("--key", help=argparse.SUPPRESS)
    given = parser.parse_args()
    raise_descriptor_limit()
    if given.speak is not None:
        print(json.dumps(vars(asyncio.run(speak(given.base, given.key, given.speak, given.seconds)))), flush=True)
        return 0
    if given.cluster and given.kill:
        parser.error("--kill is measured on one machine")
    rows = []
    for sessions in given.sessions:
        if given.cluster:
            rows.append(two_machines(sessions, given.seconds))
        else:
            rows.append(one_machine(sessions, given.seconds, kill=given.kill))
        print(rows[-1], flush=True)
    if not given.no_write:
        print(write("crowd-cluster" if given.cluster else "crowd", {"seconds": given.seconds, "sessions": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
