"""Voice activity detection: the probability that a window of audio has speech, by Silero VAD.

The model comes in two forms. One takes consecutive windows of one stream, the other takes one window of each of many
streams. Their results are the same, however many come in a call. Each window is preceded by the last CONTEXT samples;
*h* and *c* carry the state. The silero_vad package is never imported, because that would import torch.

The windows of all live streams of a process go to the model together, on a thread (LiveVad). The event loop only hands
them over. A call begins at once if none did within the last BEAT_S. So one stream does not wait, and with many streams
each call has windows of many of them.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnxruntime

from pipeline.audio import RATE, WINDOW, DetectLiveSpeech, Samples, Windows
from pipeline.errors import ModelUnavailable
from pipeline.ingest.gain import GainControl, levels_db
from pipeline.weights import find_packaged

CONTEXT = 64
STATE = 128
MAX_WINDOWS = 32
"""The most windows in one call of the model. More would not be cheaper, and would block others for longer."""

MANY = 4
"""Windows of so many streams or more are cheaper in a call of the form for many streams."""

CALM = RATE // WINDOW
"""Every stream starts with the state after this many windows of silence, one second. With an empty state the detector
misses words at the start of a recording that begins in the middle of speech."""

BEAT_S = 0.03
"""The shortest time between the beginnings of two calls for live streams, and so the longest wait for one."""

Memory: TypeAlias = Samples
"""The state of a stream: *h* and *c*, of shape (2, STATE)."""

ONE_STREAM = "silero_vad_16k_sequence.onnx"
MANY_STREAMS = "silero_vad.onnx"


def model_path(name: str = ONE_STREAM) -> Path:
    """Return where the silero-vad package keeps a form of its model. Raises ModelUnavailable."""
    path = find_packaged("silero-vad", name)
    if path is None:
        raise ModelUnavailable(f"{name} is missing. Install silero-vad 6.2 or newer.")
    return path


class Vad:
    """The loaded model. Any number of streams on any threads share it."""

    def __init__(self) -> None:
        """Load the model. Raises ModelUnavailable if it is not installed."""
        self._one = _load(ONE_STREAM)
        calm = VadStream(self._one, np.zeros((2, STATE), np.float32))
        calm(np.zeros((CALM, WINDOW), np.float32))
        self._calm = calm.memory

    @cached_property
    def _many(self) -> onnxruntime.InferenceSession:
        """The other form, loaded at its first use: files never need its 17 MB."""
        return _load(MANY_STREAMS)

    def stream(self) -> "VadStream":
        """Return a detector for one stream, with its own state, as if the stream began after a second of silence."""
        return VadStream(self._one, self._calm)

    def detect(self, streams: Sequence["VadStream"], pieces: Sequence[Windows]) -> list[list[float]]:
        """Return what each stream called with the windows of its piece would return. It is cheaper for many streams."""
        if len(streams) < MANY:
            return [stream(piece) for stream, piece in zip(streams, pieces, strict=True)]
        levels = iter(levels_db(np.concatenate(pieces)))
        inputs = [
            stream.inputs_of(piece, [next(levels) for _ in piece])
            for stream, piece in zip(streams, pieces, strict=True)
        ]
        longest_first = sorted(range(len(streams)), key=lambda number: -len(pieces[number]))
        memory = np.stack([streams[number].memory for number in longest_first], axis=1)
        found: list[list[float]] = [[] for _ in streams]
        for at in range(max(map(len, pieces))):
            rows = [number for number in longest_first if at < len(pieces[number])]
            given = {
                "input": np.stack([inputs[number][at] for number in rows]),
                "state": memory[:, : len(rows)],
                "sr": np.array(RATE, np.int64),
            }
            speech, memory[:, : len(rows)] = self._many.run(("output", "stateN"), given)
            for number, probability in zip(rows, speech[:, 0].tolist(), strict=True):
                found[number].append(probability)
        for row, number in enumerate(longest_first):
            streams[number].memory = memory[:, row]
        return found


class VadStream:
    """Detects speech in one stream, in order. It is not thread-safe."""

    def __init__(self, session: onnxruntime.InferenceSession, memory: Memory) -> None:
        """*memory* is the state of another stream."""
        self._session = session
        self._gain = GainControl()
        self._context = np.zeros(CONTEXT, np.float32)
        self.memory = memory
        """The state after the windows so far, from which another stream can continue."""

    def __call__(self, windows: Windows) -> list[float]:
        """Return the speech probability of each of the next windows. Their number in a call does not change results."""
        if not len(windows):
            return []
        inputs, found = self.inputs_of(windows, levels_db(windows)), list[float]()
        for at in range(0, len(inputs), MAX_WINDOWS):
            given = {
                "input": inputs[at : at + MAX_WINDOWS],
                "h": self.memory[:1, np.newaxis],
                "c": self.memory[1:, np.newaxis],
            }
            speech, h, c = self._session.run(("speech_probs", "hn", "cn"), given)
            self.memory = np.concatenate((h[0], c[0]))
            found += speech.tolist()
        return found

    def inputs_of(self, windows: Windows, levels: Sequence[float]) -> Samples:
        """Return what the model takes of the next windows, which have these *levels*: each after its context."""
        seen = np.empty((len(windows), CONTEXT + WINDOW), np.float32)
        seen[:, CONTEXT:] = self._gain(windows, levels)
        if len(windows):
            seen[0, :CONTEXT] = self._context
            seen[1:, :CONTEXT] = seen[:-1, -CONTEXT:]
            self._context = seen[-1, -CONTEXT:].copy()
        return seen


def _load(name: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # a window is too little work to share
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(model_path(name)), sess_options=options, providers=["CPUExecutionProvider"])


@dataclass(slots=True)
class _Waiting:
    stream: VadStream
    windows: Windows
    found: "asyncio.Future[list[float]]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class LiveVad:
    """Detects speech in all live streams. It belongs to one event loop."""

    def __init__(self, detector: Vad) -> None:
        self.detector = detector
        self._thread = ThreadPoolExecutor(1, "live vad")
        self._waiting: list[_Waiting] = []
        self._calling = False
        self._began = 0.0  # the last call

    def stream(self) -> DetectLiveSpeech:
        """Return what detects speech in one stream, window by window: detect() with a state of its own.

        Await its answer before the next call.
        """
        return partial(self.detect, self.detector.stream())

    def close(self) -> None:
        """End the thread, after its last call."""
        self._thread.shutdown()

    def detect(self, stream: VadStream, windows: Windows) -> "asyncio.Future[list[float]]":
        """Return a future with the probabilities of the next windows of *stream*, or with the error of the model."""
        waiting = _Waiting(stream, windows)
        self._waiting.append(waiting)
        if not self._calling:
            self._calling = True
            loop = asyncio.get_running_loop()
            loop.call_at(max(loop.time(), self._began + BEAT_S), self._call)
        return waiting.found

    def _call(self) -> None:
        """Give the thread all that waits."""
        loop, waiting = asyncio.get_running_loop(), self._waiting
        self._waiting, self._began = [], loop.time()
        streams, pieces = [one.stream for one in waiting], [one.windows for one in waiting]
        calling = loop.run_in_executor(self._thread, self.detector.detect, streams, pieces)
        calling.add_done_callback(lambda done: self._settle(waiting, done))

    def _settle(self, waiting: Sequence[_Waiting], done: "asyncio.Future[list[list[float]]]") -> None:
        """Pass on the results of a call, or its error, and plan the next one."""
        error = done.exception()
        for number, one in enumerate(waiting):
            if one.found.done():
                continue  # its session has ended
            if error is None:
                one.found.set_result(done.result()[number])
            else:
                one.found.set_exception(error)
        self._calling = bool(self._waiting)
        if self._calling:
            loop = asyncio.get_running_loop()
            loop.call_at(max(loop.time(), self._began + BEAT_S), self._call)
