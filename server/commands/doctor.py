"""scribewire doctor: checks this machine and the settings. Its exit status is 1 if something is wrong.

It changes nothing, unless --save notes what it measured for the server.
"""

import argparse
import asyncio
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from pipeline.errors import PipelineError
from pipeline.ingest import seccomp
from pipeline.ingest.container import missing_demuxers
from pipeline.ingest.input_formats import INPUT_FORMATS, DecodeLimits
from pipeline.ingest.isolation import Isolation
from pipeline.recognition.engine import Engine
from pipeline.recognition.engines import models
from pipeline.recognition.engines.load import find_models
from pipeline.recognition.engines.whisper.windows import bundled_speech
from pipeline.speakers.options import INSTALL
from pipeline.weights import INSTALLED, SEGMENTATION, TURN_ENDS
from server.capacity import MAX_BUSY, busy_share, measure, sessions_of_one_core, write
from server.commands.connection import add_settings
from server.commands.models import pull_hint, speaker_summary
from server.commands.opening import node_name, open_storage
from server.commands.serve import SAMPLE, transcribe_sample
from server.config import Config
from server.engines import load_speaker_models, open_engines, settings
from server.logs import configure
from server.model.errors import StorageError
from server.storage.sqlite.open import make_private

MIN_FREE_BYTES = 1 << 30
MIN_MEMORY_BYTES = 1 << 30
PROBE_HOST = "huggingface.co"  # where models come from


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    detail: str
    well: bool = True


def add(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "doctor", help="check this machine and its settings; it changes nothing without --save"
    )
    parser.add_argument(
        "--save", action="store_true", help="note how many live sessions were measured: the server then refuses more"
    )
    parser.add_argument("--force", action="store_true", help="measure, and with --save note, on a busy machine too")
    add_settings(parser, ["data_dir", "model"])
    parser.set_defaults(run=run)


def run(given: argparse.Namespace, config: Config) -> int:
    configure(style=config.log_format, level="error")
    table, all_well = Table("", "check", "finding", "what it means", box=None), True
    checks = {**CHECKS, **(MODEL_CHECKS if config.needs_model else {"engine": _no_model})}
    if config.needs_model:
        checks["windows"] = lambda config: _windows(config, save=given.save)
        checks["live sessions"] = lambda config: _capacity(config, save=given.save, force=given.force)
    for what, check in checks.items():
        try:
            finding = check(config)
        except (PipelineError, StorageError, OSError) as error:
            finding = Finding(str(error), well=False)
        all_well &= finding.well
        table.add_row("[green]ok[/]" if finding.well else "[red]no[/]", what, finding.detail, MEANINGS[what])
    console = Console(highlight=False)
    console.width = max(console.width, 100) if console.is_terminal else 400  # a pipe gets each row on a line
    console.print(table)
    return 0 if all_well else 1


