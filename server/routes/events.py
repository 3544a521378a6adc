"""What a job has said so far, for those who follow it: events as Server-Sent Events, and subtitles that grow."""

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from pipeline.attribution import spoken_words, word_turn
from pipeline.corrections import Correcting, corrected_chunks, without_texts
from pipeline.documents.cues import USUAL_SHAPE, SubtitleShape
from pipeline.documents.formats import OUTPUT_FORMATS, growing_vtt
from pipeline.documents.translated import segments_in
from pipeline.timeline import unpack
from pipeline.transcription import Transcription
from pipeline.words import SpeakerTurn
from server.accounts.signed import Scope
from server.background import compute, total_bytes
from server.http.client_addresses import IdleReport
from server.http.headers import none_match
from server.http.operation import Answer, Auth, Caller, Endpoint, Operation, Parameter
from server.http.problems import Problem
from server.http.streamed import KEEP_ALIVE, MEDIA_TYPE, STREAM_HEADERS, Streamed, event, last_event_id, retry
from server.model.errors import Refused
from server.model.jobs import Job, State
from server.model.orders import Order
from server.parsing.declared import SUBTITLE_MEMBERS
from server.parsing.members import Members
from server.parsing.orders import subtitle_shape
from server.requests.request import LANG, READER_CODES, RouteGroup, admit_reader, query_languages, query_target
from server.streams.feed import Languages, Rendered
from server.translation.translations import written_language

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


MAX_SHAPES = 4  # shapes of one job, other than its own, that are rendered at the same time
SHARED_S = 2.0  # how long a rendering serves all players; that of 45 minutes of speech takes 0.2 s of a core
VTT = OUTPUT_FORMATS["vtt"].media_type
SHAPE_PARAMETERS = tuple(Parameter(member.name, "query", member.schema, member.meaning) for member in SUBTITLE_MEMBERS)
VTT_ANSWERS = {
    200: Answer("All final words so far, as WebVTT", media_type="text/vtt", headers=("ETag",)),
    304: Answer("Unchanged"),
}

Rendering: TypeAlias = tuple[str, State, int, SubtitleShape, str | None]
"""The subtitles of a job in one state and revision, in one shape and one language; None: the original."""

TOKEN = Parameter("token", "query", {"type": "string"}, "A stream token")
ONE_LANG = Parameter("lang", "query", {"type": "string"}, "The code of a translation; left out: the original")


@dataclass(frozen=True, slots=True)
class Subtitles(RouteGroup):
    """GET /v1/jobs/{job_id}/live.vtt, for players that fetch it every few seconds. Channels use it too."""

    tag = "jobs"
    _made: dict[Rendering, "asyncio.Task[bytes]"] = field(default_factory=dict, init=False)

    def operations(self) -> list[Operation]:
        return [
            Operation(
                Endpoint("GET", "/v1/jobs/{job_id}/live.vtt", self.show, "liveSubtitles"),
                auth=Auth.OWN,
                summary="The subtitles of a job so far",
                description="Takes the owner's key, or a stream token as `?token=`. Cues that were shown stay as they "
                "are; only the end of the last one may still move.",
                parameters=(
                    Parameter("token", "query", {"type": "string"}, "A stream token"),
                    ONE_LANG,
                    *SHAPE_PARAMETERS,
                ),
                answers=VTT_ANSWERS,
                codes=(*READER_CODES, "output_not_found", "invalid_parameter"),
            )
        ]

    async def show(self, request: Request, _caller: Caller) -> Response:
        return await self.answer(request, await admit_reader(request, Scope.EVENTS, self.parts))

    async def answer(self, request: Request, job: Job | None) -> Response:
        """Answer with the subtitles of *job*, in the shape that the query asks for. Without a job they are empty.

        Raises Refused invalid_parameter, Problem output_not_found, too_many_connections.
        """
        shape, target = _parse_shape(request), query_target(request.query_params)
        if job is None:
            return _vtt(request, growing_vtt([], 0))
        if job.terminal and not job.order.keeps_results:
            raise Problem("output_not_found", "the results of this job are not kept")
        return _vtt(request, await self._render_once(job, job.order.subtitles if shape is None else shape, target))

    async def _render_once(self, job: Job, shape: SubtitleShape, target: str | None) -> bytes:
        """Render the subtitles once for all requests until SHARED_S later. Raises Problem too_many_connections."""
        key = (job.id, job.state, job.revision, shape, target)
        if key not in self._made:
            if shape != job.order.subtitles or target not in (None, *job.order.translate_to):
                self._check_shapes(job)
            making = self._made[key] = asyncio.create_task(self._render(job, shape, target))
            making.add_done_callback(partial(self._forget_later, key))
        return await asyncio.shield(self._made[key])  # the next reader needs it, even if this one leaves

    def _forget_later(self, key: Rendering, _made: "asyncio.Task[bytes]") -> None:
        asyncio.get_running_loop().call_later(SHARED_S, self._made.pop, key)

    def _check_shapes(self, job: Job) -> None:
        """Raise Problem too_many_connections while MAX_SHAPES renderings of the job are unfinished."""
        making = sum(job_id == job.id and not task.done() for (job_id, *_), task in self._made.items())
        if making >= MAX_SHAPES:
            raise Problem(
                "too_many_connections",
                f"at most {MAX_SHAPES} shapes of a job's subtitles are made at a time",
                headers={"Retry-After": "2"},
            )

    async def _render(self, job: Job, shape: SubtitleShape, target: str | None) -> bytes:
        stored = await self.parts.storage.timelines.entries(job.id)
        return await compute(job.account, total_bytes(stored), _rendered, stored, shape, job.order, target)


def _parse_shape(request: Request) -> SubtitleShape | None:
    """The shape that the query asks for; None if it names none."""
    given = {name: [value] for name, value in request.query_params.items() if name in asdict(USUAL_SHAPE)}
    members = Members(given)
    shape = subtitle_shape(members)
    members.check()
    return shape if given else None


def _rendered(stored: Sequence[bytes], shape: SubtitleShape, order: Order, target: str | None) -> bytes:
    """The subtitles of a stored timeline, in the language *target* if it is given.

    Call it on a thread, because hours of speech take a moment.

    Until the turns of speakers are final, words have the labels that readers know.
    """
    past = Transcription.of(map(unpack, stored))
    corrections = past.corrections if target is None else without_texts(past.corrections)
    state = Correcting(past.said, past.labels, corrections)
    chunks = corrected_chunks(past.chunks(), state) if past.corrections else past.chunks()
    segments = [segment for chunk in chunks for segment in chunk.segments]
    said: Sequence[SpeakerTurn] | None = None
    if past.turns is not None:
        said = spoken_words(segments, past.turns)
    elif order.diarize:
        pairs = zip(past.labels, past.said, strict=True)
        said = [word_turn(label, word, channel) for label, (word, channel) in pairs if label is not None]
    if said is not None and past.corrections:
        said = [replace(turn, speaker=state.name_of(turn.speaker)) for turn in said]
    language = next((chunk.language for chunk in chunks if chunk.language is not None), order.language)
    if target is not None:
        written = written_language(order, translated=True)
        segments = segments_in(segments, past, target, written=written, spoken=language)
        said, language = None, target
    return growing_vtt(segments, max((chunk.end for chunk in chunks), default=0), shape, said, language=language)


def _vtt(request: Request, body: bytes) -> Response:
    headers = {"ETag": f'"{hashlib.sha256(body).hexdigest()}"', "Cache-Control": "private, no-cache"}
    if none_match(request.headers.getlist("if-none-match"), headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=VTT, headers=headers)
