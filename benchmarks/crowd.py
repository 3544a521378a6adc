"""Many live sessions at once, with the scripted engine: what each costs, and how late its words are.

    .venv/bin/python -m benchmarks.crowd                            # 20, 60 and 100; writes results/crowd.json
    .venv/bin/python -m benchmarks.crowd --sessions 1000 --cluster  # half of them at each of two nodes

Each session has its own WebSocket, which sends 200 ms of a person's speech at a time, at the speed of speech, and reads
what comes. The speakers are raw sockets in processes of their own; where sent_late_s is large, the machine is too small
for them. A word is late by the time from its end in the audio to its arrival. With --kill the server is killed while
all speak and is started again on the same data, the speakers go on where it has their audio, and words_wrong counts the
words of the script that did not come once and in order; words_lost, those that its log does not have so. With --deaf
every tenth speaker reads nothing, with --upload a file of an hour is transcribed, with --burst all open in a second.
"""

import argparse
import asyncio
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import SplitResult, urlsplit

import httpx
import numpy as np
import soundfile

from benchmarks.children import child, raise_descriptor_limit
from benchmarks.floods import two_nodes
from benchmarks.measure import cpu_s, rss_mb, spread, write
from benchmarks.serving import Serving, replaced_limits, serving
from benchmarks.tracks import PEOPLE, clips
from pipeline.audio import RATE, Samples
from pipeline.recognition.engines.scripted import WORD_LENGTH, WORD_STEP
from server.client import Client

FRAME_S = 0.2
BYTES_A_SECOND = 2 * RATE
FRAME_BYTES = round(FRAME_S * BYTES_A_SECOND)
EACH = 125  # sessions of one process of speakers
OPENED_A_SECOND = 20  # by each of them
TIMES = ("late_s", "sent_late_s", "opened_s")
WARM_UP_S = 5.0  # before anything counts
SETTLE_S = 30.0  # how long sessions go on after the server was killed
RESTART_S = 60.0  # within which a server that was killed must answer again
ENDING_S = 300.0  # within which a session must end, also on a machine that has fallen behind
LIMITS = {
    "live_sessions = 1000 ": "live_sessions = 10000 ",
    "requests_per_minute = 3000": "requests_per_minute = 1000000",
}
SETTINGS = {"MAX_CONNECTIONS_PER_ADDRESS": "100000"}
PING, WORD, COMPLETED = 0x89, b'"type":"word"', b'"type":"job.completed"'
STORED = re.compile(rb'event: word\r?\ndata: [^\n]*?"index":([0-9]+)')
END, NUMBER, INDEX = (re.compile(rb'"%b":([0-9.]+)' % name) for name in (b"end", b"seq", b"index"))


@dataclass
class Heard:
    """What all sessions of one process of speakers received."""

    late_s: list[float] = field(default_factory=list)  # of words
    sent_late_s: list[float] = field(default_factory=list)
    opened_s: list[float] = field(default_factory=list)
    dropped: int = 0  # connections that ended before their time
    resumed: int = 0  # sessions whose server was killed, and that went on
    words_wrong: int = 0  # that are missing, came twice or changed; counted if sessions are spoken to their end
    words_lost: int = 0  # the same of the words that the server has stored, of sessions with wrong words


