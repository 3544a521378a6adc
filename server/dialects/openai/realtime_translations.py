"""WS /v1/realtime/translations: live translation for clients of OpenAI's realtime API.

The client sends audio and gets the text in its language as it is translated, and the words if it asks for them. No
audio comes back. Source: platform.openai.com/docs/guides/realtime-translation.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from pipeline.languages import ENGLISH, UNSPACED
from server.accounts.keys import fresh_id
from server.clock import now_ms
from server.dialects.dialect import Frame, SocketSession, open_session
from server.dialects.openai.bodies import unknown_model
from server.dialects.openai.items import ServerEvent
from server.dialects.openai.realtime import (
    ERROR_STYLE,
    IDLE_S,
    SUBPROTOCOL,
    Misunderstood,
    decode_audio,
    error_event,
    parse_message,
)
from server.dialects.openai.session_config import MAX_BODY, ClientSecrets
from server.http.openapi import ref
from server.http.operation import Answer, Caller, Endpoint, Operation, json_body
from server.http.sockets import Socket, socket_route
from server.model.errors import Refused, invalid_member
from server.model.ids import Prefix
from server.model.offers import Offer
from server.model.orders import LiveOptions, Order
from server.parsing.members import Members
from server.parsing.orders import targets_among
from server.requests.request import RouteParts
from server.waiting import until_first

ROUTE = "/v1/realtime/translations"
RATE = 24_000  # of the audio, which is 16-bit PCM; clients cannot choose another
STEP_MS = 200  # of elapsed_ms


@dataclass(frozen=True, slots=True)
class TranslationConfig:
    """The configuration of a session, in the form that clients get."""

    model: str
    language: str = ENGLISH  # of the output
    transcription: Mapping[str, Any] | None = None  # None: the client wants no words of the original
    noise_reduction: Mapping[str, Any] | None = None  # has no effect

    def with_changes(self, session: object, offer: Offer) -> "TranslationConfig":
        """The configuration after the changes in *session*. Raises Refused invalid_parameter."""
        if not isinstance(session, dict):
            raise invalid_member("session", "invalid_type", "must be an object")
        if session.get("type", "translation") != "translation":
            raise invalid_member("session.type", "unknown_value", "only translation sessions are offered here")
        audio = _inner(session, "audio")
        given, output = _inner(audio, "input"), _inner(audio, "output")
        made = self
        if "transcription" in given:
            made = replace(made, transcription=given["transcription"] and _inner(given, "transcription"))
        if "noise_reduction" in given:
            made = replace(made, noise_reduction=given["noise_reduction"] and _inner(given, "noise_reduction"))
        if output.get("language") is not None:
            members = Members({"session.audio.output.language": [output["language"]]})
            found = members.take("session.audio.output.language", targets_among(offer), ())
            members.check()
            if len(found) != 1:
                raise invalid_member("session.audio.output.language", "repeated", "must be one language")
            made = replace(made, language=found[0])
        return made

    def order(self, offer: Offer) -> Order:
        """The order of a live session with this configuration."""
        live = LiveOptions(sample_rate=RATE, interim_results=False)
        return Order(
            word_timestamps=True, model=offer.model_named(self.model), translate_to=(self.language,), live=live
        )

    def session_object(self, session_id: str, *, expires_s: int) -> Mapping[str, Any]:
        return {
            "id": session_id,
            "type": "translation",
            "model": self.model,
            "expires_at": expires_s,
            "output_modalities": ["text"],
            "audio": {
                "input": {"transcription": self.transcription, "noise_reduction": self.noise_reduction},
                "output": {"language": self.language},
            },
        }


def _inner(outer: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = outer.get(name)
    if value is not None and not isinstance(value, dict):
        raise invalid_member(f"session.{name}", "invalid_type", "must be an object")
    return value or {}


@dataclass(frozen=True, slots=True)
class RealtimeTranslations:
    parts: RouteParts
    secrets: ClientSecrets

    def routes(self) -> list[WebSocketRoute]:
        return [socket_route(ROUTE, self._serve, metrics=self.parts.metrics, error_style=ERROR_STYLE)]

    def operations(self) -> list[Operation]:
        return [
            Operation(
                Endpoint("POST", f"{ROUTE}/client_secrets", self._make_secret, "createTranslationClientSecret"),
                summary=f"Make a short-lived credential for {ROUTE}",
                description="It is good in place of the API key there and nowhere else, as long as that key is.",
                **json_body("ClientSecretRequest", most=MAX_BODY, example={"session": {"model": "whisper-1"}}),
                answers={200: Answer("The credential", ref("ClientSecret"))},
                codes=("model_not_found",),
            )
        ]

    async def _make_secret(self, request: Request, caller: Caller) -> Response:
        return await self.secrets.issue(request, caller, _config_of)

    async def _serve(self, socket: Socket) -> None:
        websocket = socket.websocket
        self.parts.access.check_page(websocket)
        caller, session = await self.secrets.identify(websocket)
        offer = self.parts.offers[caller.environment]
        start = _config_of({**(session or {}), **_named_model(websocket)}, offer)
        with self.parts.stream_limits.hold_socket(caller):
            await socket.accept(subprotocol=SUBPROTOCOL if SUBPROTOCOL in websocket.scope["subprotocols"] else None)
            await _Conversation(socket, self.parts, caller, offer, start).talk()


def _named_model(websocket: WebSocket) -> Mapping[str, str]:
    return {name: value for name, value in websocket.query_params.items() if name == "model"}


def _config_of(session: Mapping[str, Any], offer: Offer) -> TranslationConfig:
    """The configuration that a session begins with. Raises Problem model_not_found, Refused invalid_parameter."""
    model = session.get("model", offer.names[0])
    if not isinstance(model, str):
        raise invalid_member("session.model", "invalid_type", "must be text")
    if not (offer.has(model) or model == "gpt-realtime-translate"):
        raise unknown_model(model, offer)
    return TranslationConfig(model).with_changes(session, offer)


@dataclass(slots=True)
class _Conversation:
    """The messages of one socket. One task reads the client's, another sends the events of each live session."""

    socket: Socket
    parts: RouteParts
    caller: Caller
    offer: Offer
    wanted: TranslationConfig
    _id: str = field(default_factory=lambda: fresh_id(Prefix.SESSION))
    _events: "count[int]" = field(default_factory=lambda: count(1))
    _sessions: "asyncio.Queue[SocketSession | None]" = field(default_factory=asyncio.Queue)  # None: no more come
    _open: SocketSession | None = None
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    _spoken: dict[str, bool] = field(default_factory=dict)  # whether a delta of this type was sent

    async def talk(self) -> None:
        """Converse until the client leaves or closes the session. Raises the reason of any other end."""
        try:
            await self._send({"type": "session.created", "session": self._session_object()})
            await until_first(self._read(), self._listen())
        finally:
            await self._stack.aclose()

    async def _listen(self) -> None:
        """Send the texts of each live session in turn, until the client has closed the session."""
        while (session := await self._sessions.get()) is not None:
            try:
                await session.follow(partial(self._render, self.wanted))
            except Refused as error:
                if error.code != "ingest_idle":  # the next audio opens another session
                    raise
        await self._send({"type": "session.closed"})

    async def _render(self, wanted: TranslationConfig, frames: Sequence[Frame]) -> None:
        for frame in frames:
            if frame["type"] == "word":
                if wanted.transcription is not None:
                    await self._say("input", frame["word"], frame["end"], spaced=frame.get("spaced", True))
                if frame.get("language") == wanted.language:  # it needs no translation
                    await self._say("output", frame["word"], frame["end"], spaced=frame.get("spaced", True))
            elif frame["type"] == "translation":
                await self._say("output", frame["text"], frame["end"], spaced=wanted.language not in UNSPACED)

    async def _say(self, which: str, text: str, end_s: float, *, spaced: bool) -> None:
        delta = f" {text}" if spaced and self._spoken.get(which) else text
        self._spoken[which] = True
        elapsed_ms = round(end_s * 1000 / STEP_MS) * STEP_MS
        await self._send({"type": f"session.{which}_transcript.delta", "delta": delta, "elapsed_ms": elapsed_ms})

    async def _send(self, event: ServerEvent) -> None:
        await self.socket.send(orjson.dumps({"event_id": f"event_{next(self._events)}", **event}))

    def _session_object(self) -> Mapping[str, Any]:
        return self.wanted.session_object(self._id, expires_s=now_ms() // 1000 + round(IDLE_S))

    async def _read(self) -> None:
        while True:
            try:
                async with asyncio.timeout(IDLE_S):
                    message = await self.socket.websocket.receive()
            except TimeoutError:
                return
            if message["type"] != "websocket.receive":
                return
            event_id = None
            try:
                said = parse_message(message.get("text"))
                event_id = said.get("event_id") if isinstance(said.get("event_id"), str) else None
                await self._handle(said)
            except Misunderstood as wrong:
                await self.socket.wait_for_turn()
                await self._send(error_event(wrong.problem, event_id))

    async def _handle(self, said: Mapping[str, Any]) -> None:
        match said.get("type"):
            case "session.update":
                await self._change_config(said.get("session"))
            case "session.input_audio_buffer.append":
                data = decode_audio(said.get("audio"))
                if self._open is None or self._open.live.ending:
                    await self._end_session()
                    self._open = await self._open_session()
                await self._open.seat.write(data)
            case "session.close":
                await self._end_session()
                self._sessions.put_nowait(None)
                await asyncio.Event().wait()  # _listen() ends the conversation
            case kind:
                raise Misunderstood("invalid_message", f"a translation session takes no event {str(kind)[:100]!r}")

    async def _change_config(self, session: object) -> None:
        await self.socket.wait_for_turn()
        try:
            wanted = self.wanted.with_changes(session, self.offer)
        except Refused as error:
            raise Misunderstood(error.code, error.detail, error.errors) from None
        if wanted.language != self.wanted.language:
            await self._end_session()
        self.wanted = wanted
        await self._send({"type": "session.updated", "session": self._session_object()})

    async def _open_session(self) -> SocketSession:
        websocket = self.socket.websocket
        _, key, _ = self.caller.require_account()
        caller = await self.parts.access.identify_hash(websocket, key.hash)  # the key may have been revoked
        opening = open_session(self.parts, websocket, caller, self.wanted.order(self.offer))
        session = await self._stack.enter_async_context(opening)
        self._sessions.put_nowait(session)
        return session

    async def _end_session(self) -> None:
        """End the live session, and wait for its end, so that an account with one session may open the next."""
        if self._open is not None:
            ended, self._open = self._open, None
            await self._stack.aclose()
            await ended.live.over.wait()