def _machine(_config: Config) -> Finding:
    """Describe the processor and check that the memory suffices for the smallest models."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    detail = f"{cores} processor cores, {memory / 1e9:.1f} GB of memory, {os.uname().sysname} {os.uname().machine}"
    return Finding(detail, well=memory >= MIN_MEMORY_BYTES)


def _data_folder(config: Config) -> Finding:
    """Check that the data folder can be used and has free space, and in a cluster the database and the bucket."""
    if config.clustered:
        storage = open_storage(config, node=node_name(config), check_bucket=True)
        asyncio.run(storage.close())
    folder = config.data_dir.absolute()
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return Finding(f"{there} cannot be written to", well=False)
    free, state = shutil.disk_usage(there).free, "" if there == folder else " (the first start makes it)"
    return Finding(f"{config.data_dir}{state}, {free / 1e9:.1f} GB free", well=free >= MIN_FREE_BYTES)


def _codecs(_config: Config) -> Finding:
    """Check that every documented format has its demuxer and that the decoding process works."""
    missing = missing_demuxers()
    with Isolation() as isolation:
        probe = isolation.probe(SAMPLE, DecodeLimits())
    detail = f"{len(INPUT_FORMATS)} formats" if not missing else f"no demuxer for {', '.join(missing)}"
    return Finding(detail, well=not missing and probe.format == "flac")


def _confinement(_config: Config) -> Finding:
    """Report whether the system calls of decoders are filtered."""
    lack = seccomp.missing_support()
    if lack is None:
        return Finding("system calls are filtered")
    detail = f"system calls are not filtered: {lack}; a file that exploits a decoder could delete data"
    return Finding(detail, well=sys.platform != "linux")


def _network(config: Config) -> Finding:
    """Check that host names can be resolved, which url sources and webhooks need."""
    try:
        socket.getaddrinfo(PROBE_HOST, 443)
    except OSError:
        return Finding(f"{PROBE_HOST} has no address: url and webhook_url cannot reach other hosts")
    allowed = ", ".join(map(str, config.egress_allow_cidrs)) or "the public internet only"
    return Finding(f"names resolve; allowed: {allowed}")


def _proxy(config: Config) -> Finding:
    """Check the proxy settings: X-Forwarded-For has the addresses of clients, and links need the public address."""
    public = config.public_base_url or "loopback"
    if config.public_base_url is not None and not config.trusted_proxies:
        return Finding(f"{public}, but no TRUSTED_PROXIES: if a proxy stands before it, all clients share its address")
    trusted = ", ".join(map(str, config.trusted_proxies)) or "nobody"
    return Finding(f"{public}; X-Forwarded-For is believed from {trusted}")


# --- the model -------------------------------------------------------------------------------------------------------


def _no_model(config: Config) -> Finding:
    """Report why the model is not checked."""
    return Finding(f"not loaded: the roles {', '.join(sorted(config.roles))} leave hearing to other nodes")


def _bundled_models(_config: Config) -> Finding:
    """Check that the bundled models are installed and unchanged."""
    missing = [folder for name, folder in INSTALLED.items() if models.bundled_folder(name) is None]
    here = [name for name in INSTALLED if models.bundled_folder(name) is not None]
    details = [f"{folder.name} is not installed: {folder.install}" for folder in missing]
    damaged = [name for name in here if not models.bundled_is_sound(name)]
    details += [f"{name} is not what was published: {INSTALLED[name].install}" for name in damaged]
    if sound := [name for name in here if name not in damaged]:
        details.insert(0, f"{' and '.join(sound)}, as published")
    return Finding("; ".join(details), well=not damaged and bool(here))


def _speakers(_config: Config) -> Finding:
    """Check that the models for labelling speakers are unchanged. A server works without them."""
    if not SEGMENTATION.installed:
        return Finding(speaker_summary())
    if SEGMENTATION.damaged:
        return Finding(f"{SEGMENTATION.file} is damaged: {INSTALL}", well=False)
    return Finding(f"{speaker_summary()}; the models are as published")


def _turn_ends(_config: Config) -> Finding:
    """Check that the model for the ends of turns is unchanged. A server works without it."""
    if not TURN_ENDS.installed:
        return Finding(f"by silence alone: {TURN_ENDS.install}")
    if TURN_ENDS.damaged:
        return Finding(f"{TURN_ENDS.file} is damaged: {TURN_ENDS.install}", well=False)
    return Finding("by silence or by what was said; the model is as published")


def _engine(config: Config) -> Finding:
    """Load the engine and recognise the bundled sample."""
    with ThreadPoolExecutor(2) as threads, open_engines(config, threads) as (engines, _):
        engine = engines["production"]
        heard, offer = asyncio.run(transcribe_sample(engine, tenant="doctor")), engine.offer
        detail = f'{offer.engine}, model {offer.summary} ({offer.language_summary}), heard "{heard}"'
        return Finding("; ".join([detail, *[pull_hint(offer)] * offer.bundled]), well=bool(heard))


def _windows(config: Config, *, save: bool) -> Finding:
    """Report the shortest windows for each model. With *save*, those that are unknown are measured and noted."""
    found: list[str] = []
    for model in find_models(settings(config)).models:
        sizes = model.sizes
        if model.measure is not None and not save:
            found.append(
                f"{model.name}: not measured yet, so whole windows of 30 s; doctor --save measures, in minutes"
            )
            continue
        if model.measure is not None:
            sizes = model.measure()
        if sizes is None:
            return Finding("not of this engine's kind")
        live = f"at least {sizes.partial_s} s for partials, {sizes.final_s} s for finals"
        found.append(f"{model.name}: {live}; files are cut into jobs of at most {sizes.job_s} s")
    return Finding("\n".join(found))


def _capacity(config: Config, *, save: bool, force: bool) -> Finding:
    """Measure how many live sessions this machine carries. With *save*, store it for the server, which refuses more.

    A busy machine is not measured without *force*: one run under load would leave a server with one session.
    """
    busy = busy_share()
    if busy > MAX_BUSY and not force:
        detail = f"not measured{' and nothing saved' * save}: this machine is busy ({busy:.0%} of its processors). "
        return Finding(f"{detail}End other programs and try again, or use --force", well=not save)
    english = [clip.samples for clip in bundled_speech() if clip.language == "en"]
    speakers, capacities = load_speaker_models(), []
    for make_engine in _engines(config):
        with closing(make_engine()) as engine:
            capacities.append(measure(engine, np.concatenate(english), speakers))
    lines = [
        f"{one.sessions} with {one.model}: a request takes {one.alone_ms:.0f} ms alone, a full call "
        f"{one.shared_ms:.0f} ms; telling speakers apart counts as {one.speakers_load:g} of a session"
        for one in capacities
    ]
    served = f"the server's own core carries about {sessions_of_one_core(np.concatenate(english))}, whatever the model"
    if busy > MAX_BUSY:
        lines.append(f"measured while this machine was busy ({busy:.0%} of its processors)")
    if not save:
        return Finding("\n".join([*lines, served, "not saved; --save notes it for the server"]))
    make_private(config.data_dir)
    path = write(capacities, config.data_dir)
    return Finding("\n".join([*lines, served, f"saved in {path}; the server heeds it from its next start on"]))


def _engines(config: Config) -> Iterator[Callable[[], Engine]]:
    """Yield what loads each model that a server with these settings would use."""
    for model in find_models(settings(config)).models:
        yield model.load


CHECKS: Mapping[str, Callable[[Config], Finding]] = {
    "machine": _machine,
    "data folder": _data_folder,
    "codecs": _codecs,
    "decoders": _confinement,
    "egress": _network,
    "proxy": _proxy,
}
MODEL_CHECKS: Mapping[str, Callable[[Config], Finding]] = {
    "bundled models": _bundled_models,
    "speakers": _speakers,
    "turn ends": _turn_ends,
    "engine": _engine,
}

MEANINGS: Mapping[str, str] = {
    "machine": "what the server may use",
    "data folder": "where jobs, audio and keys are stored",
    "codecs": "which recordings can be read",
    "decoders": "whether a hostile recording can do harm",
    "egress": "which addresses the server may call: url, webhook_url",
    "proxy": "the address in links, and whose word counts about a client's address",
    "engine": "the model that recognises speech, tried on a sample",
    "bundled models": "whether the models that come with it are whole",
    "speakers": "whether speakers can be told apart",
    "turn ends": "what can end a turn of a live session",
    "windows": "how much audio a model takes at a time: less makes live words final sooner",
    "live sessions": "how many people can speak at the same time without delay",
}
"""What each line of the table says."""
