"""WS /v1/listen: a live session for clients of Deepgram.

Audio comes in binary frames. Text frames are KeepAlive, Finalize and CloseStream.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import orjson
from starlette.routing import WebSocketRoute

from server.clock import iso, now_ms
from server.dialects.deepgram.answers import Message
from server.dialects.deepgram.errors import ERROR_STYLE, REQUEST_ID
from server.dialects.deepgram.parameters import parse_live
from server.dialects.deepgram.results import Results
from server.dialects.live_sessions import Frame, SocketSession, open_session
from server.http.headers import warning_headers
from server.http.problems import Problem
from server.http.sockets import MAX_MESSAGE_BYTES, MessageTooBig, Socket, message_of, socket_route
from server.model.errors import Refused
from server.requests.access_control import bearer
from server.requests.request import RouteParts
from server.waiting import until_first

ROUTE = "/v1/listen"
KEY_SUBPROTOCOLS = ("token", "bearer")
"""A browser can set no headers on a WebSocket, so it offers one of these as a sub-protocol, followed by its key."""


@dataclass(frozen=True, slots=True)
class LiveHandler:
    parts: RouteParts

    def routes(self) -> list[WebSocketRoute]:
        return [socket_route(ROUTE, self._serve, metrics=self.parts.metrics, error_style=ERROR_STYLE)]

    async def _serve(self, socket: Socket) -> None:
        websocket = socket.websocket
        self.parts.access.check_page(websocket)
        scheme, secret = _offered_key(websocket.scope["subprotocols"])
        caller = await self.parts.access.identify(websocket, secret=bearer(websocket.headers) or secret, grants=True)
        offer = self.parts.offers[caller.environment]
        listening = parse_live(websocket.query_params, offer)
        async with open_session(self.parts, websocket, caller, listening.order, listening.warnings) as session:
            warnings = warning_headers(listening.warnings)
            await socket.accept(subprotocol=scheme, headers={REQUEST_ID: session.live.job.id, **warnings})
            results = Results(listening, session.live.job.id, offer.of(listening.order.model).model_of)
            await _Conversation(socket, session, results).talk()


def _offered_key(subprotocols: Sequence[str]) -> tuple[str | None, str | None]:
    """The sub-protocol that announces a key, and the key; None, None if there is none."""
    for scheme, secret in pairwise(subprotocols):
        if scheme in KEY_SUBPROTOCOLS:
            return scheme, secret
    return None, None


@dataclass(slots=True)
class _Conversation:
    """The messages of one socket."""

    socket: Socket
    session: SocketSession
    results: Results
    _sha256: Any = field(default_factory=hashlib.sha256)
    _sending: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def talk(self) -> None:
        """Converse until the client leaves or has everything. Raises the reason of any other end."""
        await until_first(self._read(), self._listen())

    async def _read(self) -> None:
        """Handle the client's messages until it leaves."""
        while (message := await self.socket.websocket.receive())["type"] == "websocket.receive":
            data = message.get("bytes")
            if data is None:
                await self.socket.wait_for_turn()
                await self._handle_text(message.get("text") or "")
            elif data and not self.session.live.ending:
                await self._handle_audio(data)

    async def _handle_audio(self, data: bytes) -> None:
        if len(data) > MAX_MESSAGE_BYTES:
            raise MessageTooBig(f"a message may have {MAX_MESSAGE_BYTES} bytes")
        self._sha256.update(data)
        await self.session.seat.write(data)
        await self._send(self.results.advance(self.session.heard_s))

    async def _handle_text(self, text: str) -> None:
        said = message_of(text)
        match None if said is None else said.get("type"):
            case "KeepAlive":
                self.session.seat.keep_alive()
            case "Finalize":
                await self._send(self.results.finalize(self.session.seat.finalize()))
            case "CloseStream":
                self.session.live.finish()
            case "Configure":
                await self._send([self._configure_failure()])
            case _:
                text = "text frames are KeepAlive, Finalize and CloseStream"
                await self._send([{"type": "Error", "variant": "invalid_message", "description": text}])

    async def _listen(self) -> None:
        """Send the words, then the summary. Raises Refused unless the client ended the session."""
        try:
            await self.session.follow(self._send_frames)
        except Refused as error:
            if error.code == "ingest_idle":
                raise Problem("ingest_idle", f"NET-0001: {error.detail}") from None
            raise
        await self._send([self._summary()])

    async def _send_frames(self, frames: Sequence[Frame]) -> None:
        messages = [message for frame in frames for message in self.results.render(frame)]
        await self._send(messages + self.results.advance(self.session.heard_s))

    async def _send(self, messages: Sequence[Message]) -> None:
        async with self._sending:
            await self.socket.send(*map(orjson.dumps, messages))

    def _summary(self) -> Message:
        return {
            "type": "Metadata",
            "transaction_key": "deprecated",
            "request_id": self.session.live.job.id,
            "sha256": self._sha256.hexdigest(),
            "created": iso(now_ms()),
            "duration": self.session.heard_s,
            "channels": self.results.channels,
        }

    def _configure_failure(self) -> Message:
        return {
            "type": "ConfigureFailure",
            "request_id": self.session.live.job.id,
            "code": "CONFIGURE_KEYTERMS_NOT_SUPPORTED",
            "description": "a session keeps what it was ordered with; open another one",
        }
