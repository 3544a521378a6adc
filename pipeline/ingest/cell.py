"""The inner side of isolation: a process that forks one child for each recording, and that child.

It is started by isolation.py as `python -m pipeline.ingest.cell` with a socket as its standard input. It loads the
decoder once and stays single-threaded, which makes a fork safe and a child ready in milliseconds, whatever threads and
event loops the server runs. Orders are lines of JSON: `start` comes with two descriptors, the source and the pipe for
messages (crossing.py), and is answered with a process id; `end` makes sure that a child is gone and is answered with
how it went. When the socket closes, because the server closed it or is gone, every child is killed.
"""

import ctypes
import io
import os
import resource
import signal
import socket
import sys
import traceback
import wave
from typing import Any, NoReturn

import orjson

from pipeline.errors import PipelineError
from pipeline.ingest.containers import DecodeLimits
from pipeline.ingest.crossing import OUT_OF_MEMORY, Done, Failed, Message, Opened, Order, packed
from pipeline.ingest.decode import recording

MEMORY_BYTES = 1 << 30
"""Of address space, of which the interpreter and its libraries take 0.2 GB. A twelve-hour file's index is 0.1 GB."""

MOST_ORDER_BYTES = 4096

PR_SET_PDEATHSIG = 1  # <sys/prctl.h>

_LIBC = ctypes.CDLL(None)


def serve(control: socket.socket) -> None:
    """Carry out orders until the other side is gone."""
    children: set[int] = set()
    try:
        while asked := _received(control):
            line, descriptors = asked
            match orjson.loads(line):
                case {"start": order}:
                    answer = _forked(order, descriptors, control)
                    children |= set(answer.values())
                case {"end": int(pid)} if pid in children:
                    children.remove(pid)
                    answer = {"exit": _ended(pid)}
                case _:
                    raise ValueError("no such order")
            control.sendall(orjson.dumps(answer) + b"\n")
    finally:
        for pid in children:
            _ended(pid)


def _forked(order: dict[str, Any], descriptors: list[int], control: socket.socket) -> dict[str, int]:
    """The process id of a child that carries out *order*; nothing where the system has no room for one."""
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        pid = -1
    if pid == 0:
        _live_and_die(order, descriptors, control, parent)
    for descriptor in descriptors:
        os.close(descriptor)
    return {"pid": pid} if pid > 0 else {}


def _received(control: socket.socket) -> tuple[bytes, list[int]] | None:
    """The next order and its descriptors; None when no more can come. One order is under way at a time."""
    line, descriptors = b"", []
    while not line.endswith(b"\n"):
        part, came, _, _ = socket.recv_fds(control, MOST_ORDER_BYTES, 2)
        if not part:
            return None
        line += part
        descriptors += came
    return line, descriptors


def _ended(pid: int) -> int:
    """Kill the child where it still runs. The exit code, or minus the signal that ended it."""
    os.kill(pid, signal.SIGKILL)  # no other process can have its number before it is waited for
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _live_and_die(asked: dict[str, Any], descriptors: list[int], control: socket.socket, parent: int) -> NoReturn:
    """All of a child's life."""
    code = 1
    try:
        control.close()
        order = Order.read(asked)
        source, out = descriptors
        _confine(order, parent)
        _decode(order, source, out)
        code = 0
    except BrokenPipeError:
        code = 0  # nobody listens any more
    except MemoryError:
        code = OUT_OF_MEMORY
    except BaseException:  # noqa: BLE001 - nothing may climb back into the loop of the process that was forked
        traceback.print_exc()
    finally:
        os._exit(code)


def _confine(order: Order, parent: int) -> None:
    """Take from this process what decoding does not need.

    With no descriptor to be had it can open no file and no connection, whatever a decoder is tricked into.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    if order.limits.longest_s is not None:
        cpu_s = 60 + int(order.limits.longest_s)  # slower than real time is no recording but an attack
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    if sys.platform == "linux":  # other systems neither take this limit nor tell a child that its parent died
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            raise ProcessLookupError("the parent died before it could be watched")


def _decode(order: Order, source: int, out: int) -> None:
    def send(message: Message) -> None:
        _write(out, packed(message))
        signal.setitimer(signal.ITIMER_PROF, order.stall_s)  # of processor time: it kills who turns in circles

    signal.setitimer(signal.ITIMER_PROF, order.stall_s)
    try:
        with (
            open(source, "rb", buffering=0) as file,
            recording(file, order.limits, live=order.live) as heard,
        ):
            send(Opened(heard.probe))
            for samples in heard:
                send(samples)
            send(Done(heard.notes))
    except PipelineError as error:
        send(Failed(error))


def _write(out: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(out, view) :]


def _warm_up() -> None:
    """Decode something, so that no child has to load what it can no longer open."""
    file = io.BytesIO()
    with wave.open(file, "wb") as silence:
        silence.setnchannels(1)
        silence.setsampwidth(2)
        silence.setframerate(8000)
        silence.writeframes(bytes(16000))
    file.seek(0)
    with recording(file, DecodeLimits()) as heard:
        for samples in heard:
            packed(samples)


def main() -> None:
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)  # the server ends this process, also when its whole group is told to stop
    _warm_up()
    with socket.socket(fileno=0) as control:
        serve(control)


if __name__ == "__main__":
    main()
