"""Estimates the probability that a window of audio has speech, with Silero VAD.

The sequence form of the model takes several windows in one call, and its results are the same to the last bit. Each
window is preceded by the last CONTEXT samples; *h* and *c* carry the state. The silero_vad package is never imported,
because that would import torch.
"""

from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnxruntime

from pipeline.audio import RATE, WINDOW, Samples
from pipeline.errors import ModelUnavailable
from pipeline.ingest.framer import Windows
from pipeline.ingest.gain import GainControl
from pipeline.packaged import find_packaged

CONTEXT = 64
MEMORY = (1, 1, 128)
MAX_WINDOWS = 32
"""The most windows in one call of the model. More would not be cheaper, and would block others for longer."""

CALM = RATE // WINDOW
"""Every stream starts with the state after this many windows of silence, one second. With an empty state the detector
misses words at the start of a recording that begins in the middle of speech."""

Memory: TypeAlias = tuple[Samples, Samples]
"""The two arrays, of shape MEMORY, that carry the state of a stream."""

MODEL = "silero_vad_16k_sequence.onnx"


def model_path() -> Path:
    """Return where the silero-vad package keeps its model. Raises ModelUnavailable."""
    path = find_packaged("silero-vad", MODEL)
    if path is None:
        raise ModelUnavailable(f"{MODEL} is missing: install silero-vad 6.2 or newer")
    return path


class VoiceDetector:
    """The loaded model. Any number of streams on any threads share it."""

    def __init__(self) -> None:
        """Load the model. Raises ModelUnavailable if it is not installed."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # a window is too little work to share
        options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            str(model_path()), sess_options=options, providers=["CPUExecutionProvider"]
        )
        calm = VoiceStream(self._session)
        calm(np.zeros((CALM, WINDOW), np.float32))
        self._calm = calm.memory

    def stream(self) -> "VoiceStream":
        """Return a detector for one stream, with its own state, as if the stream began after a second of silence."""
        return VoiceStream(self._session, self._calm)


class VoiceStream:
    """Detects speech in one stream, in order. It is not thread-safe."""

    def __init__(self, session: onnxruntime.InferenceSession, memory: Memory | None = None) -> None:
        """*memory* is the state of another stream, or None for an empty one."""
        self._session = session
        self._gain = GainControl()
        self._context = np.zeros(CONTEXT, np.float32)
        self._h, self._c = memory or (np.zeros(MEMORY, np.float32), np.zeros(MEMORY, np.float32))

    @property
    def memory(self) -> Memory:
        """The state after the windows so far, from which another stream can continue."""
        return self._h, self._c

    def __call__(self, windows: Windows) -> list[float]:
        """Return the speech probability of each of the next windows. Their number in a call does not change results."""
        raised = self._gain(windows)
        starts = range(0, len(windows), MAX_WINDOWS)
        return [speech for at in starts for speech in self._detect(raised[at : at + MAX_WINDOWS])]

    def _detect(self, windows: Windows) -> list[float]:
        inputs = {"input": self._with_context(windows), "h": self._h, "c": self._c}
        speech, self._h, self._c = self._session.run(("speech_probs", "hn", "cn"), inputs)
        probabilities: list[float] = speech.tolist()
        return probabilities

    def _with_context(self, windows: Windows) -> Samples:
        seen = np.empty((len(windows), CONTEXT + WINDOW), np.float32)
        seen[:, CONTEXT:] = windows
        seen[0, :CONTEXT] = self._context
        seen[1:, :CONTEXT] = windows[:-1, -CONTEXT:]
        self._context = windows[-1, -CONTEXT:].copy()
        return seen
