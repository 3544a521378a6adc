"""Live words over the network, of this server and of one that repeats transcribe(): python -m benchmarks.peers

    .venv/bin/python -m benchmarks.peers                                  # 1 and 8 sessions; writes results/peers.json
    .venv/bin/python -m benchmarks.peers --systems scribewire --sessions 4 --seconds 60 --no-write

Both servers have the same model, machine and audio, one after the other. Audio is sent over the server's WebSocket at
the speed of speech. The other server is benchmarks/local_agreement.py, a baseline that was written here.
"""

import argparse
import asyncio
import itertools
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.choices import Choices, add_choices, choices_of
from benchmarks.driving import Crowd, Opener, random_starts
from benchmarks.measure import ROOT, write
from benchmarks.serving import serving
from benchmarks.tracks import Track
from benchmarks.wires import LocalAgreement, Scribewire, Wire

START_S = 120.0
WARMING_S = 5.0  # of audio before anything is measured
WARM_UP_S = 20.0  # at the start of many sessions at once, in which words count for accuracy alone
LENGTH_S = 140.0
HERE = "127.0.0.1"


@dataclass(frozen=True)
class Started:
    """A server that is ready: its process, and a function that opens a session."""

    pid: int
    open: Opener


System = Callable[[str], AbstractContextManager[Started]]
"""Starts a server on a model's folder."""


@contextmanager
def scribewire(model: str) -> Iterator[Started]:
    with serving(ENGINE="whisper", WHISPER_MODEL=model) as server:

        async def open_wire(track: Track) -> Wire:
            return await asyncio.to_thread(Scribewire.open_session, server.base, server.key, track.language)

        yield Started(server.pid, open_wire)


@contextmanager
def local_agreement(model: str) -> Iterator[Started]:
    with process(sys.executable, "-m", "benchmarks.local_agreement", model, "PORT") as (pid, port):

        async def open_wire(track: Track) -> Wire:
            return LocalAgreement(f"ws://{HERE}:{port}", track.language)

        yield Started(pid, open_wire)


SYSTEMS: dict[str, System] = {"scribewire": scribewire, "LocalAgreement over transcribe()": local_agreement}


@contextmanager
def process(*command: str) -> Iterator[tuple[int, int]]:
    """Start a command with a free port in place of PORT; yield its process and the port once it listens."""
    with socket.create_server((HERE, 0)) as probe:
        port = probe.getsockname()[1]
    words = [str(port) if word == "PORT" else word for word in command]
    with tempfile.TemporaryFile() as log:
        running = subprocess.Popen(words, cwd=ROOT, stdout=log, stderr=log)
        try:
            if not _listens(port, running):
                log.seek(0)
                raise SystemExit(f"{words[0]} did not start:\n{log.read().decode(errors='replace')[-4000:]}")
            yield running.pid, port
        finally:
            running.kill()
            running.wait()


def _listens(port: int, running: "subprocess.Popen[bytes]") -> bool:
    until = time.monotonic() + START_S
    while time.monotonic() < until and running.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex((HERE, port)) == 0:
                return True
        time.sleep(0.2)
    return False


async def measure(started: Started, choices: Choices, sessions: int, length_s: float) -> dict[str, Any]:
    """Run one long track alone, or many at once. The first seconds only warm the server up."""
    await Crowd(started.open, started.pid).run(choices.tracks(1, WARMING_S), [0.0])
    if sessions == 1:
        return await Crowd(started.open, started.pid).run(choices.tracks(1, length_s), [0.0])
    crowd = Crowd(started.open, started.pid, since_s=WARM_UP_S)
    return await crowd.run(choices.tracks(sessions, length_s), random_starts(sessions))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_choices(parser)
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=list(SYSTEMS), metavar="NAME")
    parser.add_argument("--sessions", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--seconds", type=float, default=LENGTH_S, help="length of each session")
    parser.add_argument("--no-write", action="store_true", help="print only")
    given = parser.parse_args()
    choices = choices_of(given)
    rows: list[dict[str, Any]] = []
    for sessions, name in itertools.product(given.sessions, given.systems):
        with SYSTEMS[name](choices.model) as started:
            row = asyncio.run(measure(started, choices, sessions, given.seconds))
        rows.append({"system": name, **row})
        shown = ("sessions", "commit_s", "first_seen_s", "wer", "interval", "cpu_per_audio_s", "rss_mb", "void")
        print(f"{name:>34}  " + "  ".join(f"{key} {row[key]}" for key in shown), flush=True)
    if not given.no_write:
        print(write("peers", {**choices.about(), "systems": rows}))


if __name__ == "__main__":
    main()
