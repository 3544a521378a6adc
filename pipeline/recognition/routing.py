"""Finds the language of what is said, utterance by utterance, and lets the model of that language transcribe it.

Sessions and files send their windows here. A window of a known language goes straight to its model.

Theory. A model that knows one language shows by itself whether that language is spoken: it is not sure of the words
that it makes of another one. So where such a model knows the language of the utterance before, that language is
assumed, which costs nothing, and only a window with improbable words is looked at. A model of many languages is
sure of its words even where it translates them in silence, so with it the language of each utterance is detected
first, on the speech of that utterance alone.

Single phrases are mistaken for other languages: Spanish for Italian with 0.7, Dutch for Arabic with 0.8. So a language
that differs from the neighbours' is taken at once only where it is certain and there is enough speech, and not at all
where theirs is nearly as probable. Between, or where the words are improbable, the utterance is recognised in both
languages, and the surer words are taken.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from pipeline.audio import RATE, floats_of, position
from pipeline.recognition.engine import MIN_SPEECH_S, DecodeRequest, RecognitionResult, likeliest
from pipeline.recognition.model_set import ModelSet, OneModel
from pipeline.recognition.scheduler import Urgency
from pipeline.words import Word

CERTAIN = 0.9
"""A language is taken at once from this probability on."""

PLAIN, RIVAL = 0.8, 0.15
"""Without neighbours, a language below PLAIN is compared with the next one, if that one has RIVAL or more."""

UNTESTED = frozenset(
    ("ba", "bo", "br", "eu", "fo", "ht", "haw", "la", "mg", "nn", "sa", "si", "sq", "su", "tk", "tt", "yi")
)
"""Languages of Whisper that FLEURS lacks, so that nobody published how well they are recognised.

Others that sound alike are mistaken for them: Spanish for Latin with 0.93. So they are found only where they are
CERTAIN, and beside neighbours only where the words are surer."""

PRIOR = 2.0
"""How much more probable the neighbours' language is: most utterances continue in it."""

SURE = 0.75
"""The mean probability of the words of an utterance from which on its language is believed."""

LIKELY = 0.5
"""Words below this mean probability, in another language than the neighbours', are compared with words in theirs.

Where it is not even certain, they are no reason to leave theirs: words had 0.74 or more in 15 utterances of the tuning
half that did differ, and 0.71 or less in 39 that did not."""

GROWTH = 2
"""The language of a live utterance is detected again when it has grown to this many times the speech."""

EARLIER = position(10.0)
"""The speech of earlier jobs of a file, in which one language was found, counts as much as this much of a job."""

PAUSE = position(0.4)
"""A silence as long as this parts two utterances of a file."""

SHORTEST = position(MIN_SPEECH_S)
"""An utterance with less speech than this belongs to its neighbour."""

SPOKEN = 0.1
"""Below this probability of all allowed languages together, the speech is taken to be in none of them.

base gave Spanish and French together as much in 73 of 74 clips in them, and in 1 of 187 in five other languages."""

AROUND = position(0.2)
"""Audio before and after an utterance that is recognised with it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A language, how probable it is, and the one that it is to be compared with by transcribing both, if any.

    *others*: how probable all others that may be found are together.
    """

    language: str
    probability: float
    rival: str | None = None
    others: float = 0.0


