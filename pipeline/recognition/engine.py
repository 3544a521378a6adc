"""What every recogniser offers: the role that session and batch talk to, without knowing which one runs."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pipeline.audio import Samples
from pipeline.words import Word


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeRequest:
    """One window of audio to hear. All positions are on the stream's clock."""

    samples: Samples  # 1..LONGEST_JOB samples
    start: int  # position of samples[0]
    language: str | None = None  # None: detect it in this window
    hint: str = ""  # vocabulary the user expects
    final: bool = True  # False: a partial, whose words are heard again in a later request
    said: str = ""  # what is decided about the start of the window: an answer may begin with it instead of hearing it
    voiced: tuple[tuple[int, int], ...] = ()  # spans in which somebody speaks, in order; none: not known


@dataclass(frozen=True, slots=True)
class Heard:
    """What one window said. Words are in order, inside the window; none when a gate judged it to be no speech."""

    words: tuple[Word, ...]
    language: str | None
    language_probability: float | None
    avg_logprob: float
    no_speech_prob: float
    rejected: str | None = None  # which hallucination gate dropped the text: "no_speech", "repetition", ...


class Engine(Protocol):
    """One loaded model. Its calls block. At most `replicas` of them run at the same time, each on its own thread."""

    @property
    def name(self) -> str:
        """The kind: whisper or scripted."""
        ...

    @property
    def model(self) -> str:
        """The model's name for readers: base, tiny-whisper."""
        ...

    @property
    def languages(self) -> frozenset[str]:
        """BCP 47 primary subtags that a request may name."""
        ...

    @property
    def most(self) -> int:
        """How many requests one call of hear() takes."""
        ...

    @property
    def replicas(self) -> int:
        """How many calls this engine answers at the same time, using the whole machine; at least 1."""
        ...

    @property
    def replicas_amid_speech(self) -> int:
        """The same while people speak: a core is left to everything else. At least 1, at most *replicas*."""
        ...

    @property
    def job(self) -> int:
        """The most samples of a file that this model should hear at once, at most LONGEST_JOB."""
        ...

    def bucket(self, request: DecodeRequest) -> Hashable:
        """Requests with equal buckets may share one call."""
        ...

    def hear(self, requests: Sequence[DecodeRequest]) -> list[Heard]:
        """Hear 1..most requests of one bucket. The answer does not depend on who shares the call.

        Raises EngineFailed, EngineTimeout.
        """
        ...

    def detect_language(self, windows: Sequence[Samples]) -> tuple[str, float]:
        """The language most probably spoken over all *windows* (at least one) and its probability."""
        ...

    def close(self) -> None:
        """Give processes and memory back. Calling it again does nothing."""
        ...
