"""uvicorn's HTTP/1.1 protocol, protected against clients that send slowly, read slowly, or break HTTP.

uvicorn and its parser llhttp (httptools) do not bound heads, chunks, chunk extensions or trailers. A request that would
take unbounded memory or work, or that could be understood in two ways, is refused here.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import unquote

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser, parse_url
from uvicorn._types import ASGI3Application, HTTPScope
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from server.http.problems import Problem
from server.transport.bulk import FROM_BYTES, BulkReads
from server.transport.connections import TrackedConnection, TrackedProtocol
from server.transport.response_cycle import ResponseCycle
from server.transport.websocket import is_handshake
from server.waiting import TokenBucket

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

CHUNKS, CHUNKS_PER_S = 1000, 200
"""The allowance of short chunks in a body: so many at once, and then so many a second."""

CHUNK_BYTES = 256
"""A chunk of so many bytes costs nothing of the allowance. A shorter one costs 1 - its bytes / CHUNK_BYTES."""

PIECE_BYTES = 1024
"""Heads and short chunks are parsed in such pieces, one in a turn. With headers of four bytes one takes 0.3 ms."""

FIELD_BYTES = 4  # the bytes of a header line in addition to its name and value

NO_HTTP = Problem("invalid_request", "what came is no HTTP request")


class PatientFlow(FlowControl):
    """uvicorn's control of reading. It does not resume while received data waits for its turn."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._held = False

    def hold(self) -> None:
        """Read nothing until release()."""
        if not self._held:
            self._held = True
            self._transport.pause_reading()

    def release(self) -> None:
        self._held = False
        if not self.read_paused:
            self._transport.resume_reading()

    def resume_reading(self) -> None:
        if self._held:
            self.read_paused = False
        else:
            super().resume_reading()


