"""The process that forks decoders (cell.py), as isolation.py sees it: starts it, sends its orders, logs its lines."""

import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any

import orjson

import pipeline

log = logging.getLogger(__name__)

ANSWER_S = 60.0
"""How long the forking process may take to answer. Loading its libraries takes 1 s, on a slow disk 10 s."""

MAX_LINE_BYTES = 300
"""The longest line of a decoder that is logged. The rest counts as another line."""

MAX_LINES, LINES_S = 50, 60.0
"""At most MAX_LINES lines of decoders are logged in LINES_S seconds. The trace of an error has some twenty."""

PASSED_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LANG", "TMPDIR")
"""The environment variables that are passed to the decoding process."""


class DecoderCell:
    """The process that forks decoders. It ends on close(), or when its socket closes because this process died."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, inner = socket.socketpair()
        self._socket.settimeout(ANSWER_S)
        with ExitStack() as stack, inner:
            stack.callback(self._socket.close)
            self._process = subprocess.Popen(
                (sys.executable, "-P", "-m", "pipeline.ingest.cell"),
                stdin=inner.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=_environment(),
                start_new_session=True,  # only the server reacts to Ctrl-C in the terminal
            )
            stack.pop_all()
        threading.Thread(target=_log_lines, args=(self._process.stderr,), name="decoders' lines", daemon=True).start()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None and self._socket.fileno() != -1

    def ask(self, line: bytes, descriptors: Sequence[int] = ()) -> Any:
        """Send an order and return the answer. If none comes, closes the cell and raises ConnectionError."""
        try:
            with self._lock:
                answer = self._exchange(line, descriptors)
        except BaseException as error:
            self.close()  # otherwise the next order would get the answer to this one
            raise (ConnectionError("no answer") if isinstance(error, OSError) else error) from error
        return orjson.loads(answer)

    def _exchange(self, line: bytes, descriptors: Sequence[int]) -> bytes:
        socket.send_fds(self._socket, [line], descriptors)
        answer = b""
        while not answer.endswith(b"\n"):
            part = self._socket.recv(4096)
            if not part:
                raise ConnectionError("the process that forks decoders is gone")
            answer += part
        return answer

    def kill(self, pid: int) -> int | None:
        """End a decoder and return its exit code, or None if its cell, and so the decoder, is gone."""
        try:
            code: int = self.ask(orjson.dumps({"kill": pid}) + b"\n")["exit"]
        except ConnectionError:
            return None
        return code

    def close(self) -> None:
        """End this process and its children, even if other threads wait for answers."""
        with suppress(OSError):  # closed before
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes threads that wait for an answer; close() alone would not
        self._socket.close()
        try:
            self._process.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _log_lines(lines: IO[bytes]) -> None:
    """Log what decoders write until the last of them has ended. Lines are escaped and cut, and their number is limited.

    Otherwise a file that exploits a decoder could write lines that look like the server's own.
    """
    since, count = time.monotonic(), 0
    with lines:
        while line := lines.readline(MAX_LINE_BYTES):
            if time.monotonic() - since >= LINES_S:
                since, count = time.monotonic(), 0
            count += 1
            if count <= MAX_LINES:
                log.warning("a decoder wrote: %s", ascii(line.decode("utf-8", "replace").rstrip("\r\n")))
            elif count == MAX_LINES + 1:
                log.warning("decoders write more lines than are logged")


def _environment() -> dict[str, str]:
    """Return the environment of the process. It is minimal, because the server's environment holds secrets."""
    return {
        **{name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ},
        "PYTHONPATH": str(Path(pipeline.__path__[0]).parent),
        "OPENBLAS_NUM_THREADS": "1",  # a process with threads cannot be forked safely
    }