class LanguageRouter:
    """Transcribes windows with the model of their language. It has the methods of one model's Scheduler."""

    def __init__(self, models: ModelSet | OneModel) -> None:
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

        *newer* and *urgency* are those of Scheduler.recognise_newest(). Raises EngineFailed, EngineTimeout.
        """
        if request.language is not None:
            model = await self._models.model_for(request.language)
            return await model.recognise(request, tenant=tenant, urgency=urgency, newer=newer)
        caller = _Caller(self._models, tenant, urgency)
        allowed = request.languages & self._models.languages or self._models.languages
        assumed = next((code for code in (request.before, self._models.first) if code in allowed), None)
        known = len(allowed) == 1 or _is_detected(request)
        if assumed is None or not (known or self._models.shows_itself(assumed)):
            if request.turn is None:
                return await caller.transcribe_by_utterance(request, allowed)
            return await caller.transcribe_newest_utterance(request, allowed, newer)
        asked, result = await caller.transcribe_newest(request, assumed, newer)
        if len(allowed) == 1:
            return replace(result, language_probability=1.0)
        if _is_detected(asked) and not asked.final:
            return result
        spans = cut_at_languages(asked, utterances(asked), result.words)
        if asked.turn is not None:
            return await caller.check_live(asked, spans, result, allowed)
        if all(_is_sure(asked, span, words_in(span, spans, result.words)) for span in spans):
            return replace(result, language_probability=round(surety(result.words), 3))
        return await caller.transcribe_by_utterance(asked, allowed, result)


def _is_detected(request: DecodeRequest) -> bool:
    """Return whether the language of the newest utterance is known from enough of it."""
    if request.detected is None:
        return False
    newest = utterances(request)[-1]
    cut_off = newest[0] <= request.start + AROUND  # the beginning of the utterance is not in the request
    same = newest[0] - request.detected[0] <= PAUSE or (cut_off and newest[0] < request.detected[1])
    return same and request.speech_between(*newest) < GROWTH * request.speech_between(*request.detected)


def _is_sure(request: DecodeRequest, span: tuple[int, int], words: Sequence[Word]) -> bool:
    """Return whether the words of an utterance show that it is in the language in which it was transcribed."""
    return surety(words) >= SURE or (not words and request.speech_between(*span) < SHORTEST)


@dataclass(frozen=True, slots=True)
class _Caller:
    """Asks the models on behalf of one stream or file."""

    models: ModelSet | OneModel
    tenant: str
    urgency: Urgency | None

    async def transcribe_newest(
        self, request: DecodeRequest, language: str, newer: Callable[[], DecodeRequest | None] | None
    ) -> tuple[DecodeRequest, RecognitionResult]:
        """Transcribe *request*, or the one that *newer* returns when its turn comes. Return it and its answer."""
        model = await self.models.model_for(language)
        known = replace(request, language=language)
        asked, result = await model.recognise_newest(known, tenant=self.tenant, urgency=self.urgency, newer=newer)
        words = (word if word.language == language else replace(word, language=language) for word in result.words)
        result = replace(result, language=language, language_probability=None, words=tuple(words))
        return replace(asked, language=request.language), result

    async def check_live(
        self,
        request: DecodeRequest,
        spans: Sequence[tuple[int, int]],
        result: RecognitionResult,
        allowed: frozenset[str],
    ) -> RecognitionResult:
        """Check the language of the newest utterance of a turn, and return the answer that is right for the turn."""
        newest = spans[-1]
        words, speech = words_in(newest, spans, result.words), request.speech_between(*newest)
        nothing_before = request.final and request.before is None
        sure = surety(words) >= SURE
        if (sure and _is_detected(request)) or (speech < SHORTEST and not nothing_before and (sure or not words)):
            return result
        if sure and speech >= SHORTEST and self.models.shows_itself(result.language or ""):
            return replace(result, language_probability=round(surety(words), 3), detected=newest)
        answer = await self.check(request, newest, words, result, allowed)
        if answer.language != result.language and len(spans) > 1:
            assert answer.language is not None
            return replace(result, changed=(newest[0], answer.language))
        return answer

    async def check(
        self,
        request: DecodeRequest,
        span: tuple[int, int],
        words: Sequence[Word],
        result: RecognitionResult,
        allowed: frozenset[str],
    ) -> RecognitionResult:
        """Return the right answer for an utterance, which has *words* of *result* in an assumed language."""
        sure = surety(words) >= SURE
        shares = await self.detect(request, span, allowed)
        found = _choose(request, span, shares, request.before if sure else None)
        if found.language == result.language:
            if sure or found.rival is None:
                return replace(result, language_probability=found.probability, detected=span)
            found = Choice(found.rival, shares[found.rival], others=found.others)
        answer = await self.transcribe(part_of(request, span), found)
        theirs = surety(words_in(span, [span], answer.words))
        if request.before is not None and request.speech_between(*span) < SHORTEST:
            plain = theirs >= SURE
        else:
            plain = theirs > surety(words) or found.probability >= PLAIN
        if plain and answer.words:
            return replace(answer, detected=span)
        return replace(result, detected=span)

    async def transcribe_newest_utterance(
        self, request: DecodeRequest, allowed: frozenset[str], newer: Callable[[], DecodeRequest | None] | None
    ) -> RecognitionResult:
        """Detect the language of the newest utterance of a live turn, and transcribe the turn in it.

        If the turn has other utterances in another language, its answer says where the language changes.
        """
        spans = utterances(request)
        newest = spans[-1]
        found = _choose(request, newest, await self.detect(request, newest, allowed), request.before)
        if found.language != request.before and _has_final_words(request, newest):
            found = Choice(request.before or found.language, found.others)
        if found.language == request.before or request.before is None:
            return replace(await self.transcribe(request, found, newer), detected=newest)
        answer = await self.transcribe_beside(part_of(request, newest), found, request.before)
        assert answer.language is not None
        if answer.language == request.before or _is_doubtful(request, newest, found, request.before, answer):
            before = Choice(request.before, found.probability)
            return replace(await self.transcribe(request, before, newer), detected=newest)
        if len(spans) > 1:
            return RecognitionResult((), request.before, changed=(newest[0], answer.language))
        return replace(answer, detected=newest)

    async def transcribe_by_utterance(
        self, request: DecodeRequest, allowed: frozenset[str], known: RecognitionResult | None = None
    ) -> RecognitionResult:
        """Detect the language of each utterance of a part of a file and transcribe it in that language.

        If it is the language of the whole, the whole is transcribed at once. *known* is an answer for the whole in some
        language.
        """
        spans = cut_at_languages(request, utterances(request), known.words if known is not None else ())
        shares = [await self.detect(request, span, allowed) for span in spans]
        neighbour = _most_spoken(spans, shares, request.before)
        chosen = [
            (await self.compare(request, span, _choose(request, span, own, neighbour), neighbour), span, own)
            for span, own in zip(spans, shares, strict=True)
        ]
        groups = [list(group) for _, group in groupby(chosen, key=lambda each: each[0].language)]
        runs: dict[tuple[int, int], RecognitionResult] = {}
        for group in groups:
            found, run = _average_choice(group), (group[0][1][0], group[-1][1][1])
            mine = known if known is not None and known.language == found.language else None
            if len(groups) == 1:
                if mine is not None:
                    return replace(mine, language_probability=found.probability)
                return await self.transcribe_beside(request, found, neighbour)
            words = [word for _, span, _ in group for word in words_in(span, spans, mine.words if mine else ())]
            if mine is None or surety(words) < SURE:
                mine = await self.transcribe_beside(part_of(request, run), found, neighbour)
            runs[run] = mine
        return merge_answers(list(runs), runs)

    async def compare(self, request: DecodeRequest, span: tuple[int, int], found: Choice, near: str | None) -> Choice:
        """Return what was found, or the rival where the utterance has surer words in that language."""
        if found.rival is None:
            return found
        answer = await self.transcribe(part_of(request, span), found)
        doubtful = _is_doubtful(request, span, found, near, answer)
        language = found.rival if doubtful else answer.language or found.language
        return Choice(language, found.probability, others=found.others)

    async def transcribe_beside(
        self, request: DecodeRequest, found: Choice, neighbour: str | None
    ) -> RecognitionResult:
        """Transcribe *request* in the language found, and in its neighbours' too if the words are improbable."""
        result = await self.transcribe(request, found)
        if neighbour in (None, found.language, found.rival) or surety(result.words) >= LIKELY:
            return result
        assert neighbour is not None
        _, other = await self.transcribe_newest(request, neighbour, None)
        if surety(other.words) <= surety(result.words):
            return result
        return replace(other, language_probability=found.others)

    async def transcribe(
        self, request: DecodeRequest, found: Choice, newer: Callable[[], DecodeRequest | None] | None = None
    ) -> RecognitionResult:
        """Transcribe *request* in the language found, or in its rival, whichever answer has the surer words."""
        asked, result = await self.transcribe_newest(request, found.language, newer)
        if found.rival is not None:
            _, other = await self.transcribe_newest(asked, found.rival, None)
            if surety(other.words) > surety(result.words):
                result = other
        return replace(result, language_probability=found.probability)

    async def detect(
        self, request: DecodeRequest, span: tuple[int, int], allowed: frozenset[str]
    ) -> Mapping[str, float]:
        """Return how probably the speech in *span* is in each of the *allowed* languages: together 1.

        If none of them seems to be spoken, it is what was detected: together less than SPOKEN.
        """
        model = await self.models.detector()
        if model is None or len(allowed) == 1:
            return {min(allowed): 1.0}
        urgency = self.urgency or Urgency.of(request)
        samples = floats_of(part_of(request, span).samples)
        probabilities = await model.detect_language(samples, tenant=self.tenant, urgency=urgency)
        known = {code: probabilities.get(code, 0.0) for code in allowed}
        if not request.languages:
            known = without_untested(known)
        every = sum(known.values())
        return known if every < SPOKEN else {code: share / every for code, share in known.items()}


