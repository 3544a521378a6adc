"""What a request costs, beside a bare Starlette app: python -m benchmarks.requests [--seconds 4] [--rounds 3]

Starts a server (scripted engine) and a bare Starlette app on the same uvicorn, with the same event loop and HTTP
parser, which gives the same answers from a dictionary. For each kind of request, a process of its own asks the one and
the other in turn over kept connections: first as fast as each answers, for its requests a second, then at half of that,
for the time of an answer from the instant at which it was due. Writes benchmarks/results/requests.json. Both sides of
a ratio come from the same minutes, so it counts where other work disturbs the machine.
"""

import argparse
import asyncio
import json
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from benchmarks.load import silence
from benchmarks.measure import ROOT, cpu_s, spread, write
from benchmarks.serving import Serving, serving

CONNECTIONS = 16
CONNECTIONS_OF = {"small estimate": 2}  # an account may have two estimates at work
WARM_UP_S = 0.5
JOBS = 20  # in the list
TIMEOUT_S = 30
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


# --- the asking process ----------------------------------------------------------------------------------------------


@dataclass
class Asking:
    """One connection that asks the same again and again."""

    connection: socket.socket
    due: float = 0.0  # the instant from which the answer that is awaited counts; 0: none is awaited
    left: int = 0  # bytes of the answer that are still to come
    status: bytes = b""

    def ask(self, request: bytes, due: float) -> None:
        self.due, self.left, self.status = due, -1, b""
        self.connection.sendall(request)

    def answered(self) -> bool:
        """Read what has come. Returns whether the answer is whole. Answers come in as few pieces as a system gives."""
        data = self.connection.recv(262_144)
        if not data:
            raise SystemExit("the server closed a connection")
        if self.left < 0:
            head, end, body = data.partition(b"\r\n\r\n")
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            if not end or not length:
                raise SystemExit(f"no whole head of an answer with a length: {data[:400]!r}")
            if not head.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"an unexpected answer: {data[:600]!r}")
            self.left = int(length) - len(body)
        else:
            self.left -= len(data)
        return self.left == 0


def ask(request: bytes, address: tuple[str, int], connections: int, seconds: float, per_s: float) -> dict[str, Any]:
    """Ask for so long, *per_s* times a second or, if that is 0, as fast as answers come. Returns what was seen."""
    with selectors.DefaultSelector() as selector:
        idle = [Asking(socket.create_connection(address)) for _ in range(connections)]
        for one in idle:
            one.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(one.connection, selectors.EVENT_READ, one)
        began = time.perf_counter()
        took_s: list[float] = []
        sent = 0
        while (now := time.perf_counter()) < began + seconds or len(idle) < connections:
            while idle and now < began + seconds and (not per_s or began + sent / per_s <= now):
                idle.pop().ask(request, began + sent / per_s if per_s else now)
                sent += 1
            pause_s = max(0.0, began + sent / per_s - now) if per_s and idle else TIMEOUT_S
            for key, _ in selector.select(min(pause_s, max(0.01, began + seconds - now))):
                if key.data.answered():
                    took_s.append(time.perf_counter() - key.data.due)
                    idle.append(key.data)
        ended = time.perf_counter()
    return {"per_s": len(took_s) / (ended - began), "ms": spread([one * 1000 for one in took_s])}


# --- the bare app, in a process of its own ---------------------------------------------------------------------------


def bare(answers: Mapping[str, Any]) -> None:
    """Print a port and serve *answers* by path, as Starlette's documentation does it, until killed."""

    async def answer(request: Request) -> JSONResponse:
        if request.method == "POST":
            await request.json()
        return JSONResponse(answers[request.url.path])

    paths = [path.replace("{job}", "{job_id}") for _, path, _ in KINDS.values()]
    app = Starlette(routes=[Route(path, answer, methods=["GET", "POST"]) for path in paths])
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    settings = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", loop="auto", http="auto")
    asyncio.Runner(loop_factory=settings.get_loop_factory()).run(uvicorn.Server(settings).serve(sockets=[listening]))


