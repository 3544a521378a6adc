"""PostgreSQL servers for tests: a new one a process of pytest, with a new database for each test.

The programs are those of the system (Debian's package `postgresql`). PostgreSQL refuses to run as root, so root hands
it to a user without rights.
"""

import atexit
import functools
import os
import pwd
import shutil
import subprocess
import tempfile
from itertools import count
from pathlib import Path

import psycopg
import pytest

from tests.processes import free_port

USERS = ("postgres", "nobody")
FAST = ("fsync=off", "full_page_writes=off", "synchronous_commit=on", "max_connections=300", "shared_buffers=64MB")


def programs() -> Path | None:
    """Return the folder with initdb and postgres, None if they are not installed."""
    places = [*Path("/usr/lib/postgresql").glob("*/bin"), *Path("/opt/homebrew/opt").glob("postgresql@*/bin")]
    found = shutil.which("initdb")
    places += [Path(found).resolve().parent] if found else []
    usable = [place for place in places if (place / "initdb").exists() and (place / "postgres").exists()]
    return max(usable, key=lambda place: (len(place.parent.name), place.parent.name), default=None)


class Cluster:
    """One PostgreSQL server on a free port of this machine. It can be stopped roughly and started again."""

    def __init__(self, folder: Path, bin_folder: Path, *, port: int, settings: tuple[str, ...] = FAST) -> None:
        self.port = port
        self._folder = folder
        self._data = folder / "data"
        self._bin = bin_folder
        self._settings = settings
        self._numbers = count(1)
        self._user = next((name for name in USERS if os.geteuid() == 0 and _exists(name)), None)
        folder.mkdir(parents=True, exist_ok=True)
        if self._user:
            shutil.chown(folder, self._user)
        self._run("initdb", "--pgdata", self._data, "--username=test", "--auth=trust", "--no-sync", "--encoding=UTF8")

    def start(self) -> None:
        options = " ".join(f"-c {setting}" for setting in self._settings)
        options += f" -p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self._folder}"
        self._run("pg_ctl", "start", "--wait", "-D", self._data, "-o", options, "-l", self._folder / "log")

    def stop(self, mode: str = "immediate") -> None:
        """Stop it; *mode* immediate is as if its machine had lost power."""
        self._run("pg_ctl", "stop", "--wait", "-D", self._data, "-m", mode)

    def pid(self) -> int:
        return int((self._data / "postmaster.pid").read_text().splitlines()[0])

    def url(self, database: str) -> str:
        return f"postgresql://test:unsaid@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """Make an empty database and return its URL."""
        name = f"test{next(self._numbers)}_{os.getpid()}"
        self.sql("postgres", f"CREATE DATABASE {name}")
        return self.url(name)

    def sql(self, database: str, text: str) -> None:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(text.encode())

    def _run(self, program: str, *words: object) -> None:
        command = [str(self._bin / program), *map(str, words)]
        subprocess.run(
            command, user=self._user, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60,
            cwd=self._folder, env={"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(self._folder)},
        )  # fmt: skip


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def new_cluster(port: int, *, settings: tuple[str, ...] = FAST) -> Cluster:
    """Start a server that is gone at the end of this process. Skips the test where PostgreSQL is not installed."""
    found = programs()
    if found is None:
        pytest.skip("PostgreSQL is not installed (Debian's package postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    made = Cluster(folder, found, port=port, settings=settings)
    made.start()
    atexit.register(_remove, made, folder)
    return made


def _remove(cluster: Cluster, folder: Path) -> None:
    try:
        cluster.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def shared_cluster() -> Cluster:
    """Return the server of this process of pytest."""
    return new_cluster(free_port())
