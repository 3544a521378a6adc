"""uvicorn's WebSocket, with patience for writers that are slowed down.

Live audio is accepted no faster than it is heard. The rest waits in the sockets of both sides, and everything else that
the peer sends, its pongs too, waits behind it. So only little may wait, and a peer that is still sending counts as
alive.
"""

import asyncio
import socket

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

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

    def keepalive_timeout(self) -> None:
        """Called when no pong came in time. The connection ends only if we were reading and nothing else came."""
        if self.read_paused or self._heard_at > self.ping_sent_at:
            self.pong_timer = None
            self.pending_ping_payload = None
            self.schedule_ping()
        else:
            super().keepalive_timeout()