def _has_final_words(request: DecodeRequest, span: tuple[int, int]) -> bool:
    """Return whether words of a live utterance are final, and words before it: its language can change after a pause.

    That of the first utterance may have been taken wrongly, so it is believed less.
    """
    inside = [word.start + word.end > 2 * span[0] for word in request.decided]
    return request.before is not None and any(inside) and not all(inside)


def _is_doubtful(
    request: DecodeRequest, span: tuple[int, int], found: Choice, neighbour: str | None, answer: RecognitionResult
) -> bool:
    """Return whether an utterance keeps its neighbours' language: it has no likely words in either.

    *found* was compared with the neighbours' language, and *answer* has the surer words. Short ones need SURE ones.
    """
    least = SURE if request.speech_between(*span) < SHORTEST else LIKELY
    return found.rival is not None and found.rival == neighbour and surety(answer.words) < least


def _choose(
    request: DecodeRequest, span: tuple[int, int], shares: Mapping[str, float], neighbour: str | None
) -> Choice:
    return choose_language(shares, neighbour=neighbour, speech_s=request.speech_between(*span) / RATE)


def _average_choice(group: Sequence[tuple[Choice, tuple[int, int], Mapping[str, float]]]) -> Choice:
    """Return what was found in a *group* of utterances of one language: how probable it is in their speech."""
    language, lengths = group[0][0].language, [end - start for _, (start, end), _ in group]
    shares = [(own[language], sum(own.values())) for _, _, own in group]
    probability, every = np.average(shares, axis=0, weights=lengths).tolist()
    return Choice(language, round(probability, 3), others=round(every - probability, 3))


