"""The composition root: makes every part of the server once and connects them.

build() makes a Service from settings, storage and engines: an ASGI app and its background work.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from starlette.routing import Route, Router
from starlette.types import ASGIApp

from estimator import Estimator
from pipeline.batch import Batch
from pipeline.ingest.isolation import Isolation
from pipeline.text.options import TextSettings
from server.accounts.keys import fresh_id
from server.accounts.limits import Limits, Plans
from server.background import keep_running
from server.config import Config
from server.dialects.dialect import Dialect
from server.dialects.registered import DIALECTS
from server.engines import OfferWatch, ServedModels, learn_targets, unload_idle
from server.http.bodies import Uploads
from server.http.client_addresses import AddressCounters
from server.http.middleware import Compression, Origins, OuterMiddleware
from server.http.operation import Operation, Resource, not_found
from server.jobs.acceptance import Acceptance
from server.jobs.correcting import Corrections
from server.jobs.housekeeping import Eraser, Housekeeping
from server.jobs.probing import Prober
from server.live.parts import LiveRules, SessionParts
from server.live.session_registry import SessionRegistry
from server.metrics import Metrics
from server.model.ids import Prefix
from server.model.offers import Offer
from server.parsing.declared import SCHEMAS as ORDER_SCHEMAS
from server.records.records import CallbackBody, Links, Records
from server.requests.access_control import AccessControl, origin_of
from server.requests.limits import StreamLimits
from server.requests.request import RouteGroup, RouteParts
from server.routes.accounts import Accounts
from server.routes.channels import Channels
from server.routes.corrections import CorrectionRoutes
from server.routes.estimates import Estimates
from server.routes.events import EventStreams, Subtitles
from server.routes.jobs import Jobs
from server.routes.live import LiveRequests, LiveSockets
from server.routes.service import Description, Ops, Pages
from server.routes.transcriptions import Transcriptions
from server.routes.webhooks import Webhooks
from server.storage.sql.storage import Storage
from server.streams.feed import Partials
from server.streams.following import ChannelFollowing, Following
from server.streams.relaying import PartialRelay
from server.translation.translations import CorrectedTranslations, Translators
from server.webhooks.deliveries import Deliveries
from server.webhooks.sender import DeliverySlots, WebhookSender
from server.worker_process import SERVER, batches_of, build_workers, chores_of, limit_decoders, open_egress

LIVE_RULES = LiveRules()


EntryPoint: TypeAlias = tuple[str, str]
"""The method of an operation, or "WS" for a WebSocket, and its path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The app and its background tasks. Serve *app* while running() is open; call begin_stop() to stop."""

    app: ASGIApp
    entry_points: tuple[EntryPoint, ...]
    parts: RouteParts
    translations: Mapping[str, Translators]
    works: Mapping[str, Callable[[], Awaitable[None]]]
    """The background tasks of this process, by name. A fault in one does not end the others."""

    def begin_stop(self) -> None:
        """Begin to stop: held requests are answered, streams end, and workers return their jobs to the queue."""
        self.parts.closing.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the background tasks while the block is open. They finish their work at its end."""
        metrics = self.parts.metrics
        async with asyncio.TaskGroup() as tasks:
            for name, work in self.works.items():
                tasks.create_task(keep_running(name, work, metrics=metrics, stopping=self.parts.closing), name=name)
            try:
                yield
            finally:
                self.begin_stop()
        await self.parts.webhook_sender.egress.close()
        for translation in self.translations.values():
            await translation.close()


