"""Tests of websocket.py: a slow reader of a fast writer keeps its connection, and a dead one loses it."""

import asyncio
import socket
from contextlib import suppress

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from server.transport import websocket
from tests.server.sockets import PING_S, connect_to, keep, serve_url


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

    async with serve_url(app) as url, connect(url, proxy=None, ping_interval=None) as writer:
        for _ in range(40):  # takes twenty times as long as a pong may
            await writer.send(bytes(64 * 1024))
        await writer.send("that was all")
        with suppress(ConnectionClosed):
            await writer.recv()
        assert writer.close_code == 1000
    assert taken == 40 * 64 * 1024


async def test_little_of_what_a_slow_reader_has_not_read_waits_in_this_machine():
    go_on = asyncio.Event()

    async def app(_scope, receive, send):
        await receive()
        await send({"type": "websocket.accept"})
        await go_on.wait()
        await send({"type": "websocket.close", "code": 1000})

    async with serve_url(app) as url, connect(url, proxy=None, ping_interval=None) as writer:
        writer.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        sent = 0
        with suppress(TimeoutError):
            while True:
                await asyncio.wait_for(writer.send(bytes(16 * 1024)), 1)
                sent += 16 * 1024
        assert sent < 2 * 1024 * 1024
        go_on.set()


async def test_a_peer_that_says_nothing_at_all_is_dead():
    over = asyncio.Event()

    async def app(_scope, receive, send):
        await receive()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass
        over.set()

    async with serve_url(app) as url:
        writer = await connect(url, proxy=None, ping_interval=None, close_timeout=0.1)
        writer.transport.pause_reading()  # pings arrive, but are not answered
        await asyncio.wait_for(over.wait(), 10)
        writer.transport.abort()


async def test_a_websocket_that_is_refused_in_http_is_no_error_in_the_log(caplog):
    async def app(_scope, _receive, send):
        start = {"type": "websocket.http.response.start", "status": 400, "headers": []}
        await send(start)
        await send({"type": "websocket.http.response.body", "body": b"no"})

    async with serve_url(app) as url:
        with pytest.raises(InvalidStatus):
            await connect(url, proxy=None)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_text_that_is_not_utf8_closes_the_websocket_without_a_traceback_in_the_log(caplog):
    codes = []

    async def app(_scope, receive, send):
        await receive()
        await send({"type": "websocket.accept"})
        codes.append((await receive())["code"])

    async with serve_url(app) as url, connect(url, proxy=None, ping_interval=None) as writer:
        await writer.send([b"caf\xc3", b"\xa9", b"\xff"], text=True)
        with pytest.raises(ConnectionClosed):
            await writer.recv()
        assert writer.close_code == 1007
    assert codes == [1007]
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


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

    async with serve_url(app) as url, connect(url, proxy=None, ping_interval=None) as writer:
        writer.transport.write(b"\xff" * 20)  # reserved bits, an unknown kind of frame
        with pytest.raises(ConnectionClosed):
            await writer.recv()
        assert writer.close_code == 1002
    assert refused == ["websocket.send", "websocket.close"]
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_text_in_several_frames_arrives_whole():
    async def app(_scope, receive, send):
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": (await receive())["text"]})
        await send({"type": "websocket.close", "code": 1000})

    async with serve_url(app) as url, connect(url, proxy=None, ping_interval=None) as writer:
        await writer.send([b"caf\xc3", b"\xa9"], text=True)
        assert await writer.recv() == "caf\N{LATIN SMALL LETTER E WITH ACUTE}"


# --- the end ---------------------------------------------------------------------------------------------------------


async def test_a_route_that_does_not_end_its_socket_at_a_stop_is_ended_with_going_away(monkeypatch):
    monkeypatch.setattr(websocket, "LEAVE_S", 0.2)
    async with connect_to(keep) as (server, client):
        server.should_exit = True
        await asyncio.wait_for(client.wait_closed(), 5)
        assert (client.close_code, client.close_reason) == (1001, "shutting_down")


async def test_a_route_that_still_sends_after_the_stop_learns_that_the_peer_is_gone(monkeypatch, caplog):
    monkeypatch.setattr(websocket, "LEAVE_S", 0.2)
    over = asyncio.Event()

    async def app(_scope, receive, send):
        await receive()
        await send({"type": "websocket.accept"})
        with suppress(OSError):  # what ASGI says for a client that has left
            while True:
                await send({"type": "websocket.send", "text": "still here"})
                await asyncio.sleep(0.01)
        over.set()

    async with connect_to(app) as (server, client):
        client.transport.pause_reading()  # so that it does not answer the close
        server.should_exit = True
        await asyncio.wait_for(over.wait(), 5)
        client.transport.abort()
    assert not caplog.records


async def test_a_route_that_ends_its_socket_at_a_stop_says_all_it_has_to_say():
    stopping = asyncio.Event()

    async def app(_scope, receive, send):
        await receive()
        await send({"type": "websocket.accept"})
        await stopping.wait()
        await asyncio.sleep(0.5)  # uvicorn has begun to shut down
        await send({"type": "websocket.send", "text": "the last words"})
        await send({"type": "websocket.close", "code": 4400})

    async with connect_to(app) as (server, client):
        server.should_exit = True
        stopping.set()
        assert await asyncio.wait_for(client.recv(), 5) == "the last words"
        await client.wait_closed()
        assert client.close_code == 4400
