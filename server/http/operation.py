"""An Operation is one row of the route table; a Resource answers all methods of a path.

The Allow header, the checks before a handler and /openapi.json are made from the table.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import Any, Protocol, TypeAlias
from urllib.parse import quote

from msgspec.json import encode as json_bytes
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from server.http.problems import Problem, problem_of
from server.logs import log, path_for_log
from server.model.accounts import Account, ApiKey, Customer, Plan, WindowUse
from server.model.errors import Refused


@dataclass(frozen=True, slots=True)
class Caller:
    """A client and its limits. Without a key only its address is known."""

    environment: str
    address: str  # its address_key()
    account: Account | None = None
    key: ApiKey | None = None
    plan: Plan | None = None
    window: WindowUse | None = None  # of the one-minute window, if the request was counted
    idempotency_key: str | None = None  # of a POST request
    owner: bool = False  # the machine's owner, by the page's cookie: nothing is rationed

    @property
    def account_id(self) -> str:
        return self.require_account()[0].id

    @property
    def customer(self) -> Customer:
        account, key, plan = self.require_account()
        return Customer(account=account.id, environment=self.environment, plan=plan, retention=key.retention)

    def require_account(self) -> tuple[Account, ApiKey, Plan]:
        """Account, key and plan, which callers of operations with Auth.KEY always have. Raises Problem without them."""
        if self.account is None or self.key is None or self.plan is None:
            raise Problem("missing_credentials", "Send an API key as Authorization: Bearer YOUR_KEY.")
        return self.account, self.key, self.plan


Schema: TypeAlias = Mapping[str, Any]
"""A JSON Schema, most often {"$ref": "#/components/schemas/..."}."""


NO_SUCH_PATH = "there is nothing at this path; those of the API begin with one /v1/, as /v1/audio/transcriptions"

Handler: TypeAlias = Callable[[Request, Caller], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorShape:
    """The form of errors for clients of another service. Functions get the problem and the request's id."""

    schema: str  # the name of the body's schema among the components of /openapi.json
    body: Callable[[Problem, str], Mapping[str, Any]]
    headers: Callable[[Problem, str], Mapping[str, str]] = lambda _problem, _request_id: {}
    statuses: Mapping[str, int] = field(default_factory=dict)  # by code, the status if it differs from ours


class Auth(StrEnum):
    """The credentials that an operation takes."""

    KEY = "key"  # a valid API key of this environment
    GRANT = "grant"  # such a key, or a grant that stands for one
    OPEN = "open"  # none; requests are limited by address
    OWN = "own"  # the handler checks signed links or stream tokens itself
    FREE = "free"  # none; requests are limited by address only against floods: metrics, documentation
    NONE = "none"  # none; requests are not limited, because the answer costs no more than a refusal: health


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful answer, for the documentation."""

    description: str
    schema: Schema | None = None
    _: KW_ONLY
    media_type: str = "application/json"
    headers: tuple[str, ...] = ()
    example: object = None


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an operation, for the documentation."""

    name: str
    place: str  # query | header | path
    schema: Schema
    description: str
    _: KW_ONLY
    required: bool = False


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A method of a path, its handler, and its name in /openapi.json."""

    method: str
    path: str
    handle: Handler
    id: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One row of the route table: an endpoint and its documentation."""

    endpoint: Endpoint
    _: KW_ONLY
    summary: str
    answers: Mapping[int, Answer]
    description: str = ""
    tag: str = ""  # its group in /openapi.json; empty: that of its RouteGroup or dialect
    auth: Auth = Auth.KEY
    media_types: tuple[str, ...] = ()  # media types of the body; empty: a body is ignored
    max_body: int | None = None  # bytes; None: the plan's limit of uploads
    body_required: bool = False
    bodies: Mapping[str, Schema] = field(default_factory=dict)  # by media type, for the documentation
    body_examples: Mapping[str, object] = field(default_factory=dict)
    parameters: tuple[Parameter, ...] = ()
    codes: tuple[str, ...] = ()  # error codes, in addition to those that openapi.py adds
    hidden: bool = False  # True: not in /openapi.json, such as pages for people
    errors_as: "ErrorShape | None" = None  # None: problem+json


def json_body(schema: str, *, most: int, example: object, required: bool = False) -> dict[str, Any]:
    """The members of an Operation that takes JSON of the component *schema*, of at most *most* bytes."""
    kind = "application/json"
    return {
        "media_types": (kind,),
        "max_body": most,
        "body_required": required,
        "bodies": {kind: {"$ref": f"#/components/schemas/{schema}"}},
        "body_examples": {kind: example},
    }


