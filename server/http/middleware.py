"""Adds to every HTTP answer: a request id, CORS and common headers, compression, a log line and metrics.

The layers from the outside in are OuterMiddleware, which also reads the rest of refused uploads, Starlette's gzip
middleware, and the routes.
"""

import asyncio
import logging
import math
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.http.client_addresses import PAUSE_S, AddressCounters, ConnectionUse
from server.http.operation import problem_response
from server.http.problems import Problem
from server.logs import log, path_for_log
from server.metrics import Metrics
from server.model.errors import RateLimited

ALLOWED_METHODS = ("GET", "HEAD", "POST", "DELETE")
EXPOSING = {
    "Access-Control-Expose-Headers": (
        "Location, Content-Location, Retry-After, RateLimit, RateLimit-Policy, X-RateLimit-Limit, "
        "X-RateLimit-Remaining, X-RateLimit-Reset, X-RateLimit-Resource, X-Request-Id, Link, ETag, "
        "Content-Disposition, Preference-Applied, Idempotent-Replayed, Scribewire-Warning"
    )
}
"""The header with which pages may read these headers of an answer."""
MIN_COMPRESSED = 1000  # bytes; gzip costs more than it saves on smaller answers
FASTEST = 1  # the level of compression: an answer is a tenth larger than with 9, and ready in a fifth of the time

PREFLIGHT = {"Access-Control-Allow-Methods": ", ".join(ALLOWED_METHODS), "Access-Control-Max-Age": "600"}
"""Headers that allow a page to send a request. Browsers cache them for ten minutes."""

KEPT_OPEN_BYTES = 1024 * 1024  # a connection stays open if no more than this is left of a refused body
LINGER_BYTES = 64 * 1024 * 1024
LINGER_S = 15.0
LINGER_IDLE_S = 2.0  # a client that sends nothing for this long has probably read its refusal

BAD, TOO_MANY = 400, 429
MAX_QUERY_FIELDS = 32

DEFAULTS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
"""Headers of answers that do not set them."""
VARY = (b"vary", b"Origin, Accept-Encoding")
KNOWN_METHODS = frozenset({*ALLOWED_METHODS, "OPTIONS", "PUT", "PATCH"})  # others count as one in the metrics

RawHeader: TypeAlias = tuple[bytes, bytes]
Given: TypeAlias = Mapping[bytes, bytes]
"""The headers of a request: names in lower case, and the last value of each."""

_OUTPUT = re.compile(r"/v1/jobs/[^/]+/outputs/")


class Origins:
    """The origins of web pages that may read answers (CORS, fetch.spec.whatwg.org). Cookies are never allowed."""

    def __init__(self, allowed: Sequence[str]) -> None:
        self._any = "*" in allowed
        self._allowed = frozenset(allowed)

    def headers(self, origin: str | None, more: Mapping[str, str]) -> Mapping[str, str]:
        """The headers that allow a page of *origin* to read an answer, with *more*; none if it may not."""
        if origin is None or not (self._any or origin in self._allowed):
            return {}
        return {"Access-Control-Allow-Origin": "*" if self._any else origin, **more}


class Compression:
    """Compresses answers, except downloads, whose ETag and byte ranges are those of the stored bytes."""

    def __init__(self, app: ASGIApp) -> None:
        self._plain = app
        self._gzip = GZipMiddleware(app, minimum_size=MIN_COMPRESSED, compresslevel=FASTEST)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        packed = scope["type"] == "http" and b"gzip" in scope["state"]["given"].get(b"accept-encoding", b"")
        return (self._gzip if packed and not _OUTPUT.search(scope["path"]) else self._plain)(scope, receive, send)


