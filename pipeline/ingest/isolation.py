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
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from pipeline.audio import Samples
from pipeline.errors import DecoderUnavailable, DecodeTimeout, InvalidAudio, PipelineError
from pipeline.ingest.containers import DecodeLimits, Probe
from pipeline.ingest.crossing import (
    HEAD,
    OUT_OF_MEMORY,
    DecodeOrder,
    Done,
    Failed,
    MalformedMessage,
    Message,
    Opened,
    length_of,
    unpack,
)
from pipeline.ingest.decoder_cell import DecoderCell
from pipeline.ingest.encodings import RawAudio
from pipeline.ingest.memory import DecoderMemory, MemoryPart
from pipeline.ingest.pieces import LONGEST_HOLE, TrackPiece
from pipeline.ingest.seccomp import STOPPED_BY_FILTER
from pipeline.ingest.tracks import ALL_TRACKS, AUTO, SEPARATE, TrackChoice, by_preference

log = logging.getLogger(__name__)

STALL_S = 30.0
"""A decoder that returns no sample for this long is stuck. A second of audio usually takes milliseconds."""

SPARE_CPU_S = 60
"""The CPU time that a file may take beyond a second for each second of audio. Slower than real time is an attack."""

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
        *separate*. *how*: track, raw and sparse of DecodeOrder.

        Raises on entering: EmptyAudio, UndecodableAudio, InvalidAudio, NoAudioStream, UnknownTrack, DecodeTimeout,
        DecodersBusy, DecoderUnavailable, and OSError if the file cannot be read. Raises while iterating: the same, and
        AudioTooLong.
        """
        with ExitStack() as stack:
            source = stack.enter_context(path.open("rb", buffering=0))
            stack.callback(self.memory.claim().release)
            cpu_s = None if limits.longest_s is None else self._spare_cpu_s + math.ceil(limits.longest_s)
            order = DecodeOrder(limits=limits, live=False, stall_s=self._stall_s, cpu_s=cpu_s, separate=separate, **how)
            process = stack.enter_context(self._start(order, source.fileno()))
            audio = Decoding(process, wait_s=self._stall_s, separate=separate)
            if not 1 <= audio.open().channels <= limits.max_channels:
                raise InvalidAudio("the decoder was broken by this file")
            yield audio

    @contextmanager
    def live(
        self,
        limits: DecodeLimits,
        *,
        separate: int | None = None,
        unmixed: bool = False,
        track: TrackChoice = AUTO,
        part: MemoryPart | None = None,
    ) -> "Iterator[LiveDecoding]":
        """Decode a container that is still being written. One thread feeds it, another iterates.

        *part* is memory that was claimed for this decoder; it is given back at the end. With None it is claimed now.
        With *separate*, the number of channels, the samples have the shape (n, channels). The errors of decoding() are
        raised while iterating, InvalidAudio also if there are not so many channels, or with the *track* SEPARATE so
        many tracks. *unmixed*: they have this shape with any number of channels.

        The stream may pause for any time; only CPU time without a result counts as a stall. If Probe.several is true,
        pieces() replaces iterating.
        """
        with ExitStack() as stack:
            stack.callback((part or self.memory.claim()).release)
            source, feed = os.pipe()
            feeding = stack.enter_context(os.fdopen(feed, "wb", buffering=0))
            with os.fdopen(source, "rb"):
                order = DecodeOrder(
                    limits=limits,
                    live=True,
                    stall_s=self._stall_s,
                    cpu_s=None,
                    track=track,
                    separate=bool(separate) or unmixed,
                    several=track in ALL_TRACKS or (track == AUTO and not separate),
                )
                process = stack.enter_context(self._start(order, source))
            yield LiveDecoding(process, feeding, order, separate)

    @contextmanager
    def _start(self, order: DecodeOrder, source: int) -> "Iterator[_Process]":
        """Start a process that decodes *source*. It is killed when the block is left."""
        messages, out = os.pipe()
        with os.fdopen(messages, "rb"):
            try:
                cell, pid = self._fork(order, (source, out))
            finally:
                os.close(out)
            process = _Process(cell, pid, messages)
            try:
                yield process
            finally:
                process.kill()

    def _fork(self, order: DecodeOrder, descriptors: Sequence[int]) -> tuple[DecoderCell, int]:
        """Fork a process; return its cell and its id. A cell that has died is replaced."""
        with self._lock:
            if self._cell is not None and not self._cell.alive:
                self._cell.close()
                self._cell = None
            try:
                cell = self._cell = self._cell or DecoderCell()
            except OSError as error:
                raise DecoderUnavailable("the process that forks decoders cannot be started") from error
            try:
                answer = cell.ask(order.to_line(), descriptors)
            except ConnectionError as error:
                raise DecoderUnavailable("the process that forks decoders gave no answer") from error
        if "pid" not in answer:
            raise DecoderUnavailable("the system has no room for another process")
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
        return InvalidAudio("the decoder was broken by this file")


class LiveDecoding(Decoding):
    """A recording that is still being written."""

    def __init__(self, process: "_Process", feeding: Any, order: DecodeOrder, ordered: int | None) -> None:
        """*ordered* is how many channels or tracks it must have; None: any number."""
        super().__init__(process, wait_s=None, separate=order.separate)
        self._feeding = feeding
        self._ordered = ordered
        self._kind = "audio tracks" if order.track == SEPARATE else "channels"

    def open(self) -> Probe:
        """See Decoding.open(). Raises InvalidAudio if it has not as many channels or tracks as were ordered."""
        probe = super().open()
        count = probe.channels if self._kind == "channels" else len(probe.tracks)
        if self._ordered not in (None, count):
            raise InvalidAudio(f"the audio has {count} {self._kind}, and {self._ordered} were ordered")
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

    def __init__(self, cell: DecoderCell, pid: int, messages: int) -> None:
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
                raise DecodeTimeout(f"no audio was decoded for {wait_s:g} s")
            count = os.readv(self._messages, [view])
            if count == 0:
                raise EOFError
            view = view[count:]
        return data


def _error_of_exit(code: int | None) -> PipelineError:
    """Return why a decoder ended without a last message, by its exit code."""
    if code in OUT_OF_TIME:
        return DecodeTimeout("decoding took too much processor time")
    if code == STOPPED_BY_FILTER:
        log.warning("a file made its decoder make a forbidden system call; the kernel ended the decoder")
        return InvalidAudio("this file made the decoder do what no recording needs, so it was stopped")
    if code == OUT_OF_MEMORY:
        return InvalidAudio("decoding needs more memory than a recording should")
    if code is None or code >= 0 or code in KILLED_FROM_OUTSIDE:
        return DecoderUnavailable("the decoder was killed from outside or by an error of the server")
    return InvalidAudio(f"the decoder crashed on this file ({signal.Signals(-code).name})")
