"""uvicorn's WebSocket, with patience for writers that are slowed down.

Live audio is accepted no faster than it is heard. The rest waits in the sockets of both sides, and everything else that
the peer sends, its pongs too, waits behind it. So only little may wait, and a peer that is still sending counts as
alive.
"""

import asyncio
import socket

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame
from websockets.protocol import State

from server.commands.connections import Placed

WAITING_BYTES = 128 * 1024
"""Of one connection, in this machine's receive buffer: seconds of raw audio, half a minute of compressed audio."""

MAX_FRAGMENTS = 1024
"""Frames of one message. Each of them is kept until the last one, and even an empty one takes memory."""

MAX_UNREAD_BYTES = 1024 * 1024
"""That may wait for a client which sends pings and does not read the answers."""

LEAVE_S = 5.0
"""In which a WebSocket is closed by its route when the server stops, and with GOING_AWAY after that."""


class PatientWebSocket(Placed, WebSocketsSansIOProtocol):
    """The WebSocket class that serve.py gives to uvicorn."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the connection's HTTP protocol, which has read the request and gives its place away."""
        super().connection_made(transport)
        http = self.transport.get_protocol()
        assert isinstance(http, Placed)
        self.place = http.place
        self.place.work()
        connection: socket.socket | None = transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WAITING_BYTES)
        self._heard_at = self.loop.time()

    def data_received(self, data: bytes) -> None:
        self._heard_at = self.loop.time()
        super().data_received(data)

    def handle_cont(self, event: Frame) -> None:
        if self.close_sent:
            return  # more of a message that was cut
        if len(self.frames) >= MAX_FRAGMENTS:
            self.conn.fail(CloseCode.MESSAGE_TOO_BIG, f"a message may have {MAX_FRAGMENTS} frames")
            self.handle_parser_exception()
        else:
            super().handle_cont(event)

    def handle_ping(self) -> None:
        super().handle_ping()
        if self.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            self.place.abort()

    async def send(self, message: ASGISendEvent) -> None:
        """Called by the route. Raises ClientDisconnected also if the connection was closed from this side.

        A message may have whole frames (the key "frames"), so that those for many readers are made once.
        """
        if self.close_sent and message["type"] in ("websocket.send", "websocket.close"):
            raise ClientDisconnected
        if isinstance(frames := message.get("frames"), bytes):
            await self._send_frames(frames)
            return
        await super().send(message)
        if message["type"] == "websocket.accept":
            self._forget_handshake()
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True  # refused in HTTP; uvicorn would log that as a fault of the server

    def _forget_handshake(self) -> None:
        """Nothing asks for the headers again, and each of thousands of readers would keep them for hours."""
        self.request.headers.clear()
        self.response.headers.clear()

    async def _send_frames(self, frames: bytes) -> None:
        await self.writable.wait()
        if self.disconnected or self.conn.state is not State.OPEN:
            raise ClientDisconnected
        self.transport.write(frames)

    def shutdown(self) -> None:
        """Called when the server stops. The route knows it, too, and closes the WebSocket when it has said all."""
        if not self.handshake_complete or (self.close_sent and self.close_timer is None):
            super().shutdown()
        else:
            self.loop.call_later(LEAVE_S, self._leave)

    def _leave(self) -> None:
        """Close what the route has not closed yet. The peer has some time to answer.

        If the connection ended while audio of the peer is still unread, its system would throw our close away.
        """
        if not self.close_sent and not self.transport.is_closing():
            self.queue.put_nowait({"type": "websocket.disconnect", "code": CloseCode.GOING_AWAY})
            self.conn.send_close(CloseCode.GOING_AWAY, "shutting_down")
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
            self.transport.resume_reading()
            self.close_timer = self.loop.call_later(LEAVE_S, self.transport.close)

    def send_receive_event_to_app(self) -> None:
        """Called with every whole message. uvicorn would log a traceback for text that is not UTF-8."""
        if self.curr_msg_data_type == "text" and not _is_text(b"".join(self.frames)):
            self.frames = []
            self.conn.fail(CloseCode.INVALID_DATA, "text must be UTF-8")
            self.handle_parser_exception()
        else:
            super().send_receive_event_to_app()

    def keepalive_timeout(self) -> None:
        """Called when no pong came in time. The connection ends only if we were reading and nothing else came."""
        if self.read_paused or self._heard_at > self.ping_sent_at:
            self.pong_timer = None
            self.pending_ping_payload = None
            self.schedule_ping()
        else:
            super().keepalive_timeout()


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
