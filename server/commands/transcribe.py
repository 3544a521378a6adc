"""scribewire transcribe: a file's words without a server, in this process."""

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from pipeline.audio import seconds
from pipeline.batch import BatchOptions
from pipeline.documents.assemble import assemble
from pipeline.documents.formats import FORMATS, Heading
from pipeline.ingest.containers import DecodeLimits
from pipeline.words import Chunk, Transcript
from server.benches import open_benches
from server.clock import iso, now_ms
from server.config import Config, ConfigError
from server.ids import CHANCE_BYTES, Prefix, new_id
from server.logs import configure


def add(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("transcribe", help="transcribe one file")
    parser.add_argument("file", metavar="FILE", help="an audio or video file, or - for standard input")
    parser.add_argument("--formats", default="txt", help="comma list of json, srt, vtt, txt (default: txt)")
    parser.add_argument("--words", action="store_true", help="list every word with its times in the JSON")
    parser.add_argument("--language", help="what is spoken, such as en; left out, it is heard")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write FILE.json, FILE.srt, ... into this folder")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace, config: Config) -> int:
    configure(style=config.log_format, level="warning" if config.log_level == "info" else config.log_level)
    formats = _formats(given.formats)
    if len(formats) > 1 and given.out is None:
        raise ConfigError("--out must be given with several --formats, got none")
    with _audio(given.file) as path:
        transcript = asyncio.run(_transcribed(path, given, config))
    heading = Heading(
        job_id=new_id(Prefix.JOB, ms=now_ms(), chance=bytes(CHANCE_BYTES)), created_at=iso(now_ms()), words=given.words
    )
    for name in formats:
        data = FORMATS[name].render(transcript, heading)
        if given.out is None:
            sys.stdout.buffer.write(data)
            continue
        given.out.mkdir(parents=True, exist_ok=True)
        target = given.out / f"{'stdin' if given.file == '-' else Path(given.file).stem}.{FORMATS[name].extension}"
        target.write_bytes(data)
        print(target)
    return 0


def _formats(text: str) -> list[str]:
    names = list(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
    if not names or any(name not in FORMATS for name in names):
        raise ConfigError(f"--formats must be a comma list of {', '.join(FORMATS)}, got {text!r}")
    return names


@contextmanager
def _audio(name: str) -> Iterator[Path]:
    """The file to read; what comes by standard input is kept for as long as the block lasts."""
    if name != "-":
        if not Path(name).is_file():
            raise ConfigError(f"FILE must be an existing file, got {name!r}")
        yield Path(name)
        return
    with tempfile.NamedTemporaryFile() as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        file.flush()
        yield Path(file.name)


async def _transcribed(path: Path, given: argparse.Namespace, config: Config) -> Transcript:
    with ThreadPoolExecutor(4) as threads, open_benches(config, threads) as (benches, isolation):
        bench = benches["production"]
        if given.language is not None and given.language not in bench.offer.languages:
            raise ConfigError(f"--language must be one that the model knows, got {given.language!r}")
        probe = await asyncio.to_thread(isolation.probe, path, DecodeLimits())
        chunks: list[Chunk] = []
        with _progress(probe.duration_s) as show:
            options = BatchOptions(tenant="command line", language=given.language)
            async for chunk in bench.batch.transcribe(path, options):
                chunks.append(chunk)
                show(seconds(chunk.end))
    for note in dict.fromkeys(note for chunk in chunks for note in chunk.notes):
        print(f"scribewire: note: {note}", file=sys.stderr)
    return assemble(chunks, duration=chunks[-1].end, engine=bench.batch.engine_name, model=bench.batch.model_name)


@contextmanager
def _progress(total_s: float | None) -> Iterator[Any]:
    """A bar on a terminal, nothing elsewhere; call what it gives with the seconds that are done."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.completed:.0f} s of audio"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=total_s)
        yield lambda done_s: progress.update(task, completed=done_s)
