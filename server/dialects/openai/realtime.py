"""WS /v1/realtime: live sessions for clients of OpenAI's realtime API.

The client sends audio in JSON messages. The server reports when somebody starts or stops speaking, and sends the words.
Source: platform.openai.com/docs/guides/realtime-transcription.
"""

import asyncio
import base64
import binascii
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import orjson
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from server.accounts.keys import fresh_id
from server.clock import now_ms
from server.dialects.dialect import Frame, SocketSession, open_session
from server.dialects.openai.bodies import SERVER_ERROR, SHAPE, error_body, unknown_model
from server.dialects.openai.items import ItemNames, Items, ServerEvent
from server.dialects.openai.session_config import NO_REDACTION, ClientSecrets, TranscriptionConfig
from server.http.operation import Caller
from server.http.problems import Problem
from server.http.sockets import GOING_AWAY, Socket, SocketErrorStyle, message_of, socket_route
from server.model.errors import FieldError, Refused
from server.model.ids import Prefix
from server.model.offers import Offer
from server.requests.request import RouteParts
from server.waiting import until_first

ROUTE = "/v1/realtime"
SUBPROTOCOL = "realtime"
IDLE_S = 3600.0  # a socket whose client sends nothing for this long is closed
STOPPING_S = 1.0  # how long a client that comes while the server stops is kept; then the server no longer listens
EMPTY = (
    "Error committing input audio buffer: buffer too small. Expected at least 100ms of audio, but buffer only has "
    "0.00ms of audio."
)
TRY_LATER, NOT_ALLOWED = 1013, 1008
RETRIED = frozenset({"rate_limited", "concurrency_limited", "too_many_connections"})


def close_code(problem: Problem) -> int:
    """The close code that makes OpenAI's clients connect again if that may help, and give up if not."""
    if problem.code == "shutting_down":
        return GOING_AWAY
    if problem.status > SERVER_ERROR or problem.code in RETRIED:
        return TRY_LATER
    return 1011 if problem.status == SERVER_ERROR else NOT_ALLOWED


def error_event(problem: Problem, event_id: str | None = None) -> ServerEvent:
    shown = error_body(problem)["error"]
    kind = "insufficient_quota" if problem.code == "quota_exceeded" else shown["type"]
    return {"type": "error", "error": {**shown, "type": kind, "event_id": event_id}}


ERROR_STYLE = SocketErrorStyle(
    refusal=SHAPE,
    error_frame=lambda problem, _path, request_id: orjson.dumps(
        {**error_event(problem), "event_id": f"event_{request_id}"}
    ),
    close_code=close_code,
)


@dataclass(frozen=True, slots=True)
class Realtime:
    parts: RouteParts
    secrets: ClientSecrets

    def routes(self) -> list[WebSocketRoute]:
        return [socket_route(ROUTE, self._serve, metrics=self.parts.metrics, error_style=ERROR_STYLE)]

    async def _serve(self, socket: Socket) -> None:
        websocket = socket.websocket
        self.parts.access.check_page(websocket)
        caller, session = await self.secrets.identify(websocket)
        offer = self.parts.offers[caller.environment]
        _check_query(websocket, offer)
        offered: Sequence[str] = websocket.scope["subprotocols"]
        model = websocket.query_params.get("model", offer.names[0])
        start = (
            TranscriptionConfig(transcription={"model": model}, model=offer.model_named(model))
            if session is None
            else TranscriptionConfig().with_changes(session, offer)
        )
        with self.parts.stream_limits.hold_socket(caller):
            await socket.accept(subprotocol=SUBPROTOCOL if SUBPROTOCOL in offered else None)
            await self._refuse_while_stopping()
            await _Conversation(socket, self.parts, caller, offer, start).talk()

    async def _refuse_while_stopping(self) -> None:
        """Raise Problem after a moment if the server is stopping.

        The wait and the accepted handshake help clients that reconnect at once: LiveKit gives up for good if a
        handshake is refused, and Pipecat if three sockets in a row are closed soon after they opened.
        """
        if self.parts.session_registry.closing:
            await asyncio.sleep(STOPPING_S)
            raise Problem("shutting_down", "The server is restarting. Connect again to go on.")


