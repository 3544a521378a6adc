"""Live sessions: POST /v1/live makes one. Its audio comes in any number of requests, or by WebSocket.

The writer of a WebSocket gets the events on it too; readers get events only.

A session is a job, so the routes of jobs serve its record, events and outputs, cancel it and delete it.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from server.accounts.signed import Scope
from server.clock import iso, now_ms
from server.http.bodies import MAX_LARGE_BODY, json_object, off_loop
from server.http.headers import warning_headers
from server.http.openapi import ref
from server.http.operation import Answer, Auth, Caller, Endpoint, Operation, Parameter, json_body, json_response
from server.http.problems import UNDECODABLE, Problem
from server.http.sockets import MAX_MESSAGE_BYTES, MessageTooBig, Socket, message_of, socket_route, text_frame
from server.http.streamed import last_event_id
from server.live.intake import raw_frame_bytes
from server.live.session import LiveSession, Seat, finished_refusal
from server.model import answers
from server.model.accounts import Channel
from server.model.errors import Refused, invalid_member
from server.model.jobs import Job, Submitted
from server.model.offers import Offer
from server.model.orders import CONTAINER, Order
from server.parsing.orders import ParsedRequest, parse_live_order
from server.requests.request import (
    ACCEPTING_CODES,
    IDEMPOTENCY_KEY,
    JOB,
    READER_CODES,
    RouteGroup,
    RouteParts,
    admit_reader,
    answer_when_over,
    idempotency_key_of,
    live_job,
    misplaced_members,
    no_such_job,
    query_languages,
    query_switch,
    wait_for_end,
)
from server.streams.feed import Languages, Rendered, json_with_type
from server.waiting import racing, until_first

PIECE_BYTES = 256 * 1024  # of an HTTP body, taken at once
AUDIO_TYPES = (
    "application/octet-stream",
    "audio/webm",
    "audio/ogg",
    "audio/mpeg",
    "audio/flac",
    "audio/wav",
    "audio/x-wav",
    "audio/aac",
    "audio/mp4",
    "audio/l16",
    "audio/basic",
    "video/webm",
    "video/mp2t",
    "application/x-www-form-urlencoded",  # curl's media type for any --data-binary
)
TOKEN = Parameter("token", "query", {"type": "string"}, "A stream token of scope ingest")
AUDIO_SOCKET = "/v1/jobs/{job_id}/audio"
EVENT_SOCKET = "/v1/jobs/{job_id}/stream"


class LiveRequests(RouteGroup):
    """Handlers for starting a session, sending audio in requests, and finishing it."""

    tag = "live"

    def operations(self) -> list[Operation]:
        ingest: dict[str, Any] = {"auth": Auth.OWN, "answers": {200: Answer("What has arrived", ref("Received"))}}
        codes = (*READER_CODES, "not_found", "ingest_busy", "ingest_finished", "queue_full")
        return [
            Operation(
                Endpoint("POST", "/v1/live", self.create, "createLive"),
                summary="Start a live session",
                description="Answers where to send the audio: by WebSocket, or in any number of HTTP requests. The "
                "session is a job: it has a record, events, outputs and a webhook like any other.",
                **json_body("LiveRequest", most=MAX_LARGE_BODY, example={"encoding": "pcm_s16le"}),
                parameters=(IDEMPOTENCY_KEY,),
                answers={201: Answer("The session", JOB, headers=("Location", "Idempotent-Replayed"))},
                codes=(*ACCEPTING_CODES, "url_not_allowed"),
            ),
            Operation(
                Endpoint("POST", "/v1/jobs/{job_id}/audio", self.send_audio, "sendAudio"),
                **ingest,
                summary="Send a live session's audio",
                description="The body is the next part of the stream, of any length and at the speed of speech; "
                "chunked bodies are transcribed as they arrive. The same path takes a WebSocket.",
                media_types=AUDIO_TYPES,
                bodies={AUDIO_TYPES[0]: {"type": "string", "format": "binary"}},
                parameters=(
                    TOKEN,
                    Parameter("final", "query", {"type": "boolean"}, "This was all: finish, and wait for the result"),
                ),
                codes=(*codes, "ingest_idle", "audio_too_long", *UNDECODABLE),
            ),
            Operation(
                Endpoint("POST", "/v1/jobs/{job_id}/finish", self.finish, "finishLive"),
                **ingest,
                summary="End a live session",
                description="Waits for the result. May be repeated.",
                parameters=(TOKEN,),
                codes=codes,
            ),
        ]

    # --- making one --------------------------------------------------------------------------------------------------

    async def create(self, request: Request, caller: Caller) -> Response:
        misplaced = misplaced_members(request)
        self.parts.session_registry.admit(caller.environment, Order())
        _, _, plan = caller.require_account()
        submitted = await self._submit(request, caller, misplaced)
        expires_s = round(now_ms() / 1000 + plan.audio_s_per_file + self.parts.session_registry.rules.margin_s)

        async def answer(job: Job, asked_at: int) -> Response:
            shown = await self.parts.records.full(job, asked_at=asked_at)
            assert isinstance(shown.live, answers.LiveState)
            shown.live.ingest_ws = self.parts.links.ingest_socket(job, expires_s=expires_s)
            shown.live.ingest_http = self.parts.links.ingest(job)
            shown.live.events_url = self.parts.links.events(job)
            shown.live.expires_at = iso(expires_s * 1000)
            headers = {"Location": self.parts.links.job_path(job), **warning_headers(job.warnings)}
            if submitted.replayed:
                headers["Idempotent-Replayed"] = "true"
            return json_response(shown, 201, headers=headers)

        return await answer_when_over(request, submitted.job, self.parts, answer)

    async def _submit(self, request: Request, caller: Caller, warnings: tuple[Mapping[str, str], ...]) -> Submitted:
        """Make the job with further *warnings*, and show it on the channel that the request names."""
        async with self.parts.uploads.large_body(request) as body:
            parsed = await off_loop(len(body), _parse, body, self.parts.acceptance.offers[caller.environment])
            parsed = replace(parsed, warnings=(*parsed.warnings, *warnings))
            channel = await self._channel(caller, parsed.order)
            key = idempotency_key_of(request, caller)
            async with self.parts.acceptance.reserve(key):
                self.parts.session_registry.admit(caller.environment, parsed.order)
                submitted = await self.parts.acceptance.accept(caller.customer, parsed, key=key)
        if channel is not None:
            await self.parts.storage.channels.show(channel.id, submitted.job.id)
        return submitted

    async def _channel(self, caller: Caller, order: Order) -> Channel | None:
        """The channel that the order names, if any. Raises Refused invalid_parameter if it does not exist."""
        if order.live is None or order.live.channel is None:
            return None
        channel = await self.parts.storage.channels.find_named(
            caller.account_id, caller.environment, order.live.channel
        )
        if channel is None:
            missing = "there is no channel of this name; POST /v1/channels makes it"
            raise invalid_member("channel", "unknown_value", missing)
        return channel

    # --- audio in HTTP requests --------------------------------------------------------------------------------------

    async def send_audio(self, request: Request, _caller: Caller) -> Response:
        final = query_switch(request, "final")
        live = await self.parts.session_registry.open(await live_job(request, self.parts))
        async with live.seat() as seat:
            try:
                await _pour(request, live, seat)
            except ClientDisconnect:
                live.count_lost_writer()
                raise
            if final:
                seat.finish()
        if live.ending:
            await self._wait_for_end(live)
            await self.parts.session_registry.check_end(live)
        return await self._progress(live.job)

    async def finish(self, request: Request, _caller: Caller) -> Response:
        job = await live_job(request, self.parts)
        if not job.terminal and (live := await self._open_unless_finished(job)) is not None:
            live.finish()
            await self._wait_for_end(live)
        return await self._progress(job)

    async def _open_unless_finished(self, job: Job) -> LiveSession | None:
        """Return the job's session; None if it has ended, or ends because nothing can follow after a restart."""
        try:
            return await self.parts.session_registry.open(job)
        except Refused as refused:
            if refused.code != "ingest_finished":
                raise
            return None

    async def _wait_for_end(self, live: LiveSession) -> None:
        """Wait until the job has ended, its session is no longer in this process, or the usual wait is over."""
        await until_first(
            wait_for_end(live.job, self.parts.jobs, self.parts.closing, wait_s=self.parts.config.wait_default),
            live.over.wait(),
        )

    async def _progress(self, job: Job) -> Response:
        now = await self.parts.jobs.get(job.id)
        if now is None:
            raise no_such_job()
        progress = await self.parts.session_registry.progress(now)
        return json_response(answers.Received(job.id, now.state, **progress.to_json()))


