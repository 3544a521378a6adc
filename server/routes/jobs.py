"""The routes of /v1/jobs: look at jobs, wait for them, list, cancel, delete and download them."""

import hashlib
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import PurePath
from urllib.parse import urlencode

from msgspec.json import encode as json_bytes
from starlette.requests import Request
from starlette.responses import Response

from pipeline.documents.archive import Query
from pipeline.documents.translated import output_format
from pipeline.ingest import recording
from pipeline.languages import language_named, unknown_language
from server.accounts.signed import Scope, make_cursor, read_cursor
from server.http.headers import ByteRange, RangeNotSatisfiable, attachment, byte_range, none_match, range_still_holds
from server.http.operation import Answer, Auth, Caller, Endpoint, Operation, Parameter, json_response
from server.http.problems import Problem
from server.http.streamed import Streamed, first_piece
from server.jobs.correcting import Corrections
from server.model import answers
from server.model.accounts import SigningKeys
from server.model.bounds import MAX_METADATA_KEYS
from server.model.errors import invalid_member
from server.model.jobs import Artifact, ErasureReason, Job, JobFilter, State
from server.model.orders import AUDIO
from server.records.records import DOWNLOAD_TTL_S, MAX_TTL_S, link_expiry
from server.requests.request import (
    JOB,
    JOB_POLL_S,
    READER_CODES,
    URL_TTL,
    WAIT,
    RouteGroup,
    admit_reader,
    answer_when_over,
    no_such_job,
    own_job,
    query_choice,
    query_choices,
    query_instant,
    query_number,
    query_seconds,
    query_switch,
)


@dataclass(frozen=True, slots=True)
class Download:
    """The media type and extension of one kind of output."""

    media_type: str
    extension: str


AUDIO_TYPES = {
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "flac": "audio/flac",
    "ogg": "audio/ogg",
    "aac": "audio/aac",
    "mp4": "video/mp4",
    "matroska": "video/webm",
}
"""Media types of the containers that browsers play, by the names that sources have."""

LINK_CODES = ("invalid_signature", "url_expired")
RECORDING = Download(recording.MEDIA_TYPE, recording.EXTENSION)


