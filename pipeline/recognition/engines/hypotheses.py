"""The answers of the decoder to one request: which one is worth a second look, and which of two is better.

whisper.py makes them and calls these functions.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from pipeline.recognition.engine import RecognitionResult
from pipeline.recognition.engines.gates import DOUBT, NO_SPEECH, VOICE_S, is_no_speech
from pipeline.recognition.spoken_form import usual_time
from pipeline.words import Word

WEIGHT = 0.55
"""The cost, in mean log-probability, of a text that usually takes e times as long as the speech lasted, or 1/e."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """The encoder output of one call. All its rows have the same window."""

    states: Any  # ctranslate2.StorageView
    window_s: int
    lead: int  # samples of silence before the audio of each row
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
        scores = self.language, self.language_probability, self.avg_logprob, self.no_speech_prob
        return RecognitionResult(words, *scores, rejected=self.failed)


def needs_second_look(hypothesis: Hypothesis) -> bool:
    """Return whether the answer is a loop or doubtful."""
    if hypothesis.failed is not None:
        return hypothesis.failed in ("repetition", "too_fast")
    return hypothesis.avg_logprob < DOUBT


def better(first: Hypothesis, second: Hypothesis, voiced_s: float) -> Hypothesis:
    """Return the better of two hypotheses about the same audio: the one that passes the gates, else the likelier one.

    A text that fits the time of the speech counts as likelier, because an answer without a whole sentence may have the
    higher mean probability. If one of the two finds it likely that nobody spoke, they have no word in common, and the
    voice detector found no speech, neither is accepted.
    """
    if second.failed is not None or first.failed is not None:
        return second if second.failed is None else first
    likelier = max(first, second, key=lambda hypothesis: hypothesis.avg_logprob - _misfit(hypothesis.text, voiced_s))
    no_speech_prob = max(first.no_speech_prob, second.no_speech_prob)
    apart = not set(first.text.casefold().split()) & set(second.text.casefold().split())
    doubted = apart and no_speech_prob > NO_SPEECH and voiced_s < VOICE_S
    if doubted or is_no_speech(
        likelier.text, avg_logprob=likelier.avg_logprob, no_speech_prob=no_speech_prob, voiced_s=voiced_s
    ):
        return replace(likelier, failed="no_speech")
    return likelier


def _misfit(text: str, voiced_s: float) -> float:
    """Return how much less likely *text* is if it takes more or less time than *voiced_s*; 0 if that is unknown."""
    if not voiced_s:
        return 0.0
    ratio = math.log(max(usual_time(text), 0.1) / voiced_s)
    return WEIGHT * min(abs(ratio), 1.0) ** 2
