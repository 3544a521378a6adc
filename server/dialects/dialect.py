"""The interface of a dialect: the API of another service, whose requests make jobs and live sessions here.

A dialect is a folder here and a line in `registered.py`. No other part of the server knows which dialects there are.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.routing import WebSocketRoute

from server.http.operation import ErrorShape, Operation
from server.records.records import CallbackBody
from server.requests.request import RouteParts


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectRoutes:
    """The operations and WebSockets of a dialect."""

    operations: Sequence[Operation]
    sockets: Sequence[WebSocketRoute] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One dialect. *name* is the tag of its operations in /openapi.json. It must not change: it is stored with jobs."""

    name: str
    summary: str  # of the tag
    build: Callable[[RouteParts], DialectRoutes]
    errors: ErrorShape  # of its operations, except for those that name another
    schemas: Mapping[str, Any] = field(default_factory=dict)  # components of /openapi.json
    callback: CallbackBody | None = None  # makes the webhooks of jobs whose order names this dialect as their callback
    query_fields: Mapping[str, int] = field(default_factory=dict)  # by path, the most fields of a query, if more
