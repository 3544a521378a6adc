"""scribewire doctor: checks this machine and the settings, and reports what is missing. Then its exit status is 1."""

import argparse
import asyncio
import os
import shutil
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from pipeline.batch import BatchOptions
from pipeline.errors import PipelineError
from pipeline.ingest import seccomp
from pipeline.ingest.containers import INPUT_FORMATS, DecodeLimits
from pipeline.ingest.decode import missing_demuxers
from pipeline.ingest.isolation import Isolation
from pipeline.recognition import turn_end
from pipeline.recognition.engines import models
from pipeline.recognition.engines.fitting import bundled_speech
from pipeline.recognition.engines.load import choose, load
from pipeline.speakers import weights
from pipeline.speakers.options import INSTALL
from pipeline.words import join_words
from server.capacity import measure, write
from server.commands.models import pull_hint
from server.commands.opening import node_name, open_storage
from server.commands.serve import SAMPLE
from server.config import Config
from server.engines import load_speaker_models, open_engines, settings
from server.logs import configure
from server.model.errors import StorageError
from server.storage.sqlite.folder import make_private

MIN_FREE_BYTES = 1 << 30
MIN_MEMORY_BYTES = 1 << 30
PROBE_HOST = "huggingface.co"  # where models come from


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
    findings = [check(config) for check in (*CHECKS, *(MODEL_CHECKS if config.hears else [_no_model]))]
    table = Table("", "check", "finding", box=None)
    for finding in findings:
        table.add_row("[green]ok[/]" if finding.well else "[red]no[/]", finding.what, finding.detail)
    Console().print(table)
    return 0 if all(finding.well for finding in findings) else 1


def _engine(config: Config) -> Finding:
    """Load the engine and recognise the bundled sample."""
    try:
        with ThreadPoolExecutor(2) as threads, open_engines(config, threads) as (engines, _):
            engine = engines["production"]
            heard, offer = asyncio.run(_transcribe_sample(engine.batch)), engine.offer
            said = [warning["message"] for warning in offer.warnings] + [pull_hint()] * offer.bundled
            detail = f'{offer.engine}, model {offer.model} ({offer.hears}), heard "{heard}"'
            return Finding("engine", well=bool(heard), detail="; ".join([detail, *said]))
    except PipelineError as error:
        return Finding("engine", well=False, detail=str(error))


def _check_bundled_model(_config: Config) -> Finding:
    """Check that the bundled model is installed and unchanged."""
    try:
        sound = models.bundled_is_sound()
    except PipelineError as error:
        return Finding("bundled model", well=False, detail=str(error))
    verdict = "as published" if sound else "not what was published: install it again with scripts/setup model"
    return Finding("bundled model", well=sound, detail=f"{models.BUNDLED}, {verdict}")


def _speakers(_config: Config) -> Finding:
    """Check that the models for labelling speakers are unchanged. A server works without them."""
    if not weights.installed():
        return Finding("speakers", well=True, detail=f"not told apart by their voices: {INSTALL}")
    if broken := weights.damaged_files():
        return Finding("speakers", well=False, detail=f"{', '.join(broken)} is damaged: {INSTALL}")
    return Finding("speakers", well=True, detail="told apart by their voices; the models are as published")


def _turn_ends(_config: Config) -> Finding:
    """Check that the model that knows the end of a turn is unchanged. A server works without it."""
    if not turn_end.WEIGHTS.installed:
        return Finding("turn ends", well=True, detail=f"by silence alone: {turn_end.INSTALL}")
    if turn_end.WEIGHTS.damaged:
        return Finding("turn ends", well=False, detail=f"{turn_end.WEIGHTS.file} is damaged: {turn_end.INSTALL}")
    return Finding("turn ends", well=True, detail="by silence or by what was said; the model is as published")


async def _transcribe_sample(batch: Any) -> str:
    chunks = [chunk async for chunk in batch.transcribe(SAMPLE, BatchOptions(tenant="doctor"))]
    return join_words(word for chunk in chunks for segment in chunk.segments for word in segment.words)


def _capacity(config: Config) -> Finding:
    """Measure how many live sessions this machine carries and write it down for the server, which refuses more."""
    try:
        with closing(load(settings(config))) as engine:
            english = [clip.samples for clip in bundled_speech() if clip.language == "en"]
            capacity = measure(engine, np.concatenate(english), load_speaker_models())
        make_private(config.data_dir)
        path = write(capacity, config.data_dir)
    except (PipelineError, OSError) as error:
        return Finding("live sessions", well=False, detail=str(error))
    detail = (
        f"{capacity.sessions}: a request takes {capacity.alone_ms:.0f} ms alone, a full call {capacity.shared_ms:.0f} "
        f"ms; telling speakers apart counts as {capacity.speakers_load:g} of a session; noted in {path}"
    )
    return Finding("live sessions", well=True, detail=detail)


