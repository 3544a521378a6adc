"""Many quiet readers and many pollers while jobs run: python benchmarks/load.py [--seconds 600]

Starts a server (scripted engine), opens 500 event streams on slow jobs, lets 50 clients poll at 1 Hz and keeps jobs
coming. Writes errors, latencies, the server's own event-loop lag and its memory to benchmarks/results/load.json.
"""

import argparse
import asyncio
import io
import json
import os
import platform
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np
import soundfile

ROOT = Path(__file__).resolve().parents[1]
STREAMS = 500
POLLERS = 50
JOBS_PER_S = 1.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=600)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        limits = Path(folder) / "limits.toml"
        text = (ROOT / "server" / "limits.toml").read_text()
        for name in ("per_job = 5 ", "per_key = 20"):  # one machine plays all the readers
            text = text.replace(name, name.split("=")[0] + "= 1000 ")
        text = text.replace("requests_per_minute = 3000", "requests_per_minute = 1000000")
        limits.write_text(text)
        settings = {
            "DATA_DIR": f"{folder}/data", "PORT": "0", "ENGINE": "scripted", "LIMITS_FILE": str(limits),
            "LOG_LEVEL": "info",
        }  # fmt: skip
        log = Path(folder) / "log"
        with log.open("wb") as file:
            server = subprocess.Popen(
                [sys.executable, "-m", "server", "serve"], cwd=ROOT, stderr=file,
                env={**os.environ, **{f"SCRIBEWIRE_{name}": value for name, value in settings.items()}},
            )  # fmt: skip
        try:
            base = address(log)
            key = (Path(folder) / "data" / "operator-key").read_text().strip()
            result = asyncio.run(load(base, key, server.pid, given.seconds))
        finally:
            server.terminate()
            server.wait(60)
    (ROOT / "benchmarks" / "results" / "load.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0 if not result["errors"] else 1


class Load:
    """All the clients, and what they saw."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._live: list[str] = []
        self.errors: list[str] = []
        self.polls: list[float] = []  # seconds each took
        self.made: list[str] = []
        self.opened = 0

    async def run(self, pid: int, seconds: int) -> dict[str, object]:
        self._live = [await self._session() for _ in range(STREAMS // 50)]
        tasks = [asyncio.create_task(self._read(self._live[number % len(self._live)])) for number in range(STREAMS)]
        tasks += [asyncio.create_task(self._keep_alive(job_id)) for job_id in self._live]
        tasks += [asyncio.create_task(self._poll()) for _ in range(POLLERS)]
        tasks.append(asyncio.create_task(self._submit()))
        await asyncio.sleep(min(30, seconds / 4))
        early, before = memory_mb(pid), await buckets(self._client)
        await asyncio.sleep(seconds)
        late, after = memory_mb(pid), await buckets(self._client)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        self.polls.sort()
        return {
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "date": time.strftime("%Y-%m-%d"),
            "seconds": seconds,
            "streams": self.opened,
            "pollers": POLLERS,
            "jobs": len(self.made),
            "polls": len(self.polls),
            "poll_p50_ms": round(self.polls[len(self.polls) // 2] * 1000, 1),
            "poll_p99_ms": round(self.polls[int(len(self.polls) * 0.99)] * 1000, 1),
            "loop_lag_p99_ms_at_most": percentile(before, after, 0.99),
            "memory_mb_early": early,
            "memory_mb_late": late,
            "errors": self.errors[:10],
        }

    async def _session(self) -> str:
        return str((await self._client.post("/v1/live", json={"encoding": "pcm_s16le"})).json()["job_id"])

    async def _read(self, job_id: str) -> None:
        """One quiet reader: a live session to which only silence is written says nothing but keep-alives."""
        try:
            async with self._client.stream("GET", f"/v1/jobs/{job_id}/events", timeout=None) as answer:
                if answer.status_code != httpx.codes.OK:
                    self.errors.append(f"stream {answer.status_code}")
                    return
                self.opened += 1
                async for _ in answer.aiter_raw():
                    pass
        except httpx.TransportError as error:
            self.errors.append(f"stream {type(error).__name__}")

    async def _keep_alive(self, job_id: str) -> None:
        """A writer that sends a moment of silence now and then, so that the session stays open."""
        headers = {"Content-Type": "application/octet-stream"}
        while True:
            answer = await self._client.post(f"/v1/jobs/{job_id}/audio", content=bytes(3200), headers=headers)
            self._check("audio", answer)
            await asyncio.sleep(10)

    async def _poll(self) -> None:
        await asyncio.sleep(random.random())
        while True:
            began = time.perf_counter()
            try:
                self._check("poll", await self._client.get(f"/v1/jobs/{random.choice(self.made or self._live)}"))
            except httpx.TransportError as error:
                self.errors.append(f"poll {type(error).__name__}")
            self.polls.append(time.perf_counter() - began)
            await asyncio.sleep(1)

    async def _submit(self) -> None:
        audio = silence(60)
        while True:
            answer = await self._client.post("/v1/transcribe", files={"file": audio}, data={"wait": "0"})
            if self._check("submit", answer):
                self.made.append(answer.json()["job_id"])
            await asyncio.sleep(1 / JOBS_PER_S)

    def _check(self, what: str, answer: httpx.Response) -> bool:
        if answer.is_error:
            self.errors.append(f"{what} {answer.status_code}")
        return answer.is_success


async def load(base: str, key: str, pid: int, seconds: int) -> dict[str, object]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=POLLERS)
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=base, headers=headers, timeout=30, limits=limits) as client:
        return await Load(client).run(pid, seconds)


async def buckets(client: httpx.AsyncClient) -> dict[float, float]:
    """The loop-lag histogram of /metrics: upper edge in seconds -> count so far."""
    text = (await client.get("/metrics")).text
    found = re.findall(r'scribewire_loop_lag_seconds_bucket\{le="([^"]+)"\} (\S+)', text)
    return {float(edge.replace("+Inf", "inf")): float(count) for edge, count in found}


def percentile(before: dict[float, float], after: dict[float, float], share: float) -> float:
    """The upper edge in ms of the bucket in which the percentile lies."""
    counts = {edge: after[edge] - before[edge] for edge in after}
    total = counts[float("inf")]
    return next(edge for edge, count in sorted(counts.items()) if count >= share * total) * 1000


def memory_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return round(int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024, 1)  # type: ignore[index]


def silence(seconds: int) -> bytes:
    out = io.BytesIO()
    soundfile.write(out, np.zeros(8000 * seconds, np.int16), 8000, format="FLAC")
    return out.getvalue()


def address(log: Path) -> str:
    for _ in range(600):
        if found := re.search(r"ready (http\S+)", log.read_text()):
            return found[1]
        time.sleep(0.1)
    raise SystemExit("the server did not start:\n" + log.read_text())


if __name__ == "__main__":
    sys.exit(main())
