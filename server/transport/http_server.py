"""The HTTP server that `scribewire serve` runs: uvicorn with our HTTP protocol and WebSocket.

The protocol is protected against clients that send slowly, read slowly, or break HTTP. uvicorn and its parser llhttp
(httptools) do not bound heads, chunks, chunk extensions or trailers. A request that would take unbounded memory or
work, or that could be understood in two ways, is refused here.
"""

import asyncio
import contextlib
import functools
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import uvicorn
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from server.config import PREFIX, Config, ConfigError
from server.http.problems import Problem
from server.keyed_limits import TokenBucket
from server.logs import log
from server.transport.connections import Connections, TrackedConnection, TrackedProtocol
from server.transport.websocket import PatientWebSocket

CUT_OFF_BYTES = 4 * 1024 * 1024
"""A larger WebSocket message ends the connection. Routes refuse messages of a quarter of it with an error."""

GRACE_S = 20  # seconds after which a shutdown closes open connections
REST_S = 75  # longest time between two requests on a connection

MAX_TARGET_BYTES = 4 * 1024
"""The most bytes of the path and query of a request."""

MAX_PATH_BYTES = 1024
"""The most bytes of the path, which is decoded, logged and repeated in the answer. Real paths have less than half."""

MAX_HEADERS = 100
"""The most header lines and trailers of a request. Each costs work, however short it is."""

MAX_HEAD_BYTES = 32 * 1024
"""The most bytes of a request's head and trailers together."""

MAX_IDLE_BYTES = 64 * 1024
"""The most bytes in a row without the end of a head, a byte of a body or the end of a request."""

MAX_PIPELINED = 16
"""The most requests that wait for the one that is being answered on the same connection."""

CHUNK_BYTES = 256
"""A chunk of so many bytes costs nothing of the allowance. A shorter one costs 1 - its bytes / CHUNK_BYTES."""

FIELD_BYTES = 4  # the bytes of a header line in addition to its name and value
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LOOK_S = 1.0  # how often to look whether a client that sends no more has left
NO_HTTP = Problem("invalid_request", "what came is no HTTP request")


def uvicorn_settings(app: ASGIApp, connections: Connections) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        proxy_headers=False,  # access_control.py reads X-Forwarded-For, and only from trusted proxies
        server_header=False,
        lifespan="off",
        timeout_keep_alive=REST_S,
        timeout_graceful_shutdown=GRACE_S,
        http=functools.partial(TrackedHttp, connections),  # type: ignore[arg-type]  # uvicorn only calls it
        ws=PatientWebSocket,
        ws_max_size=CUT_OFF_BYTES,
        ws_ping_interval=20,
        ws_ping_timeout=20,
        ws_per_message_deflate=False,  # audio does not compress, and every connection would keep its tables
    )


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers. libuv accepts one connection in each turn of the event loop."""

    def __init__(
        self,
        app: ASGIApp,
        listening: socket.socket,
        connections: Connections,
        *,
        ready: Sequence[str] = (),
    ) -> None:
        """*ready* are lines that are logged when the port answers."""
        super().__init__(uvicorn_settings(app, connections))
        self._listening = listening
        self.connections = connections
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([self._listening, *(sockets or [])])
        for line in self._ready:
            log.info(line)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(config: Config) -> socket.socket:
    """Bind the port and return its socket. Links need the port's number before it answers. Raises ConfigError."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only for connections whose socket names its protocol. With it on, each answer
    # on a kept connection waits for the client's delayed acknowledgement: 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((config.host, config.port))
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"{PREFIX}HOST and {PREFIX}PORT must be free to listen on, got {config.host}:{config.port} "
            f"({error.strerror})"
        ) from None
    return listening


CHUNKS, CHUNKS_PER_S = 1000, 1000
"""The allowance of short chunks in a body: so many at once, and then so many a second."""


