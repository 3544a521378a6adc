"""Live sessions by WebSocket: a writer sends audio and gets events on the same socket, readers get events only.

Handlers raise Refused or Problem; http/sockets.py sends it to the client and closes the socket.
"""

import asyncio
import time
from dataclasses import dataclass

import orjson
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from server.accounts.signed import Scope
from server.http.problems import Problem
from server.http.sockets import MAX_MESSAGE_BYTES, MessageTooBig, Socket, message_of, socket_route, text_frame
from server.http.sse import last_event_id
from server.live.intake import raw_frame_bytes
from server.live.session import LiveSession, Seat, finished_refusal
from server.model.errors import Refused
from server.model.jobs import Job
from server.model.orders import CONTAINER
from server.requests.request import RouteParts, admit_reader, live_job, no_such_job, query_languages
from server.streams.feed import Languages, Rendered, json_with_type
from server.waiting import racing, until_first

AUDIO_SOCKET = "/v1/jobs/{job_id}/audio"
EVENT_SOCKET = "/v1/jobs/{job_id}/stream"


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
