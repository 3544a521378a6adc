"""The composition root: every edge is made here, once, and handed to those who need it.

build() wires a Service from its settings, storage and engines; the Service is an ASGI app and the background work
that belongs to it.
"""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Protocol

from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp

from estimator import Estimator
from pipeline.ingest.isolation import Isolation
from server.accounts.limits import Limits
from server.accounts.plans import Plans
from server.clock import now_ms
from server.config import Config
from server.egress.fetch import Fetcher
from server.egress.guard import Egress
from server.engines import ServedEngine
from server.http.bodies import Uploads
from server.http.middleware import dressed
from server.http.operation import Operation, Resource, not_found
from server.jobs.holding import Holding
from server.jobs.probing import Prober
from server.jobs.running import WorkerRules
from server.jobs.sweeping import Sweeper
from server.jobs.worker import Workers
from server.live.desk import Desk, DeskParts
from server.live.session import LiveRules
from server.metrics import Metrics
from server.model.ids import CHANCE_BYTES, Prefix, new_id
from server.records.links import Links
from server.records.records import Records
from server.routes.accepting import Accepting
from server.routes.accounts import Accounts, SignUp
from server.routes.door import Door
from server.routes.estimates import Estimates
from server.routes.events import EventStreams, Seats
from server.routes.jobs import Jobs
from server.routes.live import Live
from server.routes.openai import OpenAI
from server.routes.ops import Ops
from server.routes.pages import Pages
from server.routes.transcriptions import Transcriptions, Waiting
from server.routes.webhooks import Webhooks
from server.storage.ports import Storage
from server.streams.following import Following
from server.streams.partials import Partials
from server.webhooks.courier import Courier
from server.webhooks.deliveries import Deliveries

LIVE_RULES = LiveRules()
SERVER = "server "  # how the names of workers begin that live in a server's process


class HasOperations(Protocol):
    """One group of routes."""

    def operations(self) -> list[Operation]: ...


