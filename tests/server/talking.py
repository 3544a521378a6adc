"""Live clients for tests: HTTP requests, a writer's WebSocket, and readers of events.

The scripted engine says word number n of its text at 0.4 n s, whatever the audio is, so silence is enough.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from pipeline.recognition.engines.scripted import SCRIPT
from server.live.parts import LiveRules
from tests.server.running import Server
from tests.server.serving import AppServer
from tests.waiting import eventually

HASTY = LiveRules(look_s=0.05, takeover_s=0.2, seat_s=0.1, ack_s=0.05)
"""A server that looks often."""

IMPATIENT = replace(HASTY, idle_s=1.0, writerless_s=1.0)
"""A server that waits for nobody."""

SECOND = 32_000  # bytes of pcm_s16le at 16 kHz
Frame = Mapping[str, Any]


def silence(duration_s: float) -> bytes:
    """Return silence in the default encoding."""
    return bytes(2 * round(16_000 * duration_s))


def script_words(duration_s: float) -> list[str]:
    """Return every word that the scripted engine says in so much audio."""
    count = int((duration_s - 0.32 + 1e-9) / 0.4) + 1
    return [SCRIPT[number % len(SCRIPT)] for number in range(count)]


@dataclass
class Caller:
    """A client with an API key."""

    served: AppServer | Server
    secret: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secret}"}

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.served.base, headers=self.headers, timeout=30)

    async def start(self, **order: object) -> dict[str, Any]:
        """Start a session and return its record."""
        async with self.client() as client:
            answer = await client.post("/v1/live", json=order)
            assert answer.status_code == 201, answer.text
            record: dict[str, Any] = answer.json()
            return record

    @asynccontextmanager
    async def speaking(self, **order: object) -> AsyncIterator[tuple[dict[str, Any], "Talk"]]:
        """Start a session and write to it. Yield its record and the writer's WebSocket."""
        record = await self.start(**order)
        async with open_talk(record["live"]["ingest_ws"]) as talk:
            yield record, talk

    async def job(self, job_id: str, **query: object) -> dict[str, Any]:
        async with self.client() as client:
            record: dict[str, Any] = (await client.get(f"/v1/jobs/{job_id}", params=query)).json()
            return record

    async def token(self, job_id: str, scope: str, **more: object) -> str:
        async with self.client() as client:
            answer = await client.post("/v1/tokens", json={"job_id": job_id, "scope": scope, **more})
            return str(answer.json()["token"])

    async def events(self, job_id: str, *, after: int = 0) -> list[tuple[int | None, str, Frame]]:
        """Yield Server-Sent Events as (id, event, data) until the stream ends."""
        return [event async for event in self.sse(job_id, after=after)]

    async def sse(self, job_id: str, *, after: int = 0) -> AsyncIterator[tuple[int | None, str, Frame]]:
        async with (
            self.client() as client,
            client.stream("GET", f"/v1/jobs/{job_id}/events", params={"last_event_id": after}) as answer,
        ):
            assert answer.status_code == 200, await answer.aread()
            seen: dict[str, str] = {}
            async for line in answer.aiter_lines():
                name, _, value = line.partition(": ")
                if line:
                    seen[name] = value
                elif "data" in seen:
                    yield int(seen["id"]) if "id" in seen else None, seen["event"], json.loads(seen["data"])
                    seen = {}
                else:
                    seen = {}

    def socket(self, record: Mapping[str, Any], path: str = "audio") -> str:
        """Return the address of the session's WebSocket."""
        return f"ws{self.served.base.removeprefix('http')}/v1/jobs/{record['job_id']}/{path}"