def build(
    config: Config,
    *,
    limits: Limits,
    storage: Storage,
    engines: Mapping[str, ServedModels],
    isolation: Isolation,
    estimator: Estimator,
    public_base_url: str,
    live_rules: LiveRules = LIVE_RULES,
    node: str = "one",
    offer_watch: OfferWatch | None = None,
    dialects: Sequence[Dialect] = DIALECTS,
) -> Service:
    """Make the service. *engines* has the engines of the production and the sandbox environment. Nothing runs yet.

    On a node without a model *engines* is empty, and *offer_watch* has the offer of the node with the model.
    """
    metrics, closing = _make_metrics(engines, node, config), asyncio.Event()
    limit_decoders(isolation, config, metrics)
    sessions = SessionParts(
        worker=f"{SERVER}{node}:{os.getpid()}",
        storage=storage,
        partials=Partials(),
        isolation=isolation,
        engines={environment: engine.live for environment, engine in engines.items()},
        translations={environment: engine.translation for environment, engine in engines.items()},
        plans=Plans(storage.accounts, limits),
        metrics=metrics,
        closing=closing,
        takes_writers="live" in config.roles,
        rules=live_rules,
    )
    offers = {name: engine.offer for name, engine in engines.items()} if offer_watch is None else offer_watch.offers
    callbacks = {dialect.name: dialect.callback for dialect in dialects if dialect.callback is not None}
    links, batches = Links(public_base_url, storage.signing_keys), batches_of(engines)
    parts = _make_parts(config, limits, sessions, batches=batches, offers=offers, callbacks=callbacks, links=links)
    routes, entry_points = build_routes(parts, estimator, dialects)
    workers = build_workers(
        sessions.worker,
        config,
        limits=limits,
        storage=storage,
        engines=engines,
        egress=parts.webhook_sender.egress,
        prober=parts.acceptance.prober,
        metrics=metrics,
        closing=closing,
    )
    works = {**_works(parts, offer_watch), "workers": workers.run}
    if engines:
        models = engines["production"].live.models
        works["idle models"] = partial(unload_idle, models, config.model_idle_s, closing)
        if (translator := engines["production"].translation.remote) is not None:
            works["languages of the translator"] = partial(learn_targets, translator, offers, closing)
    return Service(
        app=_with_middleware(routes, parts, dialects),
        entry_points=entry_points,
        parts=parts,
        translations=sessions.translations,
        works=works,
    )


def _works(parts: RouteParts, offer_watch: OfferWatch | None) -> Mapping[str, Callable[[], Awaitable[None]]]:
    storage, metrics, closing = parts.storage, parts.metrics, parts.closing
    chores = chores_of(parts.config, storage, metrics, parts.eraser, parts.session_registry)
    works = {"live sessions": parts.session_registry.run, "housekeeping": Housekeeping(chores, metrics, closing).run}
    works["loop lag"] = partial(parts.metrics.watch_loop, parts.closing)
    if "courier" in parts.config.roles:
        sender, eraser = parts.webhook_sender, parts.eraser
        works["webhooks"] = Deliveries(storage, parts.records, sender, eraser, metrics, closing).run
    if parts.storage.relay is not None:  # there are other nodes
        relay = PartialRelay(parts.following.partials, parts.storage.relay)
        works["partials of other nodes"] = partial(relay.run, closing)
    if offer_watch is not None:
        works["offers of other nodes"] = partial(offer_watch.run, closing)
    return works


def _make_metrics(engines: Mapping[str, ServedModels], node: str, config: Config) -> Metrics:
    metrics = Metrics()
    metrics.name_node(node, config.roles)
    for environment, engine in engines.items():
        metrics.models.statistics[environment] = engine.statistics
        if engine.live.speakers is not None:
            metrics.models.speakers_cpu_s[environment] = engine.live.speakers.cpu_s
    return metrics


def _make_parts(
    config: Config,
    limits: Limits,
    sessions: SessionParts,
    *,
    batches: Mapping[str, Batch],
    offers: Mapping[str, Offer],
    callbacks: Mapping[str, CallbackBody],
    links: Links,
) -> RouteParts:
    """Make the RouteParts. *batches* and *offers* are by environment, *callbacks* by dialect."""
    storage, metrics, closing = sessions.storage, sessions.metrics, sessions.closing
    registry = SessionRegistry(sessions)
    records = Records(storage, links, registry, callbacks)
    eraser = Eraser(storage, metrics, alone=not config.clustered)
    egress, prober = open_egress(config), Prober(sessions.isolation, storage.blobs, storage.rates)
    own_origin = origin_of(links.public_base_url)
    return RouteParts(
        config=config,
        limits=limits,
        storage=storage,
        offers=offers,
        metrics=metrics,
        closing=closing,
        access=AccessControl(config=config, limits=limits, storage=storage, own_origin=own_origin),
        stream_limits=StreamLimits(limits.streams),
        uploads=Uploads(storage.blobs),
        acceptance=Acceptance(storage, egress, prober, batches, offers, config.latency),
        session_registry=registry,
        following=Following(storage, sessions.partials, records, eraser, metrics, closing),
        records=records,
        links=links,
        eraser=eraser,
        webhook_sender=WebhookSender(egress, limits.webhooks, DeliverySlots()),
    )