class Service:
    """The app and the work behind it. Serve *app*; keep running() open meanwhile; call close_doors() to stop."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        closing: asyncio.Event,
        desk: Desk,
        workers: Workers,
        deliveries: Deliveries,
        sweeper: Sweeper,
        egress: Egress,
        metrics: Metrics,
    ) -> None:
        self.app = app
        self._closing = closing
        self._desk = desk
        self._workers = workers
        self._deliveries = deliveries
        self._sweeper = sweeper
        self._egress = egress
        self._metrics = metrics

    def close_doors(self) -> None:
        """Held requests and streams get their answers now; workers hand their jobs back; nothing new is begun."""
        self._closing.set()
        self._workers.stop()
        self._deliveries.stop()
        self._sweeper.stop()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Jobs, webhooks and sweeps are worked on inside the block; what was begun is ended at its end."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._desk.run(), name="live sessions")
            tasks.create_task(self._workers.run(), name="workers")
            tasks.create_task(self._deliveries.run(), name="webhooks")
            tasks.create_task(self._sweeper.run(), name="sweeper")
            watch = tasks.create_task(self._metrics.watch_loop(), name="loop lag")
            try:
                yield
            finally:
                watch.cancel()
                self.close_doors()
        await self._egress.close()


def build(
    config: Config,
    *,
    limits: Limits,
    storage: Storage,
    benches: Mapping[str, ServedEngine],
    isolation: Isolation,
    estimator: Estimator,
    public_base_url: str,
    live_rules: LiveRules = LIVE_RULES,
) -> Service:
    """*benches* are by environment, production and sandbox. Nothing runs yet."""
    metrics = Metrics()
    for environment, bench in benches.items():
        metrics.watch_model(environment, bench.statistics)
    closing = asyncio.Event()
    keys = storage.signing_keys
    links = Links(public_base_url, keys)
    plans = Plans(storage.accounts, limits)
    partials = Partials()
    name = f"{SERVER}{os.uname().nodename}:{os.getpid()}"
    desk = Desk(
        DeskParts(
            worker=name, jobs=storage.jobs, events=storage.events, blobs=storage.blobs, partials=partials,
            hearings={environment: bench.hearing for environment, bench in benches.items()}, isolation=isolation,
            plans=plans, metrics=metrics, closing=closing, rules=live_rules,
        )
    )  # fmt: skip
    records = Records(storage.jobs, links, desk)
    following = Following(
        events=storage.events, partials=partials, jobs=storage.jobs, records=records, metrics=metrics, closing=closing
    )
    seats = Seats(limits.streams)
    egress = Egress(allowed=config.egress_allow_cidrs, allow_http=config.allow_http_sources)
    courier = Courier(egress, limits.webhooks)
    prober = Prober(isolation, storage.blobs)
    holding = Holding(storage.jobs, closing)
    accepting = Accepting(
        storage.jobs, storage.outbox, egress, {environment: bench.offer for environment, bench in benches.items()}
    )
    door = Door(
        accounts=storage.accounts, counters=storage.counters, limits=limits, keys=keys,
        trusted_proxies=config.trusted_proxies,
    )  # fmt: skip
    ops = Ops(
        jobs=storage.jobs, outbox=storage.outbox, metrics=metrics, base_url=public_base_url,
        ready=lambda: None if closing.is_set() else _running(benches["production"]),
    )  # fmt: skip
    live = Live(
        door=door, jobs=storage.jobs, events=storage.events, desk=desk, following=following, accepting=accepting,
        holding=holding, records=records, links=links, seats=seats, metrics=metrics, origins=config.cors_origins,
        finish_wait_s=config.wait_default,
    )  # fmt: skip
    transcriptions = Transcriptions(
        uploads=Uploads(storage.blobs), prober=prober, jobs=storage.jobs, holding=holding, accepting=accepting,
        records=records, links=links, waiting=Waiting(default_s=config.wait_default, most_s=config.wait_max),
        closing=closing,
    )  # fmt: skip
    routes: list[HasOperations] = [
        transcriptions,
        Jobs(door=door, jobs=storage.jobs, holding=holding, blobs=storage.blobs, records=records, links=links,
             wait_max_s=config.wait_max),
        EventStreams(door=door, jobs=storage.jobs, events=storage.events, following=following, metrics=metrics,
                     seats=seats),
        live,
        Webhooks(jobs=storage.jobs, outbox=storage.outbox, egress=egress, courier=courier, records=records),
        Accounts(door=door, accounts=storage.accounts, counters=storage.counters, jobs=storage.jobs, limits=limits,
                 keys=keys, signup=SignUp(mode=config.signup, token=config.signup_token)),
        Estimates(estimator=estimator, thread=ThreadPoolExecutor(1, "estimates"), counters=storage.counters,
                  jobs=storage.jobs, limits=limits, keys=keys),
        OpenAI(transcriptions=transcriptions, holding=holding, jobs=storage.jobs, blobs=storage.blobs,
               following=following, quiet_s=limits.streams.keep_alive_s, offers=accepting.offers),
        ops,
        Pages(index=ops.index, base_url=public_base_url),
    ]  # fmt: skip
    operations = [operation for route in routes for operation in route.operations()]
    ops.describe(operations)
    app = dressed(
        Router([*_resources(operations, door), *live.sockets()], redirect_slashes=False, default=not_found),
        cors_origins=config.cors_origins, metrics=metrics, new_request_id=_new_request_id,
        sandbox_host=config.sandbox_host,
    )  # fmt: skip
    return Service(
        app,
        closing=closing,
        egress=egress,
        metrics=metrics,
        desk=desk,
        workers=Workers(
            name=name, jobs=storage.jobs, blobs=storage.blobs, plans=plans,
            batches={name: bench.batch for name, bench in benches.items()},
            fetcher=Fetcher(egress, storage.blobs), prober=prober, metrics=metrics, rules=WorkerRules(),
            count=config.workers,
        ),
        deliveries=Deliveries(
            outbox=storage.outbox, jobs=storage.jobs, accounts=storage.accounts, records=records, courier=courier,
            metrics=metrics, rules=limits.webhooks,
        ),
        sweeper=Sweeper(storage.jobs, storage.blobs),
    )  # fmt: skip


def _resources(operations: list[Operation], door: Door) -> list[BaseRoute]:
    paths = dict.fromkeys(operation.path for operation in operations)
    return [Route(path, Resource([row for row in operations if row.path == path], door)) for path in paths]


def _running(bench: ServedEngine) -> Mapping[str, Any]:
    return {
        "engine": bench.offer.engine,
        "model": bench.offer.model,
        "languages": sorted(bench.offer.languages),
        "bundled": bench.offer.bundled,
        "warnings": [dict(warning) for warning in bench.offer.warnings],
    }


def _new_request_id() -> str:
    return new_id(Prefix.REQUEST, ms=now_ms(), chance=secrets.token_bytes(CHANCE_BYTES))