class _WithoutChunks:
    """An app whose answers of unknown length end with the connection: clients of HTTP/1.0 know no chunks."""

    def __init__(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._cycle = cycle
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        unbounded = False

        async def send_plainly(message: Any) -> None:
            nonlocal unbounded
            if message["type"] == "http.response.start":
                unbounded = all(name.lower() != b"content-length" for name, _ in message.get("headers", ()))
                self._cycle.chunked_encoding = False if unbounded else None
            elif unbounded:
                self._cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await self._app(scope, receive, send_plainly)


class TrackedHttp(TrackedProtocol, HttpToolsProtocol):
    """The server's HTTP protocol. It reports to its TrackedConnection what happens.

    uvicorn itself waits for ever for a first request, for the rest of a request's head, and for a client that does not
    read its answer.
    """

    def __init__(self, connections: Connections, **settings: Any) -> None:
        super().__init__(**settings)
        self._connections = connections
        self._running: RequestResponseCycle | None = None  # the oldest request that is not answered
        self._ignores_upgrade = False  # whether the newest head asks for an upgrade to something else than a WebSocket
        self._in_head = False
        self._in_message = False
        self._chunk_bytes = 0  # of the newest chunk
        self._head_bytes = 0
        self._headers = 0
        self._hosts = 0
        self._idle_bytes = 0
        self._chunks = TokenBucket(most=CHUNKS, per_s=CHUNKS_PER_S)
        self._refusal = NO_HTTP
        self._client_ended = False  # whether the client sends no more, but still reads

    # --- the connection ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self.tracked = TrackedConnection(self._connections, transport)
        self.tracked.begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when the connection has ended. uvicorn itself tells only the newest of several requests."""
        super().connection_lost(exc)
        self._end_requests()

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._idle_bytes += len(data)
        self._parse(data)
        if self.transport.get_protocol() is not self:  # a WebSocket was opened
            return
        if self._idle_bytes > MAX_IDLE_BYTES and not self.transport.is_closing():
            self.send_400_response("")
        if self._is_answering:
            self.tracked.work()
        else:
            self.tracked.start_head_timer()

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio takes it
        """Called when the client sends no more. Returns whether the connection stays open for answers to its requests.

        A client that has left looks the same, until its system refuses what is written to it. So it gets an interim
        answer, which each client of HTTP/1.1 skips.
        """
        started = self._running is not None and self._running.response_started
        self._client_ended = self._is_answering and not self._in_message and not started
        if self._client_ended and self.parser.get_http_version() == "1.1":
            self.transport.write(CONTINUE)
            self.loop.call_later(LOOK_S, self._look_for_client)
        return self._client_ended

    def _look_for_client(self) -> None:
        """End the connection if the client's system has refused what was written. Else look again later."""
        if self.transport.is_closing():
            return
        if self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.tracked.abort()
        else:
            self.loop.call_later(LOOK_S, self._look_for_client)

    def _parse(self, data: bytes) -> None:
        """Give *data* to the parser, which calls the methods at the end of this class."""
        try:
            self.parser.feed_data(data)
        except HttpParserError:
            self.send_400_response("")
        except HttpParserUpgrade as upgrade:
            if self._ignores_upgrade:
                head = self._head_without_upgrade()
                self.parser = HttpRequestParser(self)
                self._parse(head + data[upgrade.args[0] :])
            elif self._is_answering:  # two protocols would write into one connection
                self.send_400_response("")
            elif self._should_upgrade():
                self.handle_websocket_upgrade()

    def _head_without_upgrade(self) -> bytes:
        """The newest head without its Upgrade header, which a server may ignore (RFC 9110).

        llhttp takes what follows an upgrade for the other protocol, so a body would be lost or taken for a request.
        Java's HTTP client asks for HTTP/2 in this way with its first request.
        """
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def send_400_response(self, _msg: str) -> None:
        """Refuse data that is not HTTP. If an answer has begun, close the connection without another one.

        uvicorn would send a second answer, or let the first one fail, and log both as faults of the server.
        """
        begun = self._is_answering and self._running is not None and self._running.response_started
        if not begun and not (self._in_message and not self._is_answering):  # whose request was answered before
            self.transport.write(self.tracked.refuse(self._refusal))
        self._end_requests()
        self.transport.close()

    def _end_requests(self) -> None:
        """Let the requests that are not answered know that their client is gone."""
        for cycle in (self._running, self.cycle):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, _WithoutChunks(cycle, app) if cycle.scope["http_version"] == "1.0" else app)

    def on_response_complete(self) -> None:
        """Called when an answer has been written. Begin with the next request, if one has come already."""
        super().on_response_complete()
        if not self._is_answering:
            self.tracked.rest()
            if self._client_ended:
                self.transport.close()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    # --- what the parser calls ---

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["state"]["connection"] = self.tracked
        self._head_bytes = self._headers = self._hosts = 0
        self._in_head, self._ignores_upgrade = True, False

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._head_bytes += len(url)
        if self._head_bytes > MAX_TARGET_BYTES:
            raise self._parser_error(f"path and query may have {MAX_TARGET_BYTES} bytes", "uri_too_long")
        if self._head_bytes > MAX_PATH_BYTES and b"?" not in self.url[: MAX_PATH_BYTES + 1]:
            raise self._parser_error(f"a path may have {MAX_PATH_BYTES} bytes", "uri_too_long")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value) + FIELD_BYTES
        self._headers += 1
        if self._headers > MAX_HEADERS:
            raise self._parser_error(f"a request may have {MAX_HEADERS} headers", "headers_too_large")
        if self._head_bytes > MAX_HEAD_BYTES:
            raise self._parser_error(f"the head of a request may have {MAX_HEAD_BYTES} bytes", "headers_too_large")
        if not self._in_head:  # a trailer, which comes when the headers are in use already
            return
        name, value = name.lower(), value.strip(b" \t")
        self._hosts += name == b"host"
        if name == b"transfer-encoding" and value.lower() != b"chunked":
            raise self._parser_error("a body may have no transfer coding but chunked")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._hosts > 1 or (not self._hosts and self.parser.get_http_version() == "1.1"):
            raise self._parser_error("a request must name its host once")
        if len(self.pipeline) >= MAX_PIPELINED:
            raise self._parser_error("too many requests at once")
        asks = self.parser.should_upgrade() and b"upgrade" in dict(self.headers)
        self._ignores_upgrade = asks and not self._should_upgrade()
        if not self._ignores_upgrade:
            self._in_head, self._in_message, self._idle_bytes = False, True, 0
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._idle_bytes = 0
        self._chunk_bytes += len(body)
        super().on_body(body)

    def on_chunk_complete(self) -> None:
        size, self._chunk_bytes = self._chunk_bytes, 0
        if 0 < size < CHUNK_BYTES and self._chunks.spend(1 - size / CHUNK_BYTES) > 0:
            raise self._parser_error(f"a body must come in chunks of {CHUNK_BYTES} bytes or more, or slowly")

    def on_message_complete(self) -> None:
        if not self._ignores_upgrade:
            self._in_message, self._idle_bytes, self._chunk_bytes = False, 0, 0
            super().on_message_complete()

    def _parser_error(self, detail: str, code: str = "invalid_request") -> ValueError:
        """The error to raise in a callback of the parser. The client gets a Problem with *code*."""
        self._refusal = Problem(code, detail)
        return ValueError(detail)
