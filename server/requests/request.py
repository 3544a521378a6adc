"""What the handlers of routes and dialects share: the parts of the server, the request's body, job and query."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import ClassVar

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as ASGIScope

from pipeline.languages import language_named, unknown_language
from server.accounts.keys import fresh_id
from server.accounts.limits import Limits
from server.accounts.signed import Scope, check_token, token_expired
from server.clock import now_ms, parse_iso
from server.config import Config
from server.http.bodies import Uploads
from server.http.client_addresses import check_account
from server.http.operation import Caller, Operation, Parameter
from server.http.problems import UNDECODABLE, Problem
from server.jobs.acceptance import Acceptance
from server.jobs.housekeeping import Eraser
from server.live.session_registry import SessionRegistry
from server.metrics import Metrics
from server.model.accounts import SigningKeys
from server.model.errors import Refused, invalid_member
from server.model.ids import Prefix
from server.model.jobs import IdempotencyKey, Job, Received, Submitted
from server.model.offers import Offer
from server.parsing.declared import REFERENCES
from server.parsing.orders import MAX_WARNINGS, ParsedRequest
from server.records.records import MAX_TTL_S, Links, Records
from server.requests.access_control import AccessControl
from server.requests.limits import StreamLimits
from server.storage.sql.jobs import JobStore
from server.storage.sql.storage import Storage
from server.streams.feed import ORIGINAL, Languages
from server.streams.following import Following
from server.waiting import racing
from server.webhooks.sender import WebhookSender


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteParts:
    """All parts that a handler may need. app.py makes it once. *closing* is set when the server stops."""

    config: Config
    limits: Limits
    storage: Storage
    offers: Mapping[str, Offer]  # by environment: what clients may ask of the model
    metrics: Metrics
    closing: asyncio.Event
    access: AccessControl
    stream_limits: StreamLimits
    uploads: Uploads
    acceptance: Acceptance
    session_registry: SessionRegistry
    following: Following
    records: Records
    links: Links
    eraser: Eraser
    webhook_sender: WebhookSender

    @property
    def jobs(self) -> JobStore:
        return self.storage.jobs

    @property
    def keys(self) -> SigningKeys:
        return self.storage.signing_keys


@dataclass(frozen=True, slots=True)
class RouteGroup(ABC):
    """A group of handlers and their operations, which /openapi.json lists under *tag*."""

    parts: RouteParts
    tag: ClassVar[str]

    @abstractmethod
    def operations(self) -> list[Operation]:
        """The operations. One that belongs to another group's tag names that tag itself."""


JOB_POLL_S = 2  # the Retry-After of a job that has not ended
JOB = {"$ref": "#/components/schemas/Job"}
WAIT = Parameter(
    "wait",
    "query",
    {"type": "integer", "minimum": 0},
    "Seconds to hold the answer until the job is over; clamped to the server's bound",
)
URL_TTL = Parameter(
    "url_ttl",
    "query",
    {"type": "integer", "minimum": 1, "maximum": MAX_TTL_S},
    "Seconds for which the download links hold",
)
IDEMPOTENCY_KEY = Parameter(
    "Idempotency-Key",
    "header",
    {"type": "string", "maxLength": 257},
    "Makes repeats of this request answer with the same job or key, for 24 h or longer",
)
ACCEPTING_CODES = (
    "idempotency_key_reused",
    "idempotency_in_progress",
    "quota_exceeded",
    "concurrency_limited",
    "queue_full",
    "disk_full",
)
"""Error codes of every operation that makes a job."""
FILE_CODES = (*ACCEPTING_CODES, "invalid_multipart", "audio_too_long", "missing_input", "empty_file", *UNDECODABLE)
"""Error codes of every operation that makes a job from a file."""
READER_CODES = ("invalid_token", "insufficient_scope")
"""Error codes of every operation that calls admit_reader()."""


def idempotency_key_of(request: Request, caller: Caller, owner: Caller | None = None) -> IdempotencyKey | None:
    """The request's Idempotency-Key for the account of *owner*, else of *caller*; without a fingerprint."""
    if caller.idempotency_key is None:
        return None
    owner, path = owner or caller, request.scope["path"]
    return IdempotencyKey(account=owner.account_id, path=f"{owner.environment} {path}", key=caller.idempotency_key)