@dataclass(slots=True)
class OuterMiddleware:
    """The outermost layer. It first sets the request id and the environment."""

    app: ASGIApp
    _: KW_ONLY
    origins: Origins
    metrics: Metrics
    new_request_id: Callable[[], str]
    sandbox_host: str | None
    address_limits: AddressCounters
    query_fields: Mapping[str, int]  # by path, the most fields of a query, if that is not MAX_QUERY_FIELDS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        given: Given = dict(scope["headers"])
        state = scope["state"] = {**scope.get("state", {}), "given": given}
        state["request_id"] = _request_id(given) or self.new_request_id()
        state["environment"] = _enter_environment(scope, given, self.sandbox_host)
        state["address_limits"] = self.address_limits
        if scope["type"] == "websocket":
            await self._app_or_refusal(scope)(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send, self.origins)
        try:
            await self._answer(scope, exchange)
        finally:
            self._count_and_log(scope, exchange)

    async def _answer(self, scope: Scope, exchange: "_Exchange") -> None:
        if scope["method"] == "OPTIONS" and b"access-control-request-method" in exchange.given:
            # A preflight request, which is answered even if the path is unknown.
            granted = self.origins.headers(exchange.origin, {**PREFLIGHT, **_allowed_headers(exchange.given)})
            await Response(status_code=204, headers=granted)(scope, exchange.receive, exchange.send)
            return
        await self._app_or_refusal(scope)(scope, exchange.receive, exchange.send)

    def _app_or_refusal(self, scope: Scope) -> ASGIApp:
        """The app, or a refusal if the address has too many connections or the query too many fields."""
        try:
            self.address_limits.check_connections(scope)
        except Problem as error:
            return problem_response(HTTPConnection(scope), error)
        query: bytes = scope["query_string"]
        if not query or (fields := query.count(b"&") + 1) <= MAX_QUERY_FIELDS:
            return self.app
        most = self.query_fields.get(scope["path"].removeprefix(scope.get("root_path", "")), MAX_QUERY_FIELDS)
        if fields <= most:
            return self.app
        return problem_response(HTTPConnection(scope), Problem("invalid_request", f"a query may have {most} fields"))

    def _count_and_log(self, scope: Scope, exchange: "_Exchange") -> None:
        state = scope["state"]
        method = scope["method"] if scope["method"] in KNOWN_METHODS else "other"
        self.metrics.requests.labels(method, state.get("route", "unknown"), str(exchange.status)).inc()
        if exchange.status == TOO_MANY:
            self.metrics.refused.labels(state.get("code", "unknown")).inc()
        level = logging.DEBUG if state.get("unlogged") and exchange.status < BAD else logging.INFO
        if not log.isEnabledFor(level):
            return
        fields: dict[str, Any] = {
            "request_id": state["request_id"],
            "method": scope["method"],
            "path": path_for_log(scope["path"]),
            "status": exchange.status,
            "duration_ms": round(exchange.took_s * 1000, 1),
            "account": state.get("account"),
        }
        if self.address_limits.may_log(scope):
            log.log(level, "request", extra=fields)


