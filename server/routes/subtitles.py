"""GET /v1/jobs/{job_id}/live.vtt: the subtitles of a job so far, for players that fetch them every few seconds.

The route of a channel uses it for the channel's newest session.
"""

import asyncio
import hashlib
from collections.abc import Sequence
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
from server.http.caller import Caller
from server.http.headers import none_match
from server.http.operation import Answer, Auth, Endpoint, Operation, Parameter
from server.http.problems import Problem
from server.model.jobs import Job, State
from server.model.orders import Order
from server.parsing.declared import SUBTITLE_MEMBERS
from server.parsing.members import Members
from server.parsing.orders import subtitle_shape
from server.requests.request import READER_CODES, RouteGroup, admit_reader, query_target
from server.translation.translations import written_language

MAX_SHAPES = 4  # shapes of one job, other than its own, that are rendered at the same time
SHARED_S = 2.0  # how long a rendering serves all players; that of 45 minutes of speech takes 0.2 s of a core
MEDIA_TYPE = OUTPUT_FORMATS["vtt"].media_type
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
    return Response(body, media_type=MEDIA_TYPE, headers=headers)