def misplaced_members(request: Request) -> tuple[Mapping[str, str], ...]:
    """A warning for each member in the query of an operation that reads them only from the body, but for `wait`.

    Raises Refused if the query asks for redaction.
    """
    names = dict.fromkeys(request.query_params) if request.scope["query_string"] else {}
    if not {"redact", "redact[]"}.isdisjoint(names):
        raise invalid_member("redact", "misplaced", "belongs into the body; the query redacts nothing")
    text = "belongs into the body; in the query it has no effect"
    misplaced = [name for name in names if name != WAIT.name][:MAX_WARNINGS]
    return tuple({"code": "ignored_parameter", "param": name[:100], "message": text} for name in misplaced)


@dataclass(frozen=True, slots=True)
class UploadBody:
    """A body that has arrived. Its members are still to be parsed."""

    received: Received
    acceptance: Acceptance
    caller: Caller
    key: IdempotencyKey | None
    warnings: tuple[Mapping[str, str], ...] = ()

    async def accept(self, parsed: ParsedRequest) -> Submitted:
        """Make the job. Raises what Acceptance.accept() raises."""
        parsed = replace(parsed, warnings=(*parsed.warnings, *self.warnings))
        return await self.acceptance.accept(self.caller.customer, parsed, self.received, self.key)


@asynccontextmanager
async def receive_upload(
    parts: RouteParts, request: Request, caller: Caller, *, raw: bool = False
) -> AsyncIterator[UploadBody]:
    """Receive the body. While the block lasts, the caller has one of its places and its Idempotency-Key is reserved.

    With *raw* the body is the audio itself, unless it is JSON. A stored file is deleted after the block, unless it
    became a job's. Raises what Acceptance.open_upload() and Uploads.read_body() raise.
    """
    if parts.closing.is_set():
        raise Problem("shutting_down", "The server is restarting. Try again soon.", headers={"Retry-After": "5"})
    warnings = () if raw else misplaced_members(request)
    customer, key = caller.customer, idempotency_key_of(request, caller)
    async with (
        parts.acceptance.open_upload(customer, key),
        parts.uploads.read_body(
            request,
            job_id=fresh_id(Prefix.JOB),
            most=customer.plan.upload_bytes,
            hashed=raw or key is not None,
            raw=raw,
            large=frozenset({REFERENCES.name}),
        ) as received,
    ):
        yield UploadBody(received, parts.acceptance, caller, key, warnings)


# --- the job -----------------------------------------------------------------------------------------------------


async def own_job(jobs: JobStore, caller: Caller, job_id: str) -> Job:
    """The caller's job. Raises Refused job_not_found, also if the job belongs to somebody else."""
    job = await jobs.get(job_id)
    if job is None or job.account != caller.account_id or job.environment != caller.environment:
        raise no_such_job()
    return job


async def wait_for_end(job: Job, jobs: JobStore, closing: asyncio.Event, *, wait_s: float) -> Job:
    """The job when it has ended; as it is, after *wait_s* seconds or when the server stops."""
    until = time.monotonic() + wait_s
    while not job.terminal and not closing.is_set() and (left_s := until - time.monotonic()) > 0:
        async with racing(jobs.wait_for_change(job, timeout_s=left_s), closing.wait()) as (change, _):
            now: Job | None = change.result() if change.done() else job
        if now is None:
            return job  # deleted meanwhile
        job = now
    return job


class _ResultDelivery(Response):
    """An answer with all results of a job, which count as delivered once the answer was sent."""

    def __init__(self, answer: Response, job_id: str, eraser: Eraser) -> None:
        super().__init__(answer.body, answer.status_code)
        self.raw_headers = answer.raw_headers
        self._job_id = job_id
        self._eraser = eraser

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        async with self._eraser.sending(self._job_id):
            await super().__call__(scope, receive, send)


async def answer_when_over(
    request: Request, job: Job, parts: RouteParts, make: Callable[[Job, int], Awaitable[Response]], *, wait_s: float = 0
) -> Response:
    """Wait for the end of *job*, up to *wait_s* seconds, and return the answer that *make* makes of it.

    *make* also gets the time of the request (ms since 1970 UTC). When an answer with results was sent, they count as
    delivered, if they are not kept. If the client has left, nothing counts as delivered.
    """
    if await parts.eraser.settle(job.id):
        job = await parts.jobs.get(job.id) or job
    asked_at = now_ms()
    with parts.eraser.holding(job.id):
        job = await wait_for_end(job, parts.jobs, parts.closing, wait_s=wait_s)
        answer = await make(job, asked_at)
    given = (
        job.erased_after_delivery and job.shows_results(asked_at) and answer.status_code < HTTPStatus.MULTIPLE_CHOICES
    )
    if not given or request.method == "HEAD" or await request.is_disconnected():
        return answer
    return _ResultDelivery(answer, job.id, parts.eraser)


