"""The interface of speech recognisers: what they are asked, with the hints of users, and what readers get of an answer.

The scheduler, streams and files use it without knowing which engine runs. engines/whisper/ implements it with a model,
engines/scripted.py without one for the sandbox and for tests.

Of hints, names are for speech in any language and prose is for speech in its own: a model continues in the language of
what it has read, and an English sentence before French speech makes it translate.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pipeline.audio import RATE, Pcm, Samples
from pipeline.languages import SENTENCE_ENDS, language_of_prose
from pipeline.words import Segment, Word

TRANSCRIBE, TRANSLATE = "transcribe", "translate"
TASKS = (TRANSCRIBE, TRANSLATE)
"""The results of recognition: the words in the language that is spoken, or English text of the same meaning."""

SCRIPTED = "scripted"
"""The name of the engine without a model. It needs no models of voices either: its two speakers alternate."""

MIN_SPEECH_S = 1.5
"""The shortest speech whose language can be detected. In shorter speech, languages sound alike."""


@dataclass(frozen=True, slots=True)
class Hints:
    """Names and terms that may be said, and a text that may come before the speech."""

    keywords: tuple[str, ...] = ()
    prompt: str = ""
    language: str | None = None  # of the prompt, which is for speech in it alone; None: for all speech

    def prompt_in(self, language: str | None) -> str:
        """Return the prompt for speech in *language*, if it is for that."""
        return self.prompt if self.language in (None, language) else ""


NO_HINTS = Hints()


def hints_for(keywords: Sequence[str], prompt: str, *, written: str | None, allowed: Sequence[str]) -> Hints:
    """Return the hints of a request.

    *written* is the language of all text, if the request fixes it: then the prompt is for all speech.
    *allowed* are the languages that may be found; if empty, all. The prompt is in the one whose small words it has, or
    else in the first of *allowed*. Without small words it is a list of terms, which have no language.
    """
    spoken = language_of_prose(prompt) if written is None else None
    if spoken is not None and allowed and spoken not in allowed:
        spoken = allowed[0]
    return Hints(tuple(keywords), prompt, spoken)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeRequest:
    """One window of audio to recognise. All positions count from the start of the stream."""

    samples: Samples | Pcm  # 1..LONGEST_JOB samples; an engine takes floats_of() them
    start: int  # position of samples[0]
    language: str | None = None  # the one that is spoken; None: it is found (routing.py), or the model detects it
    task: str = TRANSCRIBE  # one of TASKS; English speech is transcribed for both
    final: bool = True  # False: a partial, whose words are recognised again in a later request
    voiced: tuple[tuple[int, int], ...] = ()  # spans in which somebody speaks, in order; none: unknown
    turn: int | None = None  # where the turn begins, in a live stream; None: a part of a file
    hints: Hints = NO_HINTS  # what the user said about the speech
    decided: tuple[Word, ...] = ()  # final words of a live stream in the samples, from their start on

    # For routing.py alone, which finds the language.
    languages: frozenset[str] = frozenset()  # those that may be found; empty: all that a model knows
    before: str | None = None  # the one that was spoken before; None: nothing was
    detected: tuple[int, int] | None = None  # the speech on which *before* was detected in an earlier request

    def between(self, start: int, end: int) -> "DecodeRequest":
        """Return the request for its audio between two positions."""
        samples = self.samples[start - self.start : end - self.start]
        spans = ((max(first, start), min(last, end)) for first, last in self.voiced if first < end and last > start)
        return replace(self, samples=samples, start=start, voiced=tuple(spans))

    @property
    def voiced_s(self) -> float:
        """For how many seconds somebody speaks in the samples; 0 also means unknown."""
        return self.speech_between(self.start, self.start + len(self.samples)) / RATE if self.voiced else 0.0

    def speech_between(self, start: int, end: int) -> int:
        """Return for how many samples somebody speaks between two positions; all of them if that is unknown."""
        spans = self.voiced or ((start, end),)
        return sum(max(0, min(last, end) - max(first, start)) for first, last in spans)


@dataclass(frozen=True, slots=True)
class RecognitionResult:
    """What was recognised in one window. Words are in order and inside it.

    The times of a translated word show roughly where its meaning was said.
    """

    words: tuple[Word, ...]
    language: str | None  # the one that is spoken
    language_probability: float | None = None
    avg_logprob: float = 0.0  # this and the next are for our JSON, as OpenAI has them; 0: the engine has no such scores
    no_speech_prob: float = 0.0
    incomplete: bool = False  # speech of a live turn has no words, but may get some with less audio before the turn

    # From routing.py.
    detected: tuple[int, int] | None = None  # the speech on which the language was detected; None: it is assumed
    changed: tuple[int, str] | None = None
    """Where in a turn another language begins, and which; the words are of no use."""


class Engine(Protocol):
    """One loaded model. Its methods block. At most *replicas* calls run at the same time, each on its own thread."""

    @property
    def name(self) -> str:
        """The kind of engine, one of ENGINES of engines/load.py."""
        ...

    @property
    def model(self) -> str:
        """The name of the model as users see it, such as base or tiny-whisper."""
        ...

    @property
    def languages(self) -> frozenset[str]:
        """The languages that a request may name, as BCP 47 primary subtags."""
        ...

    @property
    def translates(self) -> bool:
        """Whether it can translate into English."""
        ...

    @property
    def max_batch(self) -> int:
        """The most requests in one call of recognise()."""
        ...

    @property
    def replicas(self) -> int:
        """How many calls run at the same time; at least 1."""
        ...

    @property
    def file_replicas_during_speech(self) -> int:
        """How many calls may be for files while people speak, 1 to *replicas*. The rest is left to live speech."""
        ...

    @property
    def longest_job(self) -> int:
        """The most samples of a file in one request, at most LONGEST_JOB. It depends on what suits the model."""
        ...

    def bucket(self, request: DecodeRequest) -> Hashable:
        """Return a key; requests with equal keys may share one call.

        Raises EngineFailed for a request to translate if the model cannot, so that no other request fails with it.
        """
        ...

    def recognise(self, requests: Sequence[DecodeRequest]) -> list[RecognitionResult]:
        """Return an answer for each of 1..max_batch requests of one bucket. Answers do not depend on each other.

        Raises EngineFailed, EngineTimeout.
        """
        ...

    def detect_language(self, samples: Samples) -> Mapping[str, float]:
        """Return the probability of each language in which the speech may be."""
        ...

    def close(self) -> None:
        """Free the memory. Calling it again does nothing."""
        ...


def likeliest(probabilities: Mapping[str, float]) -> tuple[str, float]:
    """Return the language and its probability."""
    language = max(probabilities, key=lambda code: (probabilities[code], code))
    return language, round(probabilities[language], 3)


LONG_PAUSE = round(0.8 * RATE)  # begins a new segment after any word
SENTENCE_PAUSE = round(0.2 * RATE)  # enough after a full stop; less follows an abbreviation or a number


def phrases(result: RecognitionResult) -> tuple[Segment, ...]:
    """Return the words of *result* in order, cut at ends of sentences, long pauses and changes of the language."""
    runs: list[list[Word]] = []
    for word in result.words:
        if runs:
            before = runs[-1][-1]
            longest = SENTENCE_PAUSE if before.text.endswith(SENTENCE_ENDS) else LONG_PAUSE
            if before.language == word.language and word.start - before.end < longest:
                runs[-1].append(word)
                continue
        runs.append([word])
    return tuple(segment_of(run, result) for run in runs)


def segment_of(words: Sequence[Word], result: RecognitionResult) -> Segment:
    """Return *words* as a segment with the scores of *result*, the last answer about them."""
    sure = result.language_probability if words[0].language in {result.language} - {None} else None
    return Segment(tuple(words), result.avg_logprob, result.no_speech_prob, language_probability=sure)


def without_end(word: Word) -> Word:
    """Return *word* without marks that end a sentence."""
    return replace(word, text=word.text.rstrip("".join(SENTENCE_ENDS)) or word.text)