@dataclass(frozen=True, slots=True)
class Jobs(RouteGroup):
    """Handlers for jobs and their outputs."""

    tag = "jobs"
    corrections: Corrections

    def operations(self) -> list[Operation]:
        return [
            Operation(
                Endpoint("GET", "/v1/jobs", self.list, "listJobs"),
                summary="List the account's jobs, newest first",
                parameters=LIST_PARAMETERS,
                answers={200: Answer("One page", {"$ref": "#/components/schemas/JobList"}, headers=("Link",))},
                codes=("invalid_cursor", "invalid_parameter"),
            ),
            Operation(
                Endpoint("GET", "/v1/jobs/{job_id}", self.get, "getJob"),
                summary="Look at a job, or wait for it",
                parameters=(WAIT, URL_TTL),
                answers={200: Answer("The job", JOB, headers=("ETag", "Retry-After")), 304: Answer("Unchanged")},
                codes=("invalid_parameter",),
            ),
            Operation(
                Endpoint("POST", "/v1/jobs/{job_id}/cancel", self.cancel, "cancelJob"),
                summary="Cancel a job",
                answers={200: Answer("Canceled", JOB), 202: Answer("Will be canceled at its next chunk", JOB)},
                codes=("job_not_cancelable",),
            ),
            Operation(
                Endpoint("DELETE", "/v1/jobs/{job_id}", self.delete, "deleteJob"),
                summary="Delete a job with its outputs and events",
                parameters=(Parameter("force", "query", {"type": "boolean"}, "Delete it even while it is active"),),
                answers={204: Answer("Deleted")},
                codes=("job_active", "invalid_parameter"),
            ),
            Operation(
                Endpoint("GET", "/v1/jobs/{job_id}/outputs/{name}", self.download, "downloadOutput"),
                auth=Auth.OWN,
                summary="Download an output",
                description="Takes the owner's key, or a signed link from the job's `formats`.",
                parameters=(
                    Parameter(
                        "name", "path", {"type": "string"}, "A member of the job's `formats`, or audio", required=True
                    ),
                    Parameter(
                        "revision", "query", {"type": "integer", "minimum": 0}, "Of the corrections; 0: as recognised"
                    ),
                    *(
                        Parameter(part, "query", {"type": "string"}, "Part of a signed link")
                        for part in ("exp", "kid", "sig")
                    ),
                ),
                answers={
                    200: Answer("The file", media_type="*/*", headers=("ETag",)),
                    206: Answer("A range of it", media_type="*/*", headers=("Content-Range",)),
                    304: Answer("Unchanged"),
                },
                codes=("output_not_found", "job_not_completed", *LINK_CODES, "range_not_satisfiable"),
            ),
            Operation(
                Endpoint("GET", "/v1/jobs/{job_id}/audio", self.play, "downloadAudio"),
                auth=Auth.OWN,
                summary="Download or play the audio of a job that kept it",
                description="The request must have had `record`. Takes the owner's key or the token of an edit link; "
                "players take the record's `audio_url`, which needs none.",
                parameters=(Parameter("token", "query", {"type": "string"}, "The token of an edit link"),),
                answers={
                    200: Answer("The file", media_type="*/*", headers=("ETag",)),
                    206: Answer("A range of it", media_type="*/*", headers=("Content-Range",)),
                    304: Answer("Unchanged"),
                },
                codes=(*READER_CODES, "output_not_found", "job_not_completed", "range_not_satisfiable"),
            ),
        ]

    async def get(self, request: Request, caller: Caller) -> Response:
        wait_s = query_seconds(request, "wait", most=self.parts.config.wait_max) or 0
        ttl_s = query_number(request, "url_ttl", least=1, most=MAX_TTL_S) or DOWNLOAD_TTL_S
        expires_s = link_expiry(ttl_s)

        async def answer(job: Job, asked_at: int) -> Response:
            record = await self.parts.records.full(job, ttl_s=ttl_s, asked_at=asked_at)
            headers = {"ETag": _etag(job, record.live or None, ttl_s=ttl_s, expires_s=expires_s)}
            if not job.terminal:
                headers["Retry-After"] = str(JOB_POLL_S)
            if none_match(request.headers.getlist("if-none-match"), headers["ETag"]):
                return Response(status_code=304, headers=headers)
            return json_response(record, headers=headers)

        return await answer_when_over(request, await self.mine(request, caller), self.parts, answer, wait_s=wait_s)

    async def list(self, request: Request, caller: Caller) -> Response:
        which, limit = _filter(request, caller, self.parts.keys)
        rows = await self.parts.jobs.find(which, limit=limit + 1)
        page, more = rows[:limit], len(rows) > limit
        cursor, headers = None, {}
        if more:
            last = page[-1]
            cursor = make_cursor(self.parts.keys, owner=_owner(caller), created_at=last.created_at, job_id=last.id)
            others = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
            target = f"{self.parts.links.base(caller.environment)}/v1/jobs?{urlencode([*others, ('cursor', cursor)])}"
            headers["Link"] = f'<{target}>; rel="next"'
        data = [self.parts.records.list_item(job) for job in page]
        if which.query is not None:
            for job, item in zip(page, data, strict=True):
                item.matches = [answers.Match(**match) for match in await self.corrections.matches(job, which.query)]
        return json_response(answers.JobList(data, more, cursor), headers=headers)

    async def cancel(self, request: Request, caller: Caller) -> Response:
        job = await self.parts.jobs.cancel((await self.mine(request, caller)).id)
        if job is None:
            raise no_such_job()
        if job.state in (State.COMPLETED, State.FAILED):
            raise Problem("job_not_cancelable", f"the job is already {job.state}")
        return json_response(await self.parts.records.full(job), 200 if job.terminal else 202)

    async def delete(self, request: Request, caller: Caller) -> Response:
        force = query_switch(request, "force")
        job = await self.mine(request, caller)
        if not job.terminal and not force:
            raise Problem("job_active", f"the job is {job.state}; cancel it first, or add ?force=true")
        await self.parts.eraser.delete(job.id, why=ErasureReason.REQUESTED)
        return Response(status_code=204)

    async def download(self, request: Request, _caller: Caller) -> Response:
        job_id, name = request.path_params["job_id"], request.path_params["name"]
        if {"exp", "kid", "sig"} & request.query_params.keys():
            self.parts.links.check_output(job_id, name, request.query_params)
            job = await self.parts.jobs.get(job_id)
            if job is None:
                raise no_such_job()
        else:
            job = await self.mine(request, await self.parts.access.identify(request))
        if name not in _outputs(job):
            raise Problem("output_not_found", f"this job was not asked for {name[:20]!r}")
        return await self._send(request, job, name)

    async def play(self, request: Request, _caller: Caller) -> Response:
        job = await admit_reader(request, Scope.EDIT, self.parts)
        if not job.order.keeps_audio:
            raise Problem("output_not_found", "the audio of this job was not kept; ask for that with record=true")
        return await self._send(request, job, AUDIO)

    async def _send(self, request: Request, job: Job, name: str) -> Response:
        artifact = await self.parts.jobs.artifact(job.id, name)
        if artifact is None and job.state is State.COMPLETED:
            raise Problem("output_not_found", f"there is no {name} of this job")
        if artifact is None:
            raise Problem("job_not_completed", f"the job is {job.state}")
        revision = query_number(request, "revision", least=0, most=job.revision)
        revision = job.revision if revision is None else revision
        with ExitStack() as seat:
            seat.enter_context(self.parts.stream_limits.hold_download(job))
            if revision and name != AUDIO:
                return await self._corrected(request, job, name, revision)
            return await self._file(request, job, artifact, seat)

    async def _corrected(self, request: Request, job: Job, name: str, revision: int) -> Response:
        """The answer to a download of a revision that people made."""
        body = await self.corrections.document(job, name, revision)
        headers = _download_headers(job, name, etag=hashlib.sha256(body).hexdigest())
        if none_match(request.headers.getlist("if-none-match"), headers["ETag"]):
            del headers["Content-Type"]
            return Response(status_code=304, headers=headers)
        part = _part(request, len(body), headers["ETag"])
        if part:
            headers["Content-Range"] = part.content_range
            body = body[part.start : part.stop]
        return Response(body, 206 if part else 200, headers=headers)

    async def _file(self, request: Request, job: Job, artifact: Artifact, seat: ExitStack) -> Response:
        """The answer to a download. If it has a body, it keeps *seat* open until the body is sent."""
        headers = _download_headers(job, artifact.kind, etag=artifact.sha256)
        if none_match(request.headers.getlist("if-none-match"), headers["ETag"]):
            del headers["Content-Type"]
            return Response(status_code=304, headers=headers)
        part = _part(request, artifact.bytes, headers["ETag"])
        start, stop = (part.start, part.stop) if part else (0, artifact.bytes)
        headers["Content-Length"] = str(stop - start)
        if part:
            headers["Content-Range"] = part.content_range
        status = 206 if part else 200
        if request.method == "HEAD":
            return Response(status_code=status, headers=headers)
        source = self.parts.storage.blobs.read(artifact.blob, start, stop)
        first = await first_piece(source)
        return Streamed(source, seat.pop_all(), first=first, status=status, headers=headers)

    async def mine(self, request: Request, caller: Caller) -> Job:
        """The job of the path, if it is the caller's."""
        return await own_job(self.parts.jobs, caller, request.path_params["job_id"])


