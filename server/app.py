"""The composition root: makes every part of the server once and connects them.

build() makes a Service from settings, storage and engines: an ASGI app and its background work. domain.py makes the
parts below the routes.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias

from starlette.routing import BaseRoute, Router, WebSocketRoute
from starlette.types import ASGIApp

from estimator import Estimator
from pipeline.ingest.isolation import Isolation
from server.accounts.issuing import fresh_id
from server.accounts.limits import Limits
from server.config import Config
from server.dialects.dialect import Dialect, DialectParts
from server.dialects.live_sessions import SessionOpener
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
from server.model.offers import Offer
from server.offering import OfferWatch
from server.records.links import Links
from server.routes.accounts import Accounts, SignUp
from server.routes.address_counters import AddressCounters
from server.routes.channels import Channels
from server.routes.door import Door, origin_of
from server.routes.estimates import Estimates
from server.routes.events import EventStreams
from server.routes.jobs import Jobs
from server.routes.live_http import LiveRequests
from server.routes.live_sockets import LiveSockets
from server.routes.ops import Description, Ops
from server.routes.pages import Pages
from server.routes.stream_limits import StreamLimits
from server.routes.subtitles import Subtitles
from server.routes.transcriptions import Transcriptions, WaitLimits
from server.routes.webhooks import Webhooks
from server.storage.ports import Storage
from server.streams.channels import ChannelFollowing


class HasOperations(Protocol):
    """One group of routes."""

    def operations(self) -> list[Operation]: ...


Doorway: TypeAlias = tuple[str, str]
"""The method of an operation, or "WS" for a WebSocket, and its path."""


@dataclass(frozen=True, slots=True)
class Service:
    """The app and its background work. Serve *app* while running() is open; call begin_stop() to stop."""

    app: ASGIApp
    domain: Domain
    doors: tuple[Doorway, ...]

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
    routes, doors = build_routes(config, domain, limits=limits, estimator=estimator, dialects=dialects)
    app = with_middleware(
        routes,
        cors_origins=config.cors_origins,
        metrics=domain.metrics,
        new_request_id=partial(fresh_id, Prefix.REQUEST),
        sandbox_host=config.sandbox_host,
        address_limits=AddressCounters(limits.keyless.free_requests_per_minute, config.trusted_proxies),
        query_fields={path: most for dialect in dialects for path, most in dialect.query_fields.items()},
    )
    return Service(app, domain, doors)


def build_routes(
    config: Config, domain: Domain, *, limits: Limits, estimator: Estimator, dialects: Sequence[Dialect]
) -> tuple[ASGIApp, tuple[Doorway, ...]]:
    """Make the router over every operation and WebSocket, and list them."""
    routes = _Routes(config=config, domain=domain, limits=limits, estimator=estimator, dialects=dialects)
    operations = routes.operations()
    operations += Description(
        operations,
        base_url=domain.links.public_base_url,
        tags={dialect.name: dialect.summary for dialect in dialects},
        schemas=ORDER_SCHEMAS | {name: schema for dialect in dialects for name, schema in dialect.schemas.items()},
    ).operations()
    sockets = Router(routes.sockets(), redirect_slashes=False, default=not_found)
    doors = [(operation.endpoint.method, operation.endpoint.path) for operation in operations]
    doors += [("WS", route.path) for route in sockets.routes if isinstance(route, WebSocketRoute)]
    return Paths(_resources(operations, routes.door), sockets), tuple(doors)


class _Routes:
    """Makes the groups of routes. The constructor makes the parts that several groups share."""

    def __init__(
        self, *, config: Config, domain: Domain, limits: Limits, estimator: Estimator, dialects: Sequence[Dialect]
    ) -> None:
        self._config, self._domain, self._limits, self._estimator = config, domain, limits, estimator
        self._storage = storage = domain.storage
        self._stream_limits = StreamLimits(limits.streams)
        self._uploads = Uploads(storage.blobs)
        self._waiter = JobWaiter(storage.jobs, domain.closing)
        self.door = Door(
            accounts=storage.accounts,
            counters=storage.counters,
            limits=limits,
            keys=storage.signing_keys,
            shared_rates=storage.rates,
            trusted_proxies=config.trusted_proxies,
            origins=(*config.cors_origins, origin_of(domain.links.public_base_url)),
            signup_origins=(*config.signup_origins, origin_of(domain.links.public_base_url)),
        )
        self._transcriptions = self._make_transcriptions()
        self._dialects = [dialect.build(self._dialect_parts()) for dialect in dialects]

    def operations(self) -> list[Operation]:
        """The operations that this process serves."""
        operations = [operation for group in self._groups() for operation in group.operations()]
        if "api" in self._config.roles:
            operations += [operation for dialect in self._dialects for operation in dialect.operations]
        return operations

    def sockets(self) -> list[BaseRoute]:
        """All WebSockets."""
        return [*self._live_sockets().routes(), *(socket for dialect in self._dialects for socket in dialect.sockets)]

    def _groups(self) -> list[HasOperations]:
        ops = self._ops()
        subtitles = Subtitles(door=self.door, jobs=self._storage.jobs, events=self._storage.events)
        if "api" not in self._config.roles:
            return [ops, self._live()] if "live" in self._config.roles else [ops]
        return [
            self._transcriptions,
            self._jobs(),
            self._events(),
            subtitles,
            self._channels(subtitles),
            self._live(),
            self._webhooks(),
            self._accounts(),
            self._estimates(),
            ops,
            Pages(index=ops.index, base_url=self._domain.links.public_base_url),
        ]

    def _dialect_parts(self) -> DialectParts:
        domain = self._domain
        return DialectParts(
            door=self.door,
            stream_limits=self._stream_limits,
            keys=self._storage.signing_keys,
            offers=domain.offers,
            transcriptions=self._transcriptions,
            session_opener=SessionOpener(
                door=self.door,
                session_registry=domain.session_registry,
                acceptance=domain.acceptance,
                following=domain.following,
                quiet_s=self._limits.streams.keep_alive_s,
            ),
            waiter=self._waiter,
            eraser=domain.eraser,
            jobs=self._storage.jobs,
            blobs=self._storage.blobs,
            following=domain.following,
            metrics=domain.metrics,
            quiet_s=self._limits.streams.keep_alive_s,
        )

    def _live_sockets(self) -> LiveSockets:
        return LiveSockets(
            door=self.door,
            jobs=self._storage.jobs,
            events=self._storage.events,
            session_registry=self._domain.session_registry,
            following=self._domain.following,
            stream_limits=self._stream_limits,
            metrics=self._domain.metrics,
        )

    def _make_transcriptions(self) -> Transcriptions:
        return Transcriptions(
            uploads=self._uploads,
            waiter=self._waiter,
            acceptance=self._domain.acceptance,
            records=self._domain.records,
            links=self._domain.links,
            eraser=self._domain.eraser,
            wait_limits=WaitLimits(default_s=self._config.wait_default, max_s=self._config.wait_max),
            closing=self._domain.closing,
        )

    def _jobs(self) -> Jobs:
        return Jobs(
            door=self.door,
            jobs=self._storage.jobs,
            waiter=self._waiter,
            blobs=self._storage.blobs,
            records=self._domain.records,
            links=self._domain.links,
            stream_limits=self._stream_limits,
            eraser=self._domain.eraser,
            wait_max_s=self._config.wait_max,
        )

    def _events(self) -> EventStreams:
        return EventStreams(
            door=self.door,
            jobs=self._storage.jobs,
            events=self._storage.events,
            following=self._domain.following,
            metrics=self._domain.metrics,
            stream_limits=self._stream_limits,
        )

    def _live(self) -> LiveRequests:
        return LiveRequests(
            door=self.door,
            jobs=self._storage.jobs,
            session_registry=self._domain.session_registry,
            channels=self._storage.channels,
            uploads=self._uploads,
            acceptance=self._domain.acceptance,
            waiter=self._waiter,
            records=self._domain.records,
            links=self._domain.links,
            eraser=self._domain.eraser,
            finish_wait_s=self._config.wait_default,
        )

    def _channels(self, subtitles: Subtitles) -> Channels:
        return Channels(
            door=self.door,
            channels=self._storage.channels,
            links=self._domain.links,
            keys=self._storage.signing_keys,
            following=ChannelFollowing(
                channels=self._storage.channels,
                jobs=self._storage.jobs,
                following=self._domain.following,
                closing=self._domain.closing,
            ),
            subtitles=subtitles,
            stream_limits=self._stream_limits,
        )

    def _webhooks(self) -> Webhooks:
        return Webhooks(
            jobs=self._storage.jobs,
            outbox=self._storage.outbox,
            egress=self._domain.egress,
            courier=self._domain.courier,
            slots=self._domain.deliveries.slots,
            records=self._domain.records,
        )

    def _accounts(self) -> Accounts:
        return Accounts(
            door=self.door,
            storage=self._storage,
            limits=self._limits,
            keys=self._storage.signing_keys,
            signup=SignUp(mode=self._config.signup, token=self._config.signup_token),
        )

    def _estimates(self) -> Estimates:
        return Estimates(
            estimator=self._estimator,
            thread=ThreadPoolExecutor(1, "estimates"),
            counters=self._storage.counters,
            jobs=self._storage.jobs,
            limits=self._limits,
            keys=self._storage.signing_keys,
        )

    def _ops(self) -> Ops:
        domain = self._domain
        return Ops(
            jobs=self._storage.jobs,
            outbox=self._storage.outbox,
            metrics=domain.metrics,
            base_url=domain.links.public_base_url,
            ready=lambda: None if domain.closing.is_set() else _describe(domain.offers["production"]),
        )


def _resources(operations: list[Operation], door: Door) -> dict[str, ASGIApp]:
    paths = dict.fromkeys(operation.endpoint.path for operation in operations)
    return {path: Resource([row for row in operations if row.endpoint.path == path], door) for path in paths}


def _describe(offer: Offer) -> Mapping[str, Any]:
    return {
        "engine": offer.engine,
        "model": offer.model,
        "languages": sorted(offer.languages),
        "speakers": offer.speakers,
        "endpointing": list(offer.endpointing),
        "bundled": offer.bundled,
        "warnings": [dict(warning) for warning in offer.warnings],
    }
