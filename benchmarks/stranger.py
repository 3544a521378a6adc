"""Clients that work while a stranger holds connections, and a stop with many readers: python -m benchmarks.stranger

    .venv/bin/python -m benchmarks.stranger --seconds 60 --readers 4000

Twenty clients of as many accounts and addresses upload a short recording, look at its record and rest, over and over
(scripted engine). Meanwhile a stranger at one other address holds 1,000 connections on which it says nothing and 200
uploads that advance by a byte a second, and opens each again when it is closed. Times with and without the stranger are
taken in turns, so that a machine which others use as well disturbs both alike. Then readers of live sessions connect,
and the server is told to stop. Writes benchmarks/results/stranger.json. Linux: its loopback has many addresses.
"""

import argparse
import asyncio
import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
import wave
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks.measure import ROOT, rss_mb, spread, write
from benchmarks.serving import Serving, serving

INNOCENTS = 20
SILENT = 1000
SLOW = 200
ROUNDS = 3  # with and without the stranger, one after the other
STRANGER = "127.0.0.2"
REST_S = 0.5
SETTLE_S = 5.0  # in which the stranger's connections come
READERS_OF_SESSION = 1000
STOP_S = 60
UPLOAD = (
    "POST /v1/transcribe HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
    "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 100000000\r\n\r\n"
    '--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
)
PLENTY = {
    "requests_per_minute = 30        # per account": "requests_per_minute = 100000  # per account",
    "transcriptions_per_month = 5\n": "transcriptions_per_month = 1000000\n",
}


# --- the stranger, in a process of its own ---------------------------------------------------------------------------


async def strange(base: str) -> None:
    """Hold connections until this process is killed."""
    host, port = base.removeprefix("http://").split(":")
    async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(local_address=STRANGER)) as client:
        key = (await client.post(f"{base}/v1/keys")).json()["key"]

    async def hold(begin: bytes) -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(host, int(port), local_addr=(STRANGER, 0))
                with contextlib.closing(writer):
                    writer.write(begin)
                    drip = asyncio.create_task(_drip(writer)) if begin else None
                    while await reader.read(65_536):
                        pass
                    if drip is not None:
                        drip.cancel()
            await asyncio.sleep(1)

    await asyncio.gather(
        *(hold(b"") for _ in range(SILENT)), *(hold(UPLOAD.format(key=key).encode()) for _ in range(SLOW))
    )


async def _drip(writer: asyncio.StreamWriter) -> None:
    while True:
        await asyncio.sleep(1)
        writer.write(b"x")


@contextlib.contextmanager
def stranger(server: Serving) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.stranger", "--strange", server.base], cwd=ROOT)
    try:
        time.sleep(SETTLE_S)
        yield
    finally:
        process.kill()
        process.wait()


# --- the others ------------------------------------------------------------------------------------------------------


@dataclass
class Times:
    """What the clients saw, in seconds."""

    uploads: list[float] = field(default_factory=list)  # until the transcript was there
    looks: list[float] = field(default_factory=list)  # at a record
    errors: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "transcripts": len(self.uploads),
            "errors": len(self.errors),
            "transcript_s": spread(self.uploads),
            "look_s": spread(self.looks),
        }


def make_wav() -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(bytes(2 * 16_000 * 2))
    return out.getvalue()


class Innocents:
    """The clients, each with an account and an address of its own."""

    def __init__(self, base: str) -> None:
        self._audio = make_wav()
        self._clients = [
            httpx.AsyncClient(
                base_url=base, timeout=60, transport=httpx.AsyncHTTPTransport(local_address=f"127.0.1.{number + 1}")
            )
            for number in range(INNOCENTS)
        ]

    async def sign_up(self) -> None:
        for client in self._clients:
            key = (await client.post("/v1/keys")).json()["key"]
            client.headers["Authorization"] = f"Bearer {key}"

    async def work(self, seconds: float, times: Times) -> None:
        until = time.monotonic() + seconds
        await asyncio.gather(*(self._work(client, until, times) for client in self._clients))

    async def leave(self) -> None:
        for client in self._clients:
            await client.aclose()

    async def _work(self, client: httpx.AsyncClient, until: float, times: Times) -> None:
        while time.monotonic() < until:
            began = time.monotonic()
            try:
                made = await client.post("/v1/transcribe", files={"file": ("a.wav", self._audio)})
                if made.status_code != 200 or made.json()["status"] != "completed":
                    times.errors.append(made.text[:200])
                    continue
                times.uploads.append(time.monotonic() - began)
                began = time.monotonic()
                (await client.get(f"/v1/jobs/{made.json()['job_id']}")).raise_for_status()
                times.looks.append(time.monotonic() - began)
            except httpx.HTTPError as error:
                times.errors.append(repr(error))
            await asyncio.sleep(REST_S)


