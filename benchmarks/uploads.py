"""What receiving a file costs, and what it does to live words: python -m benchmarks.uploads [--mb 1024] [--at-once 50]

Starts a server (scripted engine) and a bare Starlette app on the same uvicorn that writes what comes into a file, and
sends both the same form with the same bytes, in turn. The bytes are no audio, so the server stores them durably, looks
at them in a process of its own, and refuses them: no recognition is in the figures. Then --at-once such files arrive
together while somebody speaks, and a reader notes how late the words come, with the uploads and without. Writes
benchmarks/results/uploads.json.
"""

import argparse
import json
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from benchmarks.children import address_of, child, serve_bare
from benchmarks.measure import own_cpu_s, spread, write
from benchmarks.readers import MANY, measure_readers, readers, speak_in_process
from benchmarks.serving import Serving, serving

PATH = "/v1/transcribe"
MIB = 2**20
BOUNDARY = "------------------------d74496d66958873e"  # as curl makes them
BEFORE = (
    f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="noise.bin"\r\n'
    "Content-Type: application/octet-stream\r\n\r\n"
).encode()
BEHIND = f"\r\n--{BOUNDARY}--\r\n".encode()
REFUSED = 415
KEPT = {"MALLOC_TRIM_THRESHOLD_": str(2**29), "MALLOC_MMAP_THRESHOLD_": str(2**29)}
"""Settings of glibc with which the bare server keeps the memory of its pieces.

Without them about every second process returns it after each piece and takes one and a half times the CPU time.
"""
UPLOADS = {**MANY, "active_jobs = 500": "active_jobs = 100000"}


@dataclass(frozen=True)
class Side:
    """One of the two servers."""

    name: str
    base: str
    pid: int
    key: str
    expected: int  # status

    def send(self, file: Path) -> float:
        """Send *file* as a form and return the seconds that it took."""
        host, port = self.base.removeprefix("http://").split(":")
        length = len(BEFORE) + file.stat().st_size + len(BEHIND)
        head = (
            f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.key}\r\nConnection: close\r\n"
            f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\nContent-Length: {length}\r\n\r\n"
        )
        began = time.perf_counter()
        with socket.create_connection((host, int(port))) as connection, file.open("rb") as content:
            connection.sendall(head.encode() + BEFORE)
            connection.sendfile(content)
            connection.sendall(BEHIND)
            answer = connection.makefile("rb").read()
        if not answer.startswith(f"HTTP/1.1 {self.expected} ".encode()):
            raise SystemExit(f"{self.name}: an unexpected answer: {answer[:600]!r}")
        return time.perf_counter() - began


def bare() -> None:
    """Print a port, and write each body into a file as it comes, until killed."""

    async def receive(request: Request) -> JSONResponse:
        with tempfile.TemporaryFile() as file:
            async for data in request.stream():
                file.write(data)
            return JSONResponse({"bytes": file.tell()})

    serve_bare(Starlette(routes=[Route(PATH, receive, methods=["POST"])]))


@contextmanager
def bare_server(folder: Path) -> Iterator[Side]:
    """Start the bare server, which writes into *folder*, while the block lasts."""
    with child("uploads", "--bare", TMPDIR=str(folder), **KEPT) as process:
        yield Side("bare", address_of(process), process.pid, "", 200)


def noise(folder: Path, mb: int) -> Path:
    path = folder / "noise.bin"
    with path.open("wb") as file:
        for _ in range(mb):
            file.write(os.urandom(MIB))
    return path


def one_by_one(sides: Sequence[Side], file: Path, rounds: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each server: the CPU time of its own process for a file, and the seconds that it took."""
    took_s: dict[str, list[float]] = {side.name: [] for side in sides}
    used_s: dict[str, list[float]] = {side.name: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            before = own_cpu_s(side.pid)
            took_s[side.name].append(side.send(file))
            used_s[side.name].append(own_cpu_s(side.pid) - before)
    least = median(used_s["bare"])
    for name, used in used_s.items():
        row = {"system": name, "cpu_s": round(median(used), 2), "wall_s": round(median(took_s[name]), 2)}
        yield row if name == "bare" else {**row, "times_bare": round(median(used) / least, 2)}


def side_by_side(server: Serving, ours: Side, file: Path, at_once: int, seconds: float) -> dict[str, Any]:
    """Return how late a reader gets live words, without uploads and while *at_once* files arrive together."""
    over = threading.Event()
    uploads_s: list[float] = []

    def upload() -> None:
        while not over.is_set():
            uploads_s.append(ours.send(file))

    with speak_in_process(server) as job, readers(1, "SSE", server.base, job=job, key=server.key) as reading:
        without = measure_readers(server.pid, reading, seconds)
        senders = [threading.Thread(target=upload) for _ in range(at_once)]
        for sender in senders:
            sender.start()
        try:
            beside = measure_readers(server.pid, reading, seconds)
        finally:
            over.set()
            for sender in senders:
                sender.join()
    return {
        "uploads": len(uploads_s),
        "upload_s": spread(uploads_s),
        "words_late_s": {"without": without["late_s"], "beside": beside["late_s"]},
        "later_p95_s": round(beside["late_s"]["p95"] - without["late_s"]["p95"], 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=1024, help="size of the one file, in MiB")
    parser.add_argument("--rounds", type=int, default=3, help="of both servers, of which the median counts")
    parser.add_argument("--at-once", type=int, default=50, help="files that arrive together; 0: not measured")
    parser.add_argument("--mb-each", type=int, default=20, help="size of each of these, in MiB")
    parser.add_argument("--seconds", type=float, default=20, help="of listening, with and without uploads")
    parser.add_argument("--no-write", action="store_true", help="print only")
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.bare:
        bare()
        return 0
    result: dict[str, Any] = {"mb": given.mb, "rounds": given.rounds}
    settings = {"ENGINE": "scripted", "MAX_CONNECTIONS_PER_ADDRESS": "10000"}
    with serving(UPLOADS, **settings) as server, bare_server(server.folder) as other:
        ours = Side("scribewire", server.base, server.pid, server.key, REFUSED)
        result["systems"] = [*one_by_one((ours, other), noise(server.folder, given.mb), given.rounds)]
        if given.at_once:
            result["at_once"] = given.at_once
            file = noise(server.folder, given.mb_each)
            result["together"] = side_by_side(server, ours, file, given.at_once, given.seconds)
    print(json.dumps(result, indent=1))
    if not given.no_write:
        print(write("uploads", result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
