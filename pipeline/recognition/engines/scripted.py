"""An engine without a model: it says the words of a script at fixed times. The sandbox and tests use it.

Word number n of SCRIPT is "spoken" from n * WORD_STEP to n * WORD_STEP + WORD_LENGTH on the stream's clock, whatever
the audio contains. So the same part of a recording always gives the same words, however it was cut into windows. If a
window's border cuts a word in two, neither window has it.
"""

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache

from pipeline.audio import LONGEST_JOB, Samples, position
from pipeline.recognition.engine import SCRIPTED, DecodeRequest, RecognitionResult
from pipeline.recognition.model_set import EngineSettings, FoundModel, FoundModels
from pipeline.words import Word

SCRIPT = (  # noqa: SIM905  a list of words would be hard to read
    "This is the sandbox speaking. Every word stands where the clock says, not where a voice was heard. "
    "The same recording always gives the same words, so that your tests can rely on them."
).split()

WORD_STEP = position(0.4)
WORD_LENGTH = position(0.32)
PROBABILITY = 0.99
WORDS_KEPT = 4096  # of many streams that began at about the same time


class ScriptedEngine:
    """See pipeline.recognition.engine.Engine for the contract of its public names."""

    name = SCRIPTED
    model = "scripted"
    languages = frozenset({"en"})
    translates = True  # it says English, whatever is spoken
    max_batch = 8
    replicas = file_replicas_during_speech = 1
    longest_job = LONGEST_JOB

    def __init__(self, text: Sequence[str] = SCRIPT) -> None:
        """Say the words of *text*, over and over."""
        self._text = tuple(text)
        self._word = lru_cache(WORDS_KEPT)(self._make_word)

    def bucket(self, request: DecodeRequest) -> Hashable:
        return request.final

    def recognise(self, requests: Sequence[DecodeRequest]) -> list[RecognitionResult]:
        return [self._recognise_one(request) for request in requests]

    def detect_language(self, samples: Samples) -> Mapping[str, float]:  # noqa: ARG002  Engine gives the name
        return {"en": 1.0}

    def close(self) -> None:
        """Do nothing: there is nothing to free."""

    def _recognise_one(self, request: DecodeRequest) -> RecognitionResult:
        """Return the words that lie in the window as a whole."""
        first = -(-request.start // WORD_STEP)
        last = (request.start + len(request.samples) - WORD_LENGTH) // WORD_STEP
        words = tuple(self._word(number) for number in range(first, last + 1))
        return RecognitionResult(words, "en", 1.0)

    def _make_word(self, number: int) -> Word:
        start = number * WORD_STEP
        return Word(self._text[number % len(self._text)], start, start + WORD_LENGTH, PROBABILITY, language="en")


def find_models(_: EngineSettings) -> FoundModels:
    """See load.find_models()."""
    engine = ScriptedEngine
    model = FoundModel(
        name=engine.model,
        load=engine,
        languages=engine.languages,
        longest_job=engine.longest_job,
    )
    return FoundModels((model,), {})