class Admission(Protocol):
    """The checks before a handler, and the headers after it. AccessControl implements it."""

    async def admit(self, request: Request, operation: Operation) -> Caller: ...
    async def limit_headers(self, caller: Caller, refusal: Exception | None) -> Mapping[str, str]:
        """Headers with the caller's remaining limits after a request. *refusal* is the error that ended it, if any."""


CUT_OFF = Refused("shutting_down", "The server is restarting. Send the request again.", retry_after_s=5)


UPGRADE = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
"""Headers of an answer to a request that is not the handshake of a WebSocket, at a path where one opens."""


class Resource:
    """All operations of one path, as an ASGI app. At the path of a socket a GET without a handshake gets 426."""

    def __init__(self, operations: Iterable[Operation], admission: Admission, *, has_socket: bool = False) -> None:
        self._has_socket = has_socket
        self._operations = {operation.endpoint.method: operation for operation in operations}
        self._admission = admission
        methods = {*self._operations, "OPTIONS"} | ({"HEAD"} if "GET" in self._operations else set())
        self._allow = ", ".join(sorted(methods))
        self._shape = next((op.errors_as for op in self._operations.values() if op.errors_as), None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        scope["state"]["error_shape"] = self._shape  # for refusals by the layers around this
        try:
            response = await self._dispatch(request)
        except ClientDisconnect:
            return  # what the client sent was deleted by the blocks that this error has left
        except asyncio.CancelledError:  # the server stops, and the time for requests is over
            response = problem_response(request, CUT_OFF, shape=self._shape)
        except Exception as error:  # noqa: BLE001  the outermost edge: every error becomes an answer
            response = problem_response(request, error, shape=self._shape)
        try:
            await response(scope, receive, send)
        except asyncio.CancelledError:  # the server stops in the middle of an answer, and closes its connection
            log.warning("an answer was cut off", extra={"path": path_for_log(scope["path"])})

    async def _dispatch(self, request: Request) -> Response:
        method = request.method
        if method == "OPTIONS":
            return Response(status_code=204, headers={"Allow": self._allow})
        operation = self._operations.get("GET" if method == "HEAD" else method)
        if operation is None and self._has_socket and method == "GET":
            raise Problem("upgrade_required", "a WebSocket opens here, by a GET with its headers", headers=UPGRADE)
        if operation is None:
            raise Problem("method_not_allowed", f"{method} is not offered here", headers={"Allow": self._allow})
        state = request.scope["state"]
        state["route"] = operation.endpoint.path
        state["unlogged"] = operation.auth is Auth.NONE  # requested by programs every few seconds
        caller = await self._admission.admit(request, operation)
        refusal: Exception | None = None
        try:
            return await operation.endpoint.handle(request, caller)
        except Exception as error:
            refusal = error
            raise
        finally:
            state["limit_headers"] = await self._admission.limit_headers(caller, refusal)


async def not_found(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer requests and WebSockets for unknown paths."""
    problem = problem_response(HTTPConnection(scope), Problem("not_found", NO_SUCH_PATH))
    await problem(scope, receive, send)


def problem_response(request: HTTPConnection, error: Exception, *, shape: ErrorShape | None = None) -> Response:
    """*error* as application/problem+json, or as JSON of another *shape*.

    An unexpected error is logged and answered with 500, without details.
    """
    path, request_id = request.scope["path"], request.state.request_id
    problem = problem_of(error)
    if problem is None:
        place = {"request_id": request_id, "path": path_for_log(path)}
        log.error("unexpected error", exc_info=error, extra=place)
        problem = Problem("internal", "the server failed to answer this request; it has been logged")
    request.state.code = problem.code
    if (shape := shape or request.scope["state"].get("error_shape")) is not None:
        headers = {**problem.headers, **shape.headers(problem, request_id)}
        status = shape.statuses.get(problem.code, problem.status)
        return json_response(shape.body(problem, request_id), status, headers=headers)
    body = json_bytes(problem.body(instance=quote(path), request_id=request_id))
    return Response(body, problem.status, headers=problem.headers, media_type="application/problem+json")


def json_response(value: object, status: int = 200, *, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json_bytes(value), status, headers=headers, media_type="application/json")
