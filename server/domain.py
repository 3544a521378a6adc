"""Makes everything below the routes once and connects it: live sessions, workers, webhooks, sweeping.

app.py puts the routes on top of it. `scribewire worker` uses build_workers() alone.
"""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.ingest.isolation import Isolation
from pipeline.ingest.memory import usable_bytes
from server.accounts.limits import Limits
from server.accounts.plans import Plans
from server.clock import now_ms
from server.config import Config
from server.egress.fetch import Fetcher
from server.egress.guard import Egress
from server.engines import ServedEngine
from server.jobs import housekeeping
from server.jobs.acceptance import Acceptance
from server.jobs.erasing import Eraser
from server.jobs.housekeeping import Chore, Housekeeping, JobChores, Sweeper
from server.jobs.leases import WorkerRules
from server.jobs.probing import Prober
from server.jobs.running import WorkerTools
from server.jobs.transcriber import Transcriber
from server.jobs.worker import Workers
from server.live.rules import LiveRules
from server.live.session_registry import SessionParts, SessionRegistry
from server.metrics import Metrics
from server.model.offers import Offer
from server.offering import OfferWatch
from server.records.links import Links
from server.records.records import CallbackBody, Records
from server.storage.ports import Storage
from server.streams.following import Following
from server.streams.partials import Partials
from server.streams.relaying import PartialRelay
from server.webhooks.deliveries import Deliveries
from server.webhooks.delivery_slots import DeliverySlots
from server.webhooks.sender import WebhookSender

LIVE_RULES = LiveRules()
MIN_DECODER_MEMORY_BYTES = 512 << 20  # of all decoders together: on the smallest machine four can run
SERVER = "server "  # the names of workers in a server's process begin with this


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Everything below the routes. *closing* is set when the server stops."""

    storage: Storage
    offers: Mapping[str, Offer]  # by environment: what clients may ask of the model
    offer_watch: OfferWatch | None  # None: this process has the model itself
    metrics: Metrics
    closing: asyncio.Event
    roles: frozenset[str]  # what this process does
    links: Links
    records: Records
    egress: Egress
    webhook_sender: WebhookSender
    acceptance: Acceptance
    following: Following
    session_registry: SessionRegistry
    workers: Workers
    deliveries: Deliveries
    eraser: Eraser
    housekeeping: Housekeeping
    partial_relay: PartialRelay | None  # None: there are no other nodes


def build_workers(
    name: str,
    config: Config,
    *,
    limits: Limits,
    storage: Storage,
    engines: Mapping[str, ServedEngine],
    egress: Egress,
    prober: Prober,
    metrics: Metrics,
) -> Workers:
    """Make the workers of one process: the server's, or those of `scribewire worker`."""
    tools = WorkerTools(
        jobs=storage.jobs,
        blobs=storage.blobs,
        fetcher=Fetcher(egress, storage.blobs),
        prober=prober,
        rules=WorkerRules(),
    )
    return Workers(
        name=name,
        tools=tools,
        batches=batches_of(engines),
        plans=Plans(storage.accounts, limits),
        metrics=metrics,
        count=config.workers if "worker" in config.roles else 0,
    )