def _parse(body: bytes, offer: Offer) -> ParsedRequest:
    fields = {name: [value] for name, value in json_object(body).items()}
    return parse_live_order(fields, offer=offer)


async def _pour(request: Request, live: LiveSession, seat: Seat) -> None:
    """Feed the request's body to the session until one of them ends. Raises ClientDisconnect, Refused ingest_busy."""

    async def pour() -> None:
        async for data in request.stream():
            for at in range(0, len(data), PIECE_BYTES):
                if not await seat.write(data[at : at + PIECE_BYTES]):
                    return

    await until_first(pour(), live.over.wait(), seat.lost.wait())
    seat.keep_alive()  # raises if another writer has the seat


@dataclass(frozen=True, slots=True)
class LiveSockets:
    """The WebSockets of writers and of readers."""

    parts: RouteParts

    def routes(self) -> list[WebSocketRoute]:
        served = ((AUDIO_SOCKET, self._write), (EVENT_SOCKET, self._read))
        return [socket_route(path, converse, metrics=self.parts.metrics) for path, converse in served]

    # --- writers -----------------------------------------------------------------------------------------------------

    async def _write(self, socket: Socket) -> None:
        self.parts.access.check_page(socket.websocket)
        job = await live_job(socket.websocket, self.parts)
        after = await self._place(socket.websocket, job)
        await socket.accept()
        live = await self.parts.session_registry.open(job)
        async with live.seat() as seat:
            await socket.send(_started_frame(live))
            await self._converse(socket, live, seat, after)

    async def _converse(self, socket: Socket, live: LiveSession, seat: Seat, after: int) -> None:
        """Take audio and send events until the session ends or the writer leaves.

        Raises a Refused unless the writer ended the session.
        """
        async with racing(
            self._handle_messages(socket, live, seat),
            self._leave(socket, live, seat),
            self._follow(socket, live.job.id, after, acks := Acks(live)),
            self._acknowledge(socket, acks),
        ) as tasks:
            ended = [task for task in tasks if task.done()]
        try:
            for task in ended:
                task.result()
        except WebSocketDisconnect:
            live.count_lost_writer()
            raise
        if tasks[0] in ended:
            live.count_lost_writer()
        else:
            await self.parts.session_registry.check_end(live)

    async def _leave(self, socket: Socket, live: LiveSession, seat: Seat) -> None:
        """Wait until the session has ended. Raises Problem ingest_busy if another writer takes the seat."""
        await until_first(live.over.wait(), seat.lost.wait())
        if seat.lost.is_set():
            raise Problem("ingest_busy", "Another writer has taken over. Only one can write to a session.")
        job = await self.parts.jobs.get(live.job.id)
        if job is not None and job.terminal:
            await socket.wait_while_read()  # _follow() sends the last events, and ends the conversation before

    async def _handle_messages(self, socket: Socket, live: LiveSession, seat: Seat) -> None:
        """Handle the writer's messages until it leaves."""
        ended = False
        while (message := await socket.websocket.receive())["type"] == "websocket.receive":
            data = message.get("bytes")
            if data is None:
                await socket.wait_for_turn()
                kind = _control(message.get("text") or "", seat)
                ended |= kind == "close"
                if kind == "keep_alive" and seat.pausing and not live.job.order.text.redact:
                    seat.finalize()  # what is redacted may go on after the pause; other words need not wait for audio
                elif kind == "finalize" and await live.has_finalized(seat.finalize()):
                    await socket.send(orjson.dumps({"type": "finalized", "at": live.finalized}))
            elif ended:
                raise finished_refusal()
            else:
                _check_length(data, live)
                await seat.write(data)

    async def _follow(
        self,
        socket: Socket,
        job_id: str,
        after: int,
        acks: "Acks | None" = None,
        *,
        languages: Languages = None,
    ) -> None:
        """Send a job's events and partials as they come, until no more can come. Acks that are nearly due go before."""
        with self.parts.following.open_reader(
            job_id, after=after, quiet_s=self.parts.stream_limits.rules.keep_alive_s
        ) as reader:
            async for batch in reader:
                socket.rest_while(batch is None)
                if batch is not None:
                    async with reader.record_delivery(batch):
                        ack = acks.frame() if acks is not None and acks.nearly_due else b""
                        await socket.send_frames(ack + batch.join_bytes(_as_frame, languages))

    async def _acknowledge(self, socket: Socket, acks: "Acks") -> None:
        """Send the acks with which no events went."""
        while True:
            await asyncio.sleep(acks.due_s)
            if acks.due_s <= 0 and (ack := acks.frame()):
                await socket.send_frames(ack)

    # --- readers -----------------------------------------------------------------------------------------------------

    async def _read(self, socket: Socket) -> None:
        websocket = socket.websocket
        self.parts.access.check_page(websocket)
        job = await admit_reader(websocket, Scope.EVENTS, self.parts)
        after, languages = await self._place(websocket, job), query_languages(websocket.query_params)
        await socket.accept()
        seat, job_id = self.parts.stream_limits.hold_stream(job), job.id
        del job  # so that not every reader keeps one in memory
        with seat, self.parts.metrics.subscribers.track_inprogress():
            async with racing(self._send_events(socket, job_id, after, languages), _refuse_data(websocket)) as (
                send,
                receive,
            ):
                pass
        for task in (receive, send):
            if not task.cancelled():
                task.result()

    async def _send_events(self, socket: Socket, job_id: str, after: int, languages: Languages) -> None:
        socket.may_rest = True
        await self._follow(socket, job_id, after, languages=languages)
        job = await self.parts.jobs.get(job_id)
        if job is None:
            raise no_such_job()
        if not job.terminal:
            raise Problem("shutting_down", "The server is restarting. Connect again to go on.")

    # --- both --------------------------------------------------------------------------------------------------------

    async def _place(self, websocket: WebSocket, job: Job) -> int:
        """The number of the last event that the client has. Raises Refused invalid_last_event_id."""
        after = last_event_id(None, websocket.query_params.get("last_event_id"))
        if after and after > await self.parts.storage.timelines.last(job.id):
            raise Refused("invalid_last_event_id", "last_event_id is beyond the last event of this job")
        return after


