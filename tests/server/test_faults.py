"""Whatever fails under one session or one job, nobody else notices: the process lives, others' words and jobs come."""

import asyncio
import base64
import contextlib
import errno
import itertools
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from pipeline.recognition.engines.scripted import SCRIPT
from server.client import Client, LiveStream
from tests.pipeline.sounds import encode_audio, tone
from tests.server.running import Server
from tests.server.serving import TLS, wav
from tests.server.talking import silence
from tests.waiting import until

ERRORS = (errno.EIO, errno.EACCES, errno.EMFILE, errno.ENOSPC)
EVERY = bool(os.environ.get("EVERY_FAULT"))
"""Whether each operation fails with each of ERRORS, instead of every other one with one of them: some minutes."""

KINDS = ("open", "os.link", "os.fsync")  # each fails at least once, whatever order the victim's operations have
TRIES = 10  # a victim may not come to link a file while what failed before still holds up its session
NONE = 10**6  # a number of operations that is never reached
STEP_S = 0.1  # of the bystander's audio
REFERENCE = f"data:audio/wav;base64,{base64.b64encode(wav()).decode()}"
KNOWN = {"diarize": True, "known_speaker_names": ["Ann"], "known_speaker_references": [REFERENCE]}
PATIENCE_S = 3.0  # for the victim's job: after a full disk it would be tried again half a minute later
AT_ONCE = {"Prefer": "respond-async"}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the faulty server finds the path of a file in /proc")


@dataclass
class FaultyServer:
    """A running server, and the line on which its faults are ordered."""

    server: Server
    line: TextIO

    def arm(self, count: int, number: int, kind: str = "") -> None:
        """Let file operation *count* from now on, or that of this *kind*, fail with errno *number*."""
        self._say(f"arm {count} {number} {kind}")

    def disarm(self) -> tuple[int, str]:
        """How many operations there were, and the one that failed."""
        count, _, failed = self._say("count").partition(" ")
        return int(count), failed.strip()

    def _say(self, command: str) -> str:
        print(command, file=self.line, flush=True)
        return self.line.readline()


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyServer]:
    folder = tmp_path_factory.mktemp("faulty").resolve()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        beyond = {"FAULTS_AT": str(listening.getsockname()[1])}
        server = Server(folder, {"ENGINE": "scripted"}, beyond=beyond, program="tests.server.faulty_server").start()
        try:
            control, _ = listening.accept()
            with control, control.makefile("rw") as line:
                yield FaultyServer(server, line)
        finally:
            server.stop()


class Victim:
    """A client with a recorded live session and a file, under which something fails."""

    def __init__(self, server: Server, key: str) -> None:
        self._server = server
        self._headers = {"Authorization": f"Bearer {key}"}

    async def live_through(self) -> None:
        """Do everything once, whatever the answers are, and have all of it erased."""
        jobs: list[str] = []
        async with httpx.AsyncClient(base_url=self._server.base, headers=self._headers, verify=TLS, timeout=20) as http:
            await asyncio.gather(self._speak(http, jobs), self._transcribe(http, jobs), self._vanish(http))
            for job in jobs:
                await http.delete(f"/v1/jobs/{job}", params={"force": "true"})

    async def _speak(self, http: httpx.AsyncClient, jobs: list[str]) -> None:
        order = {"encoding": "container", "record": True, "output_formats": ["json", "srt"], **KNOWN}
        answer = await http.post("/v1/live", json=order)
        if answer.status_code != 201:
            return
        record = answer.json()
        jobs.append(record["job_id"])
        with contextlib.suppress(WebSocketException, OSError, TimeoutError):
            async with asyncio.timeout(10), connect(record["live"]["ingest_ws"], proxy=None) as socket:
                await socket.send(encode_audio(tone(1.0), "webm", "libopus"))
                await asyncio.sleep(0.3)  # somebody speaks
                await socket.send('{"type":"close"}')
                async for _ in socket:
                    pass

    async def _vanish(self, http: httpx.AsyncClient) -> None:
        """Have a session erased while it is under way."""
        answer = await http.post("/v1/live", json={"record": True})
        if answer.status_code != 201:
            return
        record = answer.json()
        with contextlib.suppress(WebSocketException, OSError, TimeoutError):
            async with asyncio.timeout(10), connect(record["live"]["ingest_ws"], proxy=None) as socket:
                await socket.send(silence(1.0))
                await socket.recv()
                await http.delete(f"/v1/jobs/{record['job_id']}", params={"force": "true"})
                async for _ in socket:
                    pass

    async def _transcribe(self, http: httpx.AsyncClient, jobs: list[str]) -> None:
        form = {"output_formats": "json,txt", **KNOWN}
        answer = await http.post("/v1/transcribe", files={"file": wav()}, data=form, headers=AT_ONCE)
        if answer.status_code != 202:
            return
        jobs.append(answer.json()["job_id"])
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            record = (await http.get(f"/v1/jobs/{jobs[-1]}", params={"wait": 1})).json()
            if record["status"] in ("completed", "failed"):
                return


