"""Health, formats, descriptions, metrics and the web pages.

The pages are the files of server/web. There is no build step: every file is read once at the start, and browsers
revalidate their copies by ETag.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from pipeline.documents.formats import OUTPUT_FORMATS
from pipeline.documents.service_v1 import service_v1_schema
from pipeline.ingest.input_formats import INPUT_FORMATS
from server import __version__
from server.http.headers import none_match
from server.http.openapi import document, ref
from server.http.operation import Answer, Auth, Caller, Endpoint, Handler, Operation, json_response
from server.http.problems import Problem
from server.model import answers
from server.model.accounts import SIGNUP_PLAN
from server.requests.local_owner import LocalOwner
from server.requests.request import RouteGroup

DAY = {"Cache-Control": "public, max-age=86400"}
PLACES = {
    "docs": "/docs",
    "openapi": "/openapi.json",
    "ready": "/readyz",
    "formats": "/v1/formats",
    "keys": "/v1/keys",
    "transcribe": "/v1/transcribe",
    "sandbox": "/sandbox",
}
WEB = Path(__file__).parents[1] / "web"
MEDIA_TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY: Mapping[str, str] = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "media-src": "'self' blob:",  # the user's own file and its captions never leave the browser
    "connect-src": "'self'",
    "frame-ancestors": "'none'",
    "base-uri": "'none'",
    "form-action": "'none'",
}
GUARDS: Mapping[str, str] = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "microphone=(self), display-capture=(self), camera=(), geolocation=()",
    "Referrer-Policy": "no-referrer",  # a page's address may contain a stream token
}


class Ops(RouteGroup):
    tag = "service"

    def operations(self) -> list[Operation]:
        return [
            _free(
                "/v1/formats", self.formats, "listFormats", "Known audio, and output files", schema=ref("FormatList")
            ),
            _free("/healthz", self.healthz, "health", "Is the process alive", schema=ref("Health"), auth=Auth.NONE),
            _free("/readyz", self.readyz, "ready", "Can it transcribe", schema=ref("Health")),
            _free("/schemas/service_v1.json", self.schema, "schema", "JSON Schema of the JSON output"),
            _free("/metrics", self.metrics_page, "metrics", "Prometheus metrics", hidden=True),
        ]

    async def formats(self, _request: Request, _caller: Caller) -> Response:
        audio = [answers.KnownAudio.of(row) for row in INPUT_FORMATS]
        outputs = [answers.OutputFile.of(row, name=name, mime=row.media_type) for name, row in OUTPUT_FORMATS.items()]
        return json_response(answers.FormatList(audio, outputs), headers=DAY)

    async def healthz(self, _request: Request, _caller: Caller) -> Response:
        return json_response({"status": "ok"})

    async def readyz(self, _request: Request, _caller: Caller) -> Response:
        if self.parts.closing.is_set():
            raise Problem("not_ready", "the server is stopping", headers={"Retry-After": "5"})
        await self.parts.jobs.counts()  # raises if the database does not answer
        offer = self.parts.offers["production"]
        models = [
            answers.HeardBy.of(model, languages=sorted(model.languages), hears=sorted(model.hears))
            for model in offer.choices
        ]
        return json_response(answers.Health.of(offer, status="ready", models=models, languages=sorted(offer.languages)))

    async def schema(self, _request: Request, _caller: Caller) -> Response:
        return json_response(service_v1_schema(self.parts.links.public_base_url), headers=DAY)

    async def metrics_page(self, _request: Request, _caller: Caller) -> Response:
        counts = await self.parts.jobs.counts()
        self.parts.metrics.jobs_waiting.set(counts.get("queued", 0))
        self.parts.metrics.jobs_running.set(counts.get("processing", 0))
        self.parts.metrics.webhook_backlog.set(await self.parts.storage.outbox.backlog())
        return Response(self.parts.metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def index(self, request: Request, _caller: Caller) -> Response:
        """The main addresses, what a free key holds, and whether the owner asks, for programs that ask for /."""
        owner = await self.parts.access.find_owner(request) is not None
        free = self.parts.limits.plans[SIGNUP_PLAN]
        here = {name: f"{self.parts.links.public_base_url}{path}" for name, path in PLACES.items()}
        return json_response(
            {"service": "scribewire", "version": __version__, **here, "free_key": asdict(free), "owner": owner}
        )


class Description:
    """/openapi.json, made once from all operations: *others* and its own."""

    def __init__(
        self, others: Sequence[Operation], *, base_url: str, tags: Mapping[str, str], schemas: Mapping[str, Any]
    ) -> None:
        self._document = document([*others, *self.operations()], base_url=base_url, tags=tags, schemas=schemas)

    def operations(self) -> list[Operation]:
        return [_free("/openapi.json", self.openapi, "describe", "This description", tag="service")]

    async def openapi(self, _request: Request, _caller: Caller) -> Response:
        return json_response(self._document)


def _free(path: str, handle: Handler, name: str, summary: str, **more: Any) -> Operation:
    """A GET operation that needs no key. Its requests are limited by address unless *auth* says otherwise."""
    answers = {200: Answer(summary, more.pop("schema", {"type": "object"}))}
    return Operation(
        Endpoint("GET", path, handle, name), summary=summary, auth=more.pop("auth", Auth.FREE), answers=answers, **more
    )


@dataclass(frozen=True, slots=True)
class File:
    body: bytes
    media_type: str
    etag: str


class Pages:
    tag = "service"

    def __init__(self, *, index: Handler, base_url: str, local_owner: LocalOwner) -> None:
        """*index* answers programs at /. *base_url* is the public address of this server."""
        self._local_owner = local_owner
        self._index = index
        self._files = {path.name: _read(path) for path in sorted(WEB.iterdir()) if path.suffix in MEDIA_TYPES}
        self._headers = {**GUARDS, "Content-Security-Policy": policy(base_url), "Cache-Control": "no-cache"}

    def operations(self) -> list[Operation]:
        def page(path: str, handle: Handler, name: str, summary: str) -> Operation:
            answers = {200: Answer(summary, media_type="text/html")}
            return Operation(
                Endpoint("GET", path, handle, name), summary=summary, auth=Auth.FREE, answers=answers, hidden=True
            )

        return [
            page("/", self.front, "front", "The page, or the main addresses for programs"),
            page("/live/{job_id}", self.captions, "captions", "A live session for a big screen"),
            page("/edit/{job_id}", self.editor, "editor", "The words of a job, for those who may correct it"),
            page("/docs", self.docs, "docs", "The API, made from /openapi.json"),
            page("/web/{name}", self.asset, "asset", "What the pages are made of"),
        ]

    async def front(self, request: Request, caller: Caller) -> Response:
        """The page for browsers, the main addresses for programs. /sandbox has no page of its own.

        The owner of the machine gets a cookie in place of a key.
        """
        for_page = caller.environment != "sandbox" and prefers_html(request.headers.get("accept", ""))
        answer = self._file(request, "index.html") if for_page else await self._index(request, caller)
        if (cookie := await self._local_owner.cookie_for(request)) is not None:
            answer.headers["Set-Cookie"] = cookie
        return answer

    async def captions(self, request: Request, _caller: Caller) -> Response:
        return self._file(request, "captions.html")

    async def editor(self, request: Request, _caller: Caller) -> Response:
        return self._file(request, "edit.html")

    async def docs(self, request: Request, _caller: Caller) -> Response:
        return self._file(request, "docs.html")

    async def asset(self, request: Request, _caller: Caller) -> Response:
        return self._file(request, request.path_params["name"])

    def _file(self, request: Request, name: str) -> Response:
        file = self._files.get(name)
        if file is None:
            raise Problem("not_found", "there is nothing at this path")
        headers = {**self._headers, "ETag": file.etag}
        if none_match(request.headers.getlist("if-none-match"), file.etag):
            return Response(status_code=304, headers=headers)
        return Response(file.body, headers=headers, media_type=file.media_type)


def policy(base_url: str) -> str:
    """The Content-Security-Policy of every page. Old browsers do not count WebSockets as 'self'."""
    address = urlsplit(base_url)
    sockets = f"{'wss' if address.scheme == 'https' else 'ws'}://{address.netloc}"
    rules = {**POLICY, "connect-src": f"{POLICY['connect-src']} {sockets}"}
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def prefers_html(accept: str) -> bool:
    """Whether HTML is named before JSON in *accept*. Browsers name HTML; programs name JSON or take anything."""
    named = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    return next((kind for kind in named if kind in ("text/html", "application/json")), None) == "text/html"


def _read(path: Path) -> File:
    body = path.read_bytes()
    digest = hashlib.sha256(body).hexdigest()[:32]
    return File(body, MEDIA_TYPES[path.suffix], f'W/"{digest}"')  # weak, because the body may be compressed
