"""What the tests of realtime transcription sessions say to a server: OpenAI's package, or messages by themselves."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import openai
from openai.resources.realtime.realtime import AsyncRealtimeConnection
from websockets.asyncio.client import connect

from tests.server.running import Server
from tests.server.serving import AppServer

RATE = 24_000
INTENT = {"intent": "transcription"}
SILENCE = bytes(2 * RATE)
COMPLETED = "conversation.item.input_audio_transcription.completed"

PIPECAT = {
    "type": "session.update",
    "session": {
        "type": "transcription",
        "audio": {
            "input": {
                "format": {"type": "audio/pcm", "rate": 24000},
                "transcription": {"model": "gpt-realtime-whisper"},
                "turn_detection": None,
            }
        },
    },
}
"""What Pipecat 1.14 sends when it has seen session.created. It commits by its own voice detection."""


def url(server: Server | AppServer, **query: str) -> str:
    asked = "&".join(f"{name}={value}" for name, value in {**INTENT, **query}.items())
    return f"ws{server.base.removeprefix('http')}/v1/realtime?{asked}"


def append(data: bytes) -> str:
    return json.dumps({"type": "input_audio_buffer.append", "audio": base64.b64encode(data).decode()})


@asynccontextmanager
async def open_talk(server: Server | AppServer, key: str, **query: str) -> AsyncIterator["Talk"]:
    headers = {"Authorization": f"Bearer {key}"}
    async with connect(url(server, **query), additional_headers=headers, proxy=None, max_queue=None) as socket:
        yield Talk(socket)


class Talk:
    """A socket without OpenAI's package, and every event that came over it."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self.events: list[dict[str, Any]] = []

    async def next(self) -> dict[str, Any]:
        self.events.append(json.loads(await asyncio.wait_for(self.socket.recv(), 45)))
        return self.events[-1]

    async def until(self, kind: str) -> dict[str, Any]:
        while (event := await self.next())["type"] != kind:
            pass
        return event

    async def say(self, kind: str, **members: object) -> None:
        await self.socket.send(json.dumps({"type": kind, **members}))

    async def send(self, audio: bytes) -> None:
        for at in range(0, len(audio), RATE // 10):  # 50 ms
            await self.socket.send(append(audio[at : at + RATE // 10]))

    async def configure(self, first: Mapping[str, Any]) -> dict[str, Any]:
        await self.socket.send(json.dumps(first))
        return await self.until("session.updated")

    def kinds(self) -> list[str]:
        return [event["type"] for event in self.events]


@asynccontextmanager
async def connect_client(server: Server | AppServer, key: str) -> AsyncIterator[AsyncRealtimeConnection]:
    async with (
        openai.AsyncOpenAI(base_url=server.base + "/v1", api_key=key) as client,
        client.realtime.connect(extra_query=INTENT) as connection,
    ):
        yield connection
