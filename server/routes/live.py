"""Live sessions: POST /v1/live makes one, its audio comes by WebSocket or in HTTP requests, its events go to anyone.

A session is a job: its record, events, outputs, cancel and delete are those of jobs.
"""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from server.accounts.signed import Scope
from server.clock import now_ms
from server.http.bodies import JSON, body_of, json_object
from server.http.caller import Caller
from server.http.operation import Answer, Auth, Operation, Parameter, json_response
from server.http.problems import Problem
from server.http.schemas import ref
from server.http.sockets import CLOSING_S, MessageTooBig, Socket
from server.http.sse import InvalidLastEventId, last_event_id
from server.jobs.holding import Holding
from server.jobs.orders import parse_live_order
from server.live.desk import Desk
from server.live.intake import raw_frame_bytes
from server.live.session import LiveSession, Seat, finished
from server.metrics import Metrics
from server.model.ids import CHANCE_BYTES, Prefix, new_id
from server.model.instants import iso
from server.model.jobs import Job, NewJob
from server.model.orders import CONTAINER, Order, Source
from server.records.links import Links
from server.records.records import Records
from server.routes.accepting import Accepting, fingerprinted, job_quotas
from server.routes.door import Door
from server.routes.events import Seats, admitted
from server.routes.jobs import JOB, JOB_ID, no_such_job, query_switch
from server.storage.ports import EventLog, JobStore
from server.streams.following import Following

AUDIO_SOCKET = "/v1/jobs/{job_id}/audio"
EVENT_SOCKET = "/v1/jobs/{job_id}/stream"
MOST_BODY = 64 * 1024
MOST_MESSAGE_BYTES = 1024 * 1024  # of a WebSocket
SOON = {"Retry-After": "5"}
PIECE_BYTES = 256 * 1024  # of an HTTP body that is taken at once
LEAST_AUDIO_S = 1.0  # of the month's audio that must be left to start; what was used is counted at the end
TOKEN_MARGIN_S = 3600  # a session's own link to its audio outlives the longest session by so much
AUDIO_TYPES = (
    "application/octet-stream", "audio/webm", "audio/ogg", "audio/mpeg", "audio/flac", "audio/wav", "audio/x-wav",
    "audio/aac", "audio/mp4", "audio/l16", "audio/basic", "video/webm", "video/mp2t",
    "application/x-www-form-urlencoded",  # what curl calls any --data-binary
)  # fmt: skip
TOKEN = Parameter(name="token", place="query", schema={"type": "string"}, description="A stream token of scope ingest")


