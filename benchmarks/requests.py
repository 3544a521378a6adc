"""What a request costs, compared with a bare Starlette app: python -m benchmarks.requests [--rounds 3] [--turns 9]

Starts a server (scripted engine) and a bare Starlette app on the same uvicorn, with the same event loop and HTTP
parser, which gives the same answers from a dictionary. For each kind of request, a process of its own
(benchmarks.asking) with a core of its own asks the one and the other in turn over kept connections: first as fast as
each answers, for its requests a second, then at half of that, for the time of an answer from the instant at which it
was due. Writes benchmarks/results/requests.json. Both sides of a ratio come from the same minutes, so it is valid
although other work disturbs the machine.

The times at half load are medians over turns of two seconds each, of all answers of a turn. A virtual machine stands
still for tens of milliseconds now and then. One such pause decides the 99th percentile of its turn, and would decide
that of all turns taken together.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from benchmarks.children import address_of, child, serve_bare
from benchmarks.load import silence
from benchmarks.measure import ROOT, own_cpu_s, spread, write
from benchmarks.serving import Serving, serving

CONNECTIONS = 16
CONNECTIONS_OF = {"small estimate": 2}  # an account may have two estimates at work
WARM_UP_S = 0.5
TURN_S = 2.0  # at half load
JOBS = 20  # in the list
CORES = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []
MANY = {  # the plan of a customer who pays, with allowances that are counted but not used up
    "requests_per_minute = 300\n": "requests_per_minute = 100000000\n",
    "estimates_per_day = 5000\n": "estimates_per_day = 100000000\n",
}
ESTIMATE = b'{"prompt": "Summarise this meeting in five sentences.", "models": ["gpt-5-mini"]}'
KINDS = {
    "healthz": ("GET", "/healthz", b""),
    "key check": ("GET", "/v1/webhook-secret", b""),
    "record of a finished job": ("GET", "/v1/jobs/{job}", b""),
    "list of 20 jobs": ("GET", "/v1/jobs", b""),
    "small estimate": ("POST", "/v1/estimate", ESTIMATE),
}


# --- the bare app, in a process of its own ---------------------------------------------------------------------------


def bare(answers: Mapping[str, Any]) -> None:
    """Print a port and serve *answers* by path, as Starlette's documentation does it, until killed."""

    async def answer(request: Request) -> JSONResponse:
        if request.method == "POST":
            await request.json()
        return JSONResponse(answers[request.url.path])

    paths = [path.replace("{job}", "{job_id}") for _, path, _ in KINDS.values()]
    serve_bare(Starlette(routes=[Route(path, answer, methods=["GET", "POST"]) for path in paths]))


# --- measuring -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Side:
    """One of the two servers."""

    name: str
    base: str
    pid: int
    key: str

    def measure(self, kind: str, job: str, seconds: float, per_s: float = 0.0) -> dict[str, Any]:
        """Return what a process that sends *kind* measures, and the CPU time of the server for each answer."""
        method, path, body = KINDS[kind]
        head = f"{method} {path.format(job=job)} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.key}\r\n"
        if body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        request, connections = f"{head}\r\n{body.decode()}", CONNECTIONS_OF.get(kind, CONNECTIONS)
        asked = json.dumps([request, self.base.removeprefix("http://"), connections, seconds, per_s])
        cpu = own_cpu_s(self.pid)
        with child("asking", text=asked) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
        found: dict[str, Any] = json.loads(line or "null") or sys.exit(f"asking {self.name} for {kind} failed")
        return {**found, "cpu_us": (own_cpu_s(self.pid) - cpu) / len(found["answers_ms"]) * 1e6}


