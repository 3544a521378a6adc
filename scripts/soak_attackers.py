"""The attackers of a soak: they cost the server what they can, while its clients must get every promise kept.

Their answers do not matter, except a 500: no attack may cause an internal error. They use free accounts of the sandbox,
and erase their jobs, so that the soak can look for what is left.
"""

import asyncio
import base64
import random
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from scripts.fuzzing.containers import FILES, change_file
from scripts.soak_record import Record
from server.waiting import set_within
from tests.pipeline.boxes import mp4_of_samples

PAUSE_S = (0.2, 2.0)  # between two attacks of one attacker
ATTACK_S = 20.0  # at most
FRAMES = 3000
DRIPS = 10
PASSING = (httpx.HTTPError, OSError, WebSocketException, TimeoutError)
SERVER_ERROR = 500
HOSTILE = mp4_of_samples(20_000_000)


@dataclass(frozen=True, kw_only=True)
class Attackers:
    """Loops that attack until *stop* is set, each with one HTTP client of *accounts*."""

    accounts: Sequence[httpx.AsyncClient]
    record: Record
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, chance: random.Random) -> None:
        """Attack, and return once the last attack is over."""
        async with asyncio.TaskGroup() as tasks:
            for http in self.accounts:
                tasks.create_task(self._repeat(http, random.Random(chance.random())))

    async def _repeat(self, http: httpx.AsyncClient, chance: random.Random) -> None:
        attacks: Sequence[Callable[[httpx.AsyncClient, random.Random], Awaitable[None]]] = (
            self._index,
            self._broken_file,
            self._tiny_frames,
            self._drip,
            self._noise,
            self._vanish,
        )
        while not self.stop.is_set():
            attack = chance.choice(attacks)
            with suppress(*PASSING):  # also what a killed server does not answer
                async with asyncio.timeout(ATTACK_S):
                    await attack(http, chance)
            self.record.done[f"attack:{attack.__name__.removeprefix('_')}"] += 1
            await set_within(self.stop, chance.uniform(*PAUSE_S))
        with suppress(*PASSING):
            await erase_all(http)

    async def _index(self, http: httpx.AsyncClient, _chance: random.Random) -> None:
        """Let a live decoder build an index of millions of samples."""
        async with await self._open_writer(http, encoding="container") as socket:
            await socket.send(HOSTILE)
            await asyncio.sleep(1)
            socket.transport.abort()

    async def _broken_file(self, http: httpx.AsyncClient, chance: random.Random) -> None:
        audio = change_file(chance.randrange(FILES), chance.randrange(2**32))
        self._look(await http.post("/v1/transcribe", files={"file": audio}, headers={"Prefer": "respond-async"}))

    async def _tiny_frames(self, http: httpx.AsyncClient, _chance: random.Random) -> None:
        """Send pings and empty messages, as many as are taken."""
        async with await self._open_writer(http) as socket:
            for _ in range(FRAMES):
                await socket.ping()
                await socket.send(b"")

    async def _drip(self, http: httpx.AsyncClient, _chance: random.Random) -> None:
        """Begin an upload and let it stand."""
        host, port = urlsplit(str(http.base_url)).hostname, urlsplit(str(http.base_url)).port
        _, writer = await asyncio.open_connection(host, port)
        head = (
            f"POST /sandbox/v1/transcribe HTTP/1.1\r\nHost: soak\r\nAuthorization: {http.headers['authorization']}\r\n"
            "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 1000000\r\n\r\n"
            '--x\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\nRIFF'
        )
        writer.write(head.encode())
        for _ in range(DRIPS):
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.1)
        writer.transport.abort()

    async def _noise(self, http: httpx.AsyncClient, chance: random.Random) -> None:
        """Send requests without a key for unknown paths, with many headers and long tokens."""
        token = base64.urlsafe_b64encode(chance.randbytes(2000)).decode()
        strange = {f"x-{number}": "y" for number in range(chance.randrange(120))}
        async with httpx.AsyncClient(base_url=http.base_url, timeout=10) as stranger:
            for path in (f"/v1/jobs/job_x/events?token={token}", f"/{token}%1b%0a", "/v1/live", "/v1/jobs/x/stream"):
                self._look(await stranger.get(path, headers=strange))

    async def _vanish(self, http: httpx.AsyncClient, _chance: random.Random) -> None:
        """Have a session erased under its writer and its readers."""
        async with await self._open_writer(http, record=True) as socket:
            await socket.send(bytes(32_000))
            await asyncio.sleep(0.5)
            await erase_all(http)

    async def _open_writer(self, http: httpx.AsyncClient, **order: Any) -> connect:
        """Erase the sessions of earlier attacks, and return the socket of the writer of a new one."""
        await erase_all(http)
        answer = self._look(await http.post("/v1/live", json=order)).raise_for_status()
        return connect(answer.json()["live"]["ingest_ws"], proxy=None, create_connection=ClientConnection)

    def _look(self, answer: httpx.Response) -> httpx.Response:
        if answer.status_code == SERVER_ERROR:
            self.record.faults.append(f"an attack was answered with 500: {answer.request.url} {answer.text}"[:300])
        return answer


async def erase_all(http: httpx.AsyncClient) -> None:
    """Erase every job of the account."""
    while jobs := (await http.get("/v1/jobs", params={"limit": 100})).raise_for_status().json()["data"]:
        for job in jobs:
            await http.delete(f"/v1/jobs/{job['job_id']}", params={"force": "true"})


async def new_account(base: str) -> httpx.AsyncClient:
    """Sign up for the sandbox, as anybody may."""
    async with httpx.AsyncClient(base_url=base) as stranger:
        order = {"environment": "sandbox", "name": secrets.token_hex(4)}
        key = (await stranger.post("/v1/keys", json=order)).raise_for_status().json()["key"]
    return httpx.AsyncClient(base_url=f"{base}/sandbox", headers={"Authorization": f"Bearer {key}"}, timeout=15)
