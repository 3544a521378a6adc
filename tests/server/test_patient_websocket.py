"""Tests of websocket.py: a slow reader of a fast writer keeps its connection, and a dead one loses it."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from server.http.sockets import Socket
from server.metrics import Metrics
from server.transport import websocket
from server.transport.connections import ConnectionRules, Connections
from server.transport.http_server import HttpServer
from server.transport.websocket import MAX_FRAGMENTS
from tests.server.storing import in_a_loop

PING_S = 0.1
HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@asynccontextmanager
async def connected_to(app: Callable[..., Awaitable[None]]) -> AsyncIterator[tuple[HttpServer, ClientConnection]]:
    """A client of a server that the test stops itself. Nobody has to answer pings."""
    async with started(app, ping_s=60) as (server, url), connect(url, proxy=None) as client:
        yield server, client


@asynccontextmanager
async def serving(app: Callable[..., Awaitable[None]]) -> AsyncIterator[str]:
    async with started(app) as (_, url):
        yield url


@asynccontextmanager
async def started(
    app: Callable[..., Awaitable[None]], *, ping_s: float = PING_S
) -> AsyncIterator[tuple[HttpServer, str]]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        rules = ConnectionRules(max_open=100, max_of_address=100, max_of_account=100)
        server = HttpServer(app, listening, Connections(rules, trusted_proxies=(), metrics=Metrics()))
        server.config.ws_ping_interval = server.config.ws_ping_timeout = ping_s
        running = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110  uvicorn has no event for it
            await asyncio.sleep(0.005)
        try:
            yield server, f"ws://127.0.0.1:{listening.getsockname()[1]}"
        finally:  # a loop whose listening socket is closed under it would never end
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


# --- what a peer may send --------------------------------------------------------------------------------------------


async def keep(_scope, receive, send):
    """An app that takes whatever comes, until the end."""
    await receive()
    await send({"type": "websocket.accept"})
    while (await receive())["type"] != "websocket.disconnect":
        pass


@in_a_loop
@pytest.mark.parametrize("part", [b"", b"x"])
async def test_a_message_has_a_bounded_number_of_frames(part):
    async with serving(keep) as url, connect(url, proxy=None) as writer:
        await writer.send([part] * (MAX_FRAGMENTS - 1))  # and an empty one for its end
        await writer.send([part] * (MAX_FRAGMENTS + 1))
        await writer.wait_closed()
        assert writer.close_code == 1009


@in_a_loop
async def test_a_peer_that_reads_no_answer_to_its_pings_is_cut():
    over = asyncio.Event()

    async def app(scope, receive, send):
        await keep(scope, receive, send)
        over.set()

    async with serving(app) as url:
        host, port = url.removeprefix("ws://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1)
        writer.write(HANDSHAKE)
        await reader.readexactly(12)
        ping = b"\x89\xfd" + bytes(4) + bytes(125)  # with a mask of zeros
        async with asyncio.timeout(20):
            while not over.is_set():
                writer.write(ping * 1000)
                with suppress(ConnectionError):
                    await writer.drain()
                await asyncio.sleep(0)
        writer.transport.abort()


# --- the end ---------------------------------------------------------------------------------------------------------


PING = b"\x89\x80\0\0\0\0"
EMPTY = b"\x82\x80\0\0\0\0"


@asynccontextmanager
async def stranger(url: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """The streams of an open WebSocket, for frames as they are on the wire."""
    reader, writer = await asyncio.open_connection(*url.removeprefix("ws://").split(":"))
    writer.write(HANDSHAKE)
    await reader.readuntil(b"\r\n\r\n")
    yield reader, writer
    writer.transport.abort()


async def listen_on(_scope, receive, send):
    await receive()
    await send({"type": "websocket.accept"})
    while (await receive())["type"] == "websocket.receive":
        pass


@in_a_loop
async def test_a_peer_that_sends_hundreds_of_pings_is_cut():
    async with serving(listen_on) as url, stranger(url) as (reader, writer):
        writer.write(PING * 1000)
        said = await asyncio.wait_for(reader.read(), 10)
    assert said.count(b"\x8a\x00") == 64
    assert b"\x88\x11\x03\xf0too many frames" in said  # 1008


@in_a_loop
async def test_a_peer_that_pings_every_now_and_then_is_not():
    async with started(listen_on, ping_s=60) as (_, url), stranger(url) as (reader, writer):
        for _ in range(80):
            writer.write(PING)
            await asyncio.sleep(0.02)
        assert (await reader.readexactly(160)).count(b"\x8a\x00") == 80


@in_a_loop
async def test_frames_without_audio_are_taken_slowly_and_none_is_lost():
    taken = []

    async def app(scope, receive, send):
        await listen_on(scope, counted(receive), send)

    def counted(receive):
        async def count():
            message = await receive()
            taken.append(asyncio.get_running_loop().time())
            return message

        return count

    async with started(app, ping_s=60) as (_, url), stranger(url) as (_, writer):
        writer.write(EMPTY * 700 + b"\x88\x80\0\0\0\0")
        while len(taken) < 702:  # noqa: ASYNC110  the socket has no event for it
            await asyncio.sleep(0.01)
    assert 0.6 < taken[-1] - taken[0] < 5  # 500 at once, and 200 a second


@in_a_loop
async def test_what_one_peer_sends_at_once_is_parsed_a_little_at_a_time():
    longest = 0.0

    async def watch():
        nonlocal longest
        while True:
            began = asyncio.get_running_loop().time()
            await asyncio.sleep(0)
            longest = max(longest, asyncio.get_running_loop().time() - began)

    async with serving(listen_on) as url, stranger(url) as (reader, writer):
        watching = asyncio.create_task(watch())
        writer.write(EMPTY * 20_000)
        await asyncio.sleep(0.5)
        watching.cancel()
        assert not reader.at_eof()
    assert longest < 0.05  # parsing all of it takes 0.2 s


@in_a_loop
async def test_who_goes_on_sending_after_the_close_is_cut():
    async def app(_scope, receive, send):
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close", "code": 4401})

    async with serving(app) as url, stranger(url) as (reader, writer):
        assert b"\x88\x02\x11\x31" in await reader.readexactly(4)
        writer.write(EMPTY * 4000)
        with suppress(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 5)  # who sends nothing is cut after 10 s


@in_a_loop
async def test_what_is_sent_before_the_socket_is_open_is_parsed_when_it_is():
    opened, seen = asyncio.Event(), []

    async def app(_scope, receive, send):
        await receive()
        await opened.wait()
        await send({"type": "websocket.accept"})
        seen.append((await receive())["bytes"])
        await send({"type": "websocket.close"})

    async with serving(app) as url:
        reader, writer = await asyncio.open_connection(*url.removeprefix("ws://").split(":"))
        writer.write(HANDSHAKE)
        await asyncio.sleep(0.1)
        writer.write(b"\x82\x81\0\0\0\0a")
        await asyncio.sleep(0.1)
        opened.set()
        await reader.readuntil(b"\x88")
        writer.close()
    assert seen == [b"a"]


@in_a_loop
async def test_a_route_that_does_not_end_its_socket_at_a_stop_is_ended_with_going_away(monkeypatch):
    monkeypatch.setattr(websocket, "LEAVE_S", 0.2)
    async with connected_to(keep) as (server, client):
        server.should_exit = True
        await asyncio.wait_for(client.wait_closed(), 5)
        assert (client.close_code, client.close_reason) == (1001, "shutting_down")


@in_a_loop
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

    async with connected_to(app) as (server, client):
        client.transport.pause_reading()  # so that it does not answer the close
        server.should_exit = True
        await asyncio.wait_for(over.wait(), 5)
        client.transport.abort()
    assert not caplog.records


@in_a_loop
async def test_a_route_that_ends_its_socket_at_a_stop_says_all_it_has_to_say():
    stopping = asyncio.Event()

    async def app(_scope, receive, send):
        await receive()
        await send({"type": "websocket.accept"})
        await stopping.wait()
        await asyncio.sleep(0.5)  # uvicorn has begun to shut down
        await send({"type": "websocket.send", "text": "the last words"})
        await send({"type": "websocket.close", "code": 4400})

    async with connected_to(app) as (server, client):
        server.should_exit = True
        stopping.set()
        assert await asyncio.wait_for(client.recv(), 5) == "the last words"
        await client.wait_closed()
        assert client.close_code == 4400


@in_a_loop
async def test_what_is_sent_after_the_connection_was_closed_is_no_fault_of_the_route(caplog):
    """Of two tasks that send, the second may learn from the first one that the peer is gone, or from the server."""
    seen: list[int] = []

    async def app(scope, receive, send):
        socket = Socket(WebSocket({**scope, "state": {}}, receive, send), route="/", metrics=Metrics())
        await receive()
        await send({"type": "websocket.accept"})
        socket.websocket.application_state = WebSocketState.CONNECTED
        for _ in range(2):
            try:
                while True:
                    await socket.send(b"{}")
                    await asyncio.sleep(0.01)
            except WebSocketDisconnect as left:
                seen.append(left.code)

    async with serving(app) as url:
        client = await connect(url, proxy=None, ping_interval=None, close_timeout=0.1)
        client.transport.pause_reading()  # no pong comes, and the server ends the connection
        while len(seen) < 2:  # noqa: ASYNC110  the app's
            await asyncio.sleep(0.05)
        client.transport.abort()
    assert seen == [1006, 1006]
    assert not caplog.records


@in_a_loop
async def test_messages_of_one_moment_are_written_together():
    async def app(scope, receive, send):
        socket = Socket(WebSocket({**scope, "state": {}}, receive, send), route="/", metrics=Metrics())
        await receive()
        await send({"type": "websocket.accept"})
        socket.websocket.application_state = WebSocketState.CONNECTED
        await receive()
        await socket.send(b"1", b"2", b"3")
        await receive()

    async with connected_to(app) as (_, client):
        before = _data_segments(client.transport.get_extra_info("socket"))
        await client.send("now")
        assert [await asyncio.wait_for(client.recv(), 5) for _ in range(3)] == ["1", "2", "3"]
        assert _data_segments(client.transport.get_extra_info("socket")) == before + 1


def _data_segments(connection: socket.socket) -> int:
    """How many TCP segments with data have come in (Linux: tcpi_data_segs_in)."""
    [count] = struct.unpack_from("I", connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160), 152)
    return int(count)
