"""Live sessions by HTTP: POST /v1/live makes one. Its audio comes in any number of requests, or by WebSocket.

A session is a job, so the routes of jobs serve its record, events and outputs, cancel it and delete it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from server.clock import iso, now_ms
from server.http.bodies import MAX_LARGE_BODY, json_object
from server.http.caller import Caller
from server.http.codes import UNDECODABLE
from server.http.headers import warning_headers
from server.http.large_bodies import off_loop
from server.http.operation import Answer, Auth, Endpoint, Operation, Parameter, json_body, json_response
from server.http.schemas import ref
from server.live.session import LiveSession, Seat
from server.model import answers
from server.model.accounts import Channel
from server.model.errors import Refused, invalid_member
from server.model.jobs import Job, Submitted
from server.model.offers import Offer
from server.model.orders import Order
from server.parsing.orders import ParsedRequest, parse_live_order
from server.requests.request import (
    ACCEPTING_CODES,
    IDEMPOTENCY_KEY,
    JOB,
    READER_CODES,
    RouteGroup,
    answer_when_over,
    idempotency_key_of,
    live_job,
    misplaced_members,
    no_such_job,
    query_switch,
    wait_for_end,
)
from server.waiting import until_first

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
