"""Decode strangers' bytes in a process of their own, which can be limited, timed and killed. The outer side.

    with isolation.decoding(path, limits) as audio:      # on a plain thread; what is wrong with the file is raised here
        for samples in audio: ...                        # who reads slowly slows the decoder: the pipe holds a second
    audio.notes

Leaving the block kills the process at once. The crash of a decoder is an error of that file and of nothing else. The
processes are forks of one that is started at first use (cell.py); they end with this one, however it ends.
"""

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import orjson

import pipeline
from pipeline.audio import Samples
from pipeline.errors import DecoderUnavailable, DecodeTimeout, InvalidAudio, PipelineError
from pipeline.ingest.containers import DecodeLimits, Probe
from pipeline.ingest.crossing import (
    HEAD,
    OUT_OF_MEMORY,
    Done,
    Failed,
    Garbled,
    Message,
    Opened,
    Order,
    length_of,
    unpacked,
)

STALL_S = 30.0
"""Without a sample for so long a decoder is stuck: it makes a second of audio in milliseconds."""

ANSWER_S = 60.0
"""Within which the process that forks must answer. Loading its libraries takes a second, on a slow disk ten."""

KEPT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LANG", "TMPDIR")
"""Environment variables that the decoding process is given."""

KILLED_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)
OUT_OF_TIME = (-signal.SIGPROF, -signal.SIGXCPU)