@dataclass
class Talk:
    """A WebSocket, and everything that came over it."""

    socket: ClientConnection
    frames: list[Frame] = field(default_factory=list)

    async def next(self) -> Frame:
        frame: Frame = json.loads(await asyncio.wait_for(self.socket.recv(), 45))
        self.frames.append(frame)
        return frame

    async def until(self, holds: Callable[[Frame], bool] | str, **members: object) -> Frame:
        """Return the next frame that *holds*, or that has this type and these members."""
        while True:
            frame = await self.next()
            if isinstance(holds, str):
                if frame.items() >= {"type": holds, **members}.items():
                    return frame
            elif holds(frame):
                return frame

    async def send(self, data: bytes, *, piece_s: float = 0.1) -> None:
        size = round(SECOND * piece_s)
        for at in range(0, len(data), size):
            await self.socket.send(data[at : at + size])

    async def say(self, kind: str, **members: object) -> None:
        await self.socket.send(json.dumps({"type": kind, **members}))

    async def to_the_end(self) -> tuple[int, str]:
        """Receive everything that still comes, and return how the connection was closed."""
        try:
            while True:
                await self.next()
        except ConnectionClosed as closed:
            end = closed.rcvd
        assert end is not None, "the connection broke"
        return end.code, end.reason

    async def close(self) -> None:
        """End the session, and receive all that still comes."""
        await self.say("close")
        assert await self.to_the_end() == (1000, "")

    def of(self, kind: str) -> list[Frame]:
        return [frame for frame in self.frames if frame["type"] == kind]

    @property
    def words(self) -> list[str]:
        return [frame["word"] for frame in self.of("word")]


@asynccontextmanager
async def open_talk(url: str, headers: Mapping[str, str] | None = None, **more: Any) -> AsyncIterator[Talk]:
    # With a bounded queue a client that has stopped reading would wait ten seconds for the answer to its close.
    async with connect(url, additional_headers=headers, proxy=None, **{"max_queue": None, **more}) as socket:
        yield Talk(socket)


async def drop(talk: Talk, chance: random.Random) -> None:
    """End the connection in one of the ways in which connections end."""
    match chance.randrange(3):
        case 0:
            talk.socket.transport.abort()
        case 1:
            await talk.socket.close()
        case 2:
            talk.socket.transport.write_eof()
            await asyncio.sleep(0.01)
            talk.socket.transport.abort()


async def write_with_drops(url: str, audio: bytes, chance: random.Random, *, drops: int) -> None:
    """Send *audio*, and lose the connection *drops* times at random moments, with a new one each time."""
    moments = sorted(chance.randrange(len(audio)) for _ in range(drops))
    while True:
        with suppress(ConnectionClosed):
            async with open_talk(url) as talk:
                ready = await talk.next()
                if ready["type"] == "error":
                    assert ready["error"]["code"] == "ingest_busy"  # the broken connection is still being read
                    continue
                at = ready["received_bytes"]
                if moments:
                    stop = max(at, moments.pop(0))
                    while at < stop:
                        size = chance.randrange(1, SECOND)
                        await talk.socket.send(audio[at : min(stop, at + size)])
                        at += size
                        if chance.random() < 0.3:
                            await asyncio.sleep(chance.random() * 0.02)
                    await drop(talk, chance)
                    continue
                await talk.send(audio[at:], piece_s=0.5)
                await talk.close()
                return


def durable(frames: Iterable[Frame]) -> list[Frame]:
    """Return the events in *frames*. The last one is without its record, whose links are signed anew every time."""
    return [{name: frame[name] for name in frame if name != "data"} for frame in frames if "seq" in frame]


async def check_refusal(talk: Talk, code: int, name: str) -> None:
    """Check that the last frame is an error with this name, followed by a close with this code."""
    closed, reason = await talk.to_the_end()
    last = talk.frames[-1]
    assert last["type"] == "error"
    assert (closed, last["error"]["code"]) == (code, name)
    assert last["error"]["type"].endswith(name)
    assert reason.startswith(name)


async def wait_for_bytes(me: Caller, record: Mapping[str, Any], count: int) -> None:
    """Wait until the session has received so many bytes."""

    async def have_come() -> bool:
        return bool((await me.job(record["job_id"]))["live"]["received_bytes"] == count)

    await eventually(have_come)
