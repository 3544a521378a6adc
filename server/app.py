"""The composition root: makes every part of the server once and connects them.

build() makes a Service from settings, storage and engines: an ASGI app and its background work. domain.py makes the
parts below the routes.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias

from starlette.routing import Router, WebSocketRoute
from starlette.types import ASGIApp

from estimator import Estimator
from pipeline.ingest.isolation import Isolation
from server.accounts.issuing import fresh_id
from server.accounts.limits import Limits
from server.config import Config
from server.dialects.dialect import Dialect
from server.dialects.registered import DIALECTS
from server.domain import LIVE_RULES, Domain, build_domain
from server.engines import ServedEngine
from server.faults import keep_running
from server.http.bodies import Uploads
from server.http.middleware import with_middleware
from server.http.operation import Operation, Resource, not_found
from server.http.paths import Paths
from server.jobs.order_members import SCHEMAS as ORDER_SCHEMAS
from server.jobs.waiter import JobWaiter
from server.live.rules import LiveRules
from server.model.ids import Prefix
from server.offering import OfferWatch
from server.records.links import Links
from server.routes.access_control import AccessControl, origin_of
from server.routes.accounts import Accounts
from server.routes.address_counters import AddressCounters
from server.routes.channels import Channels
from server.routes.estimates import Estimates
from server.routes.events import EventStreams
from server.routes.jobs import Jobs
from server.routes.live_http import LiveRequests
from server.routes.live_sockets import LiveSockets
from server.routes.ops import Description, Ops
from server.routes.pages import Pages
from server.routes.parts import RouteParts
from server.routes.stream_limits import StreamLimits
from server.routes.subtitles import Subtitles
from server.routes.transcriptions import Transcriptions
from server.routes.webhooks import Webhooks
from server.storage.ports import Storage
from server.streams.channels import ChannelFollowing


class HasOperations(Protocol):
    """One group of routes."""

    def operations(self) -> list[Operation]: ...


EntryPoint: TypeAlias = tuple[str, str]
"""The method of an operation, or "WS" for a WebSocket, and its path."""


@dataclass(frozen=True, slots=True)
class Service:
    """The app and its background work. Serve *app* while running() is open; call begin_stop() to stop."""

    app: ASGIApp
    domain: Domain
    entry_points: tuple[EntryPoint, ...]

    def begin_stop(self) -> None:
        """Begin to stop: held requests and streams are answered now, workers hand their jobs back."""
        self.domain.closing.set()
        self.domain.workers.stop()
        self.domain.deliveries.stop()
        self.domain.housekeeping.stop()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Jobs, webhooks and sweeps are worked on while the block is open, and finished at its end."""
        async with asyncio.TaskGroup() as tasks:
            for name, work in self._works():
                keeping = keep_running(name, work, metrics=self.domain.metrics, stopping=self.domain.closing)
                tasks.create_task(keeping, name=name)
            watch = tasks.create_task(self.domain.metrics.watch_loop(), name="loop lag")
            try:
                yield
            finally:
                watch.cancel()
                self.begin_stop()
        await self.domain.egress.close()

    def _works(self) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
        """The background tasks of this process, by name. A fault in one must not end the others."""
        domain = self.domain
        yield "live sessions", domain.session_registry.run
        yield "workers", domain.workers.run
        yield "housekeeping", domain.housekeeping.run
        if "courier" in domain.roles:
            yield "webhooks", domain.deliveries.run
        if domain.partial_relay is not None:
            yield "partials of other nodes", partial(domain.partial_relay.run, domain.closing)
        if domain.offer_watch is not None:
            yield "offers of other nodes", partial(domain.offer_watch.run, domain.closing)