@contextmanager
def child(*arguments: str, text: str) -> Iterator["subprocess.Popen[str]"]:
    """Start this program again, with *text* as the first line of its input, and end it after the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.requests", *arguments],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdin is not None
        print(text, file=process.stdin, flush=True)
        yield process
    finally:
        process.kill()
        process.wait()


# --- measuring -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Side:
    """One of the two servers."""

    name: str
    base: str
    pid: int
    key: str

    def seen(self, kind: str, job: str, seconds: float, per_s: float = 0.0) -> dict[str, Any]:
        """What a process that asks for *kind* sees, and the CPU time of the server for each answer."""
        method, path, body = KINDS[kind]
        head = f"{method} {path.format(job=job)} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.key}\r\n"
        if body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        request, connections = f"{head}\r\n{body.decode()}", CONNECTIONS_OF.get(kind, CONNECTIONS)
        asked = json.dumps([request, self.base.removeprefix("http://"), connections, seconds, per_s])
        cpu = cpu_s(self.pid)
        with child("--ask", text=asked) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
        found: dict[str, Any] = json.loads(line or "null") or sys.exit(f"asking {self.name} for {kind} failed")
        return {**found, "cpu_us": (cpu_s(self.pid) - cpu) / found["per_s"] / seconds * 1e6}


def compared(kind: str, job: str, sides: Sequence[Side], seconds: float, rounds: int) -> dict[str, Any]:
    """One row: both servers in turn, as fast as they answer, then ours at half of its requests a second."""
    fast: dict[str, list[dict[str, Any]]] = {side.name: [] for side in sides}
    for side in sides:
        side.seen(kind, job, WARM_UP_S)
    for _ in range(rounds):
        for side in sides:
            fast[side.name].append(side.seen(kind, job, seconds))
    rates = {name: median(one["per_s"] for one in found) for name, found in fast.items()}
    costs = {name: median(one["cpu_us"] for one in found) for name, found in fast.items()}
    half = {side.name: side.seen(kind, job, seconds, rates[side.name] / 2) for side in sides}
    ours, other = (side.name for side in sides)
    row: dict[str, Any] = {"name": kind}
    for name in (ours, other):
        row |= {f"{name} per_s": round(rates[name]), f"{name} cpu_us": round(costs[name])}
    return row | {
        "share_of_bare": round(rates[ours] / rates[other], 2),
        "share_of_bare_cpu": round(costs[other] / costs[ours], 2),
        "half_load_ms": half[ours]["ms"],
        "p99_to_p50": round(half[ours]["ms"]["p99"] / half[ours]["ms"]["p50"], 1),
        "bare_half_load_ms": half[other]["ms"],
    }


def prepared(server: Serving) -> tuple[str, str]:
    """The key of a paying customer and the id of the last of its finished jobs."""
    customer = httpx.post(f"{server.base}/v1/keys", json={}).json()
    command = [sys.executable, "-m", "server", "accounts", "set-plan", customer["account_id"], "pro"]
    environment = {"SCRIBEWIRE_DATA_DIR": str(server.folder / "data"), "PATH": ""}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    key = customer["key"]
    with httpx.Client(base_url=server.base, headers={"Authorization": f"Bearer {key}"}, timeout=60) as client:
        jobs = [client.post("/v1/transcribe", files={"file": silence(5)}).json() for _ in range(JOBS)]
    return key, jobs[-1]["job_id"]


def report(seconds: float, rounds: int, kinds: Sequence[str]) -> dict[str, Any]:
    with serving(MANY, ENGINE="scripted") as server:
        key, job = prepared(server)
        ours = Side("scribewire", server.base, server.pid, key)
        asked = {path.format(job=job): (method, body) for method, path, body in KINDS.values()}
        with httpx.Client(base_url=server.base, headers={"Authorization": f"Bearer {key}"}, timeout=60) as client:
            content = {"Content-Type": "application/json"}
            answers = {
                path: client.request(method, path, content=body, headers=content).raise_for_status().json()
                for path, (method, body) in asked.items()
            }
        with child("--bare", text=json.dumps(answers)) as process:
            assert process.stdout is not None
            base = f"http://127.0.0.1:{process.stdout.readline().strip()}"
            sides = (ours, Side("bare", base, process.pid, key))
            time.sleep(1)
            return {"kinds": [compared(kind, job, sides, seconds, rounds) for kind in kinds]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="of both servers, of which the median counts")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=[*KINDS])
    parser.add_argument("--no-write", action="store_true", help="print only")
    parser.add_argument("--ask", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.ask:
        request, address, connections, seconds, per_s = json.loads(sys.stdin.readline())
        host, port = address.split(":")
        print(json.dumps(ask(request.encode(), (host, int(port)), connections, seconds, per_s)))
    elif given.bare:
        bare(json.loads(sys.stdin.readline()))
    else:
        result = {
            "seconds": given.seconds,
            "connections": CONNECTIONS,
            **report(given.seconds, given.rounds, given.kinds),
        }
        print(json.dumps(result, indent=1))
        if not given.no_write:
            print(write("requests", result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
