"""What the tests of realtime transcription sessions say to a server: OpenAI's package, or messages by themselves."""

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
from tests.server.talking import Frame, Talk

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
async def open_talk(server: Server | AppServer, key: str, **query: str) -> AsyncIterator["RealtimeTalk"]:
    headers = {"Authorization": f"Bearer {key}"}
    async with connect(url(server, **query), additional_headers=headers, proxy=None, max_queue=None) as socket:
        yield RealtimeTalk(socket)


class RealtimeTalk(Talk):
    """A socket without OpenAI's package, and every event that came over it."""

    async def send(self, data: bytes, *, piece_s: float = 0.05) -> None:
        size = round(2 * RATE * piece_s)
        for at in range(0, len(data), size):
            await self.socket.send(append(data[at : at + size]))

    async def configure(self, first: Mapping[str, Any]) -> Frame:
        await self.socket.send(json.dumps(first))
        return await self.until("session.updated")

    def kinds(self) -> list[str]:
        return [event["type"] for event in self.frames]


@asynccontextmanager
async def connect_client(server: Server | AppServer, key: str) -> AsyncIterator[AsyncRealtimeConnection]:
    async with (
        openai.AsyncOpenAI(base_url=server.base + "/v1", api_key=key) as client,
        client.realtime.connect(extra_query=INTENT) as connection,
    ):
        yield connection
