"""The routes of corrections: change a transcript, list the changes, and make links for others who may change it."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from server.accounts.signed import Scope, make_cursor, make_token, read_cursor
from server.clock import iso, now_ms
from server.http.bodies import JSON, body_of, json_object, parse_json
from server.http.openapi import ref
from server.http.operation import Answer, Auth, Caller, Endpoint, Operation, Parameter, json_body, json_response
from server.http.problems import Problem
from server.jobs.correcting import Corrections
from server.model import answers
from server.model.events import change_object
from server.model.jobs import Job, State
from server.parsing.members import members_of, whole_in
from server.requests.request import READER_CODES, RouteGroup, admit_reader, own_job, query_number, query_switch

MAX_BODY = 2_000_000
MAX_LINK_BODY = 10_000
MOST_REVISIONS = 10**9
DOCUMENTS = {
    "application/x-subrip": "srt",
    "text/vtt": "vtt",
    "text/plain": "txt",
    "application/vnd.scribewire+json": "json",
}
"""The kinds of edited documents, by their media types."""
LINK_S = range(60, 30 * 24 * 3600 + 1)
LINK_TTL_S = 24 * 3600


@dataclass(frozen=True, slots=True)
class CorrectionRoutes(RouteGroup):
    """Handlers for corrections."""

    tag = "corrections"
    corrections: Corrections

    def operations(self) -> list[Operation]:
        token = Parameter("token", "query", {"type": "string"}, "The token of an edit link, in place of a key")
        return [
            Operation(
                Endpoint("POST", "/v1/jobs/{job_id}/corrections", self.correct, "correctJob"),
                auth=Auth.OWN,
                summary="Correct a transcript",
                description="Takes changes, the number of a revision to take back, or a document that was edited "
                "(SRT, VTT or text). What was recognised stays readable as revision 0.",
                parameters=(
                    Parameter("If-Match", "header", {"type": "string"}, 'The revision that was read, as `"3"`'),
                    Parameter("force", "query", {"type": "boolean"}, "Of a document take what can be aligned"),
                    token,
                ),
                bodies={JSON: ref("CorrectionRequest"), **{kind: {"type": "string"} for kind in DOCUMENTS}},
                body_examples={JSON: {"changes": [{"first": 3, "last": 4, "text": "Ljubljana"}]}},
                body_required=True,
                media_types=(JSON, *DOCUMENTS),
                max_body=MAX_BODY,
                answers={
                    200: Answer("The document changes nothing", ref("MadeCorrection")),
                    201: Answer("The correction", ref("MadeCorrection"), headers=("ETag",)),
                },
                codes=(
                    *READER_CODES,
                    "invalid_json",
                    "invalid_parameter",
                    "not_aligned",
                    "revision_changed",
                    "not_correctable",
                    "not_revertible",
                ),
            ),
            Operation(
                Endpoint("GET", "/v1/jobs/{job_id}/corrections", self.list, "listCorrections"),
                auth=Auth.OWN,
                summary="List the corrections of a transcript, oldest first",
                parameters=(
                    Parameter(
                        "limit",
                        "query",
                        {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
                        "Most of them",
                    ),
                    Parameter("cursor", "query", {"type": "string"}, "next_cursor of the page before"),
                    token,
                ),
                answers={200: Answer("One page", ref("CorrectionList"), headers=("Link",))},
                codes=(*READER_CODES, "invalid_cursor", "invalid_parameter"),
            ),
            Operation(
                Endpoint("GET", "/v1/jobs/{job_id}/words", self.words, "listWords"),
                auth=Auth.OWN,
                summary="The words of a transcript as they stand now, with the numbers by which they are corrected",
                parameters=(token,),
                answers={200: Answer("The words", ref("EditableWords"), headers=("ETag",))},
                codes=(*READER_CODES, "output_not_found"),
            ),
            Operation(
                Endpoint("POST", "/v1/jobs/{job_id}/edit-links", self.make_link, "makeEditLink"),
                summary="Make a link with which others may correct a transcript",
                **json_body("EditLinkRequest", most=MAX_LINK_BODY, example={"expires_in": 3600}),
                answers={201: Answer("The link", ref("EditLink"))},
                codes=("invalid_parameter",),
            ),
        ]

    async def correct(self, request: Request, _caller: Caller) -> Response:
        job, by = await self._editor(request)
        expected = _expected(request.headers.get("if-match"))
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        body = await body_of(request, most=MAX_BODY)
        if kind in DOCUMENTS:
            force = query_switch(request, "force")
            made = await self.corrections.apply_document(
                job, body, DOCUMENTS[kind], by=by, expected=expected, force=force
            )
        else:
            value = parse_json(body)
            if not isinstance(value, Mapping):
                raise Problem("invalid_json", "the body must be a JSON object")
            made = await self.corrections.change(job, value, by=by, expected=expected)
        if made is None:
            current = await self.parts.jobs.get(job.id)
            nothing = answers.MadeCorrection(
                job.revision if current is None else current.revision, iso(now_ms()), by, []
            )
            return json_response(nothing)
        shown = answers.MadeCorrection(
            made.revision,
            iso(now_ms()),
            by,
            [change_object(change) for change in made.changes],
            **_reverts(made.reverts),
        )
        return json_response(shown, 201, headers={"ETag": f'"{made.revision}"'})

    async def list(self, request: Request, _caller: Caller) -> Response:
        job, _ = await self._editor(request)
        limit = query_number(request, "limit", least=1, most=100) or 20
        cursor, owner = request.query_params.get("cursor"), f"corrections of {job.id}"
        after = 0 if cursor is None else read_cursor(self.parts.keys, cursor, owner=owner)[0]
        rows = await self.corrections.list_corrections(job, after=after, limit=limit + 1)
        page, more = rows[:limit], len(rows) > limit
        data = [
            answers.MadeCorrection(
                one.revision,
                iso(at),
                one.by,
                [change_object(change) for change in one.changes],
                **_reverts(one.reverts),
            )
            for one, at in page
        ]
        following, headers = None, {}
        if more:
            following = make_cursor(self.parts.keys, owner=owner, created_at=page[-1][0].revision, job_id=job.id)
            target = f"{self.parts.links.base(job.environment)}/v1/jobs/{job.id}/corrections"
            headers["Link"] = f'<{target}?{urlencode({"limit": limit, "cursor": following})}>; rel="next"'
        return json_response(answers.CorrectionList(data, more, following), headers=headers)

    async def words(self, request: Request, _caller: Caller) -> Response:
        job = await admit_reader(request, Scope.EVENTS, self.parts)
        if not job.order.keeps_results:
            raise Problem("output_not_found", "The results of this job are not kept.")
        found = await self.corrections.words(job)
        kept = job.order.keeps_audio and job.state is State.COMPLETED
        return json_response(answers.EditableWords(**found, audio=kept), headers={"ETag": f'"{found["revision"]}"'})

    async def make_link(self, request: Request, caller: Caller) -> Response:
        job = await own_job(self.parts.jobs, caller, request.path_params["job_id"])
        members = members_of(json_object(await body_of(request, most=MAX_LINK_BODY)))
        expires_s = now_ms() // 1000 + members.take("expires_in", whole_in(LINK_S), LINK_TTL_S)
        members.check()
        token = make_token(self.parts.keys, job_id=job.id, scope=Scope.EDIT, expires_s=expires_s)
        url = f"{self.parts.links.base(job.environment)}/edit/{job.id}#token={token}"
        return json_response(answers.EditLink(url, token, iso(expires_s * 1000)), 201)

    async def _editor(self, request: Request) -> tuple[Job, str]:
        """The job, and who corrects it: the name of a key, or that of an edit link."""
        token = request.query_params.get("token")
        job = await admit_reader(request, Scope.EDIT, self.parts)
        if token is not None:
            return job, "edit link"
        caller = await self.parts.access.identify(request)
        return job, (caller.key.name if caller.key and caller.key.name else "key")


def _reverts(revision: int | None) -> dict[str, int]:
    return {} if revision is None else {"reverts": revision}


def _expected(header: str | None) -> int | None:
    """The revision in If-Match, if there is one. Raises Problem invalid_parameter."""
    if header is None or header.strip() == "*":
        return None
    text = header.strip().removeprefix("W/").strip('"')
    if not text.isdecimal() or int(text[:10]) > MOST_REVISIONS:
        raise Problem("invalid_parameter", 'If-Match must be the number of a revision, as "3"')
    return int(text)
