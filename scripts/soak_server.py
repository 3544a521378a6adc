"""The server of a soak: starts, kills and measures its process, and fills its disk (Linux)."""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measure import ROOT, process_tree, rss_mb
from scripts.chaos import Process, answers, free_port, wait_until

START_S = 120
STOP_S = 60
ORPHANS_S = 15  # within which the children of a killed server must have ended
DISK_MB = 1024
FILLER = "filler"
LIMITS = {  # of server/limits.toml, which would stop the clients or make webhooks wait for minutes
    "requests_per_minute = 3000": "requests_per_minute = 100000",
    "requests_per_minute = 300\n": "requests_per_minute = 100000\n",
    "delays_s = [5, 300, 1800,": "delays_s = [1, 2, 3, 4, 5, 5, 5, 5, 300, 1800,",
}


@dataclass
class SoakServer:
    """A server with the bundled model in production and the scripted engine in its sandbox.

    *disk* is its file system; *life* counts its starts.
    """

    disk: Path
    life: int = 0
    runs: bool = False  # and answers
    exits: list[int] = field(default_factory=list)  # of the ends by SIGTERM; 0 is right
    orphans: int = 0  # processes that outlived a killed server

    def __post_init__(self) -> None:
        self.port = free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        self.data, self.temporary = self.disk / "data", self.disk / "tmp"
        self.temporary.mkdir()
        self.process = Process(["serve"], self._environment(), self.disk.parent / "server.log")

    def _environment(self) -> dict[str, str]:
        limits = (ROOT / "server" / "limits.toml").read_text()
        for old, new in LIMITS.items():
            if old not in limits:
                raise SystemExit(f"server/limits.toml has no {old!r}")
            limits = limits.replace(old, new)
        file = self.disk.parent / "limits.toml"
        file.write_text(limits)
        ours = {
            "DATA_DIR": str(self.data),
            "ENGINE": "auto",
            "WHISPER_MODEL": "tiny.en",
            "EGRESS_ALLOW_CIDRS": "127.0.0.0/8",
            "ALLOW_HTTP_SOURCES": "1",
            "LIMITS_FILE": str(file),
            "PORT": str(self.port),
            "DISK_RESERVE_MIB": "64",
        }
        settings = {f"SCRIBEWIRE_{name}": value for name, value in ours.items()}
        return {**os.environ, **settings, "TMPDIR": str(self.temporary)}

    @property
    def pid(self) -> int:
        assert self.process.child is not None
        return self.process.child.pid

    def start(self) -> None:
        self.process.start()
        wait_until(lambda: answers(self.base), START_S)
        self.life += 1
        self.runs = True

    def kill(self) -> None:
        """End it with SIGKILL, and count its children that do not end with it."""
        self.runs = False
        children = set(process_tree(self.pid)) - {self.pid}
        self.process.kill()
        wait_until(lambda: not any(map(_runs, children)), ORPHANS_S, must=False)
        self.orphans += sum(map(_runs, children))

    def stop(self) -> None:
        """End it with SIGTERM."""
        self.runs = False
        assert self.process.child is not None
        self.process.child.terminate()
        self.exits.append(self.process.child.wait(STOP_S))

    def look(self) -> dict[str, float]:
        """Return its memory, descriptors, threads and processes now, and the files that belong to work in progress."""
        tree = list(process_tree(self.pid))
        return {
            "rss_mb": round(rss_mb(self.pid), 1),
            "descriptors": sum(_entries(Path(f"/proc/{pid}/fd")) for pid in tree),
            "threads": sum(_entries(Path(f"/proc/{pid}/task")) for pid in tree),
            "processes": len(tree),
            "temporary_files": sum(_entries(place) for place in (self.temporary, self.data / "incoming")),
        }

    def rows(self) -> dict[str, int]:
        """Return the number of rows of each table."""
        uri = f"file:{self.data / 'scribewire.db'}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as database:
            tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return {
                name: database.execute(f"SELECT count(*) FROM {name}").fetchone()[0]  # noqa: S608  its own tables
                for name in sorted(tables)
                if not name.startswith("sqlite_")
            }

    def disk_mb(self) -> dict[str, float]:
        """Return what is stored: the database with its log, and blobs, finished and unfinished."""
        database = sum(_bytes(file) for file in self.data.glob("scribewire.db*"))
        blobs = sum(_bytes(file) for place in ("blobs", "incoming") for file in (self.data / place).rglob("*"))
        return {"database": round(database / 2**20, 2), "blobs": round(blobs / 2**20, 2)}


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


def fill(disk: Path) -> None:
    """Leave no room on the file system of *disk*, not even for a page of the database, until empty()."""
    with (disk / FILLER).open("wb") as file:
        for piece in (2**20, 4096):
            while count := shutil.disk_usage(disk).free // piece:
                with suppress(OSError):  # the server was faster; the next round sees what is left
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), count * piece)


def empty(disk: Path) -> None:
    (disk / FILLER).unlink()


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def _entries(folder: Path) -> int:
    try:
        return sum(1 for _ in folder.iterdir())
    except FileNotFoundError:
        return 0  # the process has just ended


def _bytes(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0  # deleted since the folder was listed
