"""Cells: processes that load a library once and then fork a child for each piece of work.

A fork is ready in milliseconds and knows nothing of the work before it. A cell is started with a socket as its standard
input; when that socket closes, because its owner closed it or is dead, the cell ends, and its children end with it.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pipeline

KEPT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LANG", "TMPDIR")
"""What a cell is told of our environment, which holds secrets."""

PR_SET_PDEATHSIG = 1  # <sys/prctl.h>

_LIBC = ctypes.CDLL(None)


def started(module: str, **environment: str) -> tuple[socket.socket, "subprocess.Popen[bytes]"]:
    """The process that runs *module*, and our end of its socket."""
    outer, inner = socket.socketpair()
    with inner:
        process = subprocess.Popen(  # noqa: S603  the module is one of ours
            (sys.executable, "-P", "-m", module),
            stdin=inner.fileno(),
            stdout=subprocess.DEVNULL,
            env={
                **{name: os.environ[name] for name in KEPT if name in os.environ},
                "PYTHONPATH": str(Path(pipeline.__path__[0]).parent),
                **environment,
            },
            start_new_session=True,  # a Ctrl-C in the terminal is for the server to act on
        )
    return outer, process


def ignore_signals() -> None:
    """Called in a cell: its owner ends it, also when all of their group are told to stop."""
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)


def die_with(parent: int) -> None:
    """Called in a child of *parent*: the child is killed when that process dies (Linux; elsewhere nothing is done)."""
    if sys.platform == "linux":
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            raise ProcessLookupError("the parent died before it could be watched")