def _download_headers(job: Job, name: str, *, etag: str) -> dict[str, str]:
    kind = _download(job, name)
    return {
        "ETag": f'"{etag}"',
        "Accept-Ranges": "bytes",
        "Content-Type": kind.media_type,
        "Content-Disposition": attachment(job.source.filename, kind.extension, otherwise=job.id),
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "private, max-age=0",
    }


def _part(request: Request, size: int, etag: str) -> ByteRange | None:
    """The range that the request asks for; None: the whole file."""
    asked = request.headers.get("range")
    if asked is None or request.method == "HEAD" or not range_still_holds(request.headers.get("if-range"), etag):
        return None
    try:
        return byte_range(asked, size)
    except RangeNotSatisfiable as error:
        raise Problem(error.code, str(error), headers={"Content-Range": error.content_range}) from None


def _outputs(job: Job) -> tuple[str, ...]:
    """The names of the outputs that a completed job has."""
    return (*job.order.outputs, AUDIO) if job.order.keeps_audio else job.order.outputs


def _download(job: Job, name: str) -> Download:
    """The type and extension of an output. The kept audio of a file is that file."""
    if name != AUDIO:
        kind, target = output_format(name)
        return Download(kind.media_type, f"{target}.{kind.extension}" if target else kind.extension)
    if job.order.live is not None:
        return RECORDING
    media_type = AUDIO_TYPES.get(job.source.format or "", "application/octet-stream")
    return Download(media_type, PurePath(job.source.filename or "").suffix[1:] or job.source.format or "bin")


