"""uvicorn's WebSocket, patient with writers that are slowed down.

Live audio is taken in no faster than it is heard: until then it waits in the sockets of both sides, and whatever the
peer sends, its pongs too, waits behind it. So little may wait, and who is still sending is alive.
"""

import asyncio
import socket

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

WAITING_BYTES = 128 * 1024
"""Of one connection, in this machine's receive buffer: seconds of raw audio, half a minute of compressed audio."""


class PatientWebSocket(WebSocketsSansIOProtocol):
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
        """No pong came in time. That is the end only where nothing else came either, and we were ready to read it."""
        if self.read_paused or self._heard_at > self.ping_sent_at:
            self.pong_timer = None
            self.pending_ping_payload = None
            self.schedule_ping()
        else:
            super().keepalive_timeout()
