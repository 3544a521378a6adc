"""Answers that come piece by piece: what they read from is closed with them."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Iterator

import pytest

from server.http.streamed import Streamed

SCOPE = {"type": "http", "method": "GET", "asgi": {"spec_version": "2.3"}}


@pytest.fixture
def _no_garbage_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


class Source:
    def __init__(self, pieces: int) -> None:
        self.pieces = pieces
        self.open = False

    async def read(self) -> AsyncGenerator[bytes]:
        self.open = True
        try:
            for _ in range(self.pieces):
                yield b"piece"
        finally:
            self.open = False


@pytest.mark.usefixtures("_no_garbage_collection")
async def test_the_source_is_closed_when_a_client_leaves_in_the_middle():
    source, sent = Source(1000), []
    answered = asyncio.Event()

    async def send(message):
        sent.append(message)
        if len(sent) > 3:
            answered.set()
            await asyncio.sleep(60)  # a client that reads no further

    async def receive():
        await answered.wait()
        return {"type": "http.disconnect"}

    answer = Streamed(source.read(), headers={"ETag": "x"})
    await answer(SCOPE, receive, send)
    assert len(sent) == 4
    assert not source.open
