"""scribewire jobs: lists, shows, cancels, deletes and downloads jobs. scribewire correct: gives an edited file back."""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table

from server.client import DOCUMENT_TYPES, Client, ServiceError
from server.commands.connection import add_arguments, connection, reaching
from server.commands.recordings import check_writable, write_whole
from server.commands.request_options import comma_list
from server.commands.transcribe import extension
from server.config import Config, ConfigError, FileProblem
from server.model.jobs import State

LISTED = 20
AUDIO = "audio"  # the output with the recording of a live session
SHOWN = 20


def add(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("jobs", help="list, show, cancel, delete or download jobs")
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    def action(name: str, act: Callable[..., Awaitable[None]], meaning: str, *, of_jobs: bool) -> Any:
        one = actions.add_parser(name, help=meaning)
        if of_jobs:
            one.add_argument("job_ids", nargs="+", metavar="JOB")
        add_arguments(one, meaning="address of the server (default: the one of this machine)")
        one.set_defaults(run=run, act=act)
        return one

    listing = action("list", _list, "the newest jobs", of_jobs=False)
    listing.add_argument("--status", help=f"only these: comma list of {', '.join(State)}")
    listing.add_argument("--limit", type=int, default=LISTED, metavar="N", help=f"at most so many (default: {LISTED})")
    listing.add_argument("--json", action="store_true", help="print JSON, a record a line")
    action("show", _show, "print the records of jobs as JSON", of_jobs=True)
    action("cancel", _cancel, "end jobs that are queued or at work", of_jobs=True)
    deleting = action("delete", _delete, "delete jobs with all that belongs to them", of_jobs=True)
    deleting.add_argument("--force", action="store_true", help="also jobs that are at work")
    downloading = action("download", _download, "write the outputs of jobs into files", of_jobs=True)
    downloading.add_argument("--formats", help="comma-separated list (default: all that were made)")
    downloading.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="the folder (default: this one)")
    downloading.add_argument("--force", action="store_true", help="overwrite files")
    _add_correct(commands)


def _add_correct(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("correct", help="correct a transcript by an edited document")
    parser.add_argument("job_id", metavar="JOB")
    parser.add_argument("document", type=Path, metavar="FILE", help=f"edited: {', '.join(DOCUMENT_TYPES)}")
    parser.add_argument("--force", action="store_true", help="take what can be aligned, leave the rest as it was")
    add_arguments(parser, meaning="address of the server (default: the one of this machine)")
    parser.set_defaults(run=_correct)


def run(given: argparse.Namespace, config: Config) -> int:
    reached = connection(given, config)

    async def act() -> None:
        async with Client(reached.address, reached.key) as client:
            await given.act(client, given)

    with reaching(reached.address):
        asyncio.run(act())
    return 0


async def _list(client: Client, given: argparse.Namespace) -> None:
    query: dict[str, Any] = {"limit": max(1, min(given.limit, 100))}
    if given.status is not None:
        query["status"] = ",".join(comma_list(given.status, [*State], "--status"))
    records: list[dict[str, Any]] = []
    async for record in client.jobs(**query):
        if len(records) >= given.limit:
            break
        records.append(record)
    if given.json:
        sys.stdout.buffer.write(b"".join(orjson.dumps(record) + b"\n" for record in records))
        return
    table = Table("job", "status", "created", "seconds", "language", "recording", box=None)
    for one in records:
        length = "" if one["duration"] is None else f"{one['duration']:.0f}"
        created = one["created_at"].partition(".")[0].replace("T", " ")
        named = one["source"].get("filename") or one["source"]["type"]
        table.add_row(one["job_id"], one["status"], created, length, one["language"] or "", named)
    console = Console(highlight=False)
    console.width = max(console.width, 120)  # a number that is cut off cannot be copied
    console.print(table if records else "No jobs.")


async def _show(client: Client, given: argparse.Namespace) -> None:
    for job_id in given.job_ids:
        sys.stdout.buffer.write(orjson.dumps(await client.job(job_id), option=orjson.OPT_INDENT_2) + b"\n")


async def _cancel(client: Client, given: argparse.Namespace) -> None:
    for job_id in given.job_ids:
        record = await client.cancel(job_id)
        print(f"{job_id}: {'canceled' if record['status'] == 'canceled' else 'will end at its next chunk'}")


async def _delete(client: Client, given: argparse.Namespace) -> None:
    for job_id in given.job_ids:
        await client.delete(job_id, force=given.force)
        print(f"{job_id}: deleted")


async def _download(client: Client, given: argparse.Namespace) -> None:
    check_writable(given.out, "--out")
    wanted = None if given.formats is None else list(filter(None, map(str.strip, given.formats.split(","))))
    for job_id in given.job_ids:
        record = await client.complete(job_id)
        stem = Path(record["source"].get("filename") or job_id).stem
        for name in wanted or record["formats"]:
            if name not in record["formats"]:
                raise FileProblem(job_id, f"it has no {name}, only {', '.join(record['formats'])}")
            ending = "flac" if name == AUDIO else extension(name)
            target = given.out / f"{stem}.{ending}"
            if target.exists() and not given.force:
                target = given.out / f"{stem}-{job_id}.{ending}"
            write_whole(target, await client.output(record, name))
            print(f"{job_id}: wrote {target}")


def _correct(given: argparse.Namespace, config: Config) -> int:
    reached = connection(given, config)
    try:
        document = given.document.read_bytes()
    except OSError as error:
        raise ConfigError(f"{given.document} cannot be read: {error.strerror}") from None
    if given.document.suffix.lower() not in DOCUMENT_TYPES:
        raise ConfigError(f"{given.document} must be one of {', '.join(DOCUMENT_TYPES)}")

    async def correct() -> dict[str, Any]:
        async with Client(reached.address, reached.key) as client:
            return await client.correct(given.job_id, document, given.document.suffix, force=given.force)

    with reaching(reached.address):
        try:
            made = asyncio.run(correct())
        except ServiceError as error:
            if error.code != "not_aligned":
                raise
            for part in error.parts[:SHOWN]:
                print(part, file=sys.stderr)
            print("Nothing was changed. With --force the rest is taken.", file=sys.stderr)
            return 1
    changes = len(made["changes"])
    print(f"Revision {made['revision']}: {changes} {'change' if changes == 1 else 'changes'}.")
    return 0
