"""Finds the language of what is said, utterance by utterance, and lets the model of that language hear it.

Sessions and files send their windows here. A window of a known language goes straight to its model.

Theory. A model that knows one language shows by itself whether that language is spoken: it is not sure of the words
that it makes of another one. So where such a model hears the language of the utterance before, that language is
assumed, which costs nothing, and only an utterance with improbable words is looked at. A model of many languages is
sure of its words even where it translates them in silence, so with it the language of each utterance is detected
first, on the speech of that utterance alone. A short utterance sounds alike in many languages: it keeps the language
of its neighbours unless the detection is plain. Of two answers in two languages the surer one is taken.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Protocol

from pipeline.audio import RATE, Samples, position
from pipeline.recognition.engine import DecodeRequest, RecognitionResult
from pipeline.recognition.languages import likeliest
from pipeline.recognition.scheduler import Urgency
from pipeline.words import Word

SURE = 0.7
"""The mean probability of the words of an utterance from which on its language is believed."""

PLAIN, RIVAL = 0.8, 0.15
"""A language that is less probable than PLAIN is compared with the next one, if that one has RIVAL or more."""

PAUSE = position(0.4)
"""A silence as long as this parts two utterances of a file."""

SHORTEST = position(1.5)
"""An utterance with less speech than this belongs to its neighbour."""

AROUND = position(0.2)
"""Audio before and after an utterance that is heard with it."""


class ModelQueue(Protocol):
    """The queue of one loaded model: its Scheduler."""

    async def recognise(
        self,
        request: DecodeRequest,
        *,
        tenant: str,
        urgency: Urgency | None = None,
        newer: Callable[[], DecodeRequest | None] | None = None,
    ) -> RecognitionResult: ...

    async def detect_language(
        self, windows: Sequence[Samples], *, tenant: str, urgency: Urgency
    ) -> Mapping[str, float]: ...


class Models(Protocol):
    """The models that may hear windows. A model is loaded when it is asked for."""

    @property
    def languages(self) -> frozenset[str]:
        """All languages that one of the models hears."""
        ...

    @property
    def first(self) -> str | None:
        """The language that is assumed before anything was heard; None: it is detected."""
        ...

    def shows_itself(self, language: str) -> bool:
        """Whether the model of *language* knows no other one, so that its answers show whether that one is spoken."""
        ...

    async def hearing(self, language: str) -> ModelQueue:
        """Return the model of a language. Raises EngineFailed if it cannot be loaded."""
        ...

    async def detecting(self) -> ModelQueue | None:
        """Return the model that detects languages; None if all models together know one language."""
        ...


@dataclass(frozen=True, slots=True)
class _Found:
    """The language of an utterance, how probable it is, and the next likely one unless the first is plain."""

    language: str
    probability: float
    rival: str | None = None


class LanguageRouter:
    """Hears windows with the model of their language. It has the methods of one model's Scheduler."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def recognise(
        self,
        request: DecodeRequest,
        *,
        tenant: str,
        urgency: Urgency | None = None,
        newer: Callable[[], DecodeRequest | None] | None = None,
    ) -> RecognitionResult:
        """Return what is recognised in *request*, whose language may be unknown.

        *newer* and *urgency* are those of Scheduler.recognise(). Raises EngineFailed, EngineTimeout.
        """
        if request.language is not None:
            model = await self._models.hearing(request.language)
            return await model.recognise(request, tenant=tenant, urgency=urgency, newer=newer)
        caller = _Caller(self._models, tenant, urgency)
        allowed = request.languages & self._models.languages or self._models.languages
        assumed = next((code for code in (request.before, self._models.first) if code in allowed), None)
        if assumed is None or not (request.certain or self._models.shows_itself(assumed)):
            return await caller.hear_by_utterance(request, allowed, newer)
        asked, result = await caller.hear_newest(request, assumed, newer)
        if asked.certain or len(allowed) == 1:
            return result
        spans = utterances(asked)
        again = {
            span: heard
            for span in spans
            if surety(words_in(span, spans, result.words)) < SURE
            and (heard := await caller.hear_again(asked, span, result, allowed)) is not None
        }
        return joined(spans, result, again)


