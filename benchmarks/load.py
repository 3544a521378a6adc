"""Many quiet readers and many pollers while jobs run: python -m benchmarks.load [--seconds 600]

Starts a server (scripted engine), opens 500 event streams on slow jobs, lets 50 clients poll at 1 Hz and keeps jobs
coming. Writes errors, latencies, the server's own event-loop lag and its memory, minute by minute, to
benchmarks/results/load.json.
"""

import argparse
import asyncio
import io
import json
import random
import sys
import time

import httpx
import numpy as np
import soundfile

from benchmarks.measure import own_rss_mb, rise, write
from benchmarks.serving import Serving, buckets, percentile, serving

STREAMS = 500
POLLERS = 50
JOBS_PER_S = 1.0
SAMPLE_S = 60.0  # between two looks at the server's memory

# One machine plays all the readers.
MANY = {
    "requests_per_minute = 3000": "requests_per_minute = 1000000",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=600)
    given = parser.parse_args()
    with serving(MANY, ENGINE="scripted", LOG_LEVEL="info") as server:
        result = asyncio.run(load(server, given.seconds))
    print(json.dumps(result, indent=1))
    print(write("load", result))
    return 0 if not result["errors"] else 1


class Load:
    """All clients and what they observed."""

    def __init__(self, client: httpx.AsyncClient, server: Serving) -> None:
        self._client = client
        self._server = server
        self._live: list[str] = []
        self.errors: list[str] = []
        self.polls: list[float] = []  # seconds each took
        self.made: list[str] = []
        self.opened = 0

    async def run(self, seconds: int) -> dict[str, object]:
        self._live = [await self._session() for _ in range(STREAMS // 50)]
        tasks = [asyncio.create_task(self._read(self._live[number % len(self._live)])) for number in range(STREAMS)]
        tasks += [asyncio.create_task(self._keep_alive(job_id)) for job_id in self._live]
        tasks += [asyncio.create_task(self._poll()) for _ in range(POLLERS)]
        tasks.append(asyncio.create_task(self._submit()))
        await asyncio.sleep(min(30, seconds / 4))
        before = await self._lag()
        memory_mb = await self._memory(seconds)
        after = await self._lag()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        self.polls.sort()
        return {
            "seconds": seconds,
            "streams": self.opened,
            "pollers": POLLERS,
            "jobs": len(self.made),
            "polls": len(self.polls),
            "poll_p50_ms": round(self.polls[len(self.polls) // 2] * 1000, 1),
            "poll_p99_ms": round(self.polls[int(len(self.polls) * 0.99)] * 1000, 1),
            "loop_lag_p99_ms_at_most": percentile(before, after, 0.99) * 1000,
            "memory_mb": memory_mb,
            "memory_rise_mb_per_min": rise(memory_mb, SAMPLE_S),
            "errors": self.errors[:10],
        }

    async def _lag(self) -> dict[float, float]:
        return buckets(await asyncio.to_thread(self._server.metrics))

    async def _memory(self, seconds: int) -> list[float]:
        """Measure the memory of the server process in MB, every SAMPLE_S."""
        seen = [own_rss_mb(self._server.pid)]
        for _ in range(round(seconds / SAMPLE_S)):
            await asyncio.sleep(SAMPLE_S)
            seen.append(own_rss_mb(self._server.pid))
        return [round(mb, 1) for mb in seen]

    async def _session(self) -> str:
        return str((await self._client.post("/v1/live", json={"encoding": "pcm_s16le"})).json()["job_id"])

    async def _read(self, job_id: str) -> None:
        """Follow one stream without events: a live session of silence sends only keep-alives."""
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
        """Send a moment of silence from time to time, so that the session stays open."""
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


async def load(server: Serving, seconds: int) -> dict[str, object]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=POLLERS)
    headers = {"Authorization": f"Bearer {server.key}"}
    async with httpx.AsyncClient(base_url=server.base, headers=headers, timeout=30, limits=limits) as client:
        return await Load(client, server).run(seconds)


def silence(seconds: int) -> bytes:
    out = io.BytesIO()
    soundfile.write(out, np.zeros(8000 * seconds, np.int16), 8000, format="FLAC")
    return out.getvalue()


if __name__ == "__main__":
    sys.exit(main())
