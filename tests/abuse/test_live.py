"""Live sessions: a writer that says nothing, or too much, holds up nobody else's."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.abuse.arena import Stranger
from tests.pipeline.sounds import encode_audio, tone


def sessions(stranger: Stranger, count: int, **order: object) -> list[str]:
    """The writers' addresses of new sessions of one sandbox account."""
    client = stranger.new_client(sandbox=True)
    answers = [client.post("/v1/live", json=order) for _ in range(count)]
    return [answer.json()["live"]["ingest_ws"] for answer in answers if answer.status_code == 201]


async def test_sessions_that_are_opened_and_left_hold_up_nobody_else(ring):
    urls = [url for _ in range(3) for url in sessions(ring.stranger(), 10, encoding="container")]
    start = encode_audio(tone(5), "webm", "libopus")[:2000]

    async with AsyncExitStack() as stack:
        sockets = [await stack.enter_async_context(connect(url, proxy=None)) for url in urls]
        for socket in sockets:
            await socket.send(start)
        await asyncio.to_thread(ring.innocent.is_unharmed)
        for socket in sockets:
            await socket.send('{"type":"close"}')


async def test_a_writer_that_only_gives_orders_holds_up_nobody_else(ring):
    [url] = sessions(ring.stranger(), 1)

    async def flood(socket: ClientConnection) -> None:
        await socket.send(bytes(32_000))
        while True:
            await socket.send('{"type":"finalize"}')
            await asyncio.sleep(0)  # send() returns at once while the system takes it

    async with connect(url, proxy=None) as socket:
        flooding = asyncio.create_task(flood(socket))
        await asyncio.to_thread(ring.innocent.is_unharmed)
        flooding.cancel()
        socket.transport.abort()


async def test_a_message_of_endless_pieces_is_cut(ring):
    [url] = sessions(ring.stranger(), 1)

    async def send_pieces() -> None:
        async with connect(url, proxy=None) as socket:
            await socket.send("" for _ in range(1100))
            async for _ in socket:
                pass

    with pytest.raises(ConnectionClosed) as closed:
        await send_pieces()
    assert closed.value.rcvd is None or closed.value.rcvd.code == 1009