def _with_middleware(routes: ASGIApp, parts: RouteParts, dialects: Sequence[Dialect]) -> ASGIApp:
    limits, config = parts.limits.keyless, parts.config
    return OuterMiddleware(
        Compression(routes),
        origins=Origins(config.cors_origins),
        metrics=parts.metrics,
        new_request_id=partial(fresh_id, Prefix.REQUEST),
        sandbox_host=config.sandbox_host,
        address_limits=AddressCounters(limits.free_requests_per_minute, config.trusted_proxies),
        query_fields={path: most for dialect in dialects for path, most in dialect.query_fields.items()},
    )


def build_routes(
    parts: RouteParts, estimator: Estimator, dialects: Sequence[Dialect]
) -> tuple[ASGIApp, tuple[EntryPoint, ...]]:
    """Make the router, and the list of all operations and WebSockets."""
    built = [(dialect, dialect.build(parts)) for dialect in dialects]
    groups = _groups(parts, estimator)
    operations = [replace(row, tag=row.tag or group.tag) for group in groups for row in group.operations()]
    if "api" in parts.config.roles:
        operations += [
            replace(row, tag=dialect.name, errors_as=row.errors_as or dialect.errors)
            for dialect, routes in built
            for row in routes.operations
        ]
    operations += Description(
        operations,
        base_url=parts.links.public_base_url,
        tags={dialect.name: dialect.summary for dialect in dialects},
        schemas=ORDER_SCHEMAS | {name: schema for dialect in dialects for name, schema in dialect.schemas.items()},
    ).operations()
    sockets = [*LiveSockets(parts).routes(), *(socket for _, made in built for socket in made.sockets)]
    entry_points = [(operation.endpoint.method, operation.endpoint.path) for operation in operations]
    socket_paths = [route.path for route in sockets]
    entry_points += [("WS", path) for path in socket_paths]
    routes = [Route(path, one) for path, one in _resources(operations, socket_paths, parts.access).items()]
    router = Router([*routes, *sockets], redirect_slashes=False, default=not_found)
    return router, tuple(entry_points)


def _groups(parts: RouteParts, estimator: Estimator) -> list[RouteGroup | Pages]:
    """The groups of routes that this process serves."""
    ops = Ops(parts)
    if "api" not in parts.config.roles:
        return [ops, LiveRequests(parts)] if "live" in parts.config.roles else [ops]
    subtitles = Subtitles(parts)
    translations = CorrectedTranslations(parts.config, parts.storage)
    corrections = Corrections(parts.storage, TextSettings(phone_region=parts.config.phone_region), translations)
    return [
        Transcriptions(parts),
        Jobs(parts, corrections),
        CorrectionRoutes(parts, corrections),
        EventStreams(parts),
        subtitles,
        Channels(parts, ChannelFollowing(parts.following), subtitles),
        LiveRequests(parts),
        Webhooks(parts),
        Accounts(parts),
        Estimates(parts, estimator),
        ops,
        Pages(index=ops.index, base_url=parts.links.public_base_url, local_owner=parts.access.local_owner),
    ]


def _resources(operations: list[Operation], socket_paths: list[str], access: AccessControl) -> dict[str, Resource]:
    """The resources by path."""

    def resource(path: str) -> Resource:
        rows = [row for row in operations if row.endpoint.path == path]
        return Resource(rows, access, has_socket=path in socket_paths)

    paths = dict.fromkeys([*(operation.endpoint.path for operation in operations), *socket_paths])
    return {path: resource(path) for path in paths}
