"""scribewire serve: starts the server, and stops it in an orderly way."""

import argparse
import asyncio
import gc
import os
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvloop

from estimator import EstimateError, Estimator
from pipeline.batch import BatchOptions
from pipeline.ingest.seccomp import close_memory
from pipeline.words import join_words
from server.accounts.keys import open_account
from server.accounts.limits import Limits, read_limits
from server.app import Service, build
from server.background import share_interpreter
from server.clock import now_ms
from server.commands.connection import add_settings, machine_address, noted
from server.commands.models import pull_hint
from server.commands.opening import node_name, open_storage
from server.config import OPERATOR_KEY, PREFIX, VARIABLES, Config, ConfigError
from server.engines import OfferWatch, ServedModels, open_decoder, open_engines, publish_offer
from server.logs import configure, log
from server.model.accounts import Quota
from server.requests.request import RouteParts
from server.storage.scratch import PRIVATE_FILE
from server.storage.sql.storage import Storage
from server.storage.sqlite.open import claim_folder
from server.transport.connections import ConnectionRules, Connections, connection_limits, raise_descriptor_limit
from server.transport.http_server import HttpServer, listen
from server.worker_process import SERVER, stop_signals

SAMPLE = Path(__file__).parent.parent / "sample.flac"
FIRST_START_MS = 60_000
PARTING_S = 0.5  # for streams to send why they end, before uvicorn closes connections


