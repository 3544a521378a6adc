"""Tests of bulk.py: large bodies arrive as they were sent, whatever comes before, between and behind them."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from websockets.frames import Frame, Opcode

from server.transport.bulk import LEAST_BYTES, MOST_BYTES, TOGETHER_BYTES, BulkReads
from tests.server.sockets import HANDSHAKE, serve_url
from tests.server.storing import in_a_loop

MIB = 1024 * 1024
HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n"


def whole(body: bytes) -> bytes:
    return HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body


def send_chunked(body: bytes, chunk: int) -> bytes:
    pieces = (body[at : at + chunk] for at in range(0, len(body), chunk))
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(map(chunk_frame, pieces)) + chunk_frame(b"")


def chunk_frame(chunk: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(chunk), chunk)


@asynccontextmanager
async def connect_to(url: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        yield reader, writer
    finally:
        writer.close()


class EchoApp:
    """An app that keeps each body, and the longest piece of any, and sends every message of a WebSocket back."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.longest = 0
        self.left = asyncio.Event()

    async def __call__(self, scope, receive, send):
        if scope["type"] == "websocket":
            assert (await receive())["type"] == "websocket.connect"
            await send({"type": "websocket.accept"})
            await send({"type": "websocket.send", "bytes": (await receive())["bytes"]})
            return
        body = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.left.set()
                return
            body += message["body"]
            self.longest = max(self.longest, len(message["body"]))
            more = message["more_body"]
            await asyncio.sleep(0.001)  # so that the client is ahead
        self.bodies.append(bytes(body))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})


@in_a_loop
@pytest.mark.parametrize("chunk", [None, 1_000, 100_000, 300_000, 3 * MIB])
async def test_large_bodies_arrive_as_sent_with_small_ones_and_a_websocket_behind_them(chunk):
    bodies = [os.urandom(size) for size in (8 * MIB, 10, 131_072, 3 * MIB + 1, 0, 5 * MIB)]
    app = EchoApp()
    async with serve_url(app) as url, connect_to(url) as (reader, writer):
        for body in bodies:
            writer.write(whole(body) if chunk is None else send_chunked(body, chunk))
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        writer.write(HANDSHAKE)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        writer.write(Frame(Opcode.BINARY, b"heard").serialize(mask=True))
        assert await reader.readexactly(7) == b"\x82\x05heard"
    assert app.bodies == bodies
    assert app.longest > 256_000
    assert app.longest <= MOST_BYTES + 256_000


@in_a_loop
async def test_large_bodies_that_are_sent_together_are_received_one_after_the_other():
    bodies = [os.urandom(3 * MIB) for _ in range(3)]
    app = EchoApp()
    async with serve_url(app) as url, connect_to(url) as (reader, writer):
        writer.write(b"".join(map(whole, bodies)))
        for _ in bodies:
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    assert app.bodies == bodies


@in_a_loop
@pytest.mark.parametrize("chunk", [None, 300_000])
async def test_many_at_once_do_not_mix(chunk):
    bodies = sorted(os.urandom(3 * MIB) for _ in range(20))
    app = EchoApp()

    async def send(url: str, body: bytes) -> None:
        async with connect_to(url) as (reader, writer):
            writer.write(whole(body) if chunk is None else send_chunked(body, chunk))
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")

    async with serve_url(app) as url, asyncio.TaskGroup() as sending:
        for body in bodies:
            sending.create_task(send(url, body))
    assert sorted(app.bodies) == bodies


@in_a_loop
async def test_a_request_is_told_that_its_client_left_in_a_large_body():
    app = EchoApp()
    async with serve_url(app) as url:
        async with connect_to(url) as (_, writer):
            writer.write(whole(bytes(4 * MIB))[:-1])
            await writer.drain()
        await asyncio.wait_for(app.left.wait(), 5)
    assert app.bodies == []


@in_a_loop
async def test_a_body_that_breaks_in_a_large_piece_is_no_request():
    app = EchoApp()
    async with serve_url(app) as url, connect_to(url) as (reader, writer):
        writer.write(send_chunked(bytes(4 * MIB), 300_000)[:-5] + b"no length\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
    assert app.bodies == []
    assert app.left.is_set()


class Transport(asyncio.Transport):
    """Knows its protocol only."""

    def set_protocol(self, protocol):
        self.protocol = protocol


def test_what_is_read_from_all_together_in_a_turn_has_a_bound():
    bulk, http = BulkReads(), asyncio.Protocol()
    begun = []

    def share() -> int:
        return len(begun[0][0].protocol.get_buffer(-1))

    shares = []
    for _ in range(300):
        transport = Transport()
        begun.append((transport, bulk.begin(transport, http)))
        shares.append(share())
    assert shares[0] == MOST_BYTES
    assert shares[-1] == LEAST_BYTES
    assert all(size * count <= TOGETHER_BYTES for count, size in enumerate(shares, 1) if size > LEAST_BYTES)
    for transport, end in begun[1:]:
        end()
        assert transport.protocol is http
    assert share() == MOST_BYTES