def _etag(job: Job, live: object, *, ttl_s: int, expires_s: int) -> str:
    """A tag that changes whenever the record changes.

    The links in the record get a later expiry every second. That alone changes the tag only after half of their
    validity, early enough that a client which polls never has links that are about to expire.
    """
    seen = json_bytes([job, live, ttl_s, 2 * expires_s // ttl_s])
    return f'W/"{hashlib.sha256(seen).hexdigest()[:32]}"'


# --- queries ---------------------------------------------------------------------------------------------------------

LIST_PARAMETERS = (
    Parameter(
        "limit", "query", {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}, "Most jobs in one page"
    ),
    Parameter("cursor", "query", {"type": "string"}, "next_cursor of the page before"),
    Parameter("status", "query", {"type": "string"}, "Comma list of statuses"),
    Parameter(
        "created_after", "query", {"type": "string", "format": "date-time"}, "Only jobs created after this instant"
    ),
    Parameter(
        "created_before", "query", {"type": "string", "format": "date-time"}, "Only jobs created before this instant"
    ),
    Parameter("source", "query", {"enum": ["upload", "url", "live"]}, "Kind of source"),
    Parameter("language", "query", {"type": "string"}, "Language of the recording, by any name that orders take"),
    Parameter(
        "metadata",
        "query",
        {"type": "object", "maxProperties": MAX_METADATA_KEYS, "additionalProperties": {"type": "string"}},
        "Only jobs with this metadata: `metadata[key]=value`",
    ),
    Parameter("name", "query", {"type": "string"}, "Text that the file's name or its address contains"),
    Parameter(
        "q", "query", {"type": "string"}, "Words that were said, and phrases in quotes; whatever their case and accents"
    ),
    Parameter("order", "query", {"enum": ["asc", "desc"], "default": "desc"}, "By creation"),
)


def _filter(request: Request, caller: Caller, keys: SigningKeys) -> tuple[JobFilter, int]:
    query = request.query_params
    cursor = query.get("cursor")
    metadata = {name[9:-1]: text for name, text in query.items() if name.startswith("metadata[") and name[-1] == "]"}
    if len(metadata) > MAX_METADATA_KEYS:
        raise invalid_member("metadata", "too_many", f"must have at most {MAX_METADATA_KEYS} keys")
    limit = query_number(request, "limit", least=1, most=100)
    return JobFilter(
        account=caller.account_id,
        environment=caller.environment,
        states=frozenset(State(name) for name in query_choices(query, "status", [*State])),
        created_after=query_instant(query, "created_after"),
        created_before=query_instant(query, "created_before"),
        source=query_choice(query, "source", ["upload", "url", "live"]),
        language=_language(query.get("language", "")),
        metadata=metadata,
        query=asked if (asked := Query.of(query.get("q", ""))).phrases else None,
        name=query.get("name") or None,
        descending=query_choice(query, "order", ["asc", "desc"]) != "asc",
        after=None if cursor is None else read_cursor(keys, cursor, owner=_owner(caller)),
    ), limit or 20


def _language(name: str) -> str | None:
    """The code of a language that orders may name too; None if it is empty."""
    if not name.strip():
        return None
    found = language_named(name)
    if found is None:
        raise invalid_member("language", "unknown_value", unknown_language(name))
    return found.code


def _owner(caller: Caller) -> str:
    """The owner of a list, with which its cursors are signed."""
    return f"{caller.account_id}/{caller.environment}"