def build(
    config: Config,
    *,
    limits: Limits,
    storage: Storage,
    engines: Mapping[str, ServedEngine],
    isolation: Isolation,
    estimator: Estimator,
    public_base_url: str,
    live_rules: LiveRules = LIVE_RULES,
    node: str = "one",
    offer_watch: OfferWatch | None = None,
    dialects: Sequence[Dialect] = DIALECTS,
) -> Service:
    """Make the service. *engines* has the engines of the production and the sandbox environment. Nothing runs yet.

    If another node has the model, *engines* is empty, and *offer_watch* knows what that node offers.
    """
    domain = build_domain(
        config,
        limits=limits,
        storage=storage,
        engines=engines,
        isolation=isolation,
        links=Links(public_base_url, storage.signing_keys),
        live_rules=live_rules,
        node=node,
        offer_watch=offer_watch,
        callbacks={dialect.name: dialect.callback for dialect in dialects if dialect.callback is not None},
    )
    routes, entry_points = build_routes(config, domain, limits=limits, estimator=estimator, dialects=dialects)
    app = with_middleware(
        routes,
        cors_origins=config.cors_origins,
        metrics=domain.metrics,
        new_request_id=partial(fresh_id, Prefix.REQUEST),
        sandbox_host=config.sandbox_host,
        address_limits=AddressCounters(limits.keyless.free_requests_per_minute, config.trusted_proxies),
        query_fields={path: most for dialect in dialects for path, most in dialect.query_fields.items()},
    )
    return Service(app, domain, entry_points)


def build_routes(
    config: Config, domain: Domain, *, limits: Limits, estimator: Estimator, dialects: Sequence[Dialect]
) -> tuple[ASGIApp, tuple[EntryPoint, ...]]:
    """Make the router over every operation and WebSocket, and list them."""
    parts = _make_parts(config, domain, limits)
    built = [dialect.build(parts) for dialect in dialects]
    operations = [operation for group in _groups(parts, domain, estimator) for operation in group.operations()]
    if "api" in config.roles:
        operations += [operation for dialect in built for operation in dialect.operations]
    operations += Description(
        operations,
        base_url=domain.links.public_base_url,
        tags={dialect.name: dialect.summary for dialect in dialects},
        schemas=ORDER_SCHEMAS | {name: schema for dialect in dialects for name, schema in dialect.schemas.items()},
    ).operations()
    routes = [*LiveSockets(parts).routes(), *(socket for dialect in built for socket in dialect.sockets)]
    sockets = Router(routes, redirect_slashes=False, default=not_found)
    entry_points = [(operation.endpoint.method, operation.endpoint.path) for operation in operations]
    entry_points += [("WS", route.path) for route in sockets.routes if isinstance(route, WebSocketRoute)]
    return Paths(_resources(operations, parts.access), sockets), tuple(entry_points)


def _make_parts(config: Config, domain: Domain, limits: Limits) -> RouteParts:
    storage, own_origin = domain.storage, origin_of(domain.links.public_base_url)
    return RouteParts(
        config=config,
        limits=limits,
        storage=storage,
        offers=domain.offers,
        metrics=domain.metrics,
        closing=domain.closing,
        access=AccessControl(config=config, limits=limits, storage=storage, own_origin=own_origin),
        stream_limits=StreamLimits(limits.streams),
        uploads=Uploads(storage.blobs),
        waiter=JobWaiter(storage.jobs, domain.closing),
        acceptance=domain.acceptance,
        session_registry=domain.session_registry,
        following=domain.following,
        records=domain.records,
        links=domain.links,
        eraser=domain.eraser,
        webhook_sender=domain.webhook_sender,
    )


def _groups(parts: RouteParts, domain: Domain, estimator: Estimator) -> list[HasOperations]:
    """The groups of routes that this process serves."""
    ops = Ops(parts)
    if "api" not in domain.roles:
        return [ops, LiveRequests(parts)] if "live" in domain.roles else [ops]
    subtitles = Subtitles(parts)
    return [
        Transcriptions(parts),
        Jobs(parts),
        EventStreams(parts),
        subtitles,
        Channels(parts, ChannelFollowing(parts.following), subtitles),
        LiveRequests(parts),
        Webhooks(parts),
        Accounts(parts),
        Estimates(parts, estimator),
        ops,
        Pages(index=ops.index, base_url=domain.links.public_base_url),
    ]


def _resources(operations: list[Operation], access: AccessControl) -> dict[str, ASGIApp]:
    paths = dict.fromkeys(operation.endpoint.path for operation in operations)
    return {path: Resource([row for row in operations if row.endpoint.path == path], access) for path in paths}
