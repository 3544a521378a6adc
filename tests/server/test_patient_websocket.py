"""Tests of websocket.py: a slow reader of a fast writer keeps its connection, and a dead one loses it."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
import uvicorn
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from server.commands.serve import transport
from tests.server.storing import in_a_loop

PING_S = 0.1


@asynccontextmanager
async def serving(app: Callable[..., Awaitable[None]]) -> AsyncIterator[str]:
    config = transport(app)
    config.ws_ping_interval = config.ws_ping_timeout = PING_S
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        running = asyncio.create_task(server._serve(sockets=[listening]))
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


@in_a_loop
async def test_a_websocket_that_is_refused_in_http_is_no_error_in_the_log(caplog):
    async def app(_scope, _receive, send):
        start = {"type": "websocket.http.response.start", "status": 400, "headers": []}
        await send(start)
        await send({"type": "websocket.http.response.body", "body": b"no"})

    async with serving(app) as url:
        with pytest.raises(InvalidStatus):
            await connect(url, proxy=None)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@in_a_loop
async def test_text_that_is_not_utf8_closes_the_websocket_without_a_traceback_in_the_log(caplog):
    codes = []

    async def app(_scope, receive, send):
        await receive()
        await send({"type": "websocket.accept"})
        codes.append((await receive())["code"])

    async with serving(app) as url, connect(url, proxy=None, ping_interval=None) as writer:
        await writer.send([b"caf\xc3", b"\xa9", b"\xff"], text=True)
        with pytest.raises(ConnectionClosed):
            await writer.recv()
        assert writer.close_code == 1007
    assert codes == [1007]
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@in_a_loop
async def test_a_route_that_speaks_after_a_broken_frame_is_told_that_its_client_is_gone(caplog):
    refused = []

    async def app(_scope, receive, send):
        await receive()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass
        for message in ({"type": "websocket.send", "text": "still there?"}, {"type": "websocket.close", "code": 1000}):
            try:
                await send(message)
            except OSError:  # what Starlette takes for a client that left
                refused.append(message["type"])

    async with serving(app) as url, connect(url, proxy=None, ping_interval=None) as writer:
        writer.transport.write(b"\xff" * 20)  # reserved bits, an unknown kind of frame
        with pytest.raises(ConnectionClosed):
            await writer.recv()
        assert writer.close_code == 1002
    assert refused == ["websocket.send", "websocket.close"]
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@in_a_loop
async def test_text_in_several_frames_arrives_whole():
    async def app(_scope, receive, send):
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": (await receive())["text"]})
        await send({"type": "websocket.close", "code": 1000})

    async with serving(app) as url, connect(url, proxy=None, ping_interval=None) as writer:
        await writer.send([b"caf\xc3", b"\xa9"], text=True)
        assert await writer.recv() == "caf\N{LATIN SMALL LETTER E WITH ACUTE}"
