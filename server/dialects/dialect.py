"""The interface of a dialect: the API of another service over our own jobs and live sessions.

A dialect is a folder here and a line in `registered.py`. No other part of the server knows which dialects there are.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.routing import BaseRoute

from server.dialects.live_sessions import SessionOpener
from server.http.operation import Operation
from server.jobs.erasing import Eraser
from server.jobs.waiter import JobWaiter
from server.metrics import Metrics
from server.model.accounts import SigningKeys
from server.model.offers import Offer
from server.records.records import CallbackBody
from server.routes.door import Door
from server.routes.stream_limits import StreamLimits
from server.routes.transcriptions import Transcriptions
from server.storage.job_store import JobStore
from server.storage.ports import BlobStore
from server.streams.following import Following


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectParts:
    """The parts of the server that dialects are built on."""

    door: Door
    stream_limits: StreamLimits
    keys: SigningKeys
    offers: Mapping[str, Offer]  # by environment
    transcriptions: Transcriptions
    session_opener: SessionOpener
    waiter: JobWaiter
    eraser: Eraser
    jobs: JobStore
    blobs: BlobStore
    following: Following
    metrics: Metrics
    quiet_s: float  # a stream that is silent for this long gets a keep-alive


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectRoutes:
    """What a dialect answers."""

    operations: Sequence[Operation]
    sockets: Sequence[BaseRoute] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One dialect. Its *name* is the tag of its operations in /openapi.json, and must not change: jobs remember it."""

    name: str
    summary: str  # of the tag
    build: Callable[[DialectParts], DialectRoutes]
    schemas: Mapping[str, Any] = field(default_factory=dict)  # components of /openapi.json
    callback: CallbackBody | None = None  # writes the webhooks of jobs whose order names this dialect as their callback
    query_fields: Mapping[str, int] = field(default_factory=dict)  # path -> fields of a query, where more are needed
