"""What every HTTP answer has, whatever route gave it: a request id, CORS, compression, no-store, a log line.

The layers, outermost first: Envelope (ids, common headers, log, metrics, patience with refused uploads), Starlette's
CORS and gzip middlewares, then the routes.
"""

import re
import time
from collections.abc import Callable, Sequence

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.logs import log
from server.metrics import Metrics

ALLOWED_HEADERS = (
    "Authorization", "Content-Type", "Idempotency-Key", "Prefer", "Last-Event-ID", "X-Request-Id",
)  # fmt: skip
EXPOSED_HEADERS = (
    "Location", "Content-Location", "Retry-After", "RateLimit", "RateLimit-Policy", "X-RateLimit-Limit",
    "X-RateLimit-Remaining", "X-RateLimit-Reset", "X-RateLimit-Resource", "X-Request-Id", "Link", "ETag",
    "Content-Disposition", "Preference-Applied", "Idempotent-Replayed", "Deprecation", "Sunset",
)  # fmt: skip
LEAST_COMPRESSED = 1000  # bytes; below, gzip costs more than it saves

DRAIN_BYTES = 64 * 1024 * 1024
DRAIN_S = 2.0

_OUTPUT = re.compile(r"/v1/jobs/[^/]+/outputs/")


def dressed(
    routes: ASGIApp,
    *,
    cors_origins: Sequence[str],
    metrics: Metrics,
    new_request_id: Callable[[], str],
    sandbox_host: str | None,
) -> ASGIApp:
    """*routes* inside every layer."""
    cors = CORSMiddleware(
        _Compression(routes),
        allow_origins=list(cors_origins),
        allow_methods=["GET", "HEAD", "POST", "DELETE"],
        allow_headers=list(ALLOWED_HEADERS),
        expose_headers=list(EXPOSED_HEADERS),
        max_age=600,
    )
    return Envelope(cors, metrics=metrics, new_request_id=new_request_id, sandbox_host=sandbox_host)


class _Compression:
    """gzip, but never for downloads: their ETag and their byte ranges speak of the bytes as they are stored."""

    def __init__(self, app: ASGIApp) -> None:
        self._plain = app
        self._gzip = GZipMiddleware(app, minimum_size=LEAST_COMPRESSED)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        plain = scope["type"] != "http" or _OUTPUT.search(scope["path"])
        await (self._plain if plain else self._gzip)(scope, receive, send)


class Envelope:
    def __init__(
        self, app: ASGIApp, *, metrics: Metrics, new_request_id: Callable[[], str], sandbox_host: str | None
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._new_request_id = new_request_id
        self._sandbox_host = sandbox_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        state = scope["state"] = {**scope.get("state", {})}
        state["request_id"] = _request_id(scope) or self._new_request_id()
        state["environment"] = _enter_environment(scope, self._sandbox_host)
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send)
        began = time.perf_counter()
        try:
            await self._app(scope, exchange.receive, exchange.send)
        finally:
            took_s = time.perf_counter() - began
            route = state.get("route", "unknown")
            self._metrics.requests.labels(scope["method"], route, str(exchange.status)).inc()
            log.info(
                "request",
                extra={
                    "request_id": state["request_id"], "method": scope["method"], "path": scope["path"],
                    "status": exchange.status, "duration_ms": round(took_s * 1000, 1),
                    "account": state.get("account"),
                },
            )  # fmt: skip


class _Exchange:
    """One request and its answer: adds the common headers, and lets a client that is still sending read a refusal.

    A server that answers and closes while the client writes makes the client's system throw the answer away (RST). So
    after a refusal the rest of the body is read and dropped, bounded in bytes and time, before the connection ends.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.status = 499  # the client left before an answer began
        self._state = scope["state"]
        self._receive = receive
        self._send = send
        headers = Headers(scope=scope)
        self._body_ended = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self._body_ended = True
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._complete(MutableHeaders(scope=message))
        last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if last and self.status >= 400 and not self._body_ended:  # noqa: PLR2004  4xx and 5xx
            await self._send({**message, "more_body": True})
            await self._drain()
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await self._send(message)

    def _complete(self, headers: MutableHeaders) -> None:
        headers["X-Request-Id"] = self._state["request_id"]
        headers["Vary"] = "Origin, Accept-Encoding"
        headers.setdefault("Cache-Control", "no-store")
        headers.setdefault("X-Content-Type-Options", "nosniff")
        for name, value in self._state.get("limit_headers", {}).items():
            headers[name] = value

    async def _drain(self) -> None:
        dropped = 0
        with anyio.move_on_after(DRAIN_S):
            while not self._body_ended and dropped < DRAIN_BYTES:
                dropped += len((await self.receive()).get("body", b""))


_VALID_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


def _request_id(scope: Scope) -> str | None:
    given = Headers(scope=scope).get("x-request-id", "")
    return given if _VALID_REQUEST_ID.fullmatch(given) else None


def _enter_environment(scope: Scope, sandbox_host: str | None) -> str:
    """Say "sandbox" under /sandbox (which becomes the root path) or on the sandbox's own host, else "production"."""
    path: str = scope["path"]
    if path == "/sandbox" or path.startswith("/sandbox/"):
        scope["root_path"] = scope.get("root_path", "") + "/sandbox"
        return "sandbox"
    host = Headers(scope=scope).get("host", "")
    return "sandbox" if sandbox_host and host.rsplit(":", 1)[0].lower() == sandbox_host.lower() else "production"