def _most_spoken(
    spans: Sequence[tuple[int, int]], shares: Sequence[Mapping[str, float]], before: str | None
) -> str | None:
    """Return the language of most speech in *spans*, or the one *before* them; None for one utterance without that."""
    times = Counter({before: EARLIER} if before is not None else {})
    for (start, end), own in zip(spans, shares, strict=True):
        times.update({code: round(share * (end - start)) for code, share in own.items()})
    return times.most_common(1)[0][0] if before is not None or len(spans) > 1 else None


def utterances(request: DecodeRequest) -> list[tuple[int, int]]:
    """Return the spans of *request* whose language is to be found, in order; at least one. In a live turn only its own.

    Pauses part them, and one with little speech belongs to the one before, or at the beginning to the next.
    """
    start, end = max(request.start, request.turn or 0), request.start + len(request.samples)
    voiced = [(max(start, first), last) for first, last in request.voiced if last > start]
    groups: list[tuple[int, int]] = []
    for first, last in voiced or [(start, end)]:
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


def cut_at_languages(
    request: DecodeRequest, spans: Sequence[tuple[int, int]], words: Sequence[Word]
) -> list[tuple[int, int]]:
    """Return the *spans*, each cut where its *words* in an assumed language are sure before and improbable after.

    There somebody goes on in another language without a pause.
    """
    parts: list[tuple[int, int]] = []
    for start, end in spans:
        at = _turning_point(request, (start, end), words_in((start, end), spans, words))
        parts += [(start, end)] if at is None else [(start, at), (at, end)]
    return parts


