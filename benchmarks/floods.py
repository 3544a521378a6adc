"""Small things in great numbers, and those who wait meanwhile: python -m benchmarks.floods [--seconds 5] [--cluster]

Starts a server (scripted engine). Strangers in a process of their own send it what costs work by the piece: frames,
pings, empty appends, chunks of one byte, headers, fields of a query, escapes in a path. Meanwhile a bystander asks
/healthz over its own connection every 20 ms, and a customer speaks into a live session. Both are measured undisturbed
first. Writes benchmarks/results/floods.json: for each flood, how long the bystander waited, also as a multiple of
undisturbed, how late the customer's words were and how many it lost, and by how much the log grew. With --cluster two
nodes share a PostgreSQL and a bucket: strangers flood the one, those who wait are at the other, a further bystander
(flooded_healthz_ms) asks the flooded one, and benchmarks/results/floods-cluster.json is written.
"""

import argparse
import asyncio
import http.client
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from benchmarks.flood_items import FRAMES, OPENING_FRAMES, handshake, requests
from benchmarks.measure import ROOT, spread, write
from benchmarks.serving import Serving, serving
from tests.server.buckets import bucket_service
from tests.server.clustering import start_cluster

ASK_EVERY_S = 0.02
PIECE_S = 0.1
SECOND = 32_000  # bytes of audio
PIECES_PER_S = 20  # of a stranger's connection
SETTLE_S = 0.3
BAD = "?token=st_bad"


@dataclass(frozen=True, kw_only=True)
class Flood:
    """What strangers send, to which addresses, and how fast in all."""

    kind: str
    doors: tuple[tuple[str, str], ...]  # methods ("WS": a WebSocket) and paths
    connections: int
    bytes_s: float
    key: str = ""
    address: str = "127.0.0.2"
    at_once: int = 0  # bytes that each connection sends first, as fast as it can
    stay_s: float = 0.0  # after which a connection leaves for the next door; 0: it stays until it is cut
    again: bool = True  # whether a stranger whom the server cut off connects again

    @property
    def name(self) -> str:
        again = "" if self.again else ", once"
        return f"{self.kind}, {'a key' if self.key else 'no key'}, {self.connections} connections{again}"


@dataclass
class Sent:
    connections: int = 0
    bytes: int = 0
    doors: list[tuple[str, str, str]] = field(default_factory=list)
    """The kinds, methods and paths where something was sent."""


async def send(base: str, floods: Sequence[Flood], seconds: float) -> Sent:
    """Let the strangers of all *floods* send for *seconds*."""
    sent = Sent()
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as tasks:
            for flood in floods:
                for number in range(flood.connections):
                    tasks.create_task(_stranger(base, flood, number, sent))
    sent.doors = sorted(set(sent.doors))
    return sent


async def _stranger(base: str, flood: Flood, number: int, sent: Sent) -> None:
    host, port = base.removeprefix("http://").split(":")
    while True:
        method, path = flood.doors[number % len(flood.doors)]
        number += flood.connections  # the next door, where there are more doors than connections
        with suppress(OSError, asyncio.IncompleteReadError):  # TimeoutError is an OSError
            reader, writer = await asyncio.open_connection(host, int(port), local_addr=(flood.address, 0), limit=2**24)
            sent.connections += 1
            sent.doors.append((flood.kind, method, path))
            try:
                async with asyncio.timeout(flood.stay_s or None):
                    await _talk(reader, writer, flood, (method, path), sent)
            finally:
                writer.transport.abort()
        if not flood.again:
            return
        await asyncio.sleep(0.05)


