"""The answer of the decoder to one request, and the encoder's output that it was made of. engine.py makes them."""

from dataclasses import dataclass
from typing import Any

from pipeline.recognition.engine import RecognitionResult
from pipeline.words import Word


@dataclass(frozen=True, slots=True)
class Encoded:
    """The encoder output of one call. All its rows have the same window."""

    states: Any  # ctranslate2.StorageView
    window_s: int
    rows: int


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """The answer of the decoder to one request. *row* is its place in *encoded*, *failed* the gate that it fails."""

    tokens: tuple[int, ...]
    text: str
    language: str
    language_probability: float
    task: str
    avg_logprob: float
    no_speech_prob: float
    failed: str | None
    encoded: Encoded
    row: int

    def with_words(self, words: tuple[Word, ...]) -> RecognitionResult:
        """Return the result of the request, in which *words* were found."""
        scores = self.avg_logprob, self.no_speech_prob
        return RecognitionResult(words, self.language, self.language_probability, *scores)