@dataclass(frozen=True, slots=True)
class _Caller:
    """Asks the models on behalf of one stream or file."""

    models: Models
    tenant: str
    urgency: Urgency | None

    async def hear_newest(
        self, request: DecodeRequest, language: str, newer: Callable[[], DecodeRequest | None] | None
    ) -> tuple[DecodeRequest, RecognitionResult]:
        """Hear *request*, or the one that *newer* returns when its turn comes. Return it and its answer."""
        asked = request

        def newest() -> DecodeRequest | None:
            nonlocal asked
            found = newer() if newer is not None else None
            if found is None:
                return None
            asked = found
            return replace(found, language=language)

        model = await self.models.hearing(language)
        told = replace(request, language=language)
        result = await model.recognise(told, tenant=self.tenant, urgency=self.urgency, newer=newest)
        return asked, in_language(result, language)

    async def hear_again(
        self, request: DecodeRequest, span: tuple[int, int], result: RecognitionResult, allowed: frozenset[str]
    ) -> RecognitionResult | None:
        """Hear a span in its own language; None if that is the one of *result*, or *result* is surer of its words."""
        if not result.words and request.speech_between(*span) < SHORTEST:
            return None  # a noise
        found = await self.detect(request, span, allowed)
        if found.language == result.language:
            return None
        heard = await self.hear(part_of(request, span), found)
        ours, theirs = words_in(span, [span], heard.words), words_in(span, utterances(request), result.words)
        return heard if surety(ours) > surety(theirs) else None

    async def hear_by_utterance(
        self, request: DecodeRequest, allowed: frozenset[str], newer: Callable[[], DecodeRequest | None] | None
    ) -> RecognitionResult:
        """Detect the language of each utterance and hear it in that language.

        If it is the language of the whole, the whole is heard at once, or the request that *newer* returns.
        """
        spans = utterances(request)
        found = [await self.detect(request, span, allowed) for span in spans]
        alone = request.turn is None or request.before in (None, found[0].language)
        if alone and len({one.language for one in found}) == 1:
            return await self.hear(request, found[0], newer)
        runs: dict[tuple[int, int], RecognitionResult] = {}
        for _, several in groupby(zip(spans, found, strict=True), key=lambda pair: pair[1].language):
            group = list(several)
            run = group[0][0][0], group[-1][0][1]
            runs[run] = await self.hear(part_of(request, run), min((one for _, one in group), key=_probability))
        return joined(list(runs), next(iter(runs.values())), runs)

    async def hear(
        self, request: DecodeRequest, found: _Found, newer: Callable[[], DecodeRequest | None] | None = None
    ) -> RecognitionResult:
        """Hear *request* in the language that was found, or in its rival, whichever answer has the surer words."""
        asked, result = await self.hear_newest(request, found.language, newer)
        if found.rival is not None:
            _, other = await self.hear_newest(asked, found.rival, None)
            if surety(other.words) > surety(result.words):
                result = other
        return replace(result, language_probability=found.probability)

    async def detect(self, request: DecodeRequest, span: tuple[int, int], allowed: frozenset[str]) -> _Found:
        """Detect the language of the speech in *span*, among those that are *allowed*."""
        model = await self.models.detecting()
        if model is None or len(allowed) == 1:
            return _Found(min(allowed), 1.0)
        urgency = self.urgency or (Urgency.FINAL if request.final else Urgency.PARTIAL)
        probabilities = await model.detect_language(
            [part_of(request, span).samples], tenant=self.tenant, urgency=urgency
        )
        known = {code: share for code, share in probabilities.items() if code in allowed}
        every = sum(known.values())
        shares = {code: share / every for code, share in known.items()} if every else {min(allowed): 0.0}
        speech = request.speech_between(*span)
        language, probability = likeliest(shares, before=request.before, speech_s=speech / RATE)
        others = {code: share for code, share in shares.items() if code != language}
        rival = max(others, key=lambda code: (others[code], code), default=None)
        close = rival is not None and probability < PLAIN and others[rival] >= RIVAL and speech >= SHORTEST
        return _Found(language, probability, rival if close else None)


def utterances(request: DecodeRequest) -> list[tuple[int, int]]:
    """Return the spans of *request* whose language is to be found, in order; all of it if it is short.

    A live request has one, from the beginning of its turn. In a file pauses part them, and one with little speech
    belongs to the one before, or at the beginning to the next.
    """
    end = request.start + len(request.samples)
    if request.turn is not None:
        return [(max(request.start, request.turn), end)]
    groups: list[tuple[int, int]] = []
    for first, last in request.voiced or [(request.start, end)]:
        if groups and first - groups[-1][1] < PAUSE:
            groups[-1] = groups[-1][0], last
        else:
            groups.append((first, last))
    spans = groups[:1]
    for first, last in groups[1:]:
        if min(last - first, spans[-1][1] - spans[-1][0]) < SHORTEST:
            spans[-1] = spans[-1][0], last
        else:
            spans.append((first, last))
    return spans


def words_in(span: tuple[int, int], spans: Sequence[tuple[int, int]], words: Sequence[Word]) -> list[Word]:
    """Return the *words* of the utterance *span*: each belongs to the one of *spans* that is nearest to its middle."""

    def distance(word: Word, one: tuple[int, int]) -> float:
        middle = (word.start + word.end) / 2
        return max(one[0] - middle, middle - one[1], 0)

    return [word for word in words if min(spans, key=lambda one: distance(word, one)) == span]


def surety(words: Sequence[Word]) -> float:
    """Return the mean probability of *words*; 0 if there are none."""
    return sum(word.probability for word in words) / len(words) if words else 0.0


def part_of(request: DecodeRequest, span: tuple[int, int]) -> DecodeRequest:
    """Return the request for a span of its audio and a little around it, without what was decided before it."""
    start = max(request.start, span[0] - AROUND)
    end = min(request.start + len(request.samples), span[1] + AROUND)
    samples = request.samples[start - request.start : end - request.start]
    return replace(request, samples=samples, start=start, prefix="", before=None)


def in_language(result: RecognitionResult, language: str) -> RecognitionResult:
    """Return *result* with its language at every word."""
    return replace(result, language=language, words=tuple(replace(word, language=language) for word in result.words))


def joined(
    spans: Sequence[tuple[int, int]],
    result: RecognitionResult,
    again: Mapping[tuple[int, int], RecognitionResult],
) -> RecognitionResult:
    """Return *result* with other words for the utterances that were heard *again* in another language.

    The language of the whole, and its scores, are those of most of its words.
    """
    if not again:
        return result
    answers = {span: again.get(span, result) for span in spans}
    words = [word for span, answer in answers.items() for word in words_in(span, spans, answer.words)]
    spoken = [word.language for word in words] or [result.language]
    language = max(spoken, key=spoken.count)
    main = next((answer for answer in answers.values() if answer.language == language), result)
    return replace(main, words=tuple(words), rejected=None if words else main.rejected)


def _probability(found: _Found) -> float:
    return found.probability
