"""Live words compared with other servers: python -m benchmarks.peers [--sessions 1 8] [--systems ...] [--rounds 1]

    .venv/bin/python -m benchmarks.peers --systems scribewire "LocalAgreement over transcribe()"
    .venv/bin/python -m benchmarks.peers --model tests/speech/tiny-whisper --speech made

Each server runs as its users start it, with the same model, machine and audio, one after the other. Audio is sent over
its WebSocket at the speed of speech. Other servers are installed into virtual environments under --venvs if they are
missing. Writes benchmarks/results/peers.json.
"""

import argparse
import asyncio
import itertools
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.choices import Choices, add_choices, choices_of
from benchmarks.driving import Crowd, Opener, random_starts
from benchmarks.measure import ROOT, write
from benchmarks.serving import serving
from benchmarks.tracks import LONG_S, WARM_UP_S, Track
from benchmarks.wires import LocalAgreement, Scribewire, WhisperLive, WhisperLiveKit, Wire

START_S = 120.0
WARMING_S = 5.0  # of audio before anything is measured: models load with the first session, in some servers
HERE = "127.0.0.1"
WEB = ("fastapi", "uvicorn", "websockets", "python-multipart", "soundfile")
PACKAGES = {
    # What a server imports on the way measured here; its other requirements stay out.
    "whisper-live": ("whisper-live==0.10.0", "faster-whisper==1.2.0", "scipy", "prometheus-client", "requests", *WEB),
    "whisperlivekit": ("whisperlivekit==0.2.26", "faster-whisper==1.2.1", "librosa", "tiktoken", *WEB),
}
TORCH = "torch==2.13.0"


@dataclass(frozen=True)
class Started:
    """A server that is ready: its process, and a function that opens a session."""

    pid: int
    open: Opener


System = Callable[[str, Path], AbstractContextManager[Started]]
"""Starts a server on a model's folder; the path is where virtual environments are."""


@contextmanager
def scribewire(model: str, _venvs: Path) -> Iterator[Started]:
    with serving(ENGINE="whisper", WHISPER_MODEL=model) as server:

        async def open_wire(track: Track) -> Wire:
            return await asyncio.to_thread(Scribewire.open_session, server.base, server.key, track.language)

        yield Started(server.pid, open_wire)


@contextmanager
def local_agreement(model: str, _venvs: Path) -> Iterator[Started]:
    with process(sys.executable, "-m", "benchmarks.local_agreement", model, "PORT") as (pid, port):

        async def open_wire(track: Track) -> Wire:
            return LocalAgreement(f"ws://{HERE}:{port}", track.language)

        yield Started(pid, open_wire)


@contextmanager
def whisper_live(model: str, venvs: Path, **options: bool) -> Iterator[Started]:
    script = (
        "import sys; from whisper_live.server import TranscriptionServer as Server; "
        f"Server().run({HERE!r}, int(sys.argv[1]), 'faster_whisper', {model!r}, max_clients=1000, **{options})"
    )
    with process(str(install_peer(venvs, "whisper-live")), "-c", script, "PORT") as (pid, port):
        numbers = itertools.count()

        async def open_wire(track: Track) -> Wire:
            return WhisperLive(f"ws://{HERE}:{port}", track.language, model, f"session {next(numbers)}")

        yield Started(pid, open_wire)


@contextmanager
def whisperlivekit(model: str, venvs: Path) -> Iterator[Started]:
    server = str(install_peer(venvs, "whisperlivekit").with_name("whisperlivekit-server"))
    options = ("--backend", "faster-whisper", "--backend-policy", "localagreement", "--pcm-input", "--lan", "en")
    with process(server, "--host", HERE, "--port", "PORT", "--model_dir", model, *options) as (pid, port):

        async def open_wire(_track: Track) -> Wire:
            return WhisperLiveKit(f"ws://{HERE}:{port}/asr")

        yield Started(pid, open_wire)


OURS = "scribewire"
SYSTEMS: dict[str, System] = {
    OURS: scribewire,
    "LocalAgreement over transcribe()": local_agreement,
    "whisper-live, one model": partial(whisper_live, single_model=True),
    "whisper-live, batched": partial(whisper_live, batch_enabled=True),
    "whisper-live, a model each": whisper_live,
    "whisperlivekit, LocalAgreement": whisperlivekit,
}


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


