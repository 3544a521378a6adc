"""Whatever strangers might send, to a real server and to its decoder: scripts/fuzz [--seconds N] [--seed N]

For half of the time Schemathesis sends requests made from the server's own /openapi.json: examples, edge cases of every
parameter, random ones, and some after each other (scripts/fuzzing/schemathesis.toml says what must hold in each
answer). Then what OpenAPI has no words for has its turns: WebSocket messages in any order, broken frames, bytes that
are no HTTP, and changed files of every format through the confined decoder.

It is a fault if an answer is a 5xx, does not come or differs from its description, if the server logs an error, or if
it has more processes, descriptors, memory or temporary files in the end than after the first turns. Faults are printed
with the smallest input that shows them, and the exit status is 1. --seed N --only NAME does the turns of one target
again.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy, integers, tuples

from benchmarks.measure import process_tree, rss_mb
from benchmarks.serving import Serving, serving
from pipeline.ingest.isolation import Isolation
from scripts.fuzzing import sockets
from scripts.fuzzing.containers import Decoders, changed_files

HTTP = "http"
CHECKS = Path(__file__).parent / "fuzzing" / "schemathesis.toml"
PER_TURN = 10  # inputs
SETTLE_S = 30  # within which nothing of the jobs may be left
ALLOWED = {"processes": 0, "descriptors": 8, "memory_mb": 64.0, "files": 0}
"""How much more the server may have in the end."""

LIMITS = {
    "requests_per_minute = 3000": "requests_per_minute = 10000000",
    "free_requests_per_minute = 1200": "free_requests_per_minute = 10000000",
    "refused_keys_per_minute = 60": "refused_keys_per_minute = 10000000",
    "signups_per_day = 10": "signups_per_day = 1000000",
    "active_jobs = 500": "active_jobs = 1000000",
    "live_sessions = 1000 ": "live_sessions = 1000000 ",
}
ENDLESS_OR_OWN = r"/events$|/keys/\{"
"""The streams that do not end, and what would take away the key that the requests have."""

FAULT = re.compile(r"^(?:\d\d:\d\d:\d\d\.\d{3} (?:error|critical) |Traceback ).*(?:\n.*){0,30}", re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--only", help="one target; an unknown name lists them")
    asked = parser.parse_args()
    print(f"seed {asked.seed}", file=sys.stderr, flush=True)
    settings = {"ENGINE": "scripted", "WAIT_DEFAULT": "1", "WAIT_MAX": "1"}
    with serving(LIMITS, **settings) as server, Isolation(stall_s=10) as isolation:
        decoders = Decoders(isolation)
        pieces = tuples(changed_files, integers(100, 20_000))
        targets = {
            **sockets.targets(server),
            "files": (changed_files, decoders.decode),
            "live files": (pieces, decoders.decode_live),
        }
        if asked.only is not None and asked.only not in (HTTP, *targets):
            parser.error(f"--only must be one of {', '.join((HTTP, *targets))}")
        chosen = {name: target for name, target in targets.items() if asked.only in (None, name)}
        faults, tried = [], Counter[str]()
        if asked.only in (None, HTTP):
            faults += send_requests(server, asked.seconds / (2 if chosen else 1), asked.seed)
        before, turn, until = None, 0, time.monotonic() + asked.seconds / (2 if asked.only is None else 1)
        while chosen and not faults and (turn == 0 or time.monotonic() < until):
            for name, (inputs, check) in chosen.items():
                faults += take_turn(name, inputs, check, asked.seed + turn, tried)
            erase_jobs(server)
            before = before or resources(server)
            turn += 1
        faults += [*growth(before, resources(server)), *FAULT.findall(server.log.read_text(errors="replace"))[:5]]
    print(json.dumps({"turns": turn, "tried": tried, "decoders": decoders.ends, "faults": len(faults)}, indent=1))
    print(*faults, sep="\n\n", file=sys.stderr)
    return 1 if faults else 0


def send_requests(server: Serving, seconds: float, number: int) -> list[str]:
    """Let Schemathesis use every operation of the HTTP API. Returns its report if it has found something."""
    command = [
        sys.executable, "-m", "schemathesis.cli", "--config-file", str(CHECKS), "run",
        f"{server.base}/openapi.json", "--header", f"Authorization: Bearer {server.key}", "--seed", str(number),
        "--max-time", str(max(1, int(seconds))), "--exclude-path-regex", ENDLESS_OR_OWN, "--no-color",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=server.folder, capture_output=True, text=True, check=False)
    print(done.stdout[-400:], file=sys.stderr)
    return [done.stdout + done.stderr] if done.returncode else []


def take_turn(
    name: str, inputs: SearchStrategy[Any], check: Callable[[Any], None], number: int, tried: Counter[str]
) -> list[str]:
    """Check new inputs, chosen by *number* alone. Returns the fault of the smallest input that shows one."""

    @seed(number)
    @settings(
        max_examples=PER_TURN,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(inputs)
    def turn(value: Any) -> None:
        tried[name] += 1
        check(value)

    try:
        turn()
    except Exception:  # noqa: BLE001  whatever an input raises is a fault
        return [f"{name}, again with --seed {number} --only '{name}':\n{traceback.format_exc()}"]
    return []


def erase_jobs(server: Serving) -> None:
    """Delete every job, and wait until nothing of them is left."""
    with httpx.Client(base_url=server.base, headers={"Authorization": f"Bearer {server.key}"}, timeout=60) as client:
        while jobs := client.get("/v1/jobs", params={"limit": 100}).raise_for_status().json()["data"]:
            for job in jobs:
                client.delete(f"/v1/jobs/{job['job_id']}", params={"force": "true"})
    until = time.monotonic() + SETTLE_S
    while files(server) and time.monotonic() < until:
        time.sleep(0.1)


def files(server: Serving) -> list[Path]:
    """Return the audio and outputs that the server has stored, and its temporary files."""
    places = ("data/incoming", "data/blobs", "tmp")
    return [path for place in places for path in (server.folder / place).rglob("*") if path.is_file()]


def resources(server: Serving) -> dict[str, float]:
    return {
        "processes": len(list(process_tree(server.pid))),
        "descriptors": len(list(Path(f"/proc/{server.pid}/fd").iterdir())),
        "memory_mb": round(rss_mb(server.pid), 1),
        "files": len(files(server)),
    }


def growth(before: dict[str, float] | None, after: dict[str, float]) -> list[str]:
    """Return what the server has more of than it may; nothing without a state before."""
    return [
        f"{name} grew from {before[name]} to {after[name]}"
        for name, more in (ALLOWED if before is not None else {}).items()
        if before is not None and after[name] > before[name] + more
    ]


if __name__ == "__main__":
    sys.exit(main())
