"""uvicorn's HTTP/1.1, for clients that send no request, or take no answer."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from server.commands.connections import Place, Placed


class PlacedHttp(Placed, H11Protocol):
    """The HTTP class of the server. It tells its *place* what the connection does.

    uvicorn itself ends only connections that rest between two requests. It waits for ever for a first request, for the
    rest of a request's head, and for a client to take an answer.
    """

    def __init__(self, place: Place, **settings: Any) -> None:
        super().__init__(**settings)
        self.place = place

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self.place.begin(transport)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.get_protocol() is self:  # else it has become a WebSocket, which has the place now
            if self._answering:
                self.place.work()
            else:
                self.place.await_head()

    def send_400_response(self, msg: str) -> None:
        """Called when the client sends what is no HTTP. If a request of it is being answered, its client is gone.

        uvicorn would send a second answer, or let the first one fail, and log either as a fault of the server.
        """
        if self._answering:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._answering:  # the next request may have come already
            self.place.rest()

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete
