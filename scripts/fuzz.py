"""Whatever strangers might send, to a real server and to its parsers: python -m scripts.fuzz [--seconds N] [--seed N]

Every target has its turn, again and again: parsers, headers, ranges, JSON, forms, bytes that are no HTTP, WebSocket
messages in any order, broken frames, floods of small things, writers that come back, and changed files of every format
through the confined decoder. It is a fault if an answer is a 5xx, does not come or is wrong, if the server logs an
error, or if it holds more processes, descriptors, temporary files or memory in the end than after the first turns. The
input that shows a fault is made as small as it can be and written to a file, and the exit status is 1. The summary is
JSON.
"""

import argparse
import json
import logging
import random
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import write
from benchmarks.serving import Serving, serving
from pipeline.ingest.isolation import Isolation
from scripts.fuzzing import containers, dialects, floods, http_requests, parsers, sockets
from scripts.fuzzing.serving import LIMITS, Fuzzed
from scripts.fuzzing.target import Finding, Target, keep, read_findings

MAX_MORE_DESCRIPTORS = 8  # connections of the pool of this program, files of the storage's threads
MAX_MORE_MEMORY_MB = 64


def main() -> int:
    given = arguments()
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # it warns of every broken form
    print(f"seed {given.seed}", file=sys.stderr, flush=True)
    with (
        serving(LIMITS, ENGINE="scripted", WAIT_DEFAULT="5", WAIT_MAX="10") as started,
        Isolation(stall_s=10) as isolation,
    ):
        server, checks = prepare_server(started), containers.Containers(isolation)
        targets = [
            *parsers.targets(),
            *http_requests.targets(server),
            *sockets.targets(server),
            *dialects.targets(server),
            *containers.targets(checks),
            *floods.targets(server),
        ]
        if given.replay is not None:
            return replay(given.replay, targets)
        summary = {"seed": given.seed, **fuzz(server, targets, given), "decoders": {"ended": checks.ends}}
    print(json.dumps(summary, indent=1))
    if given.write:
        write("fuzz", summary)
    return 1 if summary["findings"] else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument(
        "--findings", type=Path, default=Path("fuzz-findings"), help="folder for inputs that show faults"
    )
    parser.add_argument("--replay", type=Path, help="try the input of such a file again, and nothing else")
    parser.add_argument("--write", action="store_true", help="write the summary to benchmarks/results/fuzz.json")
    return parser.parse_args()


def prepare_server(started: Serving) -> Fuzzed:
    """Return the server with one finished job, whose outputs are known, and with the estimator's tables in memory."""
    server = Fuzzed(started)
    asked = {"prompt": "How long is a piece of string?", "models": ["gpt-5-mini"]}
    server.ask("POST", "/v1/estimate", json=asked).raise_for_status()
    form = {"output_formats": "json,srt", "word_timestamps": "true"}
    record = server.ask("POST", "/v1/transcribe", files={"file": http_requests.sound(20)}, data=form).json()
    server.job = record["job_id"]
    for name in ("json", "srt"):
        server.outputs[name] = server.ask("GET", f"/v1/jobs/{server.job}/outputs/{name}").content
    return server


def replay(path: Path, targets: list[Target]) -> int:
    """Try the inputs of a file that keep() wrote. Returns the exit status."""
    name, inputs = read_findings(path)
    [target] = [target for target in targets if target.name == name]
    try:
        for value in inputs:
            target.check(value)
    except Finding as finding:
        print(finding)
        return 1
    print("nothing found")
    return 0


def fuzz(server: Fuzzed, targets: list[Target], given: argparse.Namespace) -> dict[str, Any]:
    """Give every target its turns until the time is over. Returns what was tried, found and held."""
    until, turn, left = time.monotonic() + given.seconds, 0, []
    before: dict[str, float] = {}
    while not left and (turn == 0 or time.monotonic() < until):
        for target in targets:
            if target.found is None and (turn == 0 or time.monotonic() < until):
                target.take_turn(given.seed * 1_000_003 + turn)
                tell(target, given.findings)
        left = settle_jobs(server)
        before = before or server.resources()
        turn += 1
    after = server.resources()
    found = [f"{target.name}: {target.found['error']}" for target in targets if target.found is not None]
    return {
        "turns": turn,
        "busy": server.busy,
        "findings": [*found, *left, *growth_of(before, after)],
        "inputs": {"tried": {target.name: target.tried for target in targets}},
        "server": {"before": before, "after": after},
    }


def settle_jobs(server: Fuzzed) -> list[str]:
    """End every job of the last turns. Returns what is still left of them."""
    try:
        server.settle()
    except Finding as finding:
        return [str(finding)]
    return []


def tell(target: Target, folder: Path) -> None:
    if target.found is not None:
        print(
            f"{target.name}: {target.found['error']}\nwritten to {keep(target.found, folder)}",
            file=sys.stderr,
            flush=True,
        )


def growth_of(before: dict[str, float], after: dict[str, float]) -> list[str]:
    """Return what the server holds more of than it may."""
    allowed = {"processes": 0, "descriptors": MAX_MORE_DESCRIPTORS, "memory_mb": MAX_MORE_MEMORY_MB}
    return [
        f"{name} grew from {before[name]} to {after[name]}"
        for name, more in allowed.items()
        if after[name] > before[name] + more
    ]


if __name__ == "__main__":
    sys.exit(main())
