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
from websockets.frames import CloseCode

WAITING_BYTES = 128 * 1024
"""Of one connection, in this machine's receive buffer: seconds of raw audio, half a minute of compressed audio."""


class PatientWebSocket(WebSocketsSansIOProtocol):
    """The WebSocket class that serve.py gives to uvicorn."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        connection: socket.socket | None = transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WAITING_BYTES)
        self._heard_at = self.loop.time()

    def data_received(self, data: bytes) -> None:
        self._heard_at = self.loop.time()
        super().data_received(data)

    async def send(self, message: ASGISendEvent) -> None:
        """Called by the route. Raises ClientDisconnected also if the connection was closed from this side."""
        if self.close_sent:
            raise ClientDisconnected
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True  # refused in HTTP; uvicorn would log that as a fault of the server

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
