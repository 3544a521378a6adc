"""The answer to one request, as uvicorn's cycle of request and response with a send() that costs half as much.

uvicorn looks for forbidden bytes in each name and each value of a head, and writes the head by itself. Here a head is
checked as a whole, and goes out together with the body that is sent in the same moment: two writes would be two system
calls, two packets, and two wake-ups of the client.
"""

import asyncio

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

CONTROLS = bytes([*range(9), *range(10, 32), 127])
"""Bytes that no name and no value of a header may have (RFC 9110, 5.5). A line break would begin another header."""

BODILESS = frozenset({204, 304})
"""Statuses of answers without a body, whose head names no length."""


class ResponseCycle(RequestResponseCycle):
    """A request and its answer. Names of headers come in lower case, as ASGI demands."""

    _head = b""  # until it is sent

    async def send(self, message: ASGISendEvent) -> None:
        """Send the head of the answer or a piece of its body. Raises RuntimeError if *message* may not come next."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start" and not self.response_started:
            self._begin(message["status"], [*self.default_headers, *message.get("headers", ())])
        elif message["type"] == "http.response.body" and self.response_started and not self.response_complete:
            self._send_piece(message.get("body", b""), last=not message.get("more_body", False))
        else:
            raise RuntimeError(f"{message['type']} is not what comes next in an answer")

    def _begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Make the head. It is sent with the first piece of the body, or alone at the end of this turn of the loop."""
        self.chunked_encoding = self.scope["method"] != "HEAD" and status not in BODILESS
        for name, value in headers:
            if name == b"content-length":
                self.expected_content_length, self.chunked_encoding = int(value), False
            elif name == b"connection":
                self.keep_alive = self.keep_alive and value.lower() != b"close"
        if self.chunked_encoding:
            headers.append((b"transfer-encoding", b"chunked"))
        if not self.keep_alive and (b"connection", b"close") not in headers:
            headers.append((b"connection", b"close"))
        head = b"".join([STATUS_LINE[status], *[b"%b: %b\r\n" % header for header in headers], b"\r\n"])
        if len(head) - len(head.translate(None, CONTROLS)) != 2 * (len(headers) + 2):
            raise RuntimeError("a header has a control character")
        self.response_started, self.waiting_for_100_continue, self._head = True, False, head
        asyncio.get_running_loop().call_soon(self._send_head)

    def _send_piece(self, piece: bytes, *, last: bool) -> None:
        if self.scope["method"] == "HEAD":
            piece, self.expected_content_length = b"", 0
        elif self.chunked_encoding:
            piece = b"".join([b"%x\r\n" % len(piece), piece, b"\r\n"]) if piece else b""
            piece += b"0\r\n\r\n" if last else b""
        else:
            self.expected_content_length -= len(piece)
            if self.expected_content_length < 0 or (last and self.expected_content_length):
                raise RuntimeError("the body has another length than its head says")
        if self._head:
            self.transport.writelines((self._head, piece))
            self._head = b""
        elif piece:
            self.transport.write(piece)
        if last:
            self.response_complete = True
            self.message_event.set()
            if not self.keep_alive:
                self.transport.close()
            self.on_response()

    def _send_head(self) -> None:
        if self._head and not self.transport.is_closing():
            self.transport.write(self._head)
        self._head = b""