def _check_query(websocket: WebSocket, offer: Offer) -> None:
    """Raise Problem for an old version, an intent or a model that is not offered, and for redaction."""
    if "realtime=v1" in websocket.headers.get("openai-beta", ""):
        raise Problem(
            "invalid_parameter", "the beta of the realtime API is not offered; leave the OpenAI-Beta header out"
        )
    if websocket.query_params.get("intent", "transcription") != "transcription":
        raise Problem("invalid_parameter", "only intent=transcription is offered")
    if websocket.query_params.get("redact") or websocket.query_params.get("redact[]"):
        raise Problem("invalid_parameter", f"redact: {NO_REDACTION}")
    model = websocket.query_params.get("model")
    if model is not None and not offer.has(model):
        raise unknown_model(model, offer)


@dataclass(slots=True)
class _OpenSession:
    """A live session of the socket, and its items."""

    session: SocketSession
    items: Items
    rate: int  # bytes a second
    taken: int = 0  # bytes

    @property
    def seconds(self) -> float:
        return self.taken / self.rate


@dataclass(slots=True)
class _Conversation:
    """The messages of one socket. One task reads the client's, another sends the events of each live session."""

    socket: Socket
    parts: RouteParts
    caller: Caller
    offer: Offer
    wanted: TranscriptionConfig
    _id: str = field(default_factory=lambda: fresh_id(Prefix.SESSION))
    _names: ItemNames = field(default_factory=ItemNames)
    _events: "count[int]" = field(default_factory=lambda: count(1))
    _sessions: "asyncio.Queue[_OpenSession]" = field(default_factory=asyncio.Queue)
    _open: _OpenSession | None = None  # the session that takes audio now
    _sending: asyncio.Lock = field(default_factory=asyncio.Lock)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    _before_s: float = 0.0  # audio of earlier sessions
    _uncommitted: int = 0  # bytes

    async def talk(self) -> None:
        """Converse until the client leaves. Raises the reason of any other end."""
        try:
            await self._send([{"type": "session.created", "session": self._session_object()}])
            await until_first(self._read(), self._listen())
        finally:
            await self._stack.aclose()  # ends the last session

    # --- to the client -----------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Send the events of each session in turn. Raises Refused if one ends although the client did not end it."""
        while True:
            opened = await self._sessions.get()
            try:
                await opened.session.follow(partial(self._send_frames, opened.items))
            except Refused as error:
                if error.code != "ingest_idle":  # no audio came for long: the next audio opens another session
                    raise
            await self._send(opened.items.finish(opened.seconds))

    async def _send_frames(self, items: Items, frames: Sequence[Frame]) -> None:
        await self._send([event for frame in frames for event in items.render(frame)])

    async def _send(self, events: Sequence[ServerEvent]) -> None:
        async with self._sending:
            bodies = [orjson.dumps({"event_id": f"event_{next(self._events)}", **event}) for event in events]
            await self.socket.send(*bodies)

    def _session_object(self) -> Mapping[str, Any]:
        return self.wanted.session_object(self._id, expires_s=now_ms() // 1000 + round(IDLE_S))

    # --- from the client ---------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            try:
                async with asyncio.timeout(IDLE_S):
                    message = await self.socket.websocket.receive()
            except TimeoutError:
                return
            if message["type"] != "websocket.receive":
                return
            event_id: str | None = None
            try:
                said = parse_message(message.get("text"))
                event_id = said.get("event_id") if isinstance(said.get("event_id"), str) else None
                await self._handle_message(said)
            except Misunderstood as wrong:
                await self.socket.wait_for_turn()
                await self._send([error_event(wrong.problem, event_id)])

    async def _handle_message(self, said: Mapping[str, Any]) -> None:
        """Carry out one message. Raises Misunderstood if the conversation can continue, RequestError if it cannot."""
        match said.get("type"):
            case "session.update":
                await self._change_config(said.get("session"))
            case "input_audio_buffer.append":
                await self._take_audio(decode_audio(said.get("audio")))
            case "input_audio_buffer.commit":
                await self._commit()
            case "input_audio_buffer.clear":
                await self._clear()
            case str(kind):
                raise Misunderstood("invalid_message", f"a transcription session takes no event {kind[:100]!r}")
            case _:
                raise Misunderstood("invalid_message", "type must name an event")

    async def _change_config(self, session: object) -> None:
        """Change the configuration. Audio that was sent before is recognised with the old one."""
        await self.socket.wait_for_turn()
        if not isinstance(session, dict):
            raise Misunderstood("invalid_parameter", "session must be an object")
        try:
            wanted = self.wanted.with_changes(session, self.offer)
        except Refused as error:
            raise Misunderstood(error.code, error.detail, error.errors) from None
        if self._open is not None and wanted.order() != self.wanted.order():
            await self._end_session(self._open)
        elif self._open is not None and wanted.manual != self.wanted.manual:
            at = 0.0 if wanted.manual else self._open.session.seat.finalize()
            await self._send(self._open.items.switch(at, manual=wanted.manual))
        self.wanted = wanted
        await self._send([{"type": "session.updated", "session": self._session_object()}])

    async def _take_audio(self, data: bytes) -> None:
        self._uncommitted += len(data)
        if self._open is not None and self._open.session.live.ending:
            await self._end_session(self._open)
        opened = self._open or await self._open_session()
        opened.taken += len(data)
        await opened.session.seat.write(data)

    async def _commit(self) -> None:
        await self.socket.wait_for_turn()
        if self._open is not None:
            await self._send(self._open.items.commit(self._open.session.seat.finalize()))
        elif not self._uncommitted and self.wanted.manual:
            raise Misunderstood("input_audio_buffer_commit_empty", EMPTY)
        self._uncommitted = 0

    async def _clear(self) -> None:
        await self.socket.wait_for_turn()
        self._uncommitted = 0
        cleared: list[ServerEvent] = [{"type": "input_audio_buffer.cleared"}]
        await self._send(self._open.items.clear(self._open.session.seat.finalize()) if self._open else cleared)

    # --- live sessions -----------------------------------------------------------------------------------------------

    async def _open_session(self) -> _OpenSession:
        wanted, websocket = self.wanted, self.socket.websocket
        _, key, _ = self.caller.require_account()
        caller = await self.parts.access.identify_hash(websocket, key.hash)  # the key may have been revoked
        opening = open_session(self.parts, websocket, caller, wanted.order(), wanted.warnings)
        session = await self._stack.enter_async_context(opening)
        items = Items(
            self._names,
            manual=wanted.manual,
            semantic=wanted.semantic,
            language=wanted.spoken.language,
            offset_s=self._before_s,
        )
        opened = self._open = _OpenSession(session, items, wanted.rate)
        self._sessions.put_nowait(opened)
        return opened

    async def _end_session(self, opened: _OpenSession) -> None:
        """End the session, and wait for its end, so that an account with one session may open the next."""
        self._before_s += opened.seconds
        self._open = None
        await self._stack.aclose()
        await opened.session.live.over.wait()


class Misunderstood(Exception):
    """A message that cannot be understood. The client gets an error and may continue."""

    def __init__(self, code: str, detail: str, errors: Sequence[FieldError] = ()) -> None:
        super().__init__(detail)
        self.problem = Problem(code, detail, errors=errors)


def parse_message(text: str | None) -> Mapping[str, Any]:
    said = message_of(text)
    if said is None:
        raise Misunderstood("invalid_json", "messages are JSON objects")
    return said


def decode_audio(text: object) -> bytes:
    try:
        return base64.b64decode(text if isinstance(text, str) else b"-", validate=True)
    except (binascii.Error, ValueError):
        raise Misunderstood("invalid_parameter", "audio must be base64") from None
