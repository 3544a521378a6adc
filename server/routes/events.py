"""GET /v1/jobs/{job_id}/events: the log of a file's job or live session as Server-Sent Events, from any event on."""

import re
from collections.abc import AsyncGenerator
from contextlib import ExitStack

from starlette.requests import Request
from starlette.responses import Response

from server.accounts.signed import Scope
from server.http.address_limits import IdleReport
from server.http.caller import Caller
from server.http.operation import Answer, Auth, Endpoint, Operation, Parameter
from server.http.problems import Problem
from server.http.sse import KEEP_ALIVE, MEDIA_TYPE, STREAM_HEADERS, event, last_event_id, retry
from server.http.streamed import Streamed
from server.model.errors import Refused
from server.requests.request import LANG, READER_CODES, RouteGroup, admit_reader, query_languages
from server.streams.feed import Languages, Rendered

EXAMPLE = """retry: 3000

id: 7
event: word
data: {"job_id":"job_01JD4W2M8Q7Z5K3N9V6B1XTRGH","seq":7,"index":4,"segment":0,"word":"fellow","start":0.92,"end":1.31}

"""
_REFUSED = re.compile(r";\s*q\s*=\s*0(\.0*)?\s*(;|$)", re.IGNORECASE)  # RFC 9110, 12.4.2


class EventStreams(RouteGroup):
    tag = "jobs"

    def operations(self) -> list[Operation]:
        return [
            Operation(
                Endpoint("GET", "/v1/jobs/{job_id}/events", self.stream, "streamEvents"),
                auth=Auth.OWN,
                summary="Follow a job as Server-Sent Events",
                description="Takes the owner's key, or a stream token as `?token=`. Replays from the first event, or "
                "from behind Last-Event-ID; ends after the terminal event.",
                parameters=(
                    Parameter("Last-Event-ID", "header", {"type": "integer"}, "Go on behind this event"),
                    Parameter(
                        "last_event_id", "query", {"type": "integer"}, "The same for clients that cannot set headers"
                    ),
                    Parameter("token", "query", {"type": "string"}, "A stream token"),
                    LANG,
                ),
                answers={
                    200: Answer("The events", media_type=MEDIA_TYPE, example=EXAMPLE),
                    204: Answer("The job is over and everything was received: do not reconnect"),
                },
                codes=(*READER_CODES, "invalid_last_event_id", "invalid_parameter", "not_acceptable"),
            )
        ]

    async def stream(self, request: Request, _caller: Caller) -> Response:
        job = await admit_reader(request, Scope.EVENTS, self.parts)
        if not _accepted(",".join(request.headers.getlist("accept")) or "*/*"):
            raise Problem("not_acceptable", f"this resource is {MEDIA_TYPE}")
        languages = query_languages(request.query_params)
        after = last_event_id(request.headers.get("last-event-id"), request.query_params.get("last_event_id"))
        if after:  # new readers, of which there may be thousands at once, have none
            last = await self.parts.storage.timelines.last(job.id)
            if after > last:
                raise Refused("invalid_last_event_id", "Last-Event-ID is beyond the last event of this stream")
            if job.terminal and after == last:
                return Response(status_code=204)
        with ExitStack() as seat:
            seat.enter_context(self.parts.stream_limits.hold_stream(job))
            if request.method == "HEAD":
                return Response(headers=STREAM_HEADERS)
            return Streamed(
                self._lines(job.id, after, languages, IdleReport(request.scope)), seat.pop_all(), headers=STREAM_HEADERS
            )

    async def _lines(
        self, job_id: str, after: int, languages: Languages, idle_report: IdleReport
    ) -> AsyncGenerator[bytes]:
        rules = self.parts.stream_limits.rules
        with (
            self.parts.metrics.subscribers.track_inprogress(),
            self.parts.following.open_reader(job_id, after=after, quiet_s=rules.keep_alive_s) as reader,
        ):
            yield retry(rules.retry_ms)
            async for batch in reader:
                idle_report.rest_while(batch is None)
                async with reader.record_delivery(batch):
                    yield KEEP_ALIVE if batch is None else batch.join_bytes(_as_event, languages)


def _as_event(item: Rendered) -> bytes:
    return event(item.kind, item.body, seq=item.seq)


def _accepted(accept: str) -> bool:
    kinds = {part.split(";")[0].strip().lower() for part in accept.split(",") if not _REFUSED.search(part)}
    return bool(kinds & {MEDIA_TYPE, "text/*", "*/*", ""})
