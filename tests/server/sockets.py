"""Servers with one WebSocket app, and peers that speak to them frame by frame."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

from websockets.asyncio.client import ClientConnection, connect

from server.metrics import Metrics
from server.transport.connections import ConnectionRules, Connections
from server.transport.http_server import HttpServer
from tests.waiting import eventually

PING_S = 0.1
HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@asynccontextmanager
async def connect_to(app: Callable[..., Awaitable[None]]) -> AsyncIterator[tuple[HttpServer, ClientConnection]]:
    """A client of a server that the test stops itself. Nobody has to answer pings."""
    async with start_server(app, ping_s=60) as (server, url), connect(url, proxy=None) as client:
        yield server, client


@asynccontextmanager
async def serve_url(app: Callable[..., Awaitable[None]]) -> AsyncIterator[str]:
    async with start_server(app) as (_, url):
        yield url


Wire: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def wire_to(app: Callable[..., Awaitable[None]]) -> AsyncIterator[Wire]:
    """The streams of a connection to a server with this app."""
    async with serve_url(app) as url:
        reader, writer = await open_wire(url)
        yield reader, writer
        writer.close()


async def open_wire(url: str) -> Wire:
    return await asyncio.open_connection(*url.removeprefix("ws://").split(":"))


@asynccontextmanager
async def start_server(
    app: Callable[..., Awaitable[None]], *, ping_s: float = PING_S
) -> AsyncIterator[tuple[HttpServer, str]]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        rules = ConnectionRules(max_open=100, max_of_address=100, max_of_account=100)
        server = HttpServer(app, listening, Connections(rules, trusted_proxies=(), metrics=Metrics()))
        server.config.ws_ping_interval = server.config.ws_ping_timeout = ping_s
        running = asyncio.create_task(server.serve())
        await eventually(lambda: server.started)
        try:
            yield server, f"ws://127.0.0.1:{listening.getsockname()[1]}"
        finally:  # a loop whose listening socket is closed under it would never end
            server.should_exit = True
            await running


async def keep(_scope, receive, send):
    """An app that takes whatever comes, until the end."""
    await receive()
    await send({"type": "websocket.accept"})
    while (await receive())["type"] != "websocket.disconnect":
        pass


@asynccontextmanager
async def stranger(url: str) -> AsyncIterator[Wire]:
    """The streams of an open WebSocket, for frames as they are on the wire."""
    reader, writer = await open_wire(url)
    writer.write(HANDSHAKE)
    await reader.readuntil(b"\r\n\r\n")
    yield reader, writer
    writer.transport.abort()
