"""Programs of this folder in processes of their own: clients, and the bare apps that servers are compared with."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette

from benchmarks.measure import ROOT


@contextmanager
def child(module: str, *arguments: str, text: str = "", **environment: str) -> Iterator["subprocess.Popen[str]"]:
    """Start a program of this folder, with *text* as the first line of its input; kill it after the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", f"benchmarks.{module}", *arguments],
        cwd=ROOT, env={**os.environ, **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        if text:
            assert process.stdin is not None
            print(text, file=process.stdin, flush=True)
        yield process
    finally:
        process.kill()
        process.wait()


def address_of(process: "subprocess.Popen[str]") -> str:
    """Return the address of a child that prints the port on which it listens."""
    assert process.stdout is not None
    return f"http://127.0.0.1:{process.stdout.readline().strip()}"


def serve_bare(app: Starlette) -> None:
    """Print a port and serve *app* there on uvicorn, with the server's event loop and HTTP parser, until killed."""
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    settings = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", loop="auto", http="auto")
    asyncio.Runner(loop_factory=settings.get_loop_factory()).run(uvicorn.Server(settings).serve(sockets=[listening]))
