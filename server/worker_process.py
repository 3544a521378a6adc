"""Makes the parts that the server's process and `scribewire worker` share: workers, chores, egress."""

import asyncio
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

from pipeline.batch import Batch
from pipeline.ingest.isolation import Isolation
from pipeline.ingest.memory import usable_bytes
from server.accounts.limits import Limits, Plans
from server.clock import now_ms
from server.config import Config
from server.egress.fetch import Fetcher
from server.egress.guard import Egress
from server.engines import ServedModels
from server.jobs import housekeeping
from server.jobs.attempts import WorkerTools
from server.jobs.finishing import Finisher
from server.jobs.housekeeping import Chore, Eraser, JobChores, Sweeper
from server.jobs.leases import WorkerRules
from server.jobs.probing import Prober
from server.jobs.workers import Workers
from server.live.session_registry import SessionRegistry
from server.metrics import Metrics
from server.storage.sql.storage import Storage

MIN_DECODER_MEMORY_BYTES = 512 << 20  # of all decoders together: enough for four on the smallest machine
SERVER = "server "  # the beginning of the names of workers in a server's process


def build_workers(
    name: str,
    config: Config,
    *,
    limits: Limits,
    storage: Storage,
    engines: Mapping[str, ServedModels],
    egress: Egress,
    prober: Prober,
    metrics: Metrics,
    closing: asyncio.Event,
) -> Workers:
    """Make the workers of this process, which is called *name* in leases."""
    tools = WorkerTools(
        storage=storage,
        fetcher=Fetcher(egress, storage.blobs),
        prober=prober,
        finisher=Finisher(storage, metrics, closing),
        rules=WorkerRules(),
        translations={environment: engine.translation for environment, engine in engines.items()},
    )
    return Workers(
        name=name,
        tools=tools,
        batches=batches_of(engines),
        plans=Plans(storage.accounts, limits),
        metrics=metrics,
        count=config.workers if "worker" in config.roles else 0,
        closing=closing,
    )


def chores_of(
    config: Config,
    storage: Storage,
    metrics: Metrics,
    eraser: Eraser | None = None,
    session_registry: SessionRegistry | None = None,
) -> list[Chore]:
    """All chores of a process. `scribewire worker` has no *eraser* and no *session_registry*."""
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
        rules = session_registry.rules
        chores += [
            Chore("finishing forgotten live sessions", rules.stale_s, session_registry.finish_stale),
            Chore("stopping canceled live sessions", rules.look_s, session_registry.stop_canceled),
        ]
    return chores


def limit_decoders(isolation: Isolation, config: Config, metrics: Metrics) -> None:
    """Limit the total memory of this process's decoders to what the settings or the machine allow."""
    isolation.memory.limit(config.decoder_memory_mib << 20 or max(usable_bytes() // 2, MIN_DECODER_MEMORY_BYTES))
    metrics.decoder_memory.set_function(lambda: isolation.memory.used_bytes)


def batches_of(engines: Mapping[str, ServedModels]) -> Mapping[str, Batch]:
    """The engines' parts for files, by environment."""
    return {environment: engine.batch for environment, engine in engines.items()}


def open_egress(config: Config) -> Egress:
    return Egress(allowed=config.egress_allow_cidrs, allow_http=config.allow_http_sources)


@contextmanager
def stop_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call *stop* in the running event loop at each SIGTERM and SIGINT while the block lasts. Main thread only.

    loop.add_signal_handler() is not used: it gets signals through the pipe that also wakes the loop for other threads.
    While the loop is busy, such wake-ups can fill the pipe, and then a signal is lost.
    """
    loop = asyncio.get_running_loop()

    def handle(_number: int, _frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(stop)

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