def _turning_point(request: DecodeRequest, span: tuple[int, int], words: Sequence[Word]) -> int | None:
    start, end = span
    fall = {
        later.start: surety(words[:count]) - surety(words[count:])
        for count, later in enumerate(words)
        if surety(words[:count]) >= SURE
        and surety(words[count:]) < LIKELY
        and request.speech_between(start, later.start) >= SHORTEST
        and request.speech_between(later.start, end) >= SHORTEST
    }
    return max(fall, key=lambda at: fall[at]) if fall else None


def words_in(span: tuple[int, int], spans: Sequence[tuple[int, int]], words: Sequence[Word]) -> list[Word]:
    """Return the *words* of the utterance *span*: each belongs to the one of *spans* that is nearest to its middle."""

    def distance(word: Word, one: tuple[int, int]) -> float:
        middle = (word.start + word.end) / 2
        return max(one[0] - middle, middle - one[1], 0)

    return [word for word in words if min(spans, key=lambda one: distance(word, one)) == span]


def surety(words: Sequence[Word]) -> float:
    """Return the mean probability of *words*; 0 if there are none.

    What is said again counts once: a model that makes a loop out of another language is confident in its repetitions.
    """
    said: dict[str, float] = {}
    for word in words:
        said.setdefault(word.text.strip(".,!?").casefold(), word.probability)
    return sum(said.values()) / len(said) if said else 0.0


def part_of(request: DecodeRequest, span: tuple[int, int]) -> DecodeRequest:
    """Return the request for a span of its audio and a little around it, without what was decided before it."""
    start = max(request.start, span[0] - AROUND)
    end = min(request.start + len(request.samples), span[1] + AROUND)
    return replace(request.between(start, end), decided=(), before=None)


def merge_answers(
    spans: Sequence[tuple[int, int]], answers: Mapping[tuple[int, int], RecognitionResult]
) -> RecognitionResult:
    """Return one answer with the words that each utterance has in its own answer.

    The language of the whole, and its scores, are those of most words.
    """
    words = [word for span in spans for word in words_in(span, spans, answers[span].words)]
    spoken = [word.language for word in words]
    main = max(answers.values(), key=lambda answer: spoken.count(answer.language))
    return replace(main, words=tuple(words))


def without_untested(probabilities: Mapping[str, float]) -> dict[str, float]:
    """Return the probabilities of the languages that may be found, or of all if no other ones are left."""
    least = CERTAIN * sum(probabilities.values())
    known = {code: one for code, one in probabilities.items() if code not in UNTESTED or one >= least}
    return known or dict(probabilities)


def choose_language(probabilities: Mapping[str, float], *, neighbour: str | None, speech_s: float) -> Choice:
    """Return the language of an utterance, one of *probabilities*, which has those that may be found.

    *neighbour* is the one around it or before it; None: there is none.
    """
    every = sum(probabilities.values())
    shares = {code: one / every if every else 1 / len(probabilities) for code, one in probabilities.items()}

    def choice(language: str, rival: str | None = None) -> Choice:
        found = probabilities[language]
        return Choice(language, round(found, 3), rival, round(every - found, 3))

    language, share = likeliest(shares)
    certain = share >= CERTAIN and language not in UNTESTED
    if certain and (speech_s >= MIN_SPEECH_S or neighbour is None or neighbour not in shares):
        return choice(language)
    if neighbour is not None and neighbour in shares and neighbour != language:
        theirs = shares[neighbour]
        if not certain and (speech_s < MIN_SPEECH_S or theirs * PRIOR >= share):
            return choice(neighbour)
        return choice(language, neighbour)
    others = {code: share for code, share in shares.items() if code != language}
    next_one = likeliest(others)[0] if others else language
    compared = neighbour is None and share < PLAIN and speech_s >= MIN_SPEECH_S and others.get(next_one, 0.0) >= RIVAL
    return choice(language, next_one if compared else None)
