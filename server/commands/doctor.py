"""scribewire doctor: is this machine ready, and if not, what is missing. Exit status 1 when something is."""

import argparse
import asyncio
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from pipeline.batch import BatchOptions
from pipeline.errors import PipelineError
from pipeline.ingest.containers import FORMATS, DecodeLimits
from pipeline.ingest.decode import missing_demuxers
from pipeline.ingest.isolation import Isolation
from pipeline.words import written
from server.benches import open_benches
from server.clock import now_ms
from server.commands.serve import SAMPLE
from server.config import Config
from server.logs import configure
from server.storage.interfaces import StorageError
from server.storage.open import open_storage

LEAST_FREE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Finding:
    what: str
    well: bool
    detail: str


def add(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("doctor", help="check this machine and its settings")
    parser.set_defaults(run=run)


def run(_given: argparse.Namespace, config: Config) -> int:
    configure(style=config.log_format, level="error")
    findings = [check(config) for check in CHECKS]
    table = Table("", "check", "finding", box=None)
    for finding in findings:
        table.add_row("[green]ok[/]" if finding.well else "[red]no[/]", finding.what, finding.detail)
    Console().print(table)
    return 0 if all(finding.well for finding in findings) else 1


def _engine(config: Config) -> Finding:
    """The engine loads and hears the bundled sample."""
    try:
        with ThreadPoolExecutor(2) as threads, open_benches(config, threads) as (benches, _):
            bench = benches["production"]
            heard = asyncio.run(_heard(bench.batch))
            said = "; ".join(warning["message"] for warning in bench.offer.warnings)
            name = f"{bench.batch.engine_name}, model {bench.batch.model_name}"
            return Finding("engine", well=bool(heard), detail=f'{name}, heard "{heard}"{said and f" ({said})"}')
    except PipelineError as error:
        return Finding("engine", well=False, detail=str(error))


async def _heard(batch: Any) -> str:
    chunks = [chunk async for chunk in batch.transcribe(SAMPLE, BatchOptions(tenant="doctor"))]
    return written(word for chunk in chunks for segment in chunk.segments for word in segment.words)


def _codecs(_config: Config) -> Finding:
    """Every documented format has its demuxer, and a file can be decoded in isolation."""
    missing = missing_demuxers()
    isolation = Isolation()
    try:
        probe = isolation.probe(SAMPLE, DecodeLimits())
    except PipelineError as error:
        return Finding("codecs", well=False, detail=str(error))
    finally:
        isolation.close()
    detail = f"{len(FORMATS)} formats" if not missing else f"no demuxer for {', '.join(missing)}"
    return Finding("codecs", well=not missing and probe.format == "flac", detail=detail)


def _data_folder(config: Config) -> Finding:
    """The data folder can be used and has room."""
    try:
        storage = open_storage(config.data_dir, clock=now_ms)
        asyncio.run(storage.close())
    except (StorageError, OSError) as error:
        return Finding("data folder", well=False, detail=str(error))
    free = shutil.disk_usage(config.data_dir).free
    return Finding("data folder", well=free >= LEAST_FREE_BYTES, detail=f"{config.data_dir}, {free / 1e9:.1f} GB free")


def _machine(_config: Config) -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Finding("machine", well=True, detail=f"{cores} processor cores, {os.uname().sysname} {os.uname().machine}")


CHECKS: tuple[Callable[[Config], Finding], ...] = (_machine, _data_folder, _codecs, _engine)
