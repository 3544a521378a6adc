"""GET /v1/jobs/{job_id}/events: a job's log as Server-Sent Events, from any point on, for batch and live jobs alike.

A stream reads the log page by page as fast as its reader takes it, so a slow reader costs a page of memory and holds
up nobody.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from server.accounts.limits import Streams
from server.accounts.signed import Scope
from server.clock import now_ms
from server.delivery.sse import KEEP_ALIVE, InvalidLastEventId, event, last_event_id, retry
from server.door import Caller, Door
from server.errors import Problem
from server.jobs.states import Job
from server.metrics import Metrics
from server.records import Records
from server.routes.jobs import JOB_ID, no_such_job, own_job
from server.routes.operation import Answer, Auth, Operation, Parameter
from server.storage.interfaces import Event, EventLog, JobStore

MEDIA_TYPE = "text/event-stream"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

TERMINAL_EVENTS = frozenset({"job.completed", "job.failed", "job.canceled"})


@dataclass(slots=True)
class Seats:
    """How many streams are open, bounded per job and per caller."""

    rules: Streams
    _jobs: Counter[str] = field(default_factory=Counter)
    _callers: Counter[str] = field(default_factory=Counter)

    def check(self, job_id: str, caller: str) -> None:
        if self._jobs[job_id] >= self.rules.per_job or self._callers[caller] >= self.rules.per_key:
            raise Problem(
                "too_many_connections",
                f"at most {self.rules.per_job} streams per job and {self.rules.per_key} per key may be open",
                headers={"Retry-After": "5"},
            )

    @contextmanager
    def taken(self, job_id: str, caller: str) -> Iterator[None]:
        for counter, name in ((self._jobs, job_id), (self._callers, caller)):
            counter[name] += 1
        try:
            yield
        finally:
            for counter, name in ((self._jobs, job_id), (self._callers, caller)):
                counter[name] -= 1
                if not counter[name]:
                    del counter[name]


class EventStreams:
    def __init__(
        self,
        *,
        door: Door,
        jobs: JobStore,
        events: EventLog,
        records: Records,
        seats: Seats,
        metrics: Metrics,
        closing: asyncio.Event,
    ) -> None:
        self._door = door
        self._jobs = jobs
        self._events = events
        self._records = records
        self._seats = seats
        self._metrics = metrics
        self._closing = closing  # set when the server stops: streams end, clients come back by their last id

    def operations(self) -> list[Operation]:
        return [
            Operation(
                method="GET", path="/v1/jobs/{job_id}/events", handle=self.stream, id="streamEvents", tag="jobs",
                auth=Auth.OWN, summary="Follow a job as Server-Sent Events",
                description="Takes the owner's key, or a stream token as `?token=`. Replays from the first event, or "
                            "from behind Last-Event-ID; ends after the terminal event.",
                parameters=(
                    JOB_ID,
                    Parameter(name="Last-Event-ID", place="header", schema={"type": "integer"},
                              description="Go on behind this event"),
                    Parameter(name="last_event_id", place="query", schema={"type": "integer"},
                              description="The same for clients that cannot set headers"),
                    Parameter(name="token", place="query", schema={"type": "string"}, description="A stream token"),
                ),
                answers={200: Answer(description="The events", schema={"type": "string"}, media_type=MEDIA_TYPE),
                         204: Answer(description="The job is over and everything was received: do not reconnect")},
                codes=("job_not_found", "invalid_last_event_id", "not_acceptable", "missing_credentials",
                       "invalid_key", "invalid_token", "insufficient_scope", "environment_mismatch",
                       "too_many_connections"),
            )
        ]  # fmt: skip

    async def stream(self, request: Request, _caller: Caller) -> Response:
        if not _accepted(request.headers.get("accept", "*/*")):
            raise Problem("not_acceptable", f"this resource is {MEDIA_TYPE}")
        job, caller = await self._admitted(request)
        after = last_event_id(request.headers.get("last-event-id"), request.query_params.get("last_event_id"))
        last = await self._events.last(job.id)
        if after > last:
            raise InvalidLastEventId("Last-Event-ID is beyond the last event of this stream")
        if job.terminal and after == last:
            return Response(status_code=204)
        self._seats.check(job.id, caller)
        headers = {**HEADERS, "Content-Type": f"{MEDIA_TYPE}; charset=utf-8"}
        if request.method == "HEAD":
            return Response(headers=headers)
        return StreamingResponse(self._lines(job.id, after, caller), headers=headers)

    async def _admitted(self, request: Request) -> tuple[Job, str]:
        """The job and who reads it: the owner by key, or whoever holds a token for this very job."""
        job_id = request.path_params["job_id"]
        token = request.query_params.get("token")
        if token is None:
            caller = await self._door.identify(request)
            return await own_job(self._jobs, caller, job_id), caller.key_id
        self._door.check_token(token, job_id=job_id, scope=Scope.EVENTS)
        job = await self._jobs.get(job_id)
        if job is None:
            raise no_such_job()
        return job, f"token of {job.account}"

    async def _lines(self, job_id: str, after: int, caller: str) -> AsyncIterator[bytes]:
        began = now_ms()
        with self._seats.taken(job_id, caller), self._metrics.subscribers.track_inprogress():
            yield retry(self._seats.rules.retry_ms)
            async for logged in self._followed(job_id, after):
                if logged is None:
                    yield KEEP_ALIVE
                    continue
                if logged.at > began:
                    self._metrics.event_lag.observe((now_ms() - logged.at) / 1000)
                yield event(logged.type, await self._shown(logged), seq=logged.seq)

    async def _followed(self, job_id: str, after: int) -> AsyncIterator[Event | None]:
        """The log behind *after* as it grows, None whenever it was silent for long; ends when we close."""
        tail = self._events.tail(job_id, after=after)
        closed = asyncio.ensure_future(self._closing.wait())
        following = None
        try:
            while not closed.done():
                following = following or asyncio.ensure_future(anext(tail, None))
                await asyncio.wait(
                    {following, closed}, timeout=self._seats.rules.keep_alive_s, return_when=asyncio.FIRST_COMPLETED
                )
                if not following.done():
                    yield None
                elif (logged := following.result()) is None:
                    return
                else:
                    following = None
                    yield logged
        finally:
            for task in filter(None, (closed, following)):
                task.cancel()

    async def _shown(self, logged: Event) -> bytes:
        """The event's data. A terminal event tells the record as it is now, with links that hold."""
        if logged.type in TERMINAL_EVENTS and (job := await self._jobs.get(logged.stream)) is not None:
            return orjson.dumps({**self._records.notice(job), "job_id": logged.stream, "seq": logged.seq})
        return with_place(logged)


def with_place(logged: Event) -> bytes:
    """The event's JSON body with the job and the number that it has in the log."""
    place = f'{{"job_id":"{logged.stream}","seq":{logged.seq}'.encode()
    return place + (b"," + logged.body[1:] if len(logged.body) > len(b"{}") else b"}")


def _accepted(accept: str) -> bool:
    kinds = {part.split(";")[0].strip().lower() for part in accept.split(",")}
    return bool(kinds & {MEDIA_TYPE, "text/*", "*/*", ""})