class Live:
    def __init__(
        self,
        *,
        door: Door,
        jobs: JobStore,
        events: EventLog,
        desk: Desk,
        following: Following,
        accepting: Accepting,
        holding: Holding,
        records: Records,
        links: Links,
        seats: Seats,
        metrics: Metrics,
        origins: Sequence[str],  # whose pages may open WebSockets
        finish_wait_s: int,
    ) -> None:
        self._door = door
        self._jobs = jobs
        self._events = events
        self._desk = desk
        self._following = following
        self._accepting = accepting
        self._holding = holding
        self._records = records
        self._links = links
        self._seats = seats
        self._metrics = metrics
        self._origins = origins
        self._finish_wait_s = finish_wait_s

    def operations(self) -> list[Operation]:
        ingest: dict[str, Any] = {
            "auth": Auth.OWN,
            "tag": "live",
            "answers": {200: Answer(description="What has arrived", schema=ref("Received"))},
        }
        codes = ("job_not_found", "not_found", "missing_credentials", "invalid_key", "invalid_token",
                 "insufficient_scope", "environment_mismatch", "ingest_busy", "ingest_finished", "queue_full",
                 "shutting_down")  # fmt: skip
        return [
            Operation(
                method="POST", path="/v1/live", handle=self.create, id="createLive", tag="live",
                summary="Start a live session",
                description="Answers where to send the audio: by WebSocket, or in any number of HTTP requests. The "
                            "session is a job: it has a record, events, outputs and a webhook like any other.",
                media_types=(JSON,), most_body=MOST_BODY,
                bodies={JSON: ref("LiveRequest")}, body_examples={JSON: {"encoding": "pcm_s16le"}},
                parameters=(
                    Parameter(name="Idempotency-Key", place="header", schema={"type": "string", "maxLength": 257},
                              description="Makes repeats of this request answer with the same session, for 24 h"),
                ),
                answers={201: Answer(description="The session", schema=JOB,
                                     headers=("Location", "Idempotent-Replayed"))},
                codes=("invalid_json", "invalid_parameter", "invalid_idempotency_key", "payload_too_large",
                       "unsupported_media_type", "unsupported_encoding", "url_not_allowed", "idempotency_key_reused",
                       "idempotency_in_progress", "quota_exceeded", "concurrency_limited", "queue_full",
                       "disk_full", "shutting_down"),
            ),
            Operation(
                method="POST", path="/v1/jobs/{job_id}/audio", handle=self.send_audio, id="sendAudio", **ingest,
                summary="Send a live session's audio",
                description="The body is the next part of the stream, of any length and at the speed of speech; "
                            "chunked bodies are heard as they arrive. The same path takes a WebSocket.",
                media_types=AUDIO_TYPES,
                bodies={AUDIO_TYPES[0]: {"type": "string", "format": "binary"}},
                parameters=(JOB_ID, TOKEN, Parameter(name="final", place="query", schema={"type": "boolean"},
                                                     description="This was all: finish, and wait for the result")),
                codes=(*codes, "invalid_parameter", "ingest_idle", "audio_too_long", "payload_too_large",
                       "unsupported_media_type", "unsupported_encoding", "unsupported_audio_format", "invalid_audio",
                       "no_audio_stream", "decode_timeout"),
            ),
            Operation(
                method="POST", path="/v1/jobs/{job_id}/finish", handle=self.finish, id="finishLive", **ingest,
                summary="End a live session", description="Waits for the result. May be repeated.",
                parameters=(JOB_ID, TOKEN), codes=codes,
            ),
        ]  # fmt: skip

    def sockets(self) -> list[BaseRoute]:
        return [
            WebSocketRoute(AUDIO_SOCKET, self.audio),
            WebSocketRoute(EVENT_SOCKET, self.stream),
        ]

    # --- making one --------------------------------------------------------------------------------------------------

    async def create(self, request: Request, caller: Caller) -> Response:
        self._desk.admit(caller.environment)
        _, _, plan = caller.known()
        members = json_object(await body_of(request, most=MOST_BODY))
        fields = {name: [value] for name, value in members.items()}
        offer = self._accepting.offers[caller.environment]
        order, warnings = parse_live_order(fields, offer=offer)
        key = self._accepting.key(request, caller)
        async with self._accepting.reserved(key):
            warnings = await self._accepting.warnings(caller, order, warnings)
            said = orjson.dumps(order, option=orjson.OPT_SORT_KEYS)
            submitted = await self._jobs.submit(_new_job(caller, order, warnings), idempotency=fingerprinted(key, said))
        job = submitted.job
        expires_s = now_ms() // 1000 + plan.audio_s_per_file + TOKEN_MARGIN_S
        shown = await self._records.full(job)
        shown["live"] |= {
            "ingest_ws": self._links.ingest_socket(job, expires_s=expires_s),
            "ingest_http": self._links.ingest(job),
            "events_url": self._links.events(job),
            "expires_at": iso(expires_s * 1000),
        }
        headers = {"Location": self._links.job_path(job)}
        if submitted.replayed:
            headers["Idempotent-Replayed"] = "true"
        return json_response(shown, 201, headers=headers)

    # --- audio in HTTP requests --------------------------------------------------------------------------------------

    async def send_audio(self, request: Request, _caller: Caller) -> Response:
        final = query_switch(request, "final")
        live = await self._desk.open(await self._live_job(request))
        async with live.seat() as seat:
            try:
                await _pour(request, live, seat)
            except ClientDisconnect:
                self._count_dropped(live)
                raise
            if final:
                seat.end()
        if live.ending:
            await self._holding.until_over(live.job, wait_s=self._finish_wait_s)
            await self._check_end(live)
        return await self._progress(live.job)

    async def finish(self, request: Request, _caller: Caller) -> Response:
        job = await self._live_job(request)
        if not job.terminal:
            live = await self._desk.open(job)
            live.end()
            await self._holding.until_over(job, wait_s=self._finish_wait_s)
        return await self._progress(job)

    async def _progress(self, job: Job) -> Response:
        now = await self._jobs.get(job.id)
        if now is None:
            raise no_such_job()
        standing = await self._desk.standing(now)
        return json_response(
            {
                "job_id": job.id,
                "status": now.state.value,
                **standing.to_json(),
            }
        )

    # --- audio by WebSocket ------------------------------------------------------------------------------------------

    async def audio(self, websocket: WebSocket) -> None:
        socket = Socket(websocket, route=AUDIO_SOCKET, metrics=self._metrics)
        await socket.serve(self._write(socket))

    async def _write(self, socket: Socket) -> None:
        self._check_origin(socket.websocket)
        job = await self._live_job(socket.websocket)
        after = await self._place(socket.websocket, job)
        await socket.accept()
        live = await self._desk.open(job)
        async with live.seat() as seat:
            await socket.send(_started(live))
            await self._converse(socket, live, seat, after)

    async def _converse(self, socket: Socket, live: LiveSession, seat: Seat, after: int) -> None:
        """Audio in, events out, until the session is over or the writer leaves. Raises why it ended, if not well."""
        hear = asyncio.create_task(self._hear(socket, live, seat))
        tell = asyncio.create_task(self._follow(socket, live.job.id, after))
        acknowledge = asyncio.create_task(self._acknowledge(socket, live))
        leave = asyncio.create_task(self._leave(live, seat))
        tasks = (hear, leave, tell, acknowledge)
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        try:
            for task in done:
                task.result()
        except WebSocketDisconnect:
            self._count_dropped(live)
            raise
        if hear in done:
            self._count_dropped(live)
            return
        await self._check_end(live)

    def _count_dropped(self, live: LiveSession) -> None:
        if not live.ending:
            self._metrics.live_dropped.inc()

    async def _leave(self, live: LiveSession, seat: Seat) -> None:
        """Until this writer has nothing to wait for any more. Raises Problem ingest_busy when another took over."""
        over, lost = asyncio.create_task(live.over.wait()), asyncio.create_task(seat.lost.wait())
        try:
            await asyncio.wait({over, lost}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
            lost.cancel()
        if seat.lost.is_set():
            raise Problem("ingest_busy", "another writer has taken over")
        job = await self._jobs.get(live.job.id)
        if job is not None and job.terminal:
            await asyncio.sleep(CLOSING_S)  # its last events are on their way, to a writer that reads

    async def _check_end(self, live: LiveSession) -> None:
        """Returns iff the session came to the end that its writer asked for. Raises Problem."""
        job = await self._jobs.get(live.job.id)
        if job is None:
            raise no_such_job()
        if live.ended_by is not None:
            raise live.ended_by
        if not job.terminal and (live.over.is_set() or self._desk.closing):
            raise Problem("shutting_down", "the server is restarting; connect again to go on", headers=SOON)

    async def _hear(self, socket: Socket, live: LiveSession, seat: Seat) -> None:
        """Take what the writer sends until it leaves."""
        ended = False
        while (message := await socket.websocket.receive())["type"] == "websocket.receive":
            data = message.get("bytes")
            if data is None:
                ended |= _control(message.get("text") or "", seat)
            elif ended:
                raise finished()
            else:
                _check_length(data, live)
                await seat.take(data)

    async def _follow(self, socket: Socket, job_id: str, after: int) -> None:
        """Tell a job's events and partials as they come, until none can come any more."""
        view = self._following.follow(job_id, after=after, quiet_s=self._seats.rules.keep_alive_s)
        async with aclosing(view):
            async for seen in view:
                if seen is not None:
                    await socket.send(await self._following.typed(job_id, seen))

    async def _acknowledge(self, socket: Socket, live: LiveSession) -> None:
        """Say now and then how much has arrived, when it is more than before."""
        told = None
        while True:
            await asyncio.sleep(live.rules.ack_s)
            standing = live.standing()
            if standing.received_bytes != told:
                told = standing.received_bytes
                await socket.send(orjson.dumps({"type": "ack", **standing.to_json()}))

    # --- events by WebSocket -----------------------------------------------------------------------------------------

    async def stream(self, websocket: WebSocket) -> None:
        socket = Socket(websocket, route=EVENT_SOCKET, metrics=self._metrics)
        await socket.serve(self._read(socket))

    async def _read(self, socket: Socket) -> None:
        websocket = socket.websocket
        self._check_origin(websocket)
        job, reader = await self._admitted(websocket, Scope.EVENTS)
        after = await self._place(websocket, job)
        await socket.accept()
        with self._seats.taken(job, reader), self._metrics.subscribers.track_inprogress():
            tell = asyncio.create_task(self._tell_reader(socket, job.id, after))
            hear = asyncio.create_task(_refuse_data(websocket))
            try:
                await asyncio.wait({tell, hear}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                tell.cancel()
                hear.cancel()
                await asyncio.wait({tell, hear})
        for task in (hear, tell):
            if not task.cancelled():
                task.result()

    async def _tell_reader(self, socket: Socket, job_id: str, after: int) -> None:
        await self._follow(socket, job_id, after)
        job = await self._jobs.get(job_id)
        if job is None:
            raise no_such_job()
        if not job.terminal:
            raise Problem("shutting_down", "the server is restarting; connect again to go on")

    # --- who may -----------------------------------------------------------------------------------------------------

    async def _live_job(self, connection: HTTPConnection) -> Job:
        """The job of the path, if it is a live session and the caller may write to it."""
        job, _ = await self._admitted(connection, Scope.INGEST)
        if job.order.live is None:
            raise Problem("not_found", "this job is no live session")
        return job

    async def _admitted(self, connection: HTTPConnection, scope: Scope) -> tuple[Job, str]:
        return await admitted(connection, scope, door=self._door, jobs=self._jobs)

    async def _place(self, websocket: WebSocket, job: Job) -> int:
        """Behind which event the client wants to go on. Raises InvalidLastEventId."""
        after = last_event_id(None, websocket.query_params.get("last_event_id"))
        if after > await self._events.last(job.id):
            raise InvalidLastEventId("last_event_id is beyond the last event of this job")
        return after

    def _check_origin(self, websocket: WebSocket) -> None:
        """Browsers open WebSockets across origins without asking; only they send this header.

        Our own pages come from the host that they speak to.
        """
        origin = websocket.headers.get("origin")
        if origin is None or "*" in self._origins or origin in self._origins:
            return
        if origin.partition("://")[2] != websocket.headers.get("host"):
            raise Problem("origin_not_allowed", "pages of this origin may not use this server")


async def _pour(request: Request, live: LiveSession, seat: Seat) -> None:
    """The request's body into the session, until one of them ends. Raises ClientDisconnect, Problem ingest_busy."""

    async def pour() -> None:
        async for data in request.stream():
            for at in range(0, len(data), PIECE_BYTES):
                if not await seat.take(data[at : at + PIECE_BYTES]):
                    return

    tasks = {asyncio.create_task(work) for work in (pour(), live.over.wait(), seat.lost.wait())}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in done:
        task.result()
    seat.keep_alive()  # raises where it is ours no longer


async def _refuse_data(websocket: WebSocket) -> None:
    """Until the reader leaves. Raises Problem when it sends anything."""
    if (await websocket.receive())["type"] == "websocket.receive":
        raise Problem("invalid_message", "this stream is only to be read")


def _control(text: str, seat: Seat) -> bool:
    """Do what a writer's message says; True: it was the last. Raises Problem invalid_message."""
    try:
        message = orjson.loads(text)
    except orjson.JSONDecodeError:
        message = None
    kind = message.get("type") if isinstance(message, dict) else None
    match kind:
        case "finalize":
            seat.finalize()
        case "keep_alive":
            seat.keep_alive()
        case "close":
            seat.end()
        case _:
            raise Problem("invalid_message", 'text frames are {"type": "finalize" | "keep_alive" | "close"}')
    return bool(kind == "close")


def _check_length(data: bytes, live: LiveSession) -> None:
    """Raises MessageTooBig, and Problem audio_too_fast for more audio than anybody could speak meanwhile."""
    if len(data) > MOST_MESSAGE_BYTES:
        raise MessageTooBig(f"a message may have {MOST_MESSAGE_BYTES} bytes")
    options, most_s = live.options, live.rules.frame_s
    if options.encoding != CONTAINER and len(data) > most_s * options.sample_rate * raw_frame_bytes(options):
        raise Problem("audio_too_fast", f"a message may hold {most_s:g} s of audio; send it as it is spoken")


def _started(live: LiveSession) -> bytes:
    """The first frame that a writer gets."""
    options = live.options
    return orjson.dumps(
        {
            "type": "session.started",
            "job_id": live.job.id,
            **live.standing().to_json(),
            "encoding": options.encoding,
            "sample_rate": options.sample_rate,
            "channels": options.channels,
            "interim_results": options.interim_results,
        }
    )


def _new_job(caller: Caller, order: Order, warnings: Sequence[Mapping[str, str]]) -> NewJob:
    account, _, plan = caller.known()
    return NewJob(
        id=new_id(Prefix.JOB, ms=now_ms(), chance=secrets.token_bytes(CHANCE_BYTES)),
        account=account.id,
        environment=caller.environment,
        order=order,
        source=Source(type="live"),
        blob=None,
        audio_s=None,
        weight=plan.weight,
        retention_ms=plan.retention_ms,
        quotas=job_quotas(plan, LEAST_AUDIO_S) if caller.environment == "production" else (),
        most_active=plan.live_sessions,
        warnings=tuple(warnings),
    )
