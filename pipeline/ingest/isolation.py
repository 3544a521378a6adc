"""Decodes untrusted bytes in a separate process, which can be limited, timed and killed. This is the outer side.

    with isolation.decoding(path, limits) as audio:      # on a plain thread; errors of the file are raised here
        for samples in audio: ...                        # a slow reader slows the decoder: the pipe holds a second
    audio.notes

Leaving the block kills the process at once. If a decoder crashes, only that file fails. The processes are forks of one
that is started at first use (cell.py); they end with this process, however it ends.
"""

import logging
import math
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Self

import orjson

import pipeline
from pipeline.audio import Samples
from pipeline.errors import DecoderUnavailable, DecodeTimeout, InvalidAudio, PipelineError
from pipeline.ingest.input_formats import (
    ALL_TRACKS,
    AUTO,
    SEPARATE,
    DecodeLimits,
    Probe,
    RawAudio,
    TrackChoice,
    by_preference,
)
from pipeline.ingest.memory import DecoderMemory, MemoryClaim
from pipeline.ingest.messages import (
    HEAD,
    LONGEST_HOLE,
    OUT_OF_MEMORY,
    DecodeOptions,
    Done,
    Failed,
    MalformedMessage,
    Message,
    Opened,
    TrackPiece,
    length_of,
    unpack,
)
from pipeline.ingest.seccomp import STOPPED_BY_FILTER

log = logging.getLogger(__name__)

STALL_S = 30.0
"""A decoder that returns no sample for this long is stuck. A second of audio usually takes milliseconds."""

SPARE_CPU_S = 60
"""The CPU time that a file may take beyond a second for each second of audio. Slower than real time is an attack."""

ANSWER_S = 60.0
"""How long the forking process may take to answer. Loading its libraries takes 1 s, on a slow disk 10 s."""

MAX_LINE_BYTES = 300
"""The longest line of a decoder that is logged. The rest counts as another line."""

MAX_LINES, LINES_S = 50, 60.0
"""At most MAX_LINES lines of decoders are logged in LINES_S seconds. The trace of an error has some twenty."""

PASSED_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LANG", "TMPDIR")
"""The environment variables that are passed to the decoding process."""

BROKEN = "This file broke the decoder. Convert it to another format."

KILLED_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)
OUT_OF_TIME = (-signal.SIGPROF, -signal.SIGXCPU)


