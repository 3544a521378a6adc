"""The interface of a dialect: the API of another service, whose requests make jobs and live sessions here.

A dialect is a folder here and a line in `registered.py`. No other part of the server knows which dialects there are.
Dialects share two things: answers with the results of finished jobs, and live sessions for their sockets.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import orjson
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import WebSocketRoute

from server.http.headers import warning_headers
from server.http.operation import Caller, ErrorShape, Operation
from server.http.problems import CODES, Problem
from server.live.session import LiveSession, Seat
from server.model.errors import ConcurrencyLimited
from server.model.jobs import Job, State, Submitted
from server.model.orders import Order
from server.parsing.orders import ParsedRequest
from server.records.records import CallbackBody
from server.requests.request import RouteParts, answer_when_over
from server.streams.feed import json_with_type

HOLD_S = 600  # longest wait; these clients cannot poll

RESULT_CODES = ("engine_error", "engine_timeout", "unfinished", "job_not_completed", "output_not_found")
"""Error codes of every operation that calls answer_finished()."""

Frame: TypeAlias = Mapping[str, Any]
"""An event or partial as the server's own WebSockets send it."""

MAX_CHANGEOVER_S = 5.0  # longest wait for the end of the client's previous session


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectRoutes:
    """The operations and WebSockets of a dialect."""

    operations: Sequence[Operation]
    sockets: Sequence[WebSocketRoute] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One dialect. *name* is the tag of its operations in /openapi.json. It must not change: it is stored with jobs."""

    name: str
    summary: str  # of the tag
    build: Callable[[RouteParts], DialectRoutes]
    errors: ErrorShape  # of its operations, except for those that name another
    schemas: Mapping[str, Any] = field(default_factory=dict)  # components of /openapi.json
    callback: CallbackBody | None = None  # makes the webhooks of jobs whose order names this dialect as their callback
    query_fields: Mapping[str, int] = field(default_factory=dict)  # by path, the most fields of a query, if more


async def answer_finished(
    request: Request, job: Job, make: Callable[[Job], Awaitable[Response]], parts: RouteParts
) -> Response:
    """Wait for the end of *job*, and return the answer that *make* makes. Raises Problem if there are no results."""

    async def answer(over: Job, asked_at: int) -> Response:
        if over.state is not State.COMPLETED:
            raise unsuccessful(over)
        if not over.shows_results(asked_at):
            raise Problem("output_not_found", "The result was delivered before, and then erased. Send the audio again.")
        response = await make(over)
        response.headers.update(warning_headers(over.warnings))
        return response

    return await answer_when_over(request, job, parts, answer, wait_s=HOLD_S)


def unsuccessful(job: Job) -> Problem:
    """The reason why there is no transcript."""
    if not job.terminal:
        return Problem("unfinished", f"The job goes on. Look at /v1/jobs/{job.id}.")
    if job.error is None:
        return Problem("job_not_completed", f"the job is {job.state}")
    code = job.error.code
    if code.startswith("source_"):
        code = "source_failed"
    elif code == "queue_timeout":
        code = "queue_full"
    return Problem(code if code in CODES else "internal", job.error.message)


@dataclass(frozen=True, slots=True)
class SocketSession:
    """The live session of a socket. One task of the socket writes to *seat*, another calls follow()."""

    parts: RouteParts
    live: LiveSession
    seat: Seat

    @property
    def heard_s(self) -> float:
        """The seconds of audio that have arrived and were decoded."""
        return self.live.progress().received_s or 0.0

    async def follow(self, send: Callable[[Sequence[Frame]], Awaitable[None]]) -> None:
        """Call *send* with events and partials until the session ends. Raises Refused unless the client ended it."""
        quiet_s = self.parts.limits.streams.keep_alive_s
        with self.parts.following.open_reader(self.live.job.id, after=0, quiet_s=quiet_s) as reader:
            async for batch in reader:
                if batch is not None:
                    async with reader.record_delivery(batch):
                        await send([orjson.loads(item.form(json_with_type)) for item in batch.items])
        await self.parts.session_registry.check_end(self.live)


@asynccontextmanager
async def open_session(
    parts: RouteParts,
    connection: HTTPConnection,
    caller: Caller,
    order: Order,
    warnings: tuple[Mapping[str, str], ...] = (),
) -> AsyncIterator[SocketSession]:
    """Open a live session for the caller, counted as a request. At the end of the block it takes no more audio.

    Raises RateLimited, and what the registry's admit() and open() and Acceptance.accept() raise.
    """
    await parts.access.count(connection, caller)
    submitted = await _submit(parts, caller, ParsedRequest(order, warnings=warnings))
    live = await parts.session_registry.open(submitted.job)
    try:
        async with live.seat() as seat:
            yield SocketSession(parts, live, seat)
    finally:
        live.finish()


async def _submit(parts: RouteParts, caller: Caller, parsed: ParsedRequest) -> Submitted:
    """Make the job of a new session.

    These clients close a socket and open the next one at once, and some give up for good if that is refused. So if an
    account is at its limit of sessions and one of them is ending, the new session waits for that end.
    """
    registry = parts.session_registry
    try:
        registry.admit(caller.environment, parsed.order)
        return await parts.acceptance.accept(caller.customer, parsed)
    except ConcurrencyLimited:
        if not await registry.wait_for_session_end(caller.account_id, max_s=MAX_CHANGEOVER_S):
            raise
    registry.admit(caller.environment, parsed.order)
    return await parts.acceptance.accept(caller.customer, parsed)
