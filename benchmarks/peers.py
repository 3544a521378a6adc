"""Live words over the network, of this server and of one that repeats transcribe(): python -m benchmarks.peers

    .venv/bin/python -m benchmarks.peers                                  # 1 and 8 sessions; writes results/peers.json
    .venv/bin/python -m benchmarks.peers --systems scribewire --sessions 4 --seconds 60 --no-write

Both servers have the same model, machine and audio, one after the other. Audio is sent over the server's WebSocket at
the speed of speech. The other server is benchmarks/local_agreement.py, a baseline that was written here.
"""

import argparse
import asyncio
import itertools
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from benchmarks.choices import Choices, add_choices, choices_of
from benchmarks.live_scores import Scores, Seen
from benchmarks.measure import ROOT, cpu_s, rss_mb, spread, write
from benchmarks.serving import serving
from benchmarks.tracks import Track
from benchmarks.wires import LocalAgreement, Scribewire, Wire
from pipeline.audio import RATE

START_S = 120.0
WARMING_S = 5.0  # of audio before anything is measured
WARM_UP_S = 20.0  # at the start of many sessions at once, in which words count for accuracy alone
LENGTH_S = 140.0
HERE = "127.0.0.1"
FRAME_S = 0.032
LATEST_SENDER_S = 0.05
READY_S = 60
TAIL_S = 30  # after the last audio, for all that is still to come
SAMPLE_S = 1.0  # between two looks at the server's memory


Opener = Callable[[Track], Awaitable[Wire]]


@dataclass
class Sessions:
    """All sessions of one run and their results."""

    open: Opener
    pid: int  # of the server
    since_s: float = 0.0  # words that end earlier count for accuracy alone
    scores: Scores = field(default_factory=Scores)
    sender_late_s: list[float] = field(default_factory=list)
    audio_s: float = 0.0
    unfinished: int = 0  # closed, or silent, before they said that they were over
    rss_mb: list[float] = field(default_factory=list)

    async def run(self, tracks: Sequence[Track], apart_s: Sequence[float]) -> dict[str, Any]:
        """Run one session for each track; each starts at its own second."""
        before, cpu = cpu_s(self.pid), 0.0
        watching = asyncio.create_task(self._watch())
        async with asyncio.TaskGroup() as tasks:
            sent = [asyncio.Event() for _ in tracks]
            for track, delay_s, done in zip(tracks, apart_s, sent, strict=True):
                tasks.create_task(self._session(track, delay_s, done))
            for done in sent:
                await done.wait()
            cpu = cpu_s(self.pid) - before  # what a server does after the last audio is not the price of live words
        watching.cancel()
        late = spread(self.sender_late_s)
        return {
            "sessions": len(tracks),
            "unfinished": self.unfinished,
            **self.scores.table(),
            "audio_s": round(self.audio_s),
            "cpu_per_audio_s": round(cpu / max(1.0, self.audio_s), 4),
            "rss_mb": round(max(self.rss_mb)),
            "sender_late_s": late,
            "void": late.get("p99", 0.0) > LATEST_SENDER_S,
        }

    async def _watch(self) -> None:
        while True:
            self.rss_mb.append(rss_mb(self.pid))
            await asyncio.sleep(SAMPLE_S)

    async def _session(self, track: Track, delay_s: float, sent: asyncio.Event) -> None:
        await asyncio.sleep(delay_s)
        seen: list[Seen] = []
        try:
            wire = await self.open(track)
            async with connect(wire.url, max_size=None, compression=None, ping_interval=None) as connection:
                finished = await self._speak(connection, wire, track, seen, sent)
        finally:
            sent.set()
        self.unfinished += not finished
        self.audio_s += len(track.samples) / RATE
        self.scores.add(track.truth, seen, offline=track.offline, since=self.since_s, language=track.language)

    async def _speak(
        self, connection: ClientConnection, wire: Wire, track: Track, seen: list[Seen], sent: asyncio.Event
    ) -> bool:
        """Send one track. Return whether the server said that it is finished, or closed after the end of the audio."""
        finished = False
        if wire.hello is not None:
            await connection.send(wire.hello)
        while not wire.ready:
            wire.read(str(await asyncio.wait_for(connection.recv(), READY_S)), 0.0)
        began = asyncio.get_running_loop().time()
        reading = asyncio.create_task(_read(connection, wire, began, seen))
        with suppress(ConnectionClosed):  # what was heard until then counts, and that it is not over
            await self._send(connection, wire, track, began)
            sent.set()
            await connection.send(wire.goodbye)
            await asyncio.wait({reading}, timeout=TAIL_S)
            finished = reading.done()
        reading.cancel()
        await asyncio.wait({reading})
        broken = None if reading.cancelled() else reading.exception()
        if broken is not None and not isinstance(broken, ConnectionClosed):
            raise broken
        return finished and broken is None

    async def _send(self, connection: ClientConnection, wire: Wire, track: Track, began: float) -> None:
        loop = asyncio.get_running_loop()
        size = round(FRAME_S * RATE)
        for at in range(0, len(track.samples), size):
            frame = track.samples[at : at + size]
            due = began + (at + len(frame)) / RATE
            await asyncio.sleep(due - loop.time())
            self.sender_late_s.append(loop.time() - due)
            await connection.send(wire.frame(frame))


async def _read(connection: ClientConnection, wire: Wire, began: float, seen: list[Seen]) -> None:
    """Read messages until the server says that it is finished, or closes."""
    loop = asyncio.get_running_loop()
    async for message in connection:
        new = wire.read(str(message), loop.time() - began)
        if new is not None:
            seen.append(new)
        if wire.over:
            break


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
    await Sessions(started.open, started.pid).run(choices.tracks(1, WARMING_S), [0.0])
    starts = random.Random(1)
    together = Sessions(started.open, started.pid, since_s=WARM_UP_S if sessions > 1 else 0.0)
    return await together.run(choices.tracks(sessions, length_s), [starts.random() for _ in range(sessions)])


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
        print(write("peers", {"model": choices.name, "systems": rows}))


if __name__ == "__main__":
    main()
