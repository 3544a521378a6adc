"""What requests and readers cost, compared with an earlier commit: python -m benchmarks.commits COMMIT [--rounds 3]

Starts the server of this folder and the one of COMMIT (scripted engine, the same installed packages) and measures both,
so that a ratio of their CPU times counts where other work disturbs the machine: first the requests of
benchmarks.requests, as fast as each server answers, in short turns, then readers of a live session as in
benchmarks.readers, of both servers at the same time. A second server of COMMIT shows by how much the same code differs
from itself. With the usual options it takes six minutes. The exit status is 1 if anything costs more than 3 % more, by
the median. Writes benchmarks/results/commits.json.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import numpy as np

from benchmarks.load import silence
from benchmarks.measure import ROOT, write
from benchmarks.readers import WAYS, Readers, measure_readers, speak_in_process
from benchmarks.readers import readers as connected
from benchmarks.requests import JOBS, KINDS, WARM_UP_S, Side, apart
from benchmarks.serving import Serving, serving
from server.transport.descriptors import raise_descriptor_limit

SIDES = ("before", "now")
AGAIN = "before again"
MORE = 1.03  # the largest ratio that passes
LIMITS = {
    "requests_per_minute = 3000\n": "requests_per_minute = 100000000\n",
    "per_session = 5000 ": "per_session = 100000 ",
}


@contextmanager
def unpack(commit: str) -> Iterator[Path]:
    """Yield a folder with the files of *commit*, which lasts as long as the block."""
    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=packed, check=True)
        yield Path(folder)


def finished_job(server: Serving) -> str:
    """Finish a page of jobs for the operator, and return the id of the last one."""
    with httpx.Client(base_url=server.base, headers={"Authorization": f"Bearer {server.key}"}, timeout=60) as client:
        jobs = [client.post("/v1/transcribe", files={"file": silence(5)}).json() for _ in range(JOBS)]
    return str(jobs[-1]["job_id"])


def row(name: str, pairs: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return the medians of both servers' costs, in microseconds of CPU time, and of their ratios in each round."""
    medians = {
        f"{side} cpu_us": round(median(costs), 1) for side, costs in zip(SIDES, zip(*pairs, strict=True), strict=True)
    }
    return {"name": name, **medians, **ratio([now / before for before, now in pairs], "ratio")}


def ratio(ratios: Sequence[float], name: str) -> dict[str, Any]:
    """Return the median of *ratios* under *name*, and the quartiles, between which half of them are."""
    lower, middle, upper = (round(float(quartile), 3) for quartile in np.percentile(ratios, (25, 50, 75)))
    return {name: middle, f"half of {name}": [lower, upper]}


def requests(servers: Mapping[str, Serving], given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    jobs = {side: finished_job(server) for side, server in servers.items()}
    sides = {side: Side(side, server.base, server.pid, server.key) for side, server in servers.items()}

    def cost_us(side: str, *, kind: str, seconds: float) -> float:
        return float(sides[side].measure(kind, jobs[side], seconds)["cpu_us"])

    with apart([server.pid for server in servers.values()]):
        for kind in filter(given.kinds.__contains__, KINDS):
            for side in sides:
                cost_us(side, kind=kind, seconds=WARM_UP_S)
            turns = [
                {side: cost_us(side, kind=kind, seconds=given.seconds) for side in order}
                for order in islice(cycle(([*sides], [*reversed(sides)])), given.turns)
            ]
            same = ratio([turn[AGAIN] / turn["before"] for turn in turns], "same code")
            yield row(kind, [[turn[side] for side in SIDES] for turn in turns]) | same


def readers(servers: Mapping[str, Serving], given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a row for each way of reading.

    A session's instant of beginning decides how many events a reader takes at once. So both servers have one session
    for all rounds, and are read at the same time.
    """
    for way in filter(given.kinds.__contains__, WAYS):
        with ExitStack() as stack:
            jobs = {side: stack.enter_context(speak_in_process(server)) for side, server in servers.items()}

            def read(number: int, stack: ExitStack, way: str = way, jobs: Mapping[str, str] = jobs) -> list[Readers]:
                return [
                    stack.enter_context(connected(number, way, one.base, job=jobs[side], key=one.key))
                    for side, one in servers.items()
                ]

            with ExitStack() as alone:
                sessions = at_once(servers, read(1, alone), given.reading / 2)
            many = read(given.readers, stack)
            rounds = [at_once(servers, many, given.reading) for _ in range(given.rounds)]
        pairs = [
            [
                max(0.0, seen["cores"] - session["cores"]) / seen["events_per_s"] * 1e6
                for seen, session in zip(both, sessions, strict=True)
            ]
            for both in rounds
        ]
        yield row(f"an event and reader, {given.readers} by {way}", pairs)


def at_once(servers: Mapping[str, Serving], reading: Sequence[Readers], seconds: float) -> list[dict[str, Any]]:
    """Return what the readers of each server received in the same seconds."""
    with ThreadPoolExecutor(len(servers)) as threads:
        return list(
            threads.map(measure_readers, [server.pid for server in servers.values()], reading, [seconds] * len(servers))
        )


def report(given: argparse.Namespace) -> dict[str, Sequence[Any]]:
    settings = {"ENGINE": "scripted", "MAX_CONNECTIONS_PER_ADDRESS": "100000"}
    with (
        unpack(given.commit) as root,
        serving(LIMITS, root=root, **settings) as before,
        serving(LIMITS, **settings) as now,
    ):
        servers = dict(zip(SIDES, (before, now), strict=True))
        with serving(LIMITS, root=root, **settings) as again:
            asked = [*requests({**servers, AGAIN: again}, given)]
        return {"requests": asked, "readers": [*readers(servers, given)]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="the earlier commit")
    parser.add_argument("--turns", type=int, default=16, help="of each server with requests; the median counts")
    parser.add_argument("--seconds", type=float, default=0.8, help="of each of these turns")
    parser.add_argument("--rounds", type=int, default=3, help="of all readers; the median counts")
    parser.add_argument("--kinds", nargs="+", choices=(*KINDS, *WAYS), default=[*KINDS, *WAYS])
    parser.add_argument("--readers", type=int, default=1000)
    parser.add_argument("--reading", type=float, default=14, help="seconds of each measurement of readers")
    parser.add_argument("--no-write", action="store_true", help="print only")
    given = parser.parse_args()
    raise_descriptor_limit()
    result = {"commit_before": given.commit, "turns": given.turns, "rounds": given.rounds, **report(given)}
    print(json.dumps(result, indent=1))
    if not given.no_write:
        print(write("commits", result))
    return int(any(one["ratio"] > MORE for part in ("requests", "readers") for one in result[part]))


if __name__ == "__main__":
    sys.exit(main())