def _windows(config: Config) -> Finding:
    """Report the shortest windows for this model, and measure them here if they are unknown."""
    try:
        loaded = choose(settings(config))
        with closing(loaded.engine):
            if loaded.unmeasured is not None:
                loaded.unmeasured.run()
            sizes = getattr(loaded.engine, "sizes", None)
    except PipelineError as error:
        return Finding("windows", well=False, detail=str(error))
    if sizes is None:
        return Finding("windows", well=True, detail="not of this engine's kind")
    live = f"at least {sizes.partial_s} s for partials, {sizes.final_s} s for finals"
    return Finding("windows", well=True, detail=f"{live}; files are cut into jobs of at most {sizes.job_s} s")


def _no_model(config: Config) -> Finding:
    """Say why nothing is checked of the model."""
    roles = ", ".join(sorted(config.roles))
    return Finding("engine", well=True, detail=f"not loaded: the roles {roles} leave hearing to other nodes")


def _network(config: Config) -> Finding:
    """Check that internet names can be looked up, which url sources and webhooks need."""
    try:
        socket.getaddrinfo(PROBE_HOST, 443)
    except OSError:
        return Finding(
            "egress", well=True, detail=f"{PROBE_HOST} has no address: url and webhook_url cannot reach other hosts"
        )
    allowed = ", ".join(map(str, config.egress_allow_cidrs)) or "the public internet only"
    return Finding("egress", well=True, detail=f"names resolve; allowed: {allowed}")


def _proxy(config: Config) -> Finding:
    """Check the proxy settings: X-Forwarded-For has the addresses of clients, and links need the public address."""
    public = config.public_base_url or "loopback"
    if config.public_base_url is not None and not config.trusted_proxies:
        detail = f"{public}, but no TRUSTED_PROXIES: if a proxy stands before it, all clients share its address"
        return Finding("proxy", well=True, detail=detail)
    trusted = ", ".join(map(str, config.trusted_proxies)) or "nobody"
    return Finding("proxy", well=True, detail=f"{public}; X-Forwarded-For is believed from {trusted}")


def _codecs(_config: Config) -> Finding:
    """Check that every documented format has its demuxer and that the decoding process works."""
    missing = missing_demuxers()
    isolation = Isolation()
    try:
        probe = isolation.probe(SAMPLE, DecodeLimits())
    except PipelineError as error:
        return Finding("codecs", well=False, detail=str(error))
    finally:
        isolation.close()
    detail = f"{len(INPUT_FORMATS)} formats" if not missing else f"no demuxer for {', '.join(missing)}"
    return Finding("codecs", well=not missing and probe.format == "flac", detail=detail)


def _confinement(_config: Config) -> Finding:
    """Report whether decoders give up the system calls that they do not need."""
    lack = seccomp.missing_support()
    if lack is None:
        return Finding("decoders", well=True, detail="system calls are filtered")
    detail = f"system calls are not filtered: {lack}; a file that exploits a decoder could delete data"
    return Finding("decoders", well=sys.platform != "linux", detail=detail)


def _data_folder(config: Config) -> Finding:
    """Check that the data folder can be used and has room; of a cluster also database and bucket."""
    try:
        storage = open_storage(config, node=node_name(config), check_bucket=True)
        asyncio.run(storage.close())
    except (StorageError, OSError) as error:
        return Finding("data folder", well=False, detail=str(error))
    free = shutil.disk_usage(config.data_dir).free
    return Finding("data folder", well=free >= MIN_FREE_BYTES, detail=f"{config.data_dir}, {free / 1e9:.1f} GB free")


def _machine(_config: Config) -> Finding:
    """Describe the processor and check that the memory suffices for the smallest models."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    detail = f"{cores} processor cores, {memory / 1e9:.1f} GB of memory, {os.uname().sysname} {os.uname().machine}"
    return Finding("machine", well=memory >= MIN_MEMORY_BYTES, detail=detail)


CHECKS: tuple[Callable[[Config], Finding], ...] = (
    _machine,
    _data_folder,
    _codecs,
    _confinement,
    _network,
    _proxy,
)
MODEL_CHECKS: tuple[Callable[[Config], Finding], ...] = (
    _check_bundled_model,
    _speakers,
    _turn_ends,
    _engine,
    _windows,
    _capacity,
)
