"""Windows of audio -> the probability that each holds speech: Silero VAD on onnxruntime, whose only home this is.

The sequence form of the model takes several windows a call and gives bit for bit what the plain one gives window by
window. Each window is seen with the last CONTEXT samples before it; the memory of what came before is carried in *h*
and *c*. The silero_vad package is never imported: that would import torch.
"""

from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnxruntime

from pipeline.audio import RATE, WINDOW, Samples
from pipeline.errors import ModelUnavailable
from pipeline.ingest.framer import Windows

CONTEXT = 64
MEMORY = (1, 1, 128)
MOST_WINDOWS = 32
"""Windows of one call of the model: more cost the same per window, and a call should hold nobody up for long."""

CALM = RATE // WINDOW
"""Windows of silence, a second, that every stream is taken to begin after. A detector that remembers nothing misses
words at the start of a recording that begins in the middle of speech."""

Memory: TypeAlias = tuple[Samples, Samples]
"""The two arrays, of shape MEMORY, that carry what was heard."""

MODEL = "silero_vad_16k_sequence.onnx"


def model_path() -> Path:
    """Where the silero-vad package keeps its model. Raises ModelUnavailable."""
    try:
        found = [file for file in files("silero-vad") or () if file.name == MODEL]
    except PackageNotFoundError:
        found = []
    if not found:
        raise ModelUnavailable(f"{MODEL} is missing: install silero-vad 6.2 or newer")
    return Path(str(found[0].locate()))


class VoiceDetector:
    """The loaded model. Any number of streams share it, from any threads."""

    def __init__(self) -> None:
        """Raise ModelUnavailable where the model is not installed."""
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
        """A listener for one stream, with a memory of its own, as if the stream began after a second of silence."""
        return VoiceStream(self._session, self._calm)


class VoiceStream:
    """Hears one stream, in order. Not for two threads at once."""

    def __init__(self, session: onnxruntime.InferenceSession, memory: Memory | None = None) -> None:
        """*memory* is what another stream remembered; None: nothing."""
        self._session = session
        self._context = np.zeros(CONTEXT, np.float32)
        self._h, self._c = memory or (np.zeros(MEMORY, np.float32), np.zeros(MEMORY, np.float32))

    @property
    def memory(self) -> Memory:
        """What is remembered of the windows so far, for a stream that is to go on from here."""
        return self._h, self._c

    def __call__(self, windows: Windows) -> list[float]:
        """The speech probability of each of the next windows. How many come in one call changes no result."""
        starts = range(0, len(windows), MOST_WINDOWS)
        return [speech for at in starts for speech in self._heard(windows[at : at + MOST_WINDOWS])]

    def _heard(self, windows: Windows) -> list[float]:
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
