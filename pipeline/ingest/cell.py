"""The inner side of isolation: a process that forks a child for each recording, and the work of that child.

isolation.py starts it as `python -m pipeline.ingest.cell` with a socket as its standard input. It loads the decoder
once and has a single thread, so forking is safe and takes milliseconds, whatever threads the server runs.

Requests are lines of JSON. `start` comes with two descriptors, the source and the pipe for messages (messages.py); the
answer is a process id. `kill` makes sure that a child has ended; the answer is its exit code. When the socket closes,
because the server closed it or died, every child is killed.
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
from pathlib import Path
from typing import Any, NoReturn

import orjson

from pipeline.errors import PipelineError
from pipeline.ingest import seccomp
from pipeline.ingest.decode import open_recording
from pipeline.ingest.input_formats import DecodeLimits
from pipeline.ingest.messages import OUT_OF_MEMORY, DecodeOptions, Done, Failed, Message, Opened, pack
from pipeline.ingest.source import ByteSource

MEMORY_BYTES = 104 << 20
"""The address space that a child may add to that of this process, which has some 210 MB of shared libraries and data.
A usual recording takes 4 MB, the index of an MP4 file of 12 h 74 MB."""

EXPENDABLE = 800
"""Where memory runs out, the kernel ends the largest decoder before anything else: /proc/PID/oom_score_adj."""

MAX_REQUEST_BYTES = 4096

CPU_GRACE_S = 5
"""CPU time between the signal of the limit, which reports the reason, and the kill that nothing can delay."""

PR_SET_PDEATHSIG = 1  # <sys/prctl.h>

_LIBC = ctypes.CDLL(None)


def serve(control: socket.socket) -> None:
    """Answer requests until the other side closes the socket."""
    children: set[int] = set()
    mapped = 0  # the size of this process's address space; systems other than Linux do not limit it
    if sys.platform == "linux":
        mapped = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    try:
        while received := _next_request(control):
            line, descriptors = received
            match orjson.loads(line):
                case {"start": options}:
                    answer = _fork(options, descriptors, control, mapped)
                    children |= set(answer.values())
                case {"kill": int(pid)} if pid in children:
                    children.remove(pid)
                    answer = {"exit": _kill(pid)}
                case _:
                    raise ValueError("no such request")
            control.sendall(orjson.dumps(answer) + b"\n")
    finally:
        for pid in children:
            _kill(pid)


def _fork(options: dict[str, Any], descriptors: list[int], control: socket.socket, mapped: int) -> dict[str, int]:
    """Fork a child with these *options* and return its process id; nothing if the system cannot fork."""
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        pid = -1
    if pid == 0:
        _run_child(options, descriptors, control, parent, mapped)
    for descriptor in descriptors:
        os.close(descriptor)
    return {"pid": pid} if pid > 0 else {}


def _next_request(control: socket.socket) -> tuple[bytes, list[int]] | None:
    """Return the next request and its descriptors, or None at the end. One request is sent at a time."""
    line, descriptors = b"", []
    while not line.endswith(b"\n"):
        received, came, _, _ = socket.recv_fds(control, MAX_REQUEST_BYTES, 2)
        if not received:
            return None
        line += received
        descriptors += came
    return line, descriptors


def _kill(pid: int) -> int:
    """Kill the child if it still runs. Return its exit code, or minus the signal that ended it."""
    os.kill(pid, signal.SIGKILL)  # its number is not reused before it is waited for
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _run_child(
    fields: dict[str, Any], descriptors: list[int], control: socket.socket, parent: int, mapped: int
) -> NoReturn:
    """Run a child from its fork to its exit. *mapped* is the size of the address space that it inherits, in bytes."""
    code = 1
    try:
        control.close()
        options = DecodeOptions.read(fields)
        source, out = descriptors
        with os.fdopen(source, "rb", buffering=0) as file:
            _confine(options, parent, mapped + MEMORY_BYTES)
            _decode(options, file, out)
        code = 0
    except BrokenPipeError:
        code = 0  # the reader has left
    except MemoryError:
        code = OUT_OF_MEMORY
    except BaseException:  # noqa: BLE001 - no error may return into the loop of the forking process
        traceback.print_exc()
    finally:
        os._exit(code)


def _confine(options: DecodeOptions, parent: int, memory_bytes: int) -> None:
    """Take all rights from this process that decoding does not need.

    With a limit of 0 descriptors it cannot open files or connections, even if a file exploits a decoder. If the system
    can filter system calls, the process cannot act on other processes and files in any other way either.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    if options.cpu_s is not None:
        # Where both limits are equal, Linux sends SIGKILL, which looks like a killing from outside.
        resource.setrlimit(resource.RLIMIT_CPU, (options.cpu_s, options.cpu_s + CPU_GRACE_S))
    if sys.platform == "linux":  # other systems have neither this limit nor this signal
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            raise ProcessLookupError("the parent died before it could be watched")
    if seccomp.missing_support() is None:
        seccomp.install()


def _decode(options: DecodeOptions, file: ByteSource, out: int) -> None:
    def send(message: Message) -> None:
        view = memoryview(pack(message))
        while view:
            view = view[os.write(out, view) :]
        signal.setitimer(signal.ITIMER_PROF, options.stall_s)  # of CPU time: kills a decoder in an endless loop

    signal.setitimer(signal.ITIMER_PROF, min(options.stall_s, options.limits.first_frame_cpu_s))
    try:
        with open_recording(
            file,
            options.limits,
            track=options.track,
            raw=options.raw,
            live=options.live,
            separate=options.separate,
            sparse=options.sparse,
            several=options.several,
        ) as audio:
            send(Opened(audio.probe))
            for samples in audio:
                send(samples)
            send(Done(audio.notes))
    except PipelineError as error:
        send(Failed(error))


def _warm_up() -> None:
    """Decode something, because a child can no longer open what PyAV loads lazily."""
    file = io.BytesIO()
    with wave.open(file, "wb") as silence:
        silence.setnchannels(1)
        silence.setsampwidth(2)
        silence.setframerate(8000)
        silence.writeframes(bytes(16000))
    file.seek(0)
    with open_recording(file, DecodeLimits()) as audio:
        for samples in audio:
            pack(samples)


def main() -> None:
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)  # only the server ends this process
    if sys.platform == "linux":
        Path("/proc/self/oom_score_adj").write_text(str(EXPENDABLE), encoding="ascii")  # afterwards it is root's
    seccomp.close_memory()
    _warm_up()
    with socket.socket(fileno=0) as control:
        serve(control)


if __name__ == "__main__":
    main()