def at_half_load(turns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the medians over *turns* of the times of answers, and the median and the largest ratio of p99 to p50."""
    each = [spread(turn["answers_ms"]) for turn in turns]
    ratios = [round(took["p99"] / took["p50"], 1) for took in each]
    medians = {f"{name}_ms": round(median(took[name] for took in each), 3) for name in each[0]}
    return {**medians, "p99_to_p50": round(median(ratios), 1), "most_p99_to_p50": max(ratios)}


@dataclass(frozen=True)
class Length:
    """How long is measured."""

    seconds: float  # of a round, as fast as a server answers
    rounds: int
    turns: int  # at half load


def compare_servers(kind: str, job: str, sides: Sequence[Side], length: Length) -> dict[str, Any]:
    """Return the row of *kind*: both servers in turn, as fast as they answer, then at half of that rate."""
    fast: dict[str, list[dict[str, Any]]] = {side.name: [] for side in sides}
    half: dict[str, list[dict[str, Any]]] = {side.name: [] for side in sides}
    for side in sides:
        side.measure(kind, job, WARM_UP_S)
    for _ in range(length.rounds):
        for side in sides:
            fast[side.name].append(side.measure(kind, job, length.seconds))
    rates = {name: median(one["per_s"] for one in found) for name, found in fast.items()}
    costs = {name: median(one["cpu_us"] for one in found) for name, found in fast.items()}
    for _ in range(length.turns):
        for side in sides:
            half[side.name].append(side.measure(kind, job, TURN_S, rates[side.name] / 2))
    ours, other = (side.name for side in sides)
    row: dict[str, Any] = {"name": kind}
    for name in (ours, other):
        row |= {f"{name} per_s": round(rates[name]), f"{name} cpu_us": round(costs[name])}
    return row | {
        "share_of_bare": round(rates[ours] / rates[other], 2),
        "share_of_bare_cpu": round(costs[other] / costs[ours], 2),
        "half_load": at_half_load(half[ours]),
        "bare_half_load": at_half_load(half[other]),
    }


@contextmanager
def apart(servers: Iterable[int]) -> Iterator[None]:
    """While the block lasts, let the processes that ask have the last core, and *servers* the others.

    Otherwise a server and its client share a core now and then, and each waits 3 ms for the other.
    """
    if len(CORES) < 2:
        yield
        return
    for thread in (thread for pid in servers for thread in Path(f"/proc/{pid}/task").iterdir()):
        os.sched_setaffinity(int(thread.name), CORES[:-1])
    os.sched_setaffinity(0, CORES[-1:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, CORES)


def prepare_server(server: Serving) -> tuple[str, str]:
    """Return the key of a paying customer and the id of the last of its finished jobs."""
    customer = httpx.post(f"{server.base}/v1/keys", json={}).json()
    command = [sys.executable, "-m", "server", "accounts", "set-plan", customer["account_id"], "pro"]
    environment = {"SCRIBEWIRE_DATA_DIR": str(server.folder / "data"), "PATH": ""}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    key = customer["key"]
    with httpx.Client(base_url=server.base, headers={"Authorization": f"Bearer {key}"}, timeout=60) as client:
        jobs = [client.post("/v1/transcribe", files={"file": silence(5)}).json() for _ in range(JOBS)]
    return key, jobs[-1]["job_id"]


def report(length: Length, kinds: Sequence[str]) -> dict[str, Any]:
    with serving(MANY, ENGINE="scripted") as server:
        key, job = prepare_server(server)
        ours = Side("scribewire", server.base, server.pid, key)
        asked = {path.format(job=job): (method, body) for method, path, body in KINDS.values()}
        with httpx.Client(base_url=server.base, headers={"Authorization": f"Bearer {key}"}, timeout=60) as client:
            content = {"Content-Type": "application/json"}
            answers = {
                path: client.request(method, path, content=body, headers=content).raise_for_status().json()
                for path, (method, body) in asked.items()
            }
        with child("requests", "--bare", text=json.dumps(answers)) as process:
            sides = (ours, Side("bare", address_of(process), process.pid, key))
            time.sleep(1)
            with apart([side.pid for side in sides]):
                return {"kinds": [compare_servers(kind, job, sides, length) for kind in kinds]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="of both servers, of which the median counts")
    parser.add_argument("--turns", type=int, default=9, help="of both servers at half load, of which the median counts")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=[*KINDS])
    parser.add_argument("--no-write", action="store_true", help="print only")
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.bare:
        bare(json.loads(sys.stdin.readline()))
    else:
        length = Length(given.seconds, given.rounds, given.turns)
        result = {**asdict(length), "connections": CONNECTIONS, **report(length, given.kinds)}
        print(json.dumps(result, indent=1))
        if not given.no_write:
            print(write("requests", result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
