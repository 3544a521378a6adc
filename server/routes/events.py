"""GET /v1/jobs/{job_id}/events: a job's log as Server-Sent Events from any point on, for files and live sessions."""

import re
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as ASGIScope

from server.accounts.limits import StreamRules
from server.accounts.signed import Scope
from server.http.caller import Caller
from server.http.operation import Answer, Auth, Operation, Parameter
from server.http.problems import Problem
from server.http.sse import KEEP_ALIVE, InvalidLastEventId, event, last_event_id, retry
from server.http.streamed import Streamed
from server.metrics import Metrics
from server.model.channels import Channel
from server.model.jobs import Job
from server.routes.asking import JOB_ID, admitted
from server.routes.door import Door
from server.storage.ports import EventLog, JobStore
from server.streams.following import Following
from server.streams.rendering import Rendered

MEDIA_TYPE = "text/event-stream"
EXAMPLE = """retry: 3000

id: 7
event: word
data: {"job_id":"job_01JD4W2M8Q7Z5K3N9V6B1XTRGH","seq":7,"index":4,"segment":0,"word":"fellow","start":0.92,"end":1.31}

"""
_REFUSED = re.compile(r";\s*q\s*=\s*0(\.0*)?\s*(;|$)", re.IGNORECASE)  # RFC 9110, 12.4.2
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@dataclass(slots=True)
class Seats:
    """Counts open streams and downloads. A file has few readers; a live session may have many."""

    rules: StreamRules
    _open: Counter[str] = field(default_factory=Counter)  # by job, by account, by the downloads of a job

    def reading(self, job: Job) -> AbstractContextManager[None]:
        """A seat for one reader of *job*'s events while the block lasts. Raises Problem too_many_connections."""
        rules = self.rules
        if job.order.live is not None:
            return self._taken({job.id: rules.per_session}, f"{rules.per_session} streams of a live session")
        return self._taken(
            {job.id: rules.per_job, f"{job.account} in {job.environment}": rules.per_account},
            f"{rules.per_job} streams of a file and {rules.per_account} of an account",
        )

    def downloading(self, job: Job) -> AbstractContextManager[None]:
        """A seat for one download of *job*'s outputs. Raises Problem too_many_connections."""
        most = self.rules.downloads_per_job
        return self._taken({f"downloads of {job.id}": most}, f"{most} downloads of a job")

    def watching(self, channel: Channel) -> AbstractContextManager[None]:
        """A seat for one reader of *channel* while the block lasts. Raises Problem too_many_connections."""
        most = self.rules.per_session
        return self._taken({channel.id: most}, f"{most} streams of a channel")

    def conversing(self, caller: Caller) -> AbstractContextManager[None]:
        """A seat for a socket on which *caller* may hold live sessions, now or later.

        There are twice as many as it may have sessions, and as many as it may have streams. Raises Problem
        too_many_connections.
        """
        account, _, plan = caller.require_account()
        if plan.live_sessions is None:
            return nullcontext()
        most = self.rules.per_account + 2 * plan.live_sessions
        return self._taken({f"sockets of {account.id} in {caller.environment}": most}, f"{most} sockets of an account")

    @contextmanager
    def _taken(self, most: Mapping[str, int], said: str) -> Iterator[None]:
        if any(self._open[name] >= bound for name, bound in most.items()):
            raise Problem(
                "too_many_connections",
                f"at most {said} may be open",
                headers={"Retry-After": "5"},
                members={"violated-policies": ["streams"]},
            )
        self._open.update(most.keys())
        try:
            yield
        finally:
            self._open.subtract(most.keys())
            self._open += Counter()  # removes the zero counts


class Seated(Streamed):
    """A stream that holds a seat until it ends. The seat was taken before the answer began."""

    def __init__(
        self,
        source: AsyncGenerator[bytes],
        seat: ExitStack,
        *,
        first: bytes = b"",
        status: int = 200,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(source, first=first, status=status, headers=headers)
        self._seat = seat

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        with self._seat:
            await super().__call__(scope, receive, send)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventStreams:
    """The handler for event streams."""

    door: Door
    jobs: JobStore
    events: EventLog
    following: Following
    seats: Seats
    metrics: Metrics

    def operations(self) -> list[Operation]:
        return [
            Operation(
                method="GET",
                path="/v1/jobs/{job_id}/events",
                handle=self.stream,
                id="streamEvents",
                tag="jobs",
                auth=Auth.OWN,
                summary="Follow a job as Server-Sent Events",
                description="Takes the owner's key, or a stream token as `?token=`. Replays from the first event, or "
                "from behind Last-Event-ID; ends after the terminal event.",
                parameters=(
                    JOB_ID,
                    Parameter(
                        name="Last-Event-ID",
                        place="header",
                        schema={"type": "integer"},
                        description="Go on behind this event",
                    ),
                    Parameter(
                        name="last_event_id",
                        place="query",
                        schema={"type": "integer"},
                        description="The same for clients that cannot set headers",
                    ),
                    Parameter(name="token", place="query", schema={"type": "string"}, description="A stream token"),
                ),
                answers={
                    200: Answer(description="The events", media_type=MEDIA_TYPE, example=EXAMPLE),
                    204: Answer(description="The job is over and everything was received: do not reconnect"),
                },
                codes=(
                    "job_not_found",
                    "invalid_last_event_id",
                    "not_acceptable",
                    "missing_credentials",
                    "invalid_key",
                    "invalid_token",
                    "insufficient_scope",
                    "environment_mismatch",
                    "too_many_connections",
                ),
            )
        ]

    async def stream(self, request: Request, _caller: Caller) -> Response:
        job = await admitted(request, Scope.EVENTS, door=self.door, jobs=self.jobs)
        if not _accepted(",".join(request.headers.getlist("accept")) or "*/*"):
            raise Problem("not_acceptable", f"this resource is {MEDIA_TYPE}")
        after = last_event_id(request.headers.get("last-event-id"), request.query_params.get("last_event_id"))
        if after:  # thousands of new readers, which have none, need not ask
            last = await self.events.last(job.id)
            if after > last:
                raise InvalidLastEventId("Last-Event-ID is beyond the last event of this stream")
            if job.terminal and after == last:
                return Response(status_code=204)
        headers = {**HEADERS, "Content-Type": f"{MEDIA_TYPE}; charset=utf-8"}
        with ExitStack() as seat:
            seat.enter_context(self.seats.reading(job))
            if request.method == "HEAD":
                return Response(headers=headers)
            return Seated(self._lines(job.id, after), seat.pop_all(), headers=headers)

    async def _lines(self, job_id: str, after: int) -> AsyncGenerator[bytes]:
        rules = self.seats.rules
        with (
            self.metrics.subscribers.track_inprogress(),
            self.following.reading(job_id, after=after, quiet_s=rules.keep_alive_s) as reader,
        ):
            yield retry(rules.retry_ms)
            async for batch in reader:
                async with reader.handing_over(batch):
                    yield KEEP_ALIVE if batch is None else batch.joined(_as_event)


def _as_event(item: Rendered) -> bytes:
    return event(item.kind, item.body, seq=item.seq)


def _accepted(accept: str) -> bool:
    kinds = {part.split(";")[0].strip().lower() for part in accept.split(",") if not _REFUSED.search(part)}
    return bool(kinds & {MEDIA_TYPE, "text/*", "*/*", ""})