class Isolation:
    """Makes decoding processes. It is thread-safe; close() ends all of them."""

    def __init__(
        self, *, stall_s: float = STALL_S, spare_cpu_s: int = SPARE_CPU_S, memory: DecoderMemory | None = None
    ) -> None:
        """*memory* is shared by all decoders; None: their memory has no common limit."""
        self.memory = memory or DecoderMemory()
        self._stall_s = stall_s
        self._spare_cpu_s = spare_cpu_s
        self._lock = threading.Lock()
        self._cell: DecoderCell | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Load the decoder now; otherwise the first file has to wait for it."""
        with self._lock:
            self._cell = self._cell or DecoderCell()

    def close(self) -> None:
        """End every process. Calling it again does nothing; the next file starts them again."""
        with self._lock:
            cell, self._cell = self._cell, None
        if cell is not None:
            cell.close()

    def probe(
        self,
        path: Path,
        limits: DecodeLimits,
        *,
        separate: bool = False,
        track: TrackChoice = AUTO,
        raw: RawAudio | None = None,
    ) -> Probe:
        """Return the facts about a file. Raises the errors that decoding() raises on entering."""
        with self.decoding(path, limits, separate=separate, track=track, raw=raw) as audio:
            return audio.probe

    @contextmanager
    def decoding(self, path: Path, limits: DecodeLimits, *, separate: bool = False, **how: Any) -> "Iterator[Decoding]":
        """Decode a file. Entering waits for its first frame, and before that for room in the decoders' memory.

        Samples have the shape (n,), or (n, channels) if the channels, or with the *track* SEPARATE the tracks, are
        *separate*. *how*: track, raw and sparse of DecodeOptions.

        Raises on entering: EmptyAudio, UndecodableAudio, InvalidAudio, NoAudioStream, UnknownTrack, DecodeTimeout,
        DecodersBusy, DecoderUnavailable, and OSError if the file cannot be read. Raises while iterating: the same, and
        AudioTooLong.
        """
        with ExitStack() as stack:
            source = stack.enter_context(path.open("rb", buffering=0))
            stack.callback(self.memory.claim().release)
            cpu_s = None if limits.longest_s is None else self._spare_cpu_s + math.ceil(limits.longest_s)
            options = DecodeOptions(
                limits=limits, live=False, stall_s=self._stall_s, cpu_s=cpu_s, separate=separate, **how
            )
            process = stack.enter_context(self._start(options, source.fileno()))
            audio = Decoding(process, wait_s=self._stall_s, separate=separate)
            if not 1 <= audio.open().channels <= limits.max_channels:
                raise InvalidAudio(BROKEN)
            yield audio

    @contextmanager
    def live(
        self,
        limits: DecodeLimits,
        *,
        separate: int | None = None,
        unmixed: bool = False,
        track: TrackChoice = AUTO,
        memory: MemoryClaim | None = None,
    ) -> "Iterator[LiveDecoding]":
        """Decode a container that is still being written. One thread feeds it, another iterates.

        *memory* is what was claimed for this decoder; it is given back at the end. With None it is claimed now.
        With *separate*, the number of channels, the samples have the shape (n, channels). The errors of decoding() are
        raised while iterating, InvalidAudio also if there are not so many channels, or with the *track* SEPARATE so
        many tracks. *unmixed*: they have this shape with any number of channels.

        The stream may pause for any time; only CPU time without a result counts as a stall. If Probe.several is true,
        pieces() replaces iterating.
        """
        with ExitStack() as stack:
            stack.callback((memory or self.memory.claim()).release)
            source, feed = os.pipe()
            feeding = stack.enter_context(os.fdopen(feed, "wb", buffering=0))
            with os.fdopen(source, "rb"):
                options = DecodeOptions(
                    limits=limits,
                    live=True,
                    stall_s=self._stall_s,
                    cpu_s=None,
                    track=track,
                    separate=bool(separate) or unmixed,
                    several=track in ALL_TRACKS or (track == AUTO and not separate),
                )
                process = stack.enter_context(self._start(options, source))
            yield LiveDecoding(process, feeding, options, separate)

    @contextmanager
    def _start(self, options: DecodeOptions, source: int) -> "Iterator[_Process]":
        """Start a process that decodes *source*. It is killed when the block is left."""
        messages, out = os.pipe()
        with os.fdopen(messages, "rb"):
            try:
                cell, pid = self._fork(options, (source, out))
            finally:
                os.close(out)
            process = _Process(cell, pid, messages)
            try:
                yield process
            finally:
                process.kill()

    def _fork(self, options: DecodeOptions, descriptors: Sequence[int]) -> "tuple[DecoderCell, int]":
        """Fork a process; return its cell and its id. A cell that has died is replaced."""
        with self._lock:
            if self._cell is not None and not self._cell.alive:
                self._cell.close()
                self._cell = None
            try:
                cell = self._cell = self._cell or DecoderCell()
            except OSError as error:
                raise DecoderUnavailable("The process that forks decoders cannot be started.") from error
            try:
                answer = cell.ask(options.to_line(), descriptors)
            except ConnectionError as error:
                raise DecoderUnavailable("The process that forks decoders gave no answer.") from error
        if "pid" not in answer:
            raise DecoderUnavailable("The system has no room for another process.")
        return cell, answer["pid"]


class Decoding:
    """A recording as its decoding process reports it. Its samples can be iterated once."""

    def __init__(self, process: "_Process", *, wait_s: float | None, separate: bool) -> None:
        self._process = process
        self._wait_s = wait_s
        self._separate = separate
        self._probe: Probe | None = None
        self.notes: tuple[str, ...] = ()
        """Codes for readers, such as "audio_truncated". They are complete after the last sample."""

    @property
    def probe(self) -> Probe:
        """The facts about the recording. Waits for them."""
        return self.open()

    def open(self) -> Probe:
        """Wait until the first frame is decoded, and return the facts about the recording."""
        if self._probe is None:
            message = self._next_message()
            if not isinstance(message, Opened):
                raise self._kill_broken()
            self._probe = message.probe
        return self._probe

    def __iter__(self) -> Iterator[Samples]:
        """Yield the samples in arrays of 1..RATE, of shape (n, channels) if the channels are separate."""
        probe = self.open()
        while True:
            match self._next_message():
                case Done(notes):
                    self.notes = notes
                    return
                case Opened() | TrackPiece():
                    raise self._kill_broken()
                case samples if not self._separate:
                    yield samples
                case samples:
                    if len(samples) % probe.channels:
                        raise self._kill_broken()
                    yield samples.reshape(-1, probe.channels)

    def kill(self) -> None:
        """End the decoder now, from any thread. Iterating then raises DecoderUnavailable."""
        self._process.kill()

    def _next_message(self) -> Opened | Samples | TrackPiece | Done:
        """Return the next message. Raises the error in it, or the reason why the process ended without one."""
        try:
            message = self._process.message(self._wait_s)
        except MalformedMessage:
            raise self._kill_broken() from None
        except EOFError:
            raise _error_of_exit(self._process.kill()) from None
        if isinstance(message, Failed):
            raise message.error
        return message

    def _kill_broken(self) -> PipelineError:
        """End a decoder that sent an invalid message, and return the error: the file must have broken it."""
        self._process.kill()
        return InvalidAudio(BROKEN)


class LiveDecoding(Decoding):
    """A recording that is still being written."""

    def __init__(self, process: "_Process", feeding: Any, options: DecodeOptions, count: int | None) -> None:
        """*count* is how many channels or tracks it must have; None: any number."""
        super().__init__(process, wait_s=None, separate=options.separate)
        self._feeding = feeding
        self._count = count
        self._kind = "audio tracks" if options.track == SEPARATE else "channels"

    def open(self) -> Probe:
        """See Decoding.open(). Raises InvalidAudio if it has not as many channels or tracks as it must have."""
        probe = super().open()
        count = probe.channels if self._kind == "channels" else len(probe.tracks)
        if self._count not in (None, count):
            raise InvalidAudio(f"The audio has {count} {self._kind} instead of {self._count}. Give the right number.")
        return probe

    def pieces(self) -> Iterator[TrackPiece]:
        """Yield the pieces of all tracks that can be decoded, as they come."""
        shapes: dict[int, tuple[int, ...]] = {}
        ends = {track.number: 0 for track in by_preference(self.open().tracks)}
        while not isinstance(message := self._next_message(), Done):
            if not isinstance(message, TrackPiece) or message.track not in ends:
                raise self._kill_broken()
            shape = message.samples.shape[1:]
            earliest, latest = ends[message.track], max(ends.values()) + LONGEST_HOLE
            if shapes.setdefault(message.track, shape) != shape or not earliest <= message.start <= latest:
                raise self._kill_broken()
            ends[message.track] = message.start + len(message.samples)
            yield message
        self.notes = message.notes

    def feed(self, data: bytes) -> bool:
        """Send the next bytes of the container; waits while the decoder is busy. Returns False once it has ended."""
        view = memoryview(data)
        try:
            while view:
                view = view[self._feeding.write(view) :]
        except BrokenPipeError:
            return False  # iterating raises the reason
        return True

    def finish(self) -> None:
        """End the stream. Iterating ends after the samples that are still in the decoder."""
        self._feeding.close()


class _Process:
    """One decoding process: reads its messages and ends it."""

    def __init__(self, cell: "DecoderCell", pid: int, messages: int) -> None:
        self._cell = cell
        self._pid = pid
        self._messages = messages
        self._ready = select.poll()
        self._ready.register(messages, select.POLLIN)
        self._lock = threading.Lock()
        self._ended = False
        self._exit: int | None = None

    def message(self, wait_s: float | None) -> Message:
        """Return the next message. Raises EOFError, MalformedMessage; DecodeTimeout after *wait_s* without a byte."""
        kind, length = length_of(self._read_exactly(HEAD.size, wait_s))
        return unpack(kind, self._read_exactly(length, wait_s))

    def kill(self) -> int | None:
        """Kill it if it still runs. Return its exit code, minus the signal that ended it, or None if unknown."""
        with self._lock:
            if not self._ended:
                self._ended = True
                self._exit = self._cell.kill(self._pid)
        return self._exit

    def _read_exactly(self, length: int, wait_s: float | None) -> bytearray:
        data = bytearray(length)
        view = memoryview(data)
        while view:
            if not self._ready.poll(None if wait_s is None else wait_s * 1000):
                self.kill()
                raise DecodeTimeout(f"No audio was decoded for {wait_s:g} s. The file may be broken.")
            count = os.readv(self._messages, [view])
            if count == 0:
                raise EOFError
            view = view[count:]
        return data


def _error_of_exit(code: int | None) -> PipelineError:
    """Return why a decoder ended without a last message, by its exit code."""
    if code in OUT_OF_TIME:
        return DecodeTimeout("Decoding took too much processor time. The file may be broken.")
    if code == STOPPED_BY_FILTER:
        log.warning("a file made its decoder make a forbidden system call; the kernel ended the decoder")
        return InvalidAudio("This file made the decoder do what no recording needs, so it was stopped.")
    if code == OUT_OF_MEMORY:
        return InvalidAudio("Decoding this file needs more memory than a recording should. Convert it.")
    if code is None or code >= 0 or code in KILLED_FROM_OUTSIDE:
        return DecoderUnavailable("The decoder was killed from outside or by an error of the server.")
    return InvalidAudio(f"The decoder crashed on this file ({signal.Signals(-code).name}). Convert it.")


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
                env={  # minimal, because the server's environment holds secrets
                    **{name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ},
                    "PYTHONPATH": str(Path(pipeline.__path__[0]).parent),
                    "OPENBLAS_NUM_THREADS": "1",  # a process with threads cannot be forked safely
                },
                start_new_session=True,  # only the server reacts to Ctrl-C in the terminal
            )
            stack.pop_all()
        threading.Thread(target=_log_lines, args=(self._process.stderr,), name="decoders' lines", daemon=True).start()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None and self._socket.fileno() != -1

    def ask(self, line: bytes, descriptors: Sequence[int] = ()) -> Any:
        """Send a request and return the answer. If none comes, closes the cell and raises ConnectionError."""
        answer = b""
        try:
            with self._lock:
                socket.send_fds(self._socket, [line], descriptors)
                received = line
                while received and not answer.endswith(b"\n"):
                    received = self._socket.recv(4096)
                    answer += received
        except BaseException as error:
            self.close()  # otherwise the next request would get the answer to this one
            raise (ConnectionError("no answer") if isinstance(error, OSError) else error) from error
        if not answer.endswith(b"\n"):
            self.close()
            raise ConnectionError("the process that forks decoders is gone")
        return orjson.loads(answer)

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