class Acks:
    """What tells a writer, about every *ack_s* seconds in which audio arrived, how much has."""

    def __init__(self, live: LiveSession) -> None:
        self._live = live
        self._at = time.monotonic()
        self._acknowledged: int | None = None  # bytes

    @property
    def due_s(self) -> float:
        """The seconds until the next one should be sent."""
        return self._at + self._live.rules.ack_s - time.monotonic()

    @property
    def nearly_due(self) -> bool:
        """Whether it may go with events: a write costs more than all else that is done for them."""
        return self.due_s <= self._live.rules.ack_s / 2

    def frame(self) -> bytes:
        """Return the next one, to be sent now; empty if nothing arrived since the last."""
        self._at, progress = time.monotonic(), self._live.progress()
        if progress.received_bytes == self._acknowledged:
            return b""
        self._acknowledged = progress.received_bytes
        return text_frame(orjson.dumps({"type": "ack", **progress.to_json()}))


async def _refuse_data(websocket: WebSocket) -> None:
    """Wait until the reader leaves. Raises Problem if it sends anything."""
    if (await websocket.receive())["type"] == "websocket.receive":
        raise Problem("invalid_message", "this stream is only to be read")


def _as_frame(item: Rendered) -> bytes:
    return text_frame(item.form(json_with_type))


