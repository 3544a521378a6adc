"""The server of a soak: started, killed, looked at, and its small disk filled (Linux)."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from os import SEEK_END, posix_fallocate
from pathlib import Path

from benchmarks.measure import ROOT, process_tree, rss_mb
from scripts.chaos import Process, answers, ask_sqlite, wait_until
from tests.processes import free_port
from tests.server.running import environment

START_S = 120
DISK_MB = 1024
EMPTIED = ("jobs", "metadata", "chunks", "artifacts", "events", "deliveries", "attempts")
"""The tables that must have no row of a deleted job."""

LIMITS = {  # of server/limits.toml, which would stop the clients or make webhooks wait for minutes
    "requests_per_minute = 3000": "requests_per_minute = 100000",
    "requests_per_minute = 300\n": "requests_per_minute = 100000\n",
    "delays_s = [5, 300, 1800,": "delays_s = [1, 2, 3, 4, 5, 5, 5, 5, 300, 1800,",
}


@dataclass
class Soaked:
    """A server on the file system *disk*: the bundled model in production, the scripted engine in its sandbox."""

    disk: Path
    life: int = 0  # how often it was started
    runs: bool = False  # and answers
    faults: list[str] = field(default_factory=list)  # of its processes

    def __post_init__(self) -> None:
        port = free_port()
        self.base, self.data, self.temporary = f"http://127.0.0.1:{port}", self.disk / "data", self.disk / "tmp"
        self.temporary.mkdir()
        limits = (ROOT / "server" / "limits.toml").read_text()
        for old, new in LIMITS.items():
            if old not in limits:
                raise SystemExit(f"server/limits.toml has no {old!r}")
            limits = limits.replace(old, new)
        (self.disk.parent / "limits.toml").write_text(limits)
        own = {
            "ENGINE": "auto", "WHISPER_MODEL": "tiny.en", "PORT": str(port), "DISK_RESERVE_MIB": "64",
            "LIMITS_FILE": str(self.disk.parent / "limits.toml"),
        }  # fmt: skip
        env = {**environment(self.data, **own), "TMPDIR": str(self.temporary)}
        self.process = Process(["serve"], env, self.disk.parent / "server.log")

    def start(self) -> None:
        self.process.start()
        wait_until(partial(answers, self.base), START_S)
        self.life, self.runs = self.life + 1, True

    def kill(self) -> None:
        """End it with SIGKILL. Its children must end with it."""
        self.runs = False
        children = set(process_tree(self.process.child.pid)) - {self.process.child.pid}
        self.process.kill()
        wait_until(lambda: not any(map(_lives, children)), 15, must=False)
        self.faults += [f"process {child} outlived the killed server" for child in children if _lives(child)]

    def stop(self) -> None:
        """End it with SIGTERM."""
        self.runs = False
        if status := self.process.stop():
            self.faults.append(f"the stopped server ended with status {status}")

    def look(self) -> dict[str, float]:
        tree = [Path(f"/proc/{pid}") for pid in process_tree(self.process.child.pid)]
        return {
            "rss_mb": round(rss_mb(self.process.child.pid), 1),
            "descriptors": sum(_entries(process / "fd") for process in tree),
            "threads": sum(_entries(process / "task") for process in tree),
            "processes": len(tree),
            "temporary_files": _entries(self.temporary) + _entries(self.data / "incoming"),
        }

    def count_rows(self) -> dict[str, int]:
        ask = partial(ask_sqlite, self.data)
        return {table: ask(f"SELECT count(*) FROM {table}")[0][0] for table in EMPTIED}  # noqa: S608  constants

    def stored_files(self) -> list[Path]:
        places = (self.data / "blobs", self.data / "incoming")
        return [path for place in places for path in place.rglob("*") if path.is_file()]


def _lives(pid: int) -> bool:
    with suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def _entries(folder: Path) -> int:
    with suppress(FileNotFoundError):  # the process has just ended
        return sum(1 for _ in folder.iterdir())
    return 0


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """Mount a file system of DISK_MB at *folder*. Yields False if this user may not mount: it is then a plain folder.

    The caller runs in a mount namespace of its own, if it may mount at all, so nothing stays behind when it is killed.
    """
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "scribewire-soak", str(folder)]
    mounted = subprocess.run(command, check=False, capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(filler: Path) -> None:
    """Leave no space on the file system of *filler*, not even for a page of the database."""
    with filler.open("wb") as file:
        for piece in (2**20, 4096):
            while count := shutil.disk_usage(filler.parent).free // piece:
                with suppress(OSError):  # the server was faster; the next round sees what is left
                    posix_fallocate(file.fileno(), file.seek(0, SEEK_END), count * piece)