class Bystander:
    """A customer who speaks all the time, and has a file transcribed now and then."""

    def __init__(self, server: Server, key: str, folder: Path) -> None:
        self._server = server
        self._key = key
        self._recording = folder / "bystander.wav"
        self.sent_s = 0.0
        self.words: list[str] = []

    @contextlib.asynccontextmanager
    async def speak(self) -> AsyncIterator[None]:
        """Speak while the block lasts. Afterwards every word must have come, in one session without a break."""
        async with Client(self._server.base, self._key) as client, client.live() as stream:
            over = asyncio.Event()
            works = [asyncio.create_task(work) for work in (self._speak(stream, over), self._listen(stream))]
            try:
                yield
            finally:
                over.set()
                await asyncio.gather(*works)

    async def _speak(self, stream: LiveStream, over: asyncio.Event) -> None:
        while not over.is_set():
            await stream.send(silence(STEP_S))
            self.sent_s += STEP_S
            await asyncio.sleep(STEP_S)
        stream.close()

    async def _listen(self, stream: LiveStream) -> None:
        self.words += [event["word"] async for event in stream.events() if event["type"] == "word"]

    async def transcribe(self) -> dict[str, Any]:
        self._recording.write_bytes(wav())
        async with asyncio.timeout(20), Client(self._server.base, self._key) as client:
            return await client.transcribe(self._recording)


async def suffer(faulty: FaultyServer, folder: Path) -> list[str]:
    """Let each file operation of a victim fail once while a bystander is served. Returns those that failed."""
    victim = Victim(faulty.server, faulty.server.new_key("enterprise"))  # its limits are never reached
    bystander = Bystander(faulty.server, faulty.server.new_key(), folder)
    failed = []
    async with bystander.speak():
        faulty.arm(NONE, errno.EIO)
        await victim.live_through()
        count, _ = faulty.disarm()
        numbers = range(1, count + 1, 1 if EVERY else 2)
        faults = [
            *itertools.product(numbers, range(len(ERRORS) if EVERY else 1), [""]),
            *((1, 0, kind) for kind in KINDS for _ in range(TRIES)),
        ]
        for number, error, kind in faults:
            if kind and any(what.split()[0] == kind for what in failed):
                continue
            faulty.arm(number, ERRORS[(number // 2 + error) % len(ERRORS)], kind)
            await victim.live_through()
            _, what = faulty.disarm()
            failed += [what] if what else []
            assert faulty.server.process.poll() is None, (what, faulty.server.log[-40:])
            if number % 10 == 1:
                assert (await bystander.transcribe())["status"] == "completed", what
    expected = [SCRIPT[number % len(SCRIPT)] for number in range(len(bystander.words))]
    assert bystander.words == expected
    assert len(bystander.words) >= bystander.sent_s / 0.4 - 1
    return failed


def half_written(server: Server) -> list[str]:
    """The files without a name that the server has open."""
    opened = []
    for path in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            opened.append(path.readlink())
    return [str(path) for path in opened if path.parent.name == "incoming"]


@pytest.mark.timeout(900 if EVERY else 240)
def test_no_file_operation_that_fails_under_one_client_harms_another(faulty, tmp_path):
    failed = asyncio.run(suffer(faulty, tmp_path))
    kinds = {what.split()[0] for what in failed}
    assert kinds.issuperset(KINDS), sorted(kinds)
    assert len(failed) >= 20
    until(
        lambda: half_written(faulty.server) == [], max_s=90
    )  # a session that was not deleted waits 60 s for its writer
    still_named = sum(what.startswith("os.remove") for what in failed)  # until the next start
    assert len([*(faulty.server.data_dir / "incoming").iterdir()]) <= still_named
