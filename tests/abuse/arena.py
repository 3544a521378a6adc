"""A real server process, strangers that abuse it, and an innocent customer whose work must go on meanwhile.

Strangers have addresses of their own (127.0.0.2, 127.0.0.3, ...) from which they call, and what accounts they like. The
innocent's round is a file, its webhook, a live session and an estimate at the same time.
"""

import asyncio
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from pathlib import Path
from statistics import median

import httpx

from server.client import Client
from tests.server.buckets import bucket_service
from tests.server.clustering import start_cluster
from tests.server.receiving import Receiver, receiver
from tests.server.running import Server, run_server
from tests.server.serving import TLS, wav
from tests.server.talking import script_words, silence
from tests.waiting import eventually

PARTS = ("file", "webhook", "live", "estimate")
FILE_S = 30.0
LIVE_S = 4.0
UNDISTURBED_ROUNDS = 3
MAX_S = 30.0  # of an undisturbed round, on the slowest machine
SLOWER = 2.0  # times the undisturbed seconds that each part of a round may take,
NOISE_S = 5.0  # and this much where other tests take the machine; abuse that works holds up others for longer


@dataclass(frozen=True)
class Innocent:
    """A paying customer of *server*, which calls its webhooks at *hook_url*, where *hook* receives them."""

    server: Server
    key: str
    hook: Receiver
    hook_url: str
    folder: Path

    @cached_property
    def undisturbed(self) -> Mapping[str, float]:
        """The seconds of each part of a round while nobody else is there."""
        rounds = [self._round(MAX_S) for _ in range(UNDISTURBED_ROUNDS)]
        return {name: median(seconds[name] for seconds in rounds) for name in PARTS}

    def is_unharmed(self) -> None:
        """Assert that a round takes hardly longer now than while nobody else is there."""
        seconds = self._round(max(self.undisturbed.values()) * SLOWER + NOISE_S)
        late = {
            name: f"{seconds.get(name, inf):.1f} s instead of {self.undisturbed[name]:.1f} s"
            for name in PARTS
            if seconds.get(name, inf) > SLOWER * self.undisturbed[name] + NOISE_S
        }
        assert not late, late

    def _round(self, max_s: float) -> dict[str, float]:
        """Do everything once, and return how many seconds each part took; what takes longer than *max_s* is missing."""
        return asyncio.run(self._do_all(max_s))

    async def _do_all(self, max_s: float) -> dict[str, float]:
        seconds: dict[str, float] = {}
        async with Client(self.server.base, self.key) as client:
            works = [self._transcribe(client, seconds), self._speak(client, seconds), self._estimate(seconds)]
            tasks = [asyncio.create_task(work) for work in works]
            done, late = await asyncio.wait(tasks, timeout=max_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)  # cancelled
        for task in done:
            task.result()
        return seconds

    async def _transcribe(self, client: Client, seconds: dict[str, float]) -> None:
        """Have a file transcribed; the webhook's time begins when the file is done."""
        recording = self.folder / "innocent.wav"
        recording.write_bytes(wav(FILE_S))
        began = time.monotonic()
        record = await client.transcribe(recording, webhook_url=f"{self.hook_url}/{uuid.uuid4()}")
        assert record["status"] == "completed", record
        done = time.monotonic()
        seconds["file"] = done - began
        await eventually(lambda: any(record["job_id"].encode() in got.body for got in self.hook.got))
        seconds["webhook"] = time.monotonic() - done

    async def _speak(self, client: Client, seconds: dict[str, float]) -> None:
        began = time.monotonic()
        async with client.live() as stream:
            await stream.send(silence(LIVE_S))
            stream.close()
            events = [event async for event in stream.events()]
        assert [event["word"] for event in events if event["type"] == "word"] == script_words(LIVE_S)
        seconds["live"] = time.monotonic() - began

    async def _estimate(self, seconds: dict[str, float]) -> None:
        began = time.monotonic()
        headers = {"Authorization": f"Bearer {self.key}"}
        async with httpx.AsyncClient(base_url=self.server.base, headers=headers, timeout=60, verify=TLS) as http:
            (await http.post("/v1/estimate", json={"prompt": "Ask not what your country"})).raise_for_status()
        seconds["estimate"] = time.monotonic() - began


@dataclass
class Stranger:
    """Somebody at an address of its own, with a free account unless told otherwise."""

    server: Server
    address: str
    clients: list[httpx.Client] = field(default_factory=list)

    def client(self, key: str | None = None, *, sandbox: bool = False) -> httpx.Client:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        base = self.server.base + ("/sandbox" if sandbox else "")
        transport = httpx.HTTPTransport(verify=TLS, local_address=self.address)
        client = httpx.Client(base_url=base, headers=headers, timeout=30, transport=transport)
        self.clients.append(client)
        return client

    def key(self, environment: str = "production") -> str:
        """Sign up, as anybody may, and return the key of the new account."""
        answer = self.client().post("/v1/keys", json={"environment": environment})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["key"])

    def new_client(self, *, sandbox: bool = False) -> httpx.Client:
        """A client of a new account."""
        return self.client(self.key("sandbox" if sandbox else "production"), sandbox=sandbox)


@dataclass
class Arena:
    server: Server
    innocent: Innocent
    strangers: list[Stranger] = field(default_factory=list)

    @property
    def address(self) -> tuple[str, int]:
        """Where the server listens."""
        host, _, port = self.server.base.removeprefix("http://").partition(":")
        return host, int(port)

    def stranger(self) -> Stranger:
        """Somebody who was never here before."""
        self.strangers.append(Stranger(self.server, f"127.0.1.{len(self.strangers) + 2}"))
        return self.strangers[-1]

    def leave(self) -> None:
        """All strangers go, and take their connections with them."""
        for stranger in self.strangers:
            for client in stranger.clients:
                client.close()
            stranger.clients.clear()


@contextmanager
def _arena_of(invaded: Server, innocent: Innocent) -> Iterator[Arena]:
    """An arena whose strangers come to *invaded* and leave when the block ends."""
    assert innocent.undisturbed
    ring = Arena(invaded, innocent)
    try:
        yield ring
    finally:
        ring.leave()


@contextmanager
def arena(folder: Path, *, before: Sequence[str] = (), hook_host: str = "127.0.0.1") -> Iterator[Arena]:
    """A server with the scripted engine, in which the innocent's undisturbed round has been measured.

    *before* is a command that starts the server, *hook_host* what the innocent calls this machine in webhook addresses.
    """
    folder.mkdir(exist_ok=True)
    with run_server(folder / "data", *before, ENGINE="scripted") as server, receiver() as hook:
        innocent = Innocent(server, server.new_key("pro"), hook, f"http://{hook_host}:{hook.port}", folder)
        with _arena_of(server, innocent) as ring:
            yield ring


@contextmanager
def arena_of_two_nodes(folder: Path) -> Iterator[Arena]:
    """Two nodes that share a database and a bucket: strangers come to the one, the innocent is at the other."""
    folder.mkdir(exist_ok=True)
    with (
        bucket_service(folder) as bucket,
        start_cluster(folder, bucket, ENGINE="scripted") as cluster,
        receiver() as hook,
    ):
        invaded, other = cluster.nodes
        innocent = Innocent(other, cluster.new_key("pro"), hook, f"http://127.0.0.1:{hook.port}", folder)
        with _arena_of(invaded, innocent) as ring:
            yield ring