async def measure_disturbance(server: Serving, seconds: float) -> dict[str, Any]:
    """Return what the clients saw without and with the stranger."""
    alone, beside, innocents = Times(), Times(), Innocents(server.base)
    await innocents.sign_up()
    await innocents.work(seconds / 4, Times())  # to warm up
    for _ in range(ROUNDS):
        await innocents.work(seconds, alone)
        with stranger(server):
            await innocents.work(seconds, beside)
            memory_mb = rss_mb(server.pid)
        await asyncio.sleep(SETTLE_S)
    await innocents.leave()
    for error in beside.errors[:5] + alone.errors[:5]:
        print(error, file=sys.stderr)
    rows = {"without": alone.to_json(), "with": beside.to_json()}
    ratios = {
        name: round(rows["with"][name]["p95"] / rows["without"][name]["p95"], 2) for name in ("transcript_s", "look_s")
    }
    return {"clients": INNOCENTS, "silent_connections": SILENT, "slow_uploads": SLOW, "p95_ratio": ratios,
            "rss_mb": round(memory_mb), **rows}  # fmt: skip


# --- the stop --------------------------------------------------------------------------------------------------------


async def measure_stop(server: Serving, readers: int) -> dict[str, Any]:
    """Return how long the server takes to stop while so many *readers* follow live sessions, and what they receive."""
    place = (server.base.removeprefix("http://").split(":")[0], int(server.base.rpartition(":")[2]))
    loop, jobs = asyncio.get_running_loop(), await _sessions(server, -(-readers // READERS_OF_SESSION))
    connected = asyncio.Semaphore(0)
    whole: list[bool] = []

    async def follow(job: str) -> None:
        with socket.socket() as reader:
            reader.setblocking(False)
            await loop.sock_connect(reader, place)
            head = f"GET /v1/jobs/{job}/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.key}\r\n\r\n"
            await loop.sock_sendall(reader, head.encode())
            seen = b""
            while data := await loop.sock_recv(reader, 65_536):
                if not seen:
                    connected.release()
                seen = (seen + data)[-100:]
        whole.append(seen.endswith(b"\r\n0\r\n\r\n"))

    following = [asyncio.create_task(follow(jobs[number // READERS_OF_SESSION])) for number in range(readers)]
    for _ in range(readers):
        await connected.acquire()
    began = time.monotonic()
    os.kill(server.pid, signal.SIGTERM)
    async with asyncio.timeout(STOP_S):
        await asyncio.gather(*following)
        while _runs(server.pid):  # noqa: ASYNC110  another process
            await asyncio.sleep(0.05)
    return {"readers": readers, "stop_s": round(time.monotonic() - began, 2), "streams_ended_whole": sum(whole)}


async def _sessions(server: Serving, number: int) -> list[str]:
    """Return the ids of new live sessions, each with ten seconds of speech."""
    jobs: list[str] = []
    key = {"Authorization": f"Bearer {server.key}"}
    async with httpx.AsyncClient(base_url=server.base, headers=key) as client:
        for _ in range(number):
            jobs.append((await client.post("/v1/live", json={})).json()["job_id"])
            audio = {"Content-Type": "application/octet-stream"}
            await client.post(f"/v1/jobs/{jobs[-1]}/audio", content=bytes(320_000), headers=audio)
    return jobs


def _runs(pid: int) -> bool:
    """Return whether the process runs. A zombie does not (Linux)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="of one round with or without the stranger")
    parser.add_argument("--readers", type=int, default=4000)
    parser.add_argument("--strange", metavar="BASE", help=argparse.SUPPRESS)
    parser.add_argument("--no-write", action="store_true", help="print only")
    given = parser.parse_args()
    if given.strange:
        asyncio.run(strange(given.strange))
    with serving(PLENTY, ENGINE="scripted") as server:
        result = asyncio.run(measure_disturbance(server, given.seconds))
    with serving(ENGINE="scripted") as server:
        result["stop"] = asyncio.run(measure_stop(server, given.readers))
    print(json.dumps(result, indent=1))
    if not given.no_write:
        print(write("stranger", result))
    return 0 if not result["with"]["errors"] and max(result["p95_ratio"].values()) <= 2 else 1


if __name__ == "__main__":
    sys.exit(main())
