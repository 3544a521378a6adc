"""scribewire correct: gives an edited subtitle file, text or JSON of a job back to the server."""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any

from server.client import DOCUMENT_TYPES, Client, ServiceError
from server.commands.connection import add_arguments, connection, reaching
from server.config import Config, ConfigError

SHOWN = 20


def add(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("correct", help="correct a transcript by an edited document")
    parser.add_argument("job_id", metavar="JOB")
    parser.add_argument("document", type=Path, metavar="FILE", help=f"edited: {', '.join(DOCUMENT_TYPES)}")
    parser.add_argument("--force", action="store_true", help="take what can be aligned, leave the rest as it was")
    add_arguments(parser, meaning="address of the server (default: the one of this machine)")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace, config: Config) -> int:
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
