"""Scripted servers on loopback that the service calls, and a client that may break the rules of HTTP."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Self, TypeAlias


@dataclass(frozen=True)
class ParsedRequest:
    """A request as it was received."""

    method: str
    target: str
    headers: Mapping[str, str]  # names in lower case
    body: bytes


Script: TypeAlias = Callable[[ParsedRequest, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Peer:
    """A server that answers every request as *script* writes."""

    script: Script
    url: str = ""
    asked: list[ParsedRequest] = field(default_factory=list)
    connections: int = 0
    most_connections: int = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.most_connections = max(self.most_connections, self.connections)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            method, target, _ = head.split(" ", 2)
            lines = [line.partition(":") for line in head.split("\r\n")[1:] if line]
            headers = {name.lower(): value.strip() for name, _, value in lines}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.asked.append(ParsedRequest(method, target, headers, body))
            await self.script(self.asked[-1], writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the caller has left, which some scripts want
        finally:
            self.connections -= 1
            writer.close()


@asynccontextmanager
async def peer(script: Script, host: str = "127.0.0.1") -> AsyncIterator[Peer]:
    it = Peer(script)
    server = await asyncio.start_server(it._serve, host)
    it.url = f"http://{host}:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield it


def answer(status: int = 200, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} It", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def answer_in_turn(*answers: bytes) -> Script:
    """Answer with one text after the other, and with the last one from then on."""
    left = list(answers)

    async def script(_asked: ParsedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(left.pop(0) if len(left) > 1 else left[0])

    return script


def hold_until(go: asyncio.Event) -> Script:
    """Accept and read, but answer only when *go* is set."""

    async def script(_asked: ParsedRequest, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        writer.write(answer(200))

    return script


async def silence(_asked: ParsedRequest, _writer: asyncio.StreamWriter) -> None:
    """Accept, read, never answer."""
    await asyncio.sleep(60)


class RawClient:
    """A connection on which a test sends any bytes."""

    def __init__(self, base: str, *, timeout_s: float = 10.0) -> None:
        host, port = base.removeprefix("http://").rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self._read = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes | str) -> None:
        self._socket.sendall(data.encode("latin-1") if isinstance(data, str) else data)

    def answer(self) -> tuple[int, Mapping[str, str], bytes]:
        """Return the next answer's status, headers (names in lower case) and body."""
        while b"\r\n\r\n" not in self._read:
            self._receive()
        head, _, self._read = self._read.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        while len(self._read) < int(headers.get("content-length", 0)):
            self._receive()
        body, self._read = self._read[: int(headers.get("content-length", 0))], b""
        return int(first.split(" ")[1]), headers, body

    def is_closed(self) -> bool:
        """Return whether the server ends the connection."""
        return self._socket.recv(1) == b""

    def _receive(self) -> None:
        data = self._socket.recv(65_536)
        assert data, "the connection ended before the answer did"
        self._read += data
