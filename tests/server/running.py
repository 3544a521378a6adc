"""Starts real server processes for black-box tests, each with its own data folder on loopback."""

import asyncio
import contextlib
import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import httpx
import numpy as np
import soundfile

from server.accounts.keys import open_account
from server.commands.administration import with_storage
from server.config import Config
from server.storage.sql.storage import Storage
from tests.server.commanding import run_command

ROOT = Path(__file__).resolve().parents[2]
SPEECH = ROOT / "tests" / "speech"
CLIP = SPEECH / "espeak" / "en_05.flac"
START_S = 60


def long_recording(times: int) -> bytes:
    """Return a few minutes of speech: one long clip, several times."""
    samples, rate = soundfile.read(SPEECH / "espeak" / "en_long.flac", dtype="int16")
    out = io.BytesIO()
    soundfile.write(out, np.tile(samples, times), rate, format="FLAC")
    return out.getvalue()


def environment(data_dir: Path, **variables: str) -> dict[str, str]:
    """Return the environment of a server process. *variables* have no prefix."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SCRIBEWIRE_")}
    ours = {
        "DATA_DIR": str(data_dir),
        "PORT": "0",
        "ENGINE": "whisper",
        "WHISPER_MODEL": str(SPEECH / "tiny-whisper"),
        "EGRESS_ALLOW_CIDRS": "127.0.0.0/8",
        "ALLOW_HTTP_SOURCES": "1",
        "DISK_RESERVE_MIB": "0",
        **variables,
    }
    return {**inherited, **{f"SCRIBEWIRE_{name}": value for name, value in ours.items()}}


@dataclass
class Server:
    """A server process. Its log is collected line by line."""

    data_dir: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    before: Sequence[str] = ()  # a command that starts the one behind it
    program: str = "server"  # the module that is run
    beyond: Mapping[str, str] = field(default_factory=dict)  # variables that are not ours
    log: list[str] = field(default_factory=list)
    clients: list[httpx.Client] = field(default_factory=list)
    base: str = ""
    process: "subprocess.Popen[str] | None" = None

    def start(self) -> "Server":
        self.process = subprocess.Popen(
            [*self.before, sys.executable, "-m", self.program, "serve"],
            cwd=ROOT,
            env=environ_of(self),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        ready = threading.Event()
        threading.Thread(target=self._read, args=(self.process, ready), daemon=True).start()
        if not ready.wait(START_S) or not self.base:
            self.stop()
            raise AssertionError("the server did not get ready:\n" + "\n".join(self.log[-40:]))
        return self

    def _read(self, process: "subprocess.Popen[str]", ready: threading.Event) -> None:
        for line in process.stderr:
            self.log.append(line.rstrip("\n"))
            if (at := line.find("ready http")) >= 0:
                self.base = line[at:].split()[1]
                ready.set()
        process.stderr.close()
        ready.set()

    def kill(self) -> None:
        """End the process with SIGKILL, as if the machine had died."""
        self._signal(signal.SIGKILL)

    def stop(self) -> int:
        """Send SIGTERM, wait, and return the exit status."""
        return self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> int:
        for client in self.clients:
            client.close()
        self.clients.clear()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, number)
        return self.process.wait(60)

    def cli(self, *words: str) -> str:
        """Run `scribewire` on this server's data folder and return what it prints."""
        done = run_command(*words, environ=environ_of(self))
        assert done.returncode == 0, done.stderr
        return done.stdout

    def new_key(self, plan: str = "pro", environment: str = "production") -> str:
        """Make a new account as `scribewire keys create` does, and return its key. It takes no process of its own."""

        async def make(storage: Storage) -> str:
            _, issued = await open_account(storage.accounts, plan=plan, environment=environment, name="test")
            return issued.secret

        config = Config.from_env(environ_of(self))
        with patch.dict(os.environ, self.beyond), ThreadPoolExecutor(1) as thread:  # an event loop may run in this one
            key: str = thread.submit(asyncio.run, with_storage(config, make)).result()
        return key

    def client(self, key: str | None, *, sandbox: bool = False) -> httpx.Client:
        """Return a client with this key. It is closed with the server."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        client = httpx.Client(base_url=self.base + ("/sandbox" if sandbox else ""), headers=headers, timeout=90)
        self.clients.append(client)
        return client


def environ_of(server: Server) -> dict[str, str]:
    """Return the environment of the server's process."""
    return {**environment(server.data_dir, **server.variables), **server.beyond}


@contextlib.contextmanager
def run_server(data_dir: Path, *before: str, program: str = "server", **variables: str) -> Iterator[Server]:
    server = Server(data_dir, variables, before=before, program=program).start()
    try:
        yield server
    finally:
        if server.process is not None and server.process.poll() is None:
            server.stop()


def until_over(client: httpx.Client, job_id: str, *, max_s: float = 60) -> dict[str, object]:
    """Wait until the job is over and return its record."""
    until = time.monotonic() + max_s
    while time.monotonic() < until:
        record: dict[str, object] = client.get(f"/v1/jobs/{job_id}", params={"wait": 10}).json()
        if record["status"] in ("completed", "failed", "canceled"):
            return record
    raise AssertionError(f"{job_id} is not over after {max_s} s: {record}")
