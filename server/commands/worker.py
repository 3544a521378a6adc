"""scribewire worker: works on the jobs of a data folder or cluster, in addition to the server."""

import argparse
import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pipeline.ingest.seccomp import close_memory
from server.accounts.limits import Limits, read_limits
from server.commands.opening import node_name, open_storage
from server.config import PREFIX, Config, ConfigError
from server.engines import open_engines, publish_offer, unload_idle
from server.jobs.housekeeping import Housekeeping
from server.jobs.probing import Prober
from server.logs import configure, log
from server.metrics import Metrics
from server.worker_process import build_workers, chores_of, limit_decoders, open_egress, stop_signals


def add(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("worker", help="work on a server's jobs in another process")
    parser.set_defaults(run=run)


def run(_given: argparse.Namespace, config: Config) -> int:
    configure(style=config.log_format, level=config.log_level)
    close_memory()
    if config.workers == 0:
        raise ConfigError(f"{PREFIX}WORKERS must be at least 1 for a worker, got 0")
    asyncio.run(_work(config, read_limits(config)))
    return 0


async def _work(config: Config, limits: Limits) -> None:
    node = node_name(config)
    storage = open_storage(config, node=node, check_bucket=True)
    egress = open_egress(config)
    try:
        with (
            ThreadPoolExecutor(config.workers * 2 + 2, thread_name_prefix="ingest") as threads,
            open_engines(config, threads) as (engines, isolation),
        ):
            metrics, closing = Metrics(), asyncio.Event()
            limit_decoders(isolation, config, metrics)
            await publish_offer(engines, storage)
            workers = build_workers(
                f"worker {node}:{os.getpid()}",
                config,
                limits=limits,
                storage=storage,
                engines=engines,
                egress=egress,
                prober=Prober(isolation, storage.blobs, storage.rates),
                metrics=metrics,
                closing=closing,
            )
            housekeeping = Housekeeping(chores_of(config, storage, metrics), metrics, closing)
            with stop_signals(closing.set):
                log.info("working", extra={"data_dir": str(config.data_dir)})
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(workers.run(), name="workers")
                    tasks.create_task(housekeeping.run(), name="housekeeping")
                    models = engines["production"].live.models
                    tasks.create_task(unload_idle(models, config.model_idle_s, closing), name="idle models")
    finally:
        await egress.close()
        await storage.close()
