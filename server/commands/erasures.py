"""scribewire erasures: prints the record of erasures, with the time and the reason of each."""

import argparse
from typing import Any

from server.commands.keys import run
from server.config import Config
from server.model.instants import iso
from server.storage.ports import Storage


def add(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "erasures", help="print as JSON which jobs were erased, when and why, the newest first"
    )
    parser.add_argument("--job", metavar="JOB_ID", help="of this job alone")
    parser.add_argument("--limit", type=int, default=1000, help="at most so many lines (default: 1000)")
    parser.set_defaults(run=run, act=_list)


async def _list(storage: Storage, given: argparse.Namespace, _config: Config) -> Any:
    return [
        {"job_id": line.job_id, "at": iso(line.at), "what": line.what.value, "why": line.why.value}
        for line in await storage.upkeep.erasures(job_id=given.job, limit=max(0, given.limit))
    ]