class _Exchange:
    """One request and its answer. Adds the common headers, and makes sure that a client can read a refusal.

    If a server closes a connection while the client is still sending, the client's system drops the answer (TCP RST).
    So after a refusal the rest of the body is read and dropped, within bounds, before the connection is closed.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, origins: Origins) -> None:
        self.status = 499  # remains if the client leaves before an answer begins
        self.given: Given = scope["state"]["given"]
        self.origin = self.given[b"origin"].decode("latin-1") if b"origin" in self.given else None
        self._scope = scope
        self._state = scope["state"]
        self._used: ConnectionUse | None = self._state.get("connection")
        self._counted = False  # whether check_refusals() was called
        self._refused = False
        self._receive = receive
        self._send = send
        self._cors = origins.headers(self.origin, EXPOSING)
        self._body_ended = self.given.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in self.given
        self._body_bytes = 0  # that have come
        self._began = time.perf_counter()
        self._answered: float | None = None

    @property
    def took_s(self) -> float:
        """Seconds until the answer was sent."""
        return (self._answered or time.perf_counter()) - self._began

    async def receive(self) -> Message:
        if self._used is None or self._body_ended:
            message = await self._receive()
        else:
            self._used.await_client()
            message = await self._receive()
            self._used.work()
        self._body_bytes += len(message.get("body", b""))
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self._body_ended = True
        return message

    async def send(self, message: Message) -> None:
        if self._refused:
            return  # the rest of the answer that was replaced
        if message["type"] == "http.response.start":
            refuses = message["status"] >= BAD or self._scope["method"] == "OPTIONS"
            if refuses and await self._refuse_if_too_many():
                return
            self.status = message["status"]
            message["headers"] = self._complete_headers(message.get("headers", ()))
        last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if last and self._refuses_body:
            await self._send({**message, "more_body": True})
            self._answered = time.perf_counter()
            await self._linger()
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await self._send(message)
        if last and self._answered is None:
            self._answered = time.perf_counter()

    async def _refuse_if_too_many(self) -> bool:
        """Answer 429 if the address had too many refusals and answers to OPTIONS. Returns whether it did."""
        if self._counted or self._state.get("account") is not None:
            return False
        self._counted = True
        try:
            self._state["address_limits"].check_refusals(self._scope)
        except RateLimited as error:
            await asyncio.sleep(PAUSE_S)
            answer = problem_response(HTTPConnection(self._scope), error)
            await answer(self._scope, self.receive, self.send)
            self._refused = True
        return self._refused

    @property
    def _refuses_body(self) -> bool:
        return self.status >= BAD and not self._body_ended

    def _complete_headers(self, headers: Iterable[RawHeader]) -> list[RawHeader]:
        """The answer's *headers* with the common ones."""
        added = [(b"x-request-id", self._state["request_id"].encode()), VARY]
        for name, value in (*self._cors.items(), *self._state.get("limit_headers", {}).items()):
            added.append((_raw_name(name), value.encode("latin-1")))
        if self._refuses_body and _declared_length(self.given) - self._body_bytes > KEPT_OPEN_BYTES:
            added.append((b"connection", b"close"))
        kept = list(headers)
        named = {name for name, _ in kept}
        kept += [header for header in DEFAULTS if header[0] not in named]
        ours = dict(added)
        return [header for header in kept if header[0] not in ours] + added

    async def _linger(self) -> None:
        dropped = 0
        if self._used is not None:
            self._used.rest()
        with suppress(asyncio.CancelledError, TimeoutError):  # cancelled: the server ends
            async with asyncio.timeout(LINGER_S):
                while not self._body_ended and dropped < LINGER_BYTES:
                    async with asyncio.timeout(LINGER_IDLE_S):
                        dropped += len((await self.receive()).get("body", b""))


_NAMES = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z, \t-]+")


def _allowed_headers(given: Given) -> Mapping[str, str]:
    """The header that allows a page to send every header it asks for: clients of other services have many of their own.

    No header has rights without a key, and a key comes from the page itself.
    """
    asked = given.get(b"access-control-request-headers", b"")
    return {"Access-Control-Allow-Headers": asked.decode()} if _NAMES.fullmatch(asked) else {}


def _declared_length(given: Given) -> float:
    """The length of the body that the headers declare; infinite for a chunked body.

    It is also infinite with `Expect: 100-continue`, because after a refusal the client may or may not send the body.
    """
    if b"transfer-encoding" in given or given.get(b"expect", b"").lower() == b"100-continue":
        return math.inf
    length = given.get(b"content-length", b"0")
    return int(length) if length.isdigit() else math.inf


@lru_cache(64)
def _raw_name(name: str) -> bytes:
    return name.lower().encode("latin-1")


_VALID_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


def _request_id(given: Given) -> str | None:
    wanted = given.get(b"x-request-id")
    return wanted.decode() if wanted is not None and _VALID_REQUEST_ID.fullmatch(wanted) else None


def _enter_environment(scope: Scope, given: Given, sandbox_host: str | None) -> str:
    """The environment of a request: "sandbox" under /sandbox, which becomes the root path, or on *sandbox_host*."""
    path: str = scope["path"]
    if "/v1/" in path and ("//" in path or path.endswith("/")):  # a base address with a slash too many
        path = scope["path"] = "/" + "/".join(filter(None, path.split("/")))
    if path == "/sandbox":
        path = scope["path"] = "/sandbox/"
    if path.startswith("/sandbox/"):
        scope["root_path"] = scope.get("root_path", "") + "/sandbox"
        return "sandbox"
    if not sandbox_host:
        return "production"
    host = given.get(b"host", b"").decode("latin-1")
    return "sandbox" if host.rsplit(":", 1)[0].lower() == sandbox_host.lower() else "production"
