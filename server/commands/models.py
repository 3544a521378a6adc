"""scribewire models: lists the Whisper models and marks the one in use; `models pull` downloads one."""

import argparse
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from pipeline.errors import ModelUnavailable
from pipeline.recognition.engine import SCRIPTED
from pipeline.recognition.engines import models
from pipeline.recognition.engines.models import ReportProgress
from pipeline.recognition.engines.whisper.loading import choose_names
from pipeline.recognition.model_set import AUTO
from pipeline.speakers.options import INSTALL
from pipeline.weights import PUBLISHED, SEGMENTATION
from server.config import PREFIX, Config
from server.engines import settings
from server.logs import configure
from server.model.offers import ENGLISH, PULL, PULL_BIGGER, Offer

GIGABYTE = 1000  # megabytes
WIDE = 110
"""The columns of the list, also on a narrower terminal: a name that is cut off cannot be typed."""

PLAIN_EVERY_S = 5.0
"""The seconds between two lines of progress if the output is no terminal."""


def add(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("models", help="list Whisper models, or download one")
    parser.set_defaults(run=show)
    ways = parser.add_subparsers(metavar="")
    ways.add_parser("list", help="what there is, what is on this machine, what is used (default)").set_defaults(
        run=show
    )
    pulling = ways.add_parser("pull", help="download a model, which the server uses from its next start on")
    pulling.add_argument("name", metavar="NAME", help="a name of the list, or owner/name of Hugging Face")
    pulling.set_defaults(run=pull)


def show(_given: argparse.Namespace, config: Config) -> int:
    """Print the list, and mark the models that a server with these settings would use."""
    configure(style=config.log_format, level="error")
    used, verdict = _used(config)
    names = dict.fromkeys((*PUBLISHED, *models.pulled_models(None), *used))
    table = Table("", "model", "download", "languages", "", "hears", box=None)
    for name in names:
        table.add_row("*" if name in used else "", name, *_facts(name), _place(name), used.get(name, ""))
    Console(width=max(Console().width, WIDE)).print(table)
    print(verdict)
    print(f"`{command('models pull NAME')}` downloads another one and lets it hear first.")
    print(f"Speakers are {speaker_summary()}.")
    return 0


def pull(given: argparse.Namespace, config: Config) -> int:
    configure(style=config.log_format, level="error")
    with _progress(given.name) as (report_progress, every_s):
        model = models.pull(given.name, cache_dir=None, report_progress=report_progress, every_s=every_s)
    print(f"{given.name} is bundled." if model.bundled else f"{given.name} is in {model.folder}.")
    if config.engine == SCRIPTED:
        print(f"{PREFIX}ENGINE=scripted is set, so the server uses no model.")
    elif config.whisper_model not in (AUTO, given.name):
        print(f"{PREFIX}WHISPER_MODEL={config.whisper_model} is set, so the server goes on with that one.")
    else:
        print("The server uses it from its next start on.")
    return 0


def command(words: str) -> str:
    """The command line `scribewire` *words*, with the program's path if the shell would not find it."""
    program = Path(sys.executable).parent / "scribewire"
    if shutil.which("scribewire") or not program.exists():
        return f"scribewire {words}"
    here = Path.cwd()
    return f"{program.relative_to(here) if program.is_relative_to(here) else program} {words}"


def speaker_summary() -> str:
    """Whether speaker labels are available, and how to get them if not."""
    return "told apart by their voices" if SEGMENTATION.installed else f"not told apart by their voices: {INSTALL}"


def pull_hint(offer: Offer) -> str:
    """The advice for users of the models that come with the installation."""
    here = " and ".join(model.name for model in offer.choices)
    if offer.languages == ENGLISH:
        return f"{here} came with the installation: `{command(PULL)}` brings a model with fewer errors and 99 languages"
    return f"{here} came with the installation: `{command(PULL_BIGGER)}` brings a model with fewer errors"


def _used(config: Config) -> tuple[Mapping[str, str], str]:
    """The models that a server with these settings uses, each with what it hears, and a sentence about them."""
    if config.engine == SCRIPTED:
        return {}, f"The server uses none of them, because {PREFIX}ENGINE=scripted is set."
    try:
        choice, _ = choose_names(settings(config))
        away = [name for name in choice.names if not _place(name)]
    except ModelUnavailable as unavailable:
        return {}, f"The server cannot use any: {unavailable}"
    used = dict.fromkeys(choice.names, "if it is named")
    used[choice.names[0]] = "all others" if choice.routes else "all"
    for name in choice.routes.values():
        used[name] = ", ".join(sorted(code for code, model in choice.routes.items() if model == name))
    then = f" {', '.join(away)} will be downloaded when the server starts." if away else ""
    return used, f"* is used by the server ({PREFIX}WHISPER_MODEL={config.whisper_model}).{then}"


def _facts(name: str) -> tuple[str, str]:
    """The size of the download and the languages, as text; empty if they are unknown."""
    known = PUBLISHED.get(name)
    if known is None:
        return "", ""
    size = f"{known.megabytes} MB" if known.megabytes < GIGABYTE else f"{known.megabytes / GIGABYTE:.1f} GB"
    return size, "English" if known.languages == 1 else str(known.languages)


def _place(name: str) -> str:
    """Where the model is, as text; empty if it is not on this machine."""
    if name not in PUBLISHED and Path(name).expanduser().is_dir():
        return "a folder"
    found = models.at_hand(name, None)
    if found is None:
        return ""
    return "bundled" if found.bundled else "on this machine"


@contextmanager
def _progress(name: str) -> Iterator[tuple[ReportProgress, float]]:
    """A function that shows the progress of a download (a bar on a terminal, else lines), and how often to call it."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield (
            lambda here, total: print(f"downloading {name}: {here / 1e6:.0f} of {total / 1e6:.0f} MB", flush=True),
            PLAIN_EVERY_S,
        )
        return
    columns = (TextColumn(f"downloading {name}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda here, total: progress.update(task, completed=here, total=total), 0.2
