"""What requests and readers cost, compared with an earlier commit: python -m benchmarks.commits COMMIT [--rounds 3]

Starts the server of this folder and the one of COMMIT (scripted engine, the same installed packages) and measures both
in turn, so that a ratio of their CPU times counts where other work disturbs the machine: first the requests of
benchmarks.requests, as fast as each server answers, then readers of a live session as in benchmarks.readers. With the
usual options it takes eight minutes. The exit status is 1 if anything costs more than 3 % more, by the median of the
rounds. Writes benchmarks/results/commits.json.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from benchmarks.load import silence
from benchmarks.measure import ROOT, write
from benchmarks.readers import WAYS, of_session
from benchmarks.requests import JOBS, KINDS, WARM_UP_S, Side, apart
from benchmarks.serving import Serving, serving
from server.transport.acceptor import raise_descriptor_limit

SIDES = ("before", "now")
MORE = 1.03  # the largest ratio that passes
LIMITS = {
    "requests_per_minute = 3000\n": "requests_per_minute = 100000000\n",
    "per_session = 5000 ": "per_session = 100000 ",
}


@contextmanager
def unpacked(commit: str) -> Iterator[Path]:
    """The files of *commit*, in a folder that lasts as long as the block."""
    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=packed, check=True)
        yield Path(folder)


def finished_job(server: Serving) -> str:
    """The id of the last of the operator's finished jobs, of which a page of the list is full."""
    with httpx.Client(base_url=server.base, headers={"Authorization": f"Bearer {server.key}"}, timeout=60) as client:
        jobs = [client.post("/v1/transcribe", files={"file": silence(5)}).json() for _ in range(JOBS)]
    return str(jobs[-1]["job_id"])


def row(name: str, rounds: int, cost_us: Callable[[str], float]) -> dict[str, Any]:
    """Measure both servers in turn: the medians of *cost_us*, in microseconds of CPU time, and their ratio."""
    pairs = [[cost_us(side) for side in SIDES] for _ in range(rounds)]
    medians = {
        f"{side} cpu_us": round(median(costs), 1) for side, costs in zip(SIDES, zip(*pairs, strict=True), strict=True)
    }
    ratios = [round(now / before, 3) for before, now in pairs]
    return {"name": name, **medians, "ratio": round(median(ratios), 3), "ratios": ratios}


def requests(servers: Mapping[str, Serving], given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    jobs = {side: finished_job(server) for side, server in servers.items()}
    sides = {side: Side(side, server.base, server.pid, server.key) for side, server in servers.items()}

    def cost_us(side: str, *, kind: str, seconds: float) -> float:
        return float(sides[side].measure(kind, jobs[side], seconds)["cpu_us"])

    with apart([server.pid for server in servers.values()]):
        for kind in filter(given.kinds.__contains__, KINDS):
            row("warming up", 1, partial(cost_us, kind=kind, seconds=WARM_UP_S))
            yield row(kind, given.rounds, partial(cost_us, kind=kind, seconds=given.seconds))


def readers(servers: Mapping[str, Serving], given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    def cost_us(side: str, *, way: str) -> float:
        return float(of_session(servers[side], way, given.readers, given.reading)["cpu_us_per_event"])

    for way in filter(given.kinds.__contains__, WAYS):
        name = f"an event and reader, {given.readers} by {way}"
        yield row(name, given.rounds, partial(cost_us, way=way))


def report(given: argparse.Namespace) -> dict[str, Sequence[Any]]:
    settings = {"ENGINE": "scripted", "MAX_CONNECTIONS_PER_ADDRESS": "100000"}
    with (
        unpacked(given.commit) as root,
        serving(LIMITS, root=root, **settings) as before,
        serving(LIMITS, **settings) as now,
    ):
        servers = dict(zip(SIDES, (before, now), strict=True))
        return {"requests": [*requests(servers, given)], "readers": [*readers(servers, given)]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="the earlier commit")
    parser.add_argument("--rounds", type=int, default=3, help="of both servers, of which the median counts")
    parser.add_argument("--seconds", type=float, default=4, help="of each measurement of requests")
    parser.add_argument("--kinds", nargs="+", choices=(*KINDS, *WAYS), default=[*KINDS, *WAYS])
    parser.add_argument("--readers", type=int, default=1000)
    parser.add_argument("--reading", type=float, default=14, help="seconds of each measurement of readers")
    parser.add_argument("--no-write", action="store_true", help="print only")
    given = parser.parse_args()
    raise_descriptor_limit()
    result = {"commit_before": given.commit, "rounds": given.rounds, **report(given)}
    print(json.dumps(result, indent=1))
    if not given.no_write:
        print(write("commits", result))
    return int(any(one["ratio"] > MORE for part in ("requests", "readers") for one in result[part]))


if __name__ == "__main__":
    sys.exit(main())