def _control(text: str, seat: Seat) -> str:
    """Carry out a writer's message and return its type. Raises Problem invalid_message."""
    message = message_of(text)
    kind = None if message is None else message.get("type")
    match kind:
        case "finalize" | "keep_alive":
            seat.keep_alive()
        case "close":
            seat.finish()
        case _:
            raise Problem("invalid_message", 'text frames are {"type": "finalize" | "keep_alive" | "close"}')
    return str(kind)


def _check_length(data: bytes, live: LiveSession) -> None:
    """Raise MessageTooBig, or Problem audio_too_fast for more seconds of audio than a message may have."""
    if len(data) > MAX_MESSAGE_BYTES:
        raise MessageTooBig(f"a message may have {MAX_MESSAGE_BYTES} bytes")
    options, max_s = live.options, live.rules.frame_s
    if options.encoding != CONTAINER and len(data) > max_s * options.sample_rate * raw_frame_bytes(options):
        raise Problem("audio_too_fast", f"a message may hold {max_s:g} s of audio; send it as it is spoken")


def _started_frame(live: LiveSession) -> bytes:
    """The first frame that a writer gets."""
    options = live.options
    return orjson.dumps(
        {
            "type": "session.started",
            "job_id": live.job.id,
            **live.progress().to_json(),
            "encoding": options.encoding,
            "sample_rate": options.sample_rate,
            "channels": options.channels,
            **({"separate": True} if live.job.order.separate else {}),
            "interim_results": options.interim_results,
        }
    )
