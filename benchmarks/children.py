"""Programs of this folder in processes of their own: clients, and the bare server that others are compared with."""

import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.measure import ROOT


@contextmanager
def child(module: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """Start a program of this folder; kill it after the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"benchmarks.{module}", *arguments],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def address_of(process: "subprocess.Popen[str]") -> str:
    """Return the address of a child that prints the port on which it listens."""
    assert process.stdout is not None
    return f"http://127.0.0.1:{process.stdout.readline().strip()}"


def raise_descriptor_limit() -> None:
    """Let this process open as many files as the system allows it: each connection is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
