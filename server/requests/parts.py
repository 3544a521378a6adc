"""The parts of the server that the handlers of routes and dialects use, and the base class of their groups."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from server.accounts.limits import Limits
from server.config import Config
from server.http.bodies import Uploads
from server.http.operation import Operation
from server.jobs.acceptance import Acceptance
from server.jobs.erasing import Eraser
from server.jobs.waiter import JobWaiter
from server.live.session_registry import SessionRegistry
from server.metrics import Metrics
from server.model.accounts import SigningKeys
from server.model.offers import Offer
from server.records.links import Links
from server.records.records import Records
from server.requests.access_control import AccessControl
from server.requests.stream_limits import StreamLimits
from server.storage.sql.jobs import JobStore
from server.storage.sql.storage import Storage
from server.streams.following import Following
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
    waiter: JobWaiter
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
