"""WS /v1/listen: a live session for clients of Deepgram.

Audio comes in binary frames. Text frames are KeepAlive, Finalize and CloseStream.
"""

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import orjson
from starlette.routing import WebSocketRoute

from pipeline.audio import position
from pipeline.words import Segment, Word
from server.clock import iso, now_ms
from server.dialects.deepgram.answers import (
    ERROR_STYLE,
    REQUEST_ID,
    Message,
    alternative,
    hinted_member,
    model_info,
    model_uuid,
    search_member,
)
from server.dialects.deepgram.parameters import LiveRequest, parse_live
from server.dialects.dialect import Frame, SocketSession, open_session
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

FINAL_AFTER_S = 3.0  # after so much speech without a pause, final words are sent


@dataclass(slots=True)
class ChannelResults:
    """Makes messages from the events of one channel, or of all mixed. Times are seconds since the session began."""

    listening: LiveRequest
    request_id: str
    model_of: Callable[[str | None], str]  # names the model that hears a language
    channel: Sequence[int] = (0, 1)  # its number, and the number of channels
    _words: list[Frame] = field(default_factory=list)  # final words that no final message has
    _reached: float = 0.0  # where the last final message ended
    _held: Message | None = None  # the newest message, which is kept because it may answer a Finalize
    _asked: deque[float] = field(default_factory=deque)  # the positions of Finalizes without an answer
    _decided: float = 0.0
    _last_word_end: float | None = None  # of an utterance that may be over
    _language: str | None = None  # of the newest words

    def render(self, frame: Frame) -> list[Message]:
        """The messages for an event of the live session."""
        match frame["type"]:
            case "speech.started":
                self._last_word_end = None
                shown = {"type": "SpeechStarted", "channel": [*self.channel], "timestamp": frame["at"]}
                return [shown] if self.listening.speech_events else []
            case "word":
                self._words.append(frame)
                early = frame["end"] - self._words[0]["start"] >= FINAL_AFTER_S
                return self._final(frame["end"], speech_final=False) if early else []
            case "partial" if self.listening.interim and frame["end"] is not None:
                return [self._interim(frame)]
            case "segment":
                ends = not frame["forced"] and self.listening.ends_speech
                self._last_word_end = None if frame["forced"] else frame["end"]
                return self._final(frame["end"], speech_final=ends)
            case "finalized":
                return self._on_finalized(frame["at"])
        return []

    def finalize(self, at: float) -> list[Message]:
        """Note a Finalize of everything up to *at*. Returns the answer, if everything up to there is decided."""
        self._asked.append(at)
        return self._answer()

    def advance(self, heard_s: float) -> list[Message]:
        """The message UtteranceEnd, if *heard_s* seconds of audio end utterance_end_ms or more after the last word."""
        end, wait_ms = self._last_word_end, self.listening.utterance_end_ms
        if end is None or wait_ms is None or heard_s < end + wait_ms / 1000:
            return []
        self._last_word_end = None
        return [{"type": "UtteranceEnd", "channel": [*self.channel], "last_word_end": end}]

    def _on_finalized(self, at: float) -> list[Message]:
        self._decided = at
        if self._asked:
            return self._answer()
        return [self._final_message([], at, speech_final=self.listening.ends_speech)]

    def _answer(self) -> list[Message]:
        """The answer to each Finalize whose audio is decided: the held message, or one without words."""
        answers: list[Message] = []
        while self._asked and self._asked[0] <= self._decided:
            at = self._asked.popleft()
            held, self._held = self._held, None
            answers.append({**(held or self._final_message([], at, speech_final=True)), "from_finalize": True})
        return answers

    def _final(self, end: float, *, speech_final: bool) -> list[Message]:
        words, self._words = self._words, []
        message = self._final_message(words, end, speech_final=speech_final)
        if not self._asked:
            return [message]
        before, self._held = self._held, message
        return [before] if before is not None else []

    def _final_message(self, words: Sequence[Frame], end: float, *, speech_final: bool) -> Message:
        message = self._results(words, end, is_final=True, speech_final=speech_final)
        self._reached = max(self._reached, end)
        return message

    def _interim(self, partial: Frame) -> Message:
        return self._results(self._words, partial["end"], more=partial["text"])

    def _results(
        self, words: Sequence[Frame], end: float, *, is_final: bool = False, speech_final: bool = False, more: str = ""
    ) -> Message:
        punctuated = self.listening.punctuated
        self._language = next((word["language"] for word in reversed(words) if "language" in word), self._language)
        model = self.model_of(self._language or self.listening.order.language)
        return {
            "type": "Results",
            "channel_index": [*self.channel],
            "start": round(self._reached, 3),
            "duration": round(max(0.0, end - self._reached), 3),
            "is_final": is_final,
            "speech_final": speech_final,
            "from_finalize": False,
            "channel": {
                **hinted_member(self.listening.order.languages),
                **(search_member(_segments(words), self.listening.order.text.search) if is_final else {}),
                "alternatives": [
                    alternative(words, punctuated=punctuated, more=more, speakers=self.listening.order.diarize)
                ],
            },
            "metadata": {
                "request_id": self.request_id,
                "model_info": model_info(model),
                "model_uuid": model_uuid(model),
            },
        }


def _segments(words: Sequence[Frame]) -> list[Segment]:
    """The words as a segment in which terms can be searched; no segment if there are no words."""
    said = tuple(
        Word(word["word"], position(word["start"]), position(word["end"]), word["probability"]) for word in words
    )
    return [Segment(said, 0.0, 0.0)] if said else []


class Results:
    """Makes messages from the events of one live session, separately for each channel if channels are separate."""

    def __init__(self, listening: LiveRequest, request_id: str, model_of: Callable[[str | None], str]) -> None:
        channels = listening.order.live_channels
        self.channels = len(channels)
        self._each = {
            channel: ChannelResults(listening, request_id, model_of, (number, self.channels))
            for number, channel in enumerate(channels)
        }

    def render(self, frame: Frame) -> list[Message]:
        """The messages for an event of the session. An event without a channel concerns all channels."""
        concerned = [self._each[frame["channel"]]] if "channel" in frame else self._each.values()
        return [message for results in concerned for message in results.render(frame)]

    def finalize(self, at: float) -> list[Message]:
        """See ChannelResults.finalize(). Every channel answers."""
        return [message for results in self._each.values() for message in results.finalize(at)]

    def advance(self, heard_s: float) -> list[Message]:
        """See ChannelResults.advance()."""
        return [message for results in self._each.values() for message in results.advance(heard_s)]


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
