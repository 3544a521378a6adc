"""scribewire worker: one more process that works on the jobs of a data folder, beside the server that answers HTTP."""

import argparse
import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from server.accounts.limits import Limits
from server.accounts.limits_file import read_limits
from server.accounts.plans import Plans
from server.clock import now_ms
from server.config import PREFIX, Config, ConfigError
from server.egress.fetch import Fetcher
from server.egress.guard import Egress
from server.engines import open_engines
from server.jobs.probing import Prober
from server.jobs.running import WorkerRules
from server.jobs.worker import Workers
from server.logs import configure, log
from server.metrics import Metrics
from server.storage.sqlite.open import open_storage


def add(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("worker", help="work on a server's jobs in another process")
    parser.set_defaults(run=run)


def run(_given: argparse.Namespace, config: Config) -> int:
    configure(style=config.log_format, level=config.log_level)
    if config.workers == 0:
        raise ConfigError(f"{PREFIX}WORKERS must be at least 1 for a worker, got 0")
    asyncio.run(_work(config, read_limits(config)))
    return 0


async def _work(config: Config, limits: Limits) -> None:
    storage = open_storage(config.data_dir, clock=now_ms)
    egress = Egress(allowed=config.egress_allow_cidrs, allow_http=config.allow_http_sources)
    try:
        with (
            ThreadPoolExecutor(config.workers * 2 + 2, thread_name_prefix="ingest") as threads,
            open_engines(config, threads) as (benches, isolation),
        ):
            workers = Workers(
                name=f"worker {os.uname().nodename}:{os.getpid()}",
                jobs=storage.jobs,
                blobs=storage.blobs,
                batches={name: bench.batch for name, bench in benches.items()},
                plans=Plans(storage.accounts, limits),
                fetcher=Fetcher(egress, storage.blobs),
                prober=Prober(isolation, storage.blobs),
                metrics=Metrics(),
                rules=WorkerRules(),
                count=config.workers,
            )
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, workers.stop)
            log.info("working", extra={"data_dir": str(config.data_dir)})
            await workers.run()
    finally:
        await egress.close()
        await storage.close()