class TrackedHttp(TrackedProtocol, HttpToolsProtocol):
    """The server's HTTP protocol. It reports to *tracked* what the connection does, and reads large bodies with *bulk*.

    uvicorn itself waits for ever for a first request, for the rest of a request's head, and for a client that does not
    read its answer. Its methods for what the parser finds are replaced, because each request calls all of them.
    """

    def __init__(self, tracked: TrackedConnection, bulk: BulkReads, **settings: Any) -> None:
        super().__init__(**settings)
        self.tracked = tracked
        self._bulk = bulk
        self._end_bulk: Callable[[], None] | None = None  # ends the bulk reads of a large body
        self._running: RequestResponseCycle | None = None  # the oldest request that is not answered
        self._held = b""  # received data that is not parsed
        self._waits = False  # whether it waits for its turn to parse the held data
        self._parsing = False
        self._upgraded = False  # to a WebSocket, which has another protocol
        self._opens_websocket = False  # whether the head that was just read asks for a WebSocket
        self._ignores_upgrade = False  # whether that head asks for another upgrade, or for one that cannot be done
        self._after_head = 0  # where that head ends in the parsed data
        self._in_head = False
        self._in_message = False
        self._chunk_bytes = CHUNK_BYTES  # of the newest chunk so far; it is charged when the next one comes
        self._cut = False  # whether the next piece may continue this chunk, because the data was cut here
        self._head_bytes = 0
        self._headers = 0
        self._hosts = 0
        self._idle_bytes = 0
        self._chunks = TokenBucket(most=CHUNKS, per_s=CHUNKS_PER_S)
        self._refusal = NO_HTTP

    # --- the connection ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self.flow: PatientFlow = PatientFlow(transport)
        self.tracked.begin(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when the connection has ended. uvicorn itself tells only the newest of several requests."""
        super().connection_lost(exc)
        self._stop_bulk_reads()
        self.pipeline.clear()
        if self._running is not None:
            self._running.disconnected = True
            self._running.message_event.set()

    def data_received(self, data: bytes | memoryview) -> None:
        """Parse *data* at once, or in this connection's turn, so that no address fills the turns of the event loop.

        Large pieces of a body (memoryview) are parsed at once, because keeping them would mean copying them.
        """
        if self._held or (isinstance(data, bytes) and not self.tracked.take_turn()):
            self._hold(bytes(data))
        elif len(data) <= PIECE_BYTES:
            self._parse_piece(data)
        else:
            self._parse(data)

    def _parse(self, data: bytes | memoryview) -> None:
        """Parse a piece of *data*, or all of it within a body, and keep the rest for this connection's next turn."""
        while data:
            piece = data if self._is_plain_body else data[:PIECE_BYTES]
            self._parse_piece(piece)
            data = data[len(piece) :]
            if self.transport.is_closing() or self._upgraded:
                return
            self._cut = bool(data)
            if data and not self._is_plain_body:
                self._hold(bytes(data))
                return

    def _parse_piece(self, data: bytes | memoryview) -> None:
        self._idle_bytes += len(data)
        self._parsing = True
        self._feed(data)
        while self._ignores_upgrade and not self.transport.is_closing():
            data = data[self._after_head :]
            self._repeat_head()
            self._feed(data)
        self._parsing = False
        if self._idle_bytes > MAX_IDLE_BYTES and not self.transport.is_closing():
            self.send_400_response("Invalid HTTP request received.")
        if len(data) >= FROM_BYTES and self._in_message and self._end_bulk is None:
            self._end_bulk = self._bulk.begin(self.transport, self)
        if self._upgraded:
            return
        if self._is_answering:
            self.tracked.work()
        else:
            self.tracked.start_head_timer()

    def _feed(self, data: bytes | memoryview) -> None:
        """Give *data* to the parser, which calls the methods at the end of this class."""
        try:
            self.parser.feed_data(data)
        except HttpParserError:
            self.send_400_response("")
        except HttpParserUpgrade as upgrade:
            if self._opens_websocket:
                self.handle_websocket_upgrade()
            else:
                self._after_head = upgrade.args[0]

    def _hold(self, data: bytes) -> None:
        """Keep *data* until this connection's turn. Nothing more is read until it is parsed."""
        self._held += data
        self.flow.hold()
        self._parse_later()

    def _parse_later(self) -> None:
        """Parse the held data in this connection's turn, once no request waits for the one that is being answered."""
        if not self._waits and not self.pipeline:
            self._waits = True
            self.tracked.await_turn(self._parse_rest)

    def _parse_rest(self) -> None:
        self._waits = False
        if self.transport.is_closing():
            return
        held, self._held = self._held, b""
        self._parse(held)
        if not self._held and not self._upgraded and not self.transport.is_closing():
            self.flow.release()

    @property
    def _is_plain_body(self) -> bool:
        """Whether a body is arriving in chunks that are not short, so that many bytes cost little."""
        return self._in_message and self._chunk_bytes >= CHUNK_BYTES

    def handle_websocket_upgrade(self) -> None:
        if self._is_answering:  # two protocols would write into one connection
            self.send_400_response("A WebSocket cannot be opened behind a request that is not answered.")
        else:
            self._upgraded = True
            super().handle_websocket_upgrade()
            del self.parser  # it refers to this protocol, so both would stay until a collection of garbage

    def _repeat_head(self) -> None:
        """Parse the head of a request again without its Upgrade header, which a server may ignore (RFC 9110).

        llhttp takes what follows an upgrade for the other protocol, so a body would be lost or taken for a request.
        """
        self._ignores_upgrade = False
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = HttpRequestParser(self)
        self._feed(b"\r\n".join([*lines, b"", b""]))

    def send_400_response(self, _msg: str) -> None:
        """Refuse data that is not HTTP. If an answer has begun, close the connection without another one.

        uvicorn would send a second answer, or let the first one fail, and log both as faults of the server.
        """
        begun = self._is_answering and self._running is not None and self._running.response_started
        self.pipeline.clear()
        for cycle in (self._running, self.cycle):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        if begun or (self._in_message and not self._is_answering):  # the request of this body was answered before
            self.transport.close()
        else:
            self.transport.write(self.tracked.refuse(self._refusal))
            self.transport.close()

    def on_response_complete(self) -> None:
        """Called when an answer has been written. Begin with the next request, if one has come already."""
        self._running = None
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        if self._held:
            self._parse_later()
        if not self._is_answering:  # unless the next request has come
            self.tracked.rest()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Start a request: at once if it was just parsed, in this connection's turn if it had to wait for an answer."""
        self._running = cycle
        if self._parsing:
            super()._start_asgi_task(cycle, app)
        else:
            self.tracked.await_turn(partial(self._start_late, cycle, app))

    def _start_late(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        if not cycle.disconnected:
            super()._start_asgi_task(cycle, app)

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    # --- what the parser calls ---

    def on_message_begin(self) -> None:
        self.url, self.headers, self.expect_100_continue = b"", [], False
        self._head_bytes = self._headers = self._hosts = 0
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        self._head_bytes += len(url)
        if self._head_bytes > MAX_TARGET_BYTES:
            raise self._parser_error(f"path and query may have {MAX_TARGET_BYTES} bytes", "uri_too_long")
        if self._head_bytes > MAX_PATH_BYTES and b"?" not in (self.url + url)[: MAX_PATH_BYTES + 1]:
            raise self._parser_error(f"a path may have {MAX_PATH_BYTES} bytes", "uri_too_long")
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value) + FIELD_BYTES
        self._headers += 1
        if self._headers > MAX_HEADERS:
            raise self._parser_error(f"a request may have {MAX_HEADERS} headers", "headers_too_large")
        if self._head_bytes > MAX_HEAD_BYTES:
            raise self._parser_error(f"the head of a request may have {MAX_HEAD_BYTES} bytes", "headers_too_large")
        if self._in_head:  # a trailer comes when the headers are in use already
            name = name.lower()
            self.headers.append((name, value.rstrip(b" \t")))
            if name == b"host":
                self._hosts += 1
            elif name == b"expect" and value.strip().lower() == b"100-continue":
                self.expect_100_continue = True
            elif name == b"transfer-encoding" and value.strip().lower() != b"chunked":
                raise self._parser_error("a body may have no transfer coding but chunked")

    def on_headers_complete(self) -> None:
        version = self.parser.get_http_version()
        if self._hosts > 1 or (not self._hosts and version == "1.1"):
            raise self._parser_error("a request must name its host once")
        if len(self.pipeline) >= MAX_PIPELINED:
            raise self._parser_error("too many requests at once")
        self.scope = self._make_scope(version)
        if self.parser.should_upgrade():
            self._opens_websocket = self._should_upgrade() and is_handshake(self.scope["method"], self.headers)
            self._ignores_upgrade = not self._opens_websocket and b"upgrade" in dict(self.headers)
            if self._ignores_upgrade:
                return
        self._in_head, self._in_message, self._idle_bytes = False, True, 0
        self._chunk_bytes, self._cut = CHUNK_BYTES, False
        if not self._opens_websocket:
            self._begin_cycle(keep_alive=version != "1.0" and self.parser.should_keep_alive())

    def _make_scope(self, version: str) -> HTTPScope:
        url = parse_url(self.url)
        path = url.path.decode("ascii")
        return {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": version,
            "method": self.parser.get_method().decode("ascii"),
            "scheme": self.scheme or "http",
            "server": self.server,
            "client": self.client,
            "root_path": "",
            "path": unquote(path) if "%" in path else path,
            "raw_path": url.path,
            "query_string": url.query or b"",
            "headers": self.headers,
            "state": {"connection": self.tracked},
        }

    def _begin_cycle(self, *, keep_alive: bool) -> None:
        """Start the request whose head has come, or let it wait behind the one that is being answered."""
        waits = self._is_answering
        cycle = self.cycle = ResponseCycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=keep_alive,
            on_response=self.on_response_complete,
        )
        if waits:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))
        else:
            self._start_asgi_task(cycle, self.app)

    def on_body(self, body: bytes) -> None:
        self._idle_bytes = 0
        before, self._chunk_bytes = self._chunk_bytes, len(body)
        if self._cut:
            self._cut = False
            self._chunk_bytes += before
        elif before < CHUNK_BYTES and self._chunks.take(1 - before / CHUNK_BYTES) > 0:
            raise self._parser_error(f"a body must come in chunks of {CHUNK_BYTES} bytes or more, or slowly")
        cycle = self.cycle
        if cycle.response_complete:
            return
        if not cycle.body:
            cycle.body = body  # type: ignore[assignment]  # the application takes it uncopied
        else:
            cycle.body = bytearray(cycle.body) if isinstance(cycle.body, bytes) else cycle.body
            cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        if self._ignores_upgrade:
            return
        self._in_message, self._idle_bytes = False, 0
        self._stop_bulk_reads()
        if not self._opens_websocket and not self.cycle.response_complete:
            self.cycle.more_body = False
            self.cycle.message_event.set()

    def _stop_bulk_reads(self) -> None:
        if self._end_bulk is not None:
            self._end_bulk()
            self._end_bulk = None

    def _parser_error(self, detail: str, code: str = "invalid_request") -> ValueError:
        """The error to raise in a callback of the parser. The client gets a Problem with *code*."""
        self._refusal = Problem(code, detail)
        return ValueError(detail)