class Isolation:
    """Makes decoding processes. Usable from any thread; close() ends all of them."""

    def __init__(self, *, stall_s: float = STALL_S) -> None:
        self._stall_s = stall_s
        self._lock = threading.Lock()
        self._cell: _Cell | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Load the decoder now; otherwise the first file waits for it."""
        with self._lock:
            self._cell = self._cell or _Cell()

    def close(self) -> None:
        """End every process. Calling it again does nothing; the next file starts anew."""
        with self._lock:
            cell, self._cell = self._cell, None
        if cell is not None:
            cell.close()

    def probe(self, path: Path, limits: DecodeLimits) -> Probe:
        """What the file says of itself. Raises what decoding() raises on entering."""
        with self.decoding(path, limits) as audio:
            return audio.probe

    @contextmanager
    def decoding(self, path: Path, limits: DecodeLimits) -> "Iterator[Decoding]":
        """The audio of a file whose first frame could be decoded.

        Raises on entering: EmptyAudio, UndecodableAudio, InvalidAudio, NoAudioStream, DecodeTimeout,
        DecoderUnavailable, and OSError where the file cannot be read; while iterating also AudioTooLong.
        """
        with ExitStack() as stack:
            source = stack.enter_context(path.open("rb", buffering=0))
            order = Order(limits=limits, live=False, stall_s=self._stall_s)
            process = stack.enter_context(self._started(order, source.fileno()))
            audio = Decoding(process, wait_s=self._stall_s)
            audio.open()
            yield audio

    @contextmanager
    def live(self, limits: DecodeLimits) -> "Iterator[LiveDecoding]":
        """The audio of a container that is still being written. One thread feeds it, another iterates.

        The errors of decoding() are raised while iterating. The stream may pause for any time: only work without a
        result is a stall.
        """
        source, feed = os.pipe()
        with ExitStack() as stack:
            feeding = stack.enter_context(os.fdopen(feed, "wb", buffering=0))
            with os.fdopen(source, "rb"):
                order = Order(limits=limits, live=True, stall_s=self._stall_s)
                process = stack.enter_context(self._started(order, source))
            yield LiveDecoding(process, feeding)

    @contextmanager
    def _started(self, order: Order, source: int) -> "Iterator[_Process]":
        """A process at work on *source*. It is dead when the block is left."""
        messages, out = os.pipe()
        with os.fdopen(messages, "rb"):
            try:
                cell, pid = self._forked(order, (source, out))
            finally:
                os.close(out)
            process = _Process(cell, pid, messages)
            try:
                yield process
            finally:
                process.end()

    def _forked(self, order: Order, descriptors: Sequence[int]) -> "tuple[_Cell, int]":
        """A new process and the cell that has it. A cell that has died is replaced."""
        with self._lock:
            if self._cell is not None and not self._cell.alive:
                self._cell.close()
                self._cell = None
            cell = self._cell = self._cell or _Cell()
            try:
                answer = cell.ask(order.written(), descriptors)
            except ConnectionError as error:
                raise DecoderUnavailable("the process that forks decoders gave no answer") from error
        if "pid" not in answer:
            raise DecoderUnavailable("the system has no room for another process")
        return cell, answer["pid"]


class Decoding:
    """What a decoding process says of one recording. Its samples can be taken once."""

    def __init__(self, process: "_Process", *, wait_s: float | None) -> None:
        self._process = process
        self._wait_s = wait_s
        self._probe: Probe | None = None
        self.notes: tuple[str, ...] = ()
        """What a reader should know, such as "audio_truncated". Whole when the samples have been taken."""

    @property
    def probe(self) -> Probe:
        """What the recording says of itself. Waits for it."""
        return self.open()

    def open(self) -> Probe:
        """Wait until the first frame is decoded."""
        if self._probe is None:
            message = self._received()
            if not isinstance(message, Opened):
                raise self._broken()
            self._probe = message.probe
        return self._probe

    def __iter__(self) -> Iterator[Samples]:
        """The samples, in arrays of 1..RATE."""
        self.open()
        while True:
            match self._received():
                case Done(notes):
                    self.notes = notes
                    return
                case Opened():
                    raise self._broken()
                case samples:
                    yield samples

    def kill(self) -> None:
        """End the decoder now, from any thread. Who iterates gets DecoderUnavailable."""
        self._process.end()

    def _received(self) -> Opened | Samples | Done:
        """The next message. Raises the error that it tells of, or that its absence tells of."""
        try:
            message = self._process.message(self._wait_s)
        except Garbled:
            raise self._broken() from None
        except EOFError:
            raise _reason(self._process.end()) from None
        if isinstance(message, Failed):
            raise message.error
        return message

    def _broken(self) -> PipelineError:
        """A decoder that says nonsense was broken by what it read."""
        self._process.end()
        return InvalidAudio("the decoder was broken by this file")


class LiveDecoding(Decoding):
    """A recording that is still being written."""

    def __init__(self, process: "_Process", feeding: Any) -> None:
        super().__init__(process, wait_s=None)
        self._feeding = feeding

    def feed(self, data: bytes) -> bool:
        """Give the next bytes of the container. Waits while the decoder has enough; False once it takes no more."""
        view = memoryview(data)
        try:
            while view:
                view = view[self._feeding.write(view) :]
        except BrokenPipeError:
            return False  # why, is what iterating tells
        return True

    def finish(self) -> None:
        """The stream is complete. What is still in the decoder comes out, then iterating ends."""
        self._feeding.close()


class _Process:
    """One decoding process: the pipe of its messages, and its end."""

    def __init__(self, cell: "_Cell", pid: int, messages: int) -> None:
        self._cell = cell
        self._pid = pid
        self._messages = messages
        self._ready = select.poll()
        self._ready.register(messages, select.POLLIN)
        self._lock = threading.Lock()
        self._ended = False
        self._exit: int | None = None

    def message(self, wait_s: float | None) -> Message:
        """The next message. Raises EOFError, Garbled, and DecodeTimeout after *wait_s* without a byte."""
        kind, length = length_of(self._exactly(HEAD.size, wait_s))
        return unpacked(kind, self._exactly(length, wait_s))

    def end(self) -> int | None:
        """Kill it where it still runs. Its exit code, or minus the signal that ended it; None: nobody knows."""
        with self._lock:
            if not self._ended:
                self._ended = True
                self._exit = self._cell.end(self._pid)
        return self._exit

    def _exactly(self, length: int, wait_s: float | None) -> bytearray:
        data = bytearray(length)
        view = memoryview(data)
        while view:
            if not self._ready.poll(None if wait_s is None else wait_s * 1000):
                self.end()
                raise DecodeTimeout(f"no audio was decoded for {wait_s:g} s")
            count = os.readv(self._messages, [view])
            if count == 0:
                raise EOFError
            view = view[count:]
        return data


class _Cell:
    """The process that forks decoders. It ends when it is closed or its socket is, as when this process dies."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, inner = socket.socketpair()
        self._socket.settimeout(ANSWER_S)
        with inner:
            self._process = subprocess.Popen(
                (sys.executable, "-P", "-m", "pipeline.ingest.cell"),
                stdin=inner.fileno(),
                stdout=subprocess.DEVNULL,
                env=_environment(),
                start_new_session=True,  # a Ctrl-C in the terminal is for the server to act on
            )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None and self._socket.fileno() != -1

    def ask(self, line: bytes, descriptors: Sequence[int] = ()) -> Any:
        """The answer to an order. Raises ConnectionError where there is none; then the cell is closed."""
        try:
            with self._lock:
                answer = self._exchanged(line, descriptors)
        except BaseException as error:
            self.close()  # an order without its answer would shift all answers after it
            raise (ConnectionError("no answer") if isinstance(error, OSError) else error) from error
        return orjson.loads(answer)

    def _exchanged(self, line: bytes, descriptors: Sequence[int]) -> bytes:
        socket.send_fds(self._socket, [line], descriptors)
        answer = b""
        while not answer.endswith(b"\n"):
            part = self._socket.recv(4096)
            if not part:
                raise ConnectionError("the process that forks decoders is gone")
            answer += part
        return answer

    def end(self, pid: int) -> int | None:
        """End a decoder. How it went; None where its cell is gone, and it with it."""
        try:
            code: int = self.ask(orjson.dumps({"end": pid}) + b"\n")["exit"]
        except ConnectionError:
            return None
        return code

    def close(self) -> None:
        """End it and its children, whatever other threads wait for."""
        with suppress(OSError):  # closed before
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes who waits for an answer; close() alone would not
        self._socket.close()
        try:
            self._process.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _environment() -> dict[str, str]:
    """What the process needs and nothing else: the server's environment holds secrets."""
    return {
        **{name: os.environ[name] for name in KEPT if name in os.environ},
        "PYTHONPATH": str(Path(pipeline.__path__[0]).parent),
        "OPENBLAS_NUM_THREADS": "1",  # a process with threads cannot be forked safely
    }


def _reason(code: int | None) -> PipelineError:
    """Why a decoder ended without a last word, by its exit code."""
    if code in OUT_OF_TIME:
        return DecodeTimeout("decoding took too much processor time")
    if code == OUT_OF_MEMORY:
        return InvalidAudio("decoding needs more memory than a recording should")
    if code is None or code >= 0 or code in KILLED_FROM_OUTSIDE:
        return DecoderUnavailable("the decoder was ended from outside or by a fault of ours")
    return InvalidAudio(f"the decoder crashed on this file ({signal.Signals(-code).name})")