def no_such_job() -> Refused:
    return Refused("job_not_found", "There is no such job.")


async def admit_reader(connection: HTTPConnection, scope: Scope, parts: RouteParts) -> Job:
    """The job of the path, for its owner's key or for a token of *scope*.

    Raises Refused and what check_token() raises.
    """
    job_id = connection.path_params["job_id"]
    token = connection.query_params.get("token")
    if token is None:
        return await own_job(parts.jobs, await parts.access.identify(connection), job_id)
    after_end_s = check_token(parts.keys, token, job_id=job_id, scope=scope, now_s=now_ms() / 1000)
    job = await parts.jobs.get(job_id)
    if job is None or job.environment != connection.state.environment:
        raise no_such_job()
    if after_end_s is not None and job.finished_at is not None and now_ms() >= job.finished_at + after_end_s * 1000:
        raise token_expired()
    check_account(connection, job.account)
    return job


async def live_job(connection: HTTPConnection, parts: RouteParts) -> Job:
    """The live job of the path, for its owner's key or for a token with the scope ingest. Raises Refused."""
    job = await admit_reader(connection, Scope.INGEST, parts)
    if job.order.live is None:
        raise Refused("not_found", "This job is no live session.")
    return job


# --- the query ---------------------------------------------------------------------------------------------------


def query_choices(query: Mapping[str, str], name: str, allowed: Sequence[str]) -> list[str]:
    given = [part.strip().lower() for part in query.get(name, "").split(",") if part.strip()]
    for part in given:
        if part not in allowed:
            raise invalid_member(name, "unknown_value", f"unknown value; allowed: {', '.join(allowed)}")
    return given


def query_choice(query: Mapping[str, str], name: str, allowed: Sequence[str]) -> str | None:
    given = query_choices(query, name, allowed)
    if len(given) > 1:
        raise invalid_member(name, "repeated", f"must be one of {', '.join(allowed)}")
    return given[0] if given else None


LANG = Parameter(
    "lang", "query", {"type": "string"}, "original and the codes of translations, with commas; left out: everything"
)


def query_languages(query: Mapping[str, str]) -> Languages:
    """The languages that a reader wants. Raises Refused invalid_parameter."""
    if not (given := [part.strip() for part in query.get(LANG.name, "").split(",") if part.strip()]):
        return None
    return frozenset(part if part == ORIGINAL else _code_of(part) for part in given)


def query_target(query: Mapping[str, str]) -> str | None:
    """The one language that a reader wants; None: the original. Raises Refused invalid_parameter."""
    given = query.get(LANG.name, "").strip()
    return None if given in ("", ORIGINAL) else _code_of(given)


def _code_of(name: str) -> str:
    language = language_named(name)
    if language is None:
        raise invalid_member(LANG.name, "unknown_value", unknown_language(name))
    return language.code


def query_instant(query: Mapping[str, str], name: str) -> int | None:
    if name not in query:
        return None
    try:
        return parse_iso(query[name])
    except (ValueError, OverflowError):
        raise invalid_member(name, "invalid_type", "must be an RFC 3339 instant") from None


def query_seconds(request: Request, name: str, *, most: int) -> int | None:
    """A whole number of seconds in the query, lowered to *most*; None if it is not there."""
    seconds = query_number(request, name, least=0, most=10**9)
    return None if seconds is None else min(seconds, most)


def query_number(request: Request, name: str, *, least: int, most: int) -> int | None:
    """A whole number in the query; None if it is not there."""
    raw = request.query_params.get(name) if request.scope["query_string"] else None
    if raw is None:
        return None
    if not (raw.isascii() and raw.isdecimal() and len(raw) <= len(str(most)) and least <= int(raw) <= most):
        raise invalid_member(name, "out_of_range", f"must be a whole number from {least} to {most}")
    return int(raw)


def query_switch(request: Request, name: str) -> bool:
    raw = request.query_params.get(name, "false").lower()
    if raw not in ("true", "false", "1", "0"):
        raise invalid_member(name, "invalid_type", "must be true or false")
    return raw in ("true", "1")