def add(commands: Any) -> None:
    rows = [
        f"  {PREFIX}{row.name}" + f" ({row.default})" * bool(row.default) + f"\n      {row.meaning}"
        for row in VARIABLES
    ]
    parser: argparse.ArgumentParser = commands.add_parser(
        "serve",
        help="run the server",
        epilog="Settings, with their defaults; options stand for those of their names:\n" + "\n".join(rows),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_settings(parser, ["host", "port", "data_dir", "model"])
    parser.set_defaults(run=run)


def run(_given: argparse.Namespace, config: Config) -> int:
    configure(style=config.log_format, level=config.log_level)
    close_memory()
    share_interpreter()
    limits = read_limits(config)
    with claim_folder(config.data_dir):
        uvloop.run(_serve(config, limits))
    return 0


async def _serve(config: Config, limits: Limits) -> None:
    descriptors = raise_descriptor_limit()
    rules = connection_limits(config, descriptors)
    node = node_name(config)
    storage = open_storage(config, node=node, check_bucket=True)
    listening = listen(config)
    address = _address(config, listening)
    public = config.public_base_url or address
    try:
        with (
            ThreadPoolExecutor(config.workers * 2 + 2, thread_name_prefix="ingest") as threads,
            open_engines(config, threads) if config.needs_model else open_decoder() as (engines, isolation),
        ):
            estimator = await asyncio.to_thread(open_estimator, config)
            sample_text = await transcribe_sample(engines["production"], tenant="self-check") if engines else None
            watch = await _agree_on_offers(engines, storage, config)
            service = build(
                config,
                limits=limits,
                storage=storage,
                engines=engines,
                isolation=isolation,
                estimator=estimator,
                public_base_url=public,
                node=node,
                offer_watch=watch,
            )
            await write_operator_key(storage, config)
            if not config.clustered:
                await _take_over(storage)
            gc.collect()
            gc.freeze()  # the objects so far stay, so that collecting garbage takes less time from now on
            async with service.running():
                connections = Connections(rules, trusted_proxies=config.trusted_proxies, metrics=service.parts.metrics)
                log.info(_carried(engines, config, rules, descriptors))
                ready = _ready_lines(address, service.parts, sample_text)
                with noted(config, address):
                    await _answer(service, HttpServer(service.app, listening, connections, ready=ready))
    finally:
        listening.close()
        await storage.close()


def open_estimator(config: Config) -> Estimator:
    """Make the estimator. Raises ConfigError for a price feed or rank files that cannot be used.

    Without a folder of rank files in the settings, the first estimate loads 115 MB and takes a second longer.
    """
    estimator = Estimator(ranks_dir=config.estimator_ranks_dir)
    feed = config.estimator_price_feed
    if feed is not None:
        try:
            estimator.refresh(feed, now=datetime.now(UTC))
        except (EstimateError, OSError) as error:
            raise ConfigError(
                f"{PREFIX}ESTIMATOR_PRICE_FEED must be a usable price snapshot, got {feed}: {error}"
            ) from None
    folder = config.estimator_ranks_dir
    if folder is not None:
        try:
            estimator.warm()
        except EstimateError as error:
            raise ConfigError(
                f"{PREFIX}ESTIMATOR_RANKS_DIR must hold sound rank files, got {folder}: {error}"
            ) from None
    return estimator


async def _answer(service: Service, server: HttpServer) -> None:
    """Serve HTTP until a signal comes."""
    loop, leaving = asyncio.get_running_loop(), asyncio.Event()

    def stop() -> None:
        log.info("stopping")
        server.force_exit = leaving.is_set()  # a second signal does not wait
        leaving.set()
        service.begin_stop()
        loop.call_later(PARTING_S, exit_now)

    def exit_now() -> None:
        server.should_exit = True

    with stop_signals(stop):
        await server.serve()


def _address(config: Config, listening: socket.socket) -> str:
    port = listening.getsockname()[1]
    host = machine_address(config.host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def transcribe_sample(engine: ServedModels, *, tenant: str) -> str:
    """Transcribe the bundled sample, which shows that decoder and model work. Returns its words."""
    options = BatchOptions(tenant=tenant, language="en" if "en" in engine.offer.languages else None)
    chunks = [chunk async for chunk in engine.batch.transcribe(SAMPLE, options)]
    return join_words(word for chunk in chunks for segment in chunk.segments for word in segment.words)


async def _agree_on_offers(engines: Mapping[str, ServedModels], storage: Storage, config: Config) -> OfferWatch | None:
    """Publish the offer of this node's model and return None; without a model, wait for the offer of another node."""
    if engines or storage.offers is None:
        await publish_offer(engines, storage)
        return None
    watch = OfferWatch(storage.offers, config)
    await watch.wait()
    return watch


def _ready_lines(address: str, parts: RouteParts, sample_text: str | None) -> list[str]:
    """The log lines that follow when the port answers. Programs read the first. *sample_text* None: no model."""
    offer = parts.offers["production"]
    ready = f'ready {address} engine={offer.engine} model={offer.summary} languages="{offer.language_summary}"'
    ready += f" speakers={'yes' if offer.speakers else 'no'} endpointing={','.join(offer.endpointing)}"
    if sample_text is None:
        return [f"{ready} roles={','.join(sorted(parts.config.roles))}"]
    ready += f' heard="{sample_text}"'
    return [ready, pull_hint(offer)] if offer.bundled else [ready]


def _carried(engines: Mapping[str, ServedModels], config: Config, rules: ConnectionRules, descriptors: int) -> str:
    """The log line that says how much this process carries."""
    open_at_once = f"{rules.max_open} connections, {descriptors} open files"
    if "live" not in config.roles:
        return f"carries {open_at_once}"
    most = engines["production"].live.max_sessions
    if most is None:
        return f"carries as many live sessions as the model keeps up with (doctor measures it), {open_at_once}"
    why = "MAX_LIVE_SESSIONS" if config.max_live_sessions else "measured by doctor"
    return f"carries {most} live sessions ({why}), {open_at_once}"


async def _take_over(storage: Storage) -> None:
    """Release the jobs of the previous server, which is dead, since this process holds the folder's lock."""
    if lapsed := await storage.jobs.lapse(SERVER):
        log.warning("leases of a dead server lapsed", extra={"count": lapsed})


async def write_operator_key(storage: Storage, config: Config) -> None:
    """On the first start, make a key without limits for the operator and log its file's name.

    In a cluster only the first node does so, also where several start together. `scribewire keys create` makes
    further keys.
    """
    path = config.data_dir / OPERATOR_KEY
    if path.exists() or (config.clustered and await storage.accounts.accounts()):
        return
    first = Quota(name="operator keys", window="first start", limit=1, amount=1, resets_at=now_ms() + FIRST_START_MS)
    if config.clustered and not (await storage.counters.spend("cluster", first)).allowed:
        return
    _, issued = await open_account(storage.accounts, plan="enterprise", environment="production", name="operator")
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE), "w") as file:
        file.write(issued.secret + "\n")
    log.info("operator key written", extra={"file": str(path)})