async def _talk(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flood: Flood, door: tuple[str, str], sent: Sent
) -> None:
    """Send until the server has enough."""
    method, path = door
    if method == "WS":
        writer.write(handshake(path, flood.key))
        await reader.readuntil(b"\r\n\r\n")
        item = FRAMES[flood.kind]
        writer.write(OPENING_FRAMES.get(flood.kind, b""))
    else:
        first, item = requests(flood.kind, method, path, flood.key)
        writer.write(first)
    reading = asyncio.create_task(_read(reader))
    try:
        at_once = item * (flood.at_once // len(item))
        writer.write(at_once)
        sent.bytes += len(at_once)
        each = flood.bytes_s / flood.connections / PIECES_PER_S
        due, began = 0.0, time.monotonic()
        while not reading.done() and each:
            due += each
            piece = item * int(due / len(item))
            due -= len(piece)
            writer.write(piece)
            sent.bytes += len(piece)
            await writer.drain()
            began += 1 / PIECES_PER_S
            await asyncio.sleep(max(0.001, began - time.monotonic()))
        await reading
    finally:
        reading.cancel()


async def _read(reader: asyncio.StreamReader) -> None:
    while await reader.read(65_536):
        pass


@contextmanager
def strangers(base: str, floods: Sequence[Flood], seconds: float, result: dict[str, Any]) -> Iterator[None]:
    """Let strangers send for *seconds*, in a process of their own. *result* gets what they sent when the block ends."""
    words = [
        sys.executable,
        "-m",
        "benchmarks.floods",
        "--flood",
        json.dumps(list(map(asdict, floods))),
        "--base",
        base,
    ]
    process = subprocess.Popen([*words, "--seconds", str(seconds)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        yield
        out, _ = process.communicate(timeout=seconds + 30)
        result.update(json.loads(out))
    finally:
        process.kill()
        process.wait()


@dataclass
class Bystander:
    """Asks /healthz over one connection, and notes how long it waits."""

    base: str
    address: str = "127.0.0.1"
    waits_s: list[float] = field(default_factory=list)

    def wait(self, seconds: float) -> None:
        parts = urlsplit(self.base)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, 60, (self.address, 0))
        until = time.monotonic() + seconds
        while (began := time.monotonic()) < until:
            connection.request("GET", "/healthz")
            connection.getresponse().read()
            self.waits_s.append(time.monotonic() - began)
            time.sleep(max(0.0, ASK_EVERY_S - self.waits_s[-1]))
        connection.close()

    def to_json(self) -> dict[str, float]:
        ordered = sorted(self.waits_s)
        at = {"p50": 0.5, "p95": 0.95, "longest": 1.0}
        return {name: round(1000 * ordered[min(len(ordered) - 1, int(len(ordered) * q))], 2) for name, q in at.items()}


@dataclass
class Customer:
    """Speaks into a live session, and notes how late each word is."""

    base: str
    key: str
    lags_s: list[float] = field(default_factory=list)
    end: str = "still speaking"

    def speak(self, seconds: float) -> None:
        own = {"Authorization": f"Bearer {self.key}"}
        made = httpx.post(f"{self.base}/v1/live", json={"interim_results": False}, headers=own, timeout=30).json()
        url = f"ws{self.base.removeprefix('http')}/v1/jobs/{made['job_id']}/audio"
        with connect(url, additional_headers=own, compression=None) as socket:
            began = time.monotonic()
            listening = threading.Thread(target=self._listen, args=(socket, began))
            listening.start()
            with suppress(ConnectionClosed):
                for piece in range(int(seconds / PIECE_S)):
                    time.sleep(max(0.0, began + (piece + 1) * PIECE_S - time.monotonic()))
                    socket.send(bytes(int(SECOND * PIECE_S)))
                socket.send('{"type":"close"}')
            listening.join(60)

    def _listen(self, socket: Any, began: float) -> None:
        with suppress(ConnectionClosed):
            for message in socket:
                event = json.loads(message)
                if event["type"] == "word":
                    self.lags_s.append(time.monotonic() - began - event["end"])
                if event["type"].startswith("job."):
                    self.end = event["type"]

    def to_json(self) -> dict[str, Any]:
        return {"words": len(self.lags_s), "end": self.end, "lag_s": spread(self.lags_s or [0.0])}


def watch(server: Serving, seconds: float, *, key: str, also: Serving | None = None) -> dict[str, Any]:
    """Return how long a bystander and a customer wait within *seconds*, and a bystander at the server *also*."""
    bystander, customer = Bystander(server.base), Customer(server.base, key)
    other = None if also is None else Bystander(also.base)
    works = [customer.speak] if other is None else [customer.speak, other.wait]
    threads = [threading.Thread(target=work, args=(seconds,)) for work in works]
    for thread in threads:
        thread.start()
    bystander.wait(seconds)
    for thread in threads:
        thread.join()
    seen: dict[str, Any] = {"healthz_ms": bystander.to_json(), "live": customer.to_json()}
    return seen if other is None else {**seen, "flooded_healthz_ms": other.to_json()}


# --- the floods ------------------------------------------------------------------------------------------------------


def own_session(server: Serving, key: str) -> str:
    """Return the id of a new live session of the sandbox."""
    own = {"Authorization": f"Bearer {key}"}
    answer = httpx.post(f"{server.base}/sandbox/v1/live", json={}, headers=own, timeout=30)
    answer.raise_for_status()
    return str(answer.json()["job_id"])


def new_key(server: Serving, environment: str = "sandbox") -> str:
    answer = httpx.post(f"{server.base}/v1/keys", json={"environment": environment}, timeout=30)
    answer.raise_for_status()
    return str(answer.json()["key"])


def floods(server: Serving) -> list[Flood]:
    """Return the floods: those that once stopped a server, as large as then, and each kind of item at 2 MB/s."""
    key = new_key(server)
    job = own_session(server, key)
    refused = (("WS", f"/v1/jobs/{job}/stream{BAD}"), ("WS", f"/v1/jobs/{job}/audio{BAD}"))
    writer = ("WS", f"/sandbox/v1/jobs/{job}/audio")
    pinging, returning, other = (new_key(server) for _ in range(3))  # who is cut often may open no more for a while
    own, own_again, others = (
        ("WS", f"/sandbox/v1/jobs/{own_session(server, key)}/stream") for key in (pinging, returning, other)
    )
    realtime, listen = ("WS", "/sandbox/v1/realtime"), ("WS", "/sandbox/v1/listen")
    upload, events, health = ("POST", "/sandbox/v1/transcribe"), ("GET", "/v1/jobs/x/events"), ("GET", "/healthz")
    return [
        Flood(kind="pings", doors=refused, connections=50, bytes_s=0, at_once=120_000, again=False),
        Flood(kind="pings", doors=refused, connections=50, bytes_s=0, at_once=120_000),
        Flood(kind="pings", doors=refused, connections=50, bytes_s=2e6),
        Flood(kind="pings", doors=(own,), connections=400, bytes_s=0, at_once=120_000, key=pinging, again=False),
        Flood(kind="pings", doors=(own_again,), connections=400, bytes_s=0, at_once=120_000, key=returning),
        Flood(kind="pings", doors=(others, realtime, listen), connections=10, bytes_s=2e6, key=other),
        Flood(kind="empty frames", doors=(listen,), connections=1, bytes_s=2e6, key=key),
        Flood(kind="empty frames", doors=(writer, listen), connections=10, bytes_s=2e6, key=key),
        Flood(kind="empty appends", doors=(realtime,), connections=1, bytes_s=5e6, key=key),
        Flood(kind="empty appends", doors=(realtime,), connections=10, bytes_s=5e6, key=key),
        Flood(kind="empty objects", doors=(realtime, listen, writer), connections=10, bytes_s=2e6, key=key),
        Flood(kind="fragments", doors=(realtime, listen, writer), connections=10, bytes_s=2e6, key=key),
        Flood(kind="chunks", doors=(upload,), connections=1, bytes_s=8e6, key=key),
        Flood(kind="chunks", doors=(upload,), connections=10, bytes_s=8e6, key=key),
        Flood(kind="query fields", doors=(events,), connections=300, bytes_s=0, at_once=31_000, again=False),
        Flood(kind="query fields", doors=(events,), connections=300, bytes_s=0, at_once=31_000),
        Flood(kind="query fields", doors=(events,), connections=100, bytes_s=2.9e6),
        Flood(kind="some query fields", doors=(events,), connections=100, bytes_s=2e6),
        Flood(kind="headers", doors=(health,), connections=20, bytes_s=2e6),
        Flood(kind="some headers", doors=(health,), connections=20, bytes_s=2e6),
        Flood(kind="escapes", doors=(("GET", "/"),), connections=20, bytes_s=3e6),
        Flood(kind="some escapes", doors=(("GET", "/"),), connections=20, bytes_s=3e6),
        Flood(kind="parts", doors=(upload,), connections=10, bytes_s=5e6, key=key),
        Flood(kind="brackets", doors=(upload, ("POST", "/sandbox/v1/live")), connections=10, bytes_s=5e6, key=key),
        Flood(kind="packed bodies", doors=(upload,), connections=10, bytes_s=2e6, key=key),
        Flood(kind="conditions", doors=(("GET", f"/sandbox/v1/jobs/{job}"),), connections=20, bytes_s=3e6, key=key),
        Flood(kind="conditions", doors=(health,), connections=20, bytes_s=3e6),
        Flood(kind="long pings", doors=(others, realtime, listen), connections=10, bytes_s=2e6, key=other),
        Flood(kind="closes", doors=(others, realtime, listen), connections=20, bytes_s=2e6, key=other),
        Flood(kind="closes", doors=refused, connections=20, bytes_s=2e6),
        Flood(kind="reserved frames", doors=(writer, listen), connections=10, bytes_s=2e6, key=other),
        Flood(kind="piled requests", doors=(health,), connections=20, bytes_s=2e6),
        Flood(kind="resets", doors=(health, upload), connections=100, bytes_s=0, at_once=100, stay_s=0.05),
        Flood(kind="requests", doors=(("GET", "/nowhere"), ("GET", "/v1/jobs")), connections=20, bytes_s=2e6),
    ]


@contextmanager
def two_nodes(**settings: str) -> Iterator[tuple[Serving, Serving]]:
    """Start two nodes of one service with the scripted engine. Both know the operator's key."""
    with (
        tempfile.TemporaryDirectory() as name,
        bucket_service(Path(name)) as bucket,
        start_cluster(Path(name), bucket, ENGINE="scripted", **settings) as cluster,
    ):
        made = []
        for node in cluster.nodes:
            assert node.process is not None
            (node.data_dir / "log").touch()
            key = (cluster.nodes[0].data_dir / "operator-key").read_text().strip()
            made.append(Serving(node.base, key, node.process.pid, node.data_dir))
        yield made[0], made[1]


def measure(server: Serving, flood: Flood, seconds: float, key: str, *, waiting_at: Serving) -> dict[str, Any]:
    """Return how long others wait at *waiting_at*, the same server or another node, while *flood* comes to *server*."""
    sent: dict[str, Any] = {}
    log_bytes = server.log.stat().st_size
    with strangers(server.base, [flood], seconds, sent):
        time.sleep(SETTLE_S)
        also = None if waiting_at is server else server
        seen = watch(waiting_at, seconds - SETTLE_S, key=key, also=also)
    return {
        **seen,
        "sent": {name: sent[name] for name in ("connections", "bytes")},
        "log_bytes": server.log.stat().st_size - log_bytes,
    }


def run(flooded: Serving, waiting_at: Serving, seconds: float, only: str) -> dict[str, Any]:
    """Return how long a bystander waits at *waiting_at*: undisturbed, and while each flood comes to *flooded*.

    Both may be one node. Only floods whose name contains *only* are measured.
    """
    undisturbed = watch(waiting_at, seconds, key=waiting_at.key)
    result: dict[str, Any] = {"seconds": seconds, "undisturbed": undisturbed, "floods": {}}
    print(json.dumps({"undisturbed": undisturbed}), flush=True)
    for flood in floods(flooded):
        if only in flood.name:
            row = measure(flooded, flood, seconds, waiting_at.key, waiting_at=waiting_at)
            row["p95_times_undisturbed"] = round(row["healthz_ms"]["p95"] / undisturbed["healthz_ms"]["p95"], 1)
            result["floods"][f"{flood.name}, {flood.bytes_s / 1e6:g} MB/s"] = row
            print(json.dumps({flood.name: row}), flush=True)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--only", default="", help="floods whose names contain this")
    parser.add_argument("--cluster", action="store_true", help="flood one of two nodes")
    parser.add_argument("--no-write", action="store_true")
    parser.add_argument("--flood", help=argparse.SUPPRESS)
    parser.add_argument("--base", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.flood is not None:
        items = [Flood(**{**flood, "doors": tuple(map(tuple, flood["doors"]))}) for flood in json.loads(given.flood)]
        print(json.dumps(asdict(asyncio.run(send(given.base, items, given.seconds)))))
        return 0
    with ExitStack() as stack:
        if given.cluster:
            flooded, other = stack.enter_context(two_nodes())
        else:
            flooded = other = stack.enter_context(serving(ENGINE="scripted"))
        result = run(flooded, other, given.seconds, given.only)
    if not given.no_write and not given.only:
        write("floods-cluster" if given.cluster else "floods", result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