def build_domain(
    config: Config,
    *,
    limits: Limits,
    storage: Storage,
    engines: Mapping[str, ServedEngine],
    isolation: Isolation,
    links: Links,
    live_rules: LiveRules,
    node: str,
    offer_watch: OfferWatch | None,
    callbacks: Mapping[str, CallbackBody],
) -> Domain:
    """Make everything below the routes. *offer_watch* is given if *engines* has none, *callbacks* by dialect."""
    metrics = _make_metrics(engines, node, config)
    limit_decoders(isolation, config, metrics)
    closing, partials = asyncio.Event(), Partials()
    name = f"{SERVER}{node}:{os.getpid()}"
    parts = SessionParts(
        worker=name,
        storage=storage,
        partials=partials,
        isolation=isolation,
        engines={environment: engine.live for environment, engine in engines.items()},
        plans=Plans(storage.accounts, limits),
        metrics=metrics,
        closing=closing,
        takes_writers="live" in config.roles,
        rules=live_rules,
    )
    session_registry = SessionRegistry(parts)
    records = Records(storage.jobs, storage.blobs, links, session_registry, callbacks)
    eraser = Eraser(storage, metrics, alone=not config.clustered)
    egress, prober = open_egress(config), Prober(isolation, storage.blobs, storage.rates)
    sender = WebhookSender(egress, limits.webhooks, DeliverySlots())
    workers = build_workers(
        name, config, limits=limits, storage=storage, engines=engines, egress=egress, prober=prober, metrics=metrics
    )
    chores = chores_of(config, storage=storage, metrics=metrics, eraser=eraser, session_registry=session_registry)
    offers = _offers(engines) if offer_watch is None else offer_watch.offers
    return Domain(
        storage=storage,
        offers=offers,
        offer_watch=offer_watch,
        metrics=metrics,
        closing=closing,
        roles=config.roles,
        links=links,
        records=records,
        egress=egress,
        webhook_sender=sender,
        acceptance=Acceptance(storage, egress, prober, batches_of(engines), offers, config.latency),
        session_registry=session_registry,
        following=Following(storage, partials, records, eraser, metrics, closing),
        workers=workers,
        deliveries=Deliveries(storage, records, sender, eraser, metrics),
        eraser=eraser,
        partial_relay=None if storage.relay is None else PartialRelay(partials, storage.relay),
        housekeeping=Housekeeping(chores, metrics),
    )


def chores_of(
    config: Config,
    *,
    storage: Storage,
    metrics: Metrics,
    eraser: Eraser | None = None,
    session_registry: SessionRegistry | None = None,
) -> list[Chore]:
    """All chores of a process. One that is a worker alone has no *eraser* and no *session_registry*."""
    jobs = JobChores(storage.jobs, storage.blobs, metrics)
    chores = [
        Chore("tidying", housekeeping.REAP_S, jobs.reap),
        Chore("tidying", housekeeping.REAP_S, storage.upkeep.forget_passed),
        Chore("tidying", housekeeping.REAP_S, jobs.delete_spent_audio),
    ]
    if eraser is not None and "courier" in config.roles:
        sweeper = Sweeper(storage, eraser, alone_since=None if config.clustered else now_ms())
        chores += [
            Chore("tidying", housekeeping.TIDY_S, eraser.tidy),
            Chore("sweep", housekeeping.SWEEP_S, sweeper.sweep, is_ours=lambda: storage.leads),
        ]
    if session_registry is not None and "live" in config.roles:
        chores.append(
            Chore("finishing forgotten live sessions", session_registry.rules.stale_s, session_registry.finish_stale)
        )
    return chores


def limit_decoders(isolation: Isolation, config: Config, metrics: Metrics) -> None:
    """Limit the memory of all decoders of this process together, to what the operator or the machine allows."""
    isolation.memory.limit(config.decoder_memory_mib << 20 or max(usable_bytes() // 2, MIN_DECODER_MEMORY_BYTES))
    metrics.decoder_memory.set_function(lambda: isolation.memory.used_bytes)


def batches_of(engines: Mapping[str, ServedEngine]) -> Mapping[str, Transcriber]:
    """What transcribes files, by environment."""
    return {environment: engine.batch for environment, engine in engines.items()}


def _offers(engines: Mapping[str, ServedEngine]) -> Mapping[str, Offer]:
    return {environment: engine.offer for environment, engine in engines.items()}


def _make_metrics(engines: Mapping[str, ServedEngine], node: str, config: Config) -> Metrics:
    metrics = Metrics()
    metrics.name_node(node, config.roles)
    for environment, engine in engines.items():
        metrics.watch_model(environment, engine.statistics)
        if engine.live.speakers is not None:
            metrics.watch_speakers(environment, engine.live.speakers.cpu_s)
    return metrics


def open_egress(config: Config) -> Egress:
    return Egress(allowed=config.egress_allow_cidrs, allow_http=config.allow_http_sources)
