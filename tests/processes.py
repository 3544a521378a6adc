"""Helpers that run programs in separate processes and check whether these have ended."""

import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

ROOT = Path(__file__).parents[1]


def output_of(program: str, *arguments: str, **variables: str) -> str:
    """Run a Python *program*, which can import this project's packages, and return its standard output."""
    words = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(words, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def free_port() -> int:
    """Return a free port, for a server that must restart on the same one."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def has_ended(pid: int) -> bool:
    """Return whether the process has ended, even if its parent has not waited for it (Linux)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


@contextmanager
def few_files(process_id: int, *, spare: int = 0) -> Iterator[None]:
    """Let a process open no more than *spare* files during the block (Linux)."""
    files = Path(f"/proc/{process_id}/fd")
    lowest = next(number for number in count() if not (files / str(number)).is_symlink())
    soft, hard = resource.prlimit(process_id, resource.RLIMIT_NOFILE)
    resource.prlimit(process_id, resource.RLIMIT_NOFILE, (lowest + spare, hard))
    try:
        yield
    finally:
        resource.prlimit(process_id, resource.RLIMIT_NOFILE, (soft, hard))
