"""Remembers what a Whisper model computed, on disk, so that a benchmark of rules around it runs again in seconds.

    engine = load(EngineSettings(model="base", device="cpu", threads=1))
    memo = memoise_engine(engine)         # or Memo(whisper_model.model, name) for faster-whisper's transcribe()
    with asyncio.Runner(loop_factory=partial(VirtualTimeLoop, clock_of([memo]))) as runner: ...

What is remembered are CTranslate2's calls, by a digest of the weights, of the features and of the arguments, not the
answers of our engine: a rule may change anywhere in Python, and only calls that are new are computed. Each is
remembered with the CPU seconds that it took, and clock_of() counts them again. An encoding is computed only when a call
that is not remembered needs it. The folder may be deleted; many processes may share it.
"""

import hashlib
import os
import pickle
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
from numpy.typing import NDArray

from pipeline.recognition.engine import Engine
from pipeline.recognition.engines.whisper.engine import WhisperEngine

CALLS = ("generate", "align", "detect_language")
FIELDS = {
    "generate": ("sequences", "sequences_ids", "scores", "no_speech_prob"),
    "align": ("alignments", "text_token_probs"),
}
"""What is kept of each answer. Languages are plain lists already."""


def memoise_engine(engine: Engine) -> "Memo":
    """Let the calls of a Whisper engine be remembered. Raises TypeError for another engine."""
    if not isinstance(engine, WhisperEngine):
        raise TypeError(f"{engine.name} has no model whose calls could be remembered")
    memo = Memo(engine._model, f"{engine.model} {engine.compute_type}")  # noqa: SLF001  there is no other way in
    engine._model = memo  # type: ignore[assignment]  # noqa: SLF001  has the methods
    return memo


class Memo:
    """Stands in for ctranslate2.models.Whisper. One call at a time, so that its CPU seconds can be measured."""

    def __init__(self, model: Any, name: str, folder: Path | None = None) -> None:
        """Remember the calls of *model*. *name* tells it from others: the weights and the compute type."""
        self._model = model
        self._name = name
        self._folder = folder or _cache()
        self._lock = threading.Lock()
        self.counted_s = 0.0
        """The CPU seconds of all calls that were asked for, as they took when they were computed."""
        self._computed_s = 0.0

    def __getattr__(self, name: str) -> Any:
        if name in CALLS:
            return lambda states, *given, **more: self._call(name, states, given, more)
        return getattr(self._model, name)

    @property
    def saved_s(self) -> float:
        """The CPU seconds that remembering has saved so far."""
        return self.counted_s - self._computed_s

    def encode(self, features: Any, **_: Any) -> "Encoding":
        array = np.array(features)
        digest = hashlib.sha256(f"{self._name} {array.shape}".encode() + array.tobytes()).hexdigest()
        encoding = Encoding(array, digest)
        with self._lock:
            self._remembered(digest, lambda: (None, self._encode(encoding)))
        return encoding

    def _call(self, name: str, encoding: "Encoding", given: Any, more: Any) -> Any:
        digest = hashlib.sha256(repr((encoding.digest, name, given, sorted(more.items()))).encode()).hexdigest()

        def compute() -> tuple[list[Any], float]:
            if encoding.states is None:
                self._encode(encoding)
            answers, took_s = self._timed(lambda: getattr(self._model, name)(encoding.states, *given, **more))
            return [Answer(one, FIELDS[name]) for one in answers] if name in FIELDS else answers, took_s

        with self._lock:
            return self._remembered(digest, compute)

    def _encode(self, encoding: "Encoding") -> float:
        """Compute an encoding. Return how many CPU seconds it took."""
        features = ctranslate2.StorageView.from_array(encoding.features)
        encoding.states, took_s = self._timed(lambda: self._model.encode(features))
        return took_s

    def _timed(self, work: Callable[[], Any]) -> tuple[Any, float]:
        began = time.process_time()
        answer = work()
        took_s = time.process_time() - began
        self._computed_s += took_s
        return answer, took_s

    def _remembered(self, digest: str, compute: Callable[[], tuple[Any, float]]) -> Any:
        """Return the stored answer, or compute and store it. Count its seconds."""
        path = self._folder / digest[:2] / digest[2:]
        if path.is_file():
            answer, took_s = pickle.loads(path.read_bytes())  # noqa: S301  written below
        else:
            answer, took_s = compute()
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_suffix(f".{os.getpid()}")
            new.write_bytes(pickle.dumps((answer, took_s)))
            new.rename(path)
        self.counted_s += took_s
        return answer


def clock_of(memos: Sequence[Memo]) -> Callable[[], float]:
    """Return a clock of the CPU seconds of this process as they would be if nothing were remembered."""
    return lambda: time.process_time() + sum(memo.saved_s for memo in memos)


class Encoding:
    """What stands for the encoder's output: the features, and the output when it was needed."""

    def __init__(self, features: NDArray[np.float32], digest: str) -> None:
        self.features, self.digest = features, digest
        self.states: Any = None


class Answer:
    """A copy of an answer that can be stored: CTranslate2's own cannot."""

    def __init__(self, answer: Any, fields: tuple[str, ...]) -> None:
        for name in fields:
            setattr(self, name, getattr(answer, name))


def _cache() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "scribewire" / "memo"