def install_peer(venvs: Path, name: str) -> Path:
    """Return the Python of a peer's virtual environment, which is created if it is missing."""
    peer, *needed = PACKAGES[name]
    python = venvs / name / "bin" / "python"
    stamp = venvs / name / "installed"
    if not stamp.exists() or stamp.read_text() != f"{TORCH} {PACKAGES[name]}":
        print(f"installing {name} ...", flush=True)
        subprocess.run((sys.executable, "-m", "venv", "--clear", str(venvs / name)), check=True)
        pip = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        for what in ((TORCH,), needed, ("--no-deps", peer)):
            subprocess.run((*pip, *what), check=True)
        stamp.write_text(f"{TORCH} {PACKAGES[name]}")
    return python


async def measure(started: Started, choices: Choices, sessions: int, length_s: float) -> dict[str, Any]:
    """Run one long track alone, or many at once. The first seconds only warm the server up."""
    await Crowd(started.open, started.pid).run(choices.tracks(1, WARMING_S), [0.0])
    if sessions == 1:
        return await Crowd(started.open, started.pid).run(choices.tracks(1, length_s), [0.0])
    crowd = Crowd(started.open, started.pid, since_s=WARM_UP_S)
    return await crowd.run(choices.tracks(sessions, length_s), random_starts(sessions))


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the median of the rounds of each system, and the ratios of the others to Scribewire."""
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["system"], row["sessions"]), []).append(row)
    medians = {key: _median(group) for key, group in groups.items()}
    return {
        "rounds": max(map(len, groups.values())),
        "systems": [{"system": name, **row} for (name, _), row in medians.items()],
        "scribewire_to": {
            f"{name}, {count} session{'s' * (count > 1)}": _ratios(medians[OURS, count], row)
            for (name, count), row in medians.items()
            if name != OURS and (OURS, count) in medians
        },
    }


def _median(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    first = rows[0]
    if isinstance(first, dict):
        return {name: _median([row[name] for row in rows]) for name in first if name != "system"}
    return first if isinstance(first, bool) else round(statistics.median(rows), 4)


def _ratios(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, float]:
    return {
        "commit p50": round(ours["commit_s"]["p50"] / theirs["commit_s"]["p50"], 2),
        "commit p95": round(ours["commit_s"]["p95"] / theirs["commit_s"]["p95"], 2),
        "first seen p50": round(ours["first_seen_s"]["p50"] / theirs["first_seen_s"]["p50"], 2),
        "CPU": round(ours["cpu_per_audio_s"] / theirs["cpu_per_audio_s"], 2),
        "memory": round(ours["rss_mb"] / theirs["rss_mb"], 2),
        "erasure": round(ours["erasure"] / max(theirs["erasure"], 1e-9), 2),
        "WER minus theirs": round(ours["wer"] - theirs["wer"], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_choices(parser)
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=list(SYSTEMS), metavar="NAME")
    parser.add_argument("--sessions", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=LONG_S, help="length of each session")
    parser.add_argument("--no-write", action="store_true", help="print only")
    parser.add_argument("--venvs", type=Path, default=Path(tempfile.gettempdir()) / "scribewire-peers")
    args = parser.parse_args()
    choices = choices_of(args)

    rows: list[dict[str, Any]] = []
    for _, sessions, name in itertools.product(range(args.rounds), args.sessions, args.systems):
        with SYSTEMS[name](choices.model, args.venvs) as started:
            row = asyncio.run(measure(started, choices, sessions, args.seconds))
        rows.append({"system": name, **row})
        shown = ("sessions", "commit_s", "first_seen_s", "wer", "said_twice", "cpu_per_audio_s", "rss_mb", "void")
        print(f"{name:>34}  " + "  ".join(f"{key} {row[key]}" for key in shown), flush=True)
        if not args.no_write:  # after each run, because a run takes long: what is measured is kept
            write(choices.result("peers"), {**choices.about(), **summary(rows)})


if __name__ == "__main__":
    main()
