"""Health, formats, descriptions and metrics."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pipeline.documents.formats import OUTPUT_FORMATS
from pipeline.documents.service_v1 import service_v1_schema
from pipeline.ingest.input_formats import INPUT_FORMATS
from server import __version__
from server.http.openapi import document, ref
from server.http.operation import Answer, Auth, Caller, Endpoint, Handler, Operation, json_response
from server.http.problems import Problem
from server.model import answers
from server.model.accounts import SIGNUP_PLAN
from server.requests.request import RouteGroup

DAY = {"Cache-Control": "public, max-age=86400"}


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


PLACES = {
    "docs": "/docs",
    "openapi": "/openapi.json",
    "ready": "/readyz",
    "formats": "/v1/formats",
    "keys": "/v1/keys",
    "transcribe": "/v1/transcribe",
    "sandbox": "/sandbox",
}