@dataclass
class Speaker:
    """One live session: a WebSocket that sends speech in real time and reads what comes, unless it is deaf."""

    _heard: Heard
    _address: SplitResult
    _key: str
    _job: str
    _pcm: bytes
    _deaf: bool
    _sent: int = 0  # bytes
    _seen: int = 0  # the number of the last event
    _words: list[bytes] = field(default_factory=list)
    _began: float = 0.0
    _ended: bool = False  # the job is completed

    async def connect(self) -> None:
        """Open the WebSocket, or open it again and go on where the server has the audio."""
        self._reader, self._writer = await asyncio.open_connection(
            self._address.hostname, self._address.port, limit=2**20
        )
        self._writer.write(
            f"GET /v1/jobs/{self._job}/audio?last_event_id={self._seen} HTTP/1.1\r\nHost: {self._address.netloc}\r\n"
            f"Authorization: Bearer {self._key}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
        )
        answer = await self._reader.readuntil(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 101"):
            raise ConnectionError(f"a session was refused: {answer[:400]!r}")
        started = json.loads(await self._message())
        if started["type"] != "session.started":
            raise ConnectionError(f"a session was refused: {started}")
        self._sent = started["received_bytes"]

    async def speak(self, delay_s: float, seconds: float, *, survives: bool) -> None:
        """Speak for *seconds*. If it *survives*, go on after the connection breaks, and speak to the session's end."""
        loop = asyncio.get_running_loop()
        self._began = loop.time() + delay_s
        while True:
            reading = asyncio.create_task(self._read())
            with suppress(ConnectionError):
                await self._send(reading, seconds)
                if survives and not reading.done():
                    self._writer.write(_frame(0x81, b'{"type":"close"}'))
                    await asyncio.wait({reading}, timeout=ENDING_S)
            broken = not self._ended and (reading.done() or self._writer.is_closing())
            reading.cancel()
            await asyncio.wait({reading})
            self._writer.transport.abort()
            if not (broken and survives and await self._resume()):
                break
        self._heard.dropped += broken
        if survives and (wrong := _count_wrong(self._words, seconds)):
            self._heard.words_wrong += wrong
            self._heard.words_lost += _count_wrong(await self._stored_words(), seconds)

    async def _send(self, reading: "asyncio.Task[None]", seconds: float) -> None:
        loop = asyncio.get_running_loop()
        while self._sent < round(seconds / FRAME_S) * FRAME_BYTES and not reading.done():
            due = self._began + (self._sent + FRAME_BYTES) / BYTES_A_SECOND
            late_s = loop.time() - due
            if late_s < 0:
                await asyncio.sleep(-late_s)
                self._heard.sent_late_s.append(loop.time() - due)
            at = self._sent % (len(self._pcm) - FRAME_BYTES)
            self._writer.write(_frame(0x82, self._pcm[at : at + FRAME_BYTES]))
            self._sent += FRAME_BYTES
            await self._writer.drain()

    async def _resume(self) -> bool:
        """Connect again within RESTART_S. Returns whether that succeeded."""
        for _ in range(round(RESTART_S / FRAME_S)):
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self.connect()
                self._heard.resumed += 1
                return True
            await asyncio.sleep(FRAME_S)
        return False

    async def _read(self) -> None:
        """Read frames of the server until the connection ends."""
        loop = asyncio.get_running_loop()
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await asyncio.sleep(math.inf if self._deaf else 0)
            while True:
                message = await self._message()
                if number := NUMBER.search(message):
                    self._seen = int(number[1])
                self._ended |= COMPLETED in message
                if WORD in message and (end := END.search(message)):
                    self._words += INDEX.findall(message)[:1]
                    if loop.time() - self._began > WARM_UP_S:
                        self._heard.late_s.append(loop.time() - self._began - float(end[1]))

    async def _message(self) -> bytes:
        head = await self._reader.readexactly(2)
        size = head[1]
        if size > 125:  # its length follows in 2 or 8 bytes
            size = int.from_bytes(await self._reader.readexactly(2 if size == 126 else 8), "big")
        message = await self._reader.readexactly(size)
        if head[0] == PING:  # without an answer the server would take a silent speaker for gone
            self._writer.write(_frame(0x8A, message))
        return message

    async def _stored_words(self) -> Sequence[bytes]:
        log_of_job, own = f"http://{self._address.netloc}/v1/jobs/{self._job}/events", f"Bearer {self._key}"
        log = await asyncio.to_thread(httpx.get, log_of_job, headers={"Authorization": own}, timeout=ENDING_S)
        return STORED.findall(log.raise_for_status().content)


def _count_wrong(words: Sequence[bytes], seconds: float) -> int:
    """Count the words of the script that are not exactly once among *words*, which have their numbers, in order."""
    said, came = int((seconds - WORD_LENGTH / RATE) * RATE // WORD_STEP) + 1, list(map(int, words))
    return len({*range(said)} - {*came}) + len(came) - len({*came}) + (came != sorted(came))


def _frame(head: int, data: bytes) -> bytes:
    """A frame that is masked with zeros."""
    size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + len(data).to_bytes(2, "big")
    return bytes([head]) + size + bytes(4) + data


async def speak(given: argparse.Namespace) -> Heard:
    """Open the sessions, wait for a line of input, and speak into all of them."""
    heard, base, key, count = Heard(), given.base, given.key, given.speak
    pcm = (_speech() * 32767).astype("<i2").tobytes()
    async with httpx.AsyncClient(base_url=base, headers={"Authorization": f"Bearer {key}"}, timeout=60) as client:

        async def open_one(number: int) -> Speaker:
            await asyncio.sleep(number / (count if given.burst else OPENED_A_SECOND))
            began = time.monotonic()
            made = (await client.post("/v1/live", json={})).raise_for_status().json()
            speaker = Speaker(heard, urlsplit(base), key, made["job_id"], pcm, given.deaf and number % 10 == 0)
            await speaker.connect()
            heard.opened_s.append(time.monotonic() - began)
            return speaker

        speakers = await asyncio.gather(*map(open_one, range(count)))
    print("connected", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    starts = random.Random(count)
    async with asyncio.TaskGroup() as tasks:
        for speaker in speakers:
            tasks.create_task(speaker.speak(starts.random(), given.seconds, survives=given.kill))
    return heard


@contextmanager
def speakers(nodes: Sequence[Serving], sessions: int, seconds: float) -> Iterator[list["subprocess.Popen[str]"]]:
    """Start processes whose speakers are connected, an equal number of them to each node."""
    with ExitStack() as stack:
        processes = []
        for number, node in enumerate(nodes):
            of_node = sessions // len(nodes) + (number < sessions % len(nodes))
            for at in range(0, of_node, EACH):
                words = ["--speak", min(EACH, of_node - at), "--base", node.base, "--key", nodes[0].key]
                words = [*sys.argv[1:], *map(str, words), "--seconds", str(seconds)]
                processes.append(stack.enter_context(child("crowd", *words)))
        for process in processes:
            _line(process)
        yield processes


def _line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline() or sys.exit("a process of speakers ended")


def measure(
    nodes: Sequence[Serving], sessions: int, seconds: float, *, kill: Callable[[], None] | None = None
) -> dict[str, Any]:
    """Return what *sessions* cost for *seconds* at all *nodes* together. *kill* is called then, while all speak."""
    empty_mb = sum(rss_mb(node.pid) for node in nodes)
    spoken_s = WARM_UP_S + seconds + (SETTLE_S if kill else 0)
    with speakers(nodes, sessions, spoken_s) as processes:
        for process in processes:
            print(file=process.stdin, flush=True)
        time.sleep(WARM_UP_S)
        before, began = sum(cpu_s(node.pid) for node in nodes), time.monotonic()
        time.sleep(seconds - 1)
        cores = (sum(cpu_s(node.pid) for node in nodes) - before) / (time.monotonic() - began)
        full_mb = sum(rss_mb(node.pid) for node in nodes)
        if kill:
            kill()
        heard = [json.loads(_line(process)) for process in processes]
    seconds_of = {name: [value for one in heard for value in one[name]] for name in TIMES}
    counted = ("dropped", "resumed", "words_wrong", "words_lost") if kill else ("dropped",)
    return {
        "sessions": sessions,
        "nodes": len(nodes),
        "server": "this version",
        "cores_a_session": round(cores / sessions, 4),
        **{name: spread(values) for name, values in seconds_of.items()},
        "kb_a_session": round((full_mb - empty_mb) * 1024 / sessions),
        "words": len(seconds_of["late_s"]),
        **{name: sum(one[name] for one in heard) for name in counted},
    }


def one_machine(sessions: int, given: argparse.Namespace) -> dict[str, Any]:
    """Measure a server. With --kill it is killed at the end and started again on the same data and port."""
    with ExitStack() as stack:
        kept = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(serving(LIMITS, kept=kept, ENGINE="scripted", **SETTINGS))

        def restart() -> None:
            os.kill(server.pid, signal.SIGKILL)
            port = str(urlsplit(server.base).port)
            stack.enter_context(serving(LIMITS, kept=kept, ENGINE="scripted", PORT=port, **SETTINGS))

        if given.upload:
            Thread(target=asyncio.run, args=(_upload_hour(server),), daemon=True).start()
        return measure([server], sessions, given.seconds, kill=restart if given.kill else None)


async def _upload_hour(server: Serving) -> None:
    """Let *server* transcribe an hour of speech, and print how long that took."""
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        soundfile.write(file, np.resize(_speech(), 3600 * RATE), RATE)
        async with Client(server.base, server.key) as client:
            job = await client.transcribe(Path(file.name))
            print("an hour's file:", job["status"], flush=True)


def _speech() -> Samples:
    return np.concatenate([clip.samples for clip in clips(PEOPLE)])


def two_machines(sessions: int, given: argparse.Namespace) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as limits:
        limits.write(replaced_limits(LIMITS))
        limits.flush()
        with two_nodes(LIMITS_FILE=limits.name, **SETTINGS) as nodes:
            return measure(nodes, sessions, given.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, nargs="+", default=[20, 60, 100])
    parser.add_argument("--seconds", type=float, default=30, help="of each measurement")
    parser.add_argument("--cluster", action="store_true", help="on two nodes that share a database")
    parser.add_argument("--kill", action="store_true", help="kill the server while all speak, and count wrong words")
    parser.add_argument("--deaf", action="store_true", help="every tenth speaker reads nothing")
    parser.add_argument("--burst", action="store_true", help="open all sessions within a second")
    parser.add_argument("--upload", action="store_true", help="an hour's file is transcribed at the same time")
    parser.add_argument("--no-write", action="store_true", help="print only")
    parser.add_argument("--speak", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--base", help=argparse.SUPPRESS)
    parser.add_argument("--key", help=argparse.SUPPRESS)
    given = parser.parse_args()
    raise_descriptor_limit()
    if given.speak is not None:
        print(json.dumps(vars(asyncio.run(speak(given)))), flush=True)
        return
    if given.cluster and (given.kill or given.upload):
        parser.error("--kill and --upload are for one machine")
    rows = []
    for sessions in given.sessions:
        rows.append((two_machines if given.cluster else one_machine)(sessions, given))
        print(rows[-1], flush=True)
    if not given.no_write:
        print(write("crowd-cluster" if given.cluster else "crowd", {"seconds": given.seconds, "sessions": rows}))


if __name__ == "__main__":
    main()
