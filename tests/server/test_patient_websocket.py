"""Tests of websocket.py: a slow reader of a fast writer keeps its connection, and a dead one loses it."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from server.commands.connections import ConnectionRules, Connections
from server.commands.serve import HttpServer
from server.metrics import Metrics
from tests.server.storing import in_a_loop

PING_S = 0.1


@asynccontextmanager
async def serving(app: Callable[..., Awaitable[None]]) -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        rules = ConnectionRules(most=100, most_of_address=100)
        server = HttpServer(app, listening, Connections(rules, trusted_proxies=(), metrics=Metrics()))
        server.config.ws_ping_interval = server.config.ws_ping_timeout = PING_S
        running = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110  uvicorn has no event for it
            await asyncio.sleep(0.005)
        yield f"ws://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        await running


@in_a_loop
async def test_a_writer_faster_than_its_reader_is_not_taken_for_dead():
    taken = 0

    async def app(_scope, receive, send):
        nonlocal taken
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive" and message.get("bytes"):
            taken += len(message["bytes"])
            await asyncio.sleep(PING_S / 2)
        await send({"type": "websocket.close", "code": 1000})

    async with serving(app) as url, connect(url, proxy=None, ping_interval=None) as writer:
        for _ in range(40):  # takes twenty times as long as a pong may
            await writer.send(bytes(64 * 1024))
        await writer.send("that was all")
        with suppress(ConnectionClosed):
            await writer.recv()
        assert writer.close_code == 1000
    assert taken == 40 * 64 * 1024


@in_a_loop
async def test_little_of_what_a_slow_reader_has_not_read_waits_in_this_machine():
    go_on = asyncio.Event()

    async def app(_scope, receive, send):
        await receive()
        await send({"type": "websocket.accept"})
        await go_on.wait()
        await send({"type": "websocket.close", "code": 1000})

    async with serving(app) as url, connect(url, proxy=None, ping_interval=None) as writer:
        writer.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        sent = 0
        with suppress(TimeoutError):
            while True:
                await asyncio.wait_for(writer.send(bytes(16 * 1024)), 1)
                sent += 16 * 1024
        assert sent < 2 * 1024 * 1024
        go_on.set()


@in_a_loop
async def test_a_peer_that_says_nothing_at_all_is_dead():
    over = asyncio.Event()

    async def app(_scope, receive, send):
        await receive()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass
        over.set()

    async with serving(app) as url:
        writer = await connect(url, proxy=None, ping_interval=None, close_timeout=0.1)
        writer.transport.pause_reading()  # pings arrive, but are not answered
        await asyncio.wait_for(over.wait(), 10)
        writer.transport.abort()
