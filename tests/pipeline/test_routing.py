"""Tests of routing.py: which model hears an utterance whose language is not known, and what follows a wrong guess."""

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import Samples, position
from pipeline.recognition.engine import DecodeRequest, RecognitionResult
from pipeline.recognition.routing import PAUSE, LanguageRouter, merge_answers, surety, utterances, words_in
from pipeline.words import Word

ENGLISH, MANY = frozenset({"en"}), frozenset({"en", "fr", "es"})


@dataclass
class Spoken:
    """Who says what: spans in seconds with their language. Models hear its words if they are asked in that language.

    *seems* has what is detected in some of them, by their starts.
    """

    said: Sequence[tuple[float, float, str]]
    seems: Mapping[float, Mapping[str, float]] = field(default_factory=dict)

    def words(self, request: DecodeRequest, language: str) -> tuple[Word, ...]:
        """Return a word for each half second of speech; improbable ones where another language is spoken."""
        end = request.start + len(request.samples)
        return tuple(
            Word(f"{spoken if spoken == language else 'wrong'}{at:g}", position(at), position(at + 0.4), sure)
            for first, last, spoken in self.said
            for at in np.arange(first, last - 0.3, 0.5)
            if request.start <= position(at) and position(at + 0.4) <= end
            for sure in [0.9 if spoken == language else 0.3]
        )

    def at(self, samples: Samples) -> tuple[float, float, str]:
        """Return what is said in audio, whose samples tell at which second they are."""
        middle = float(samples[len(samples) // 2])
        return min(self.said, key=lambda one: max(one[0] - middle, middle - one[1], 0))


@dataclass
class FakeModel:
    """A model of some languages."""

    spoken: Spoken
    asked: list[tuple[str, str]]
    name: str
    probability: float = 0.95

    async def recognise_newest(
        self,
        request: DecodeRequest,
        *,
        newer: Callable[[], DecodeRequest | None] | None = None,
        **_: object,
    ) -> tuple[DecodeRequest, RecognitionResult]:
        language = request.language
        assert language is not None
        request = (newer() if newer is not None else None) or request
        self.asked.append((self.name, language))
        return request, RecognitionResult(self.spoken.words(request, language), language, 1.0, -0.1, 0.0)

    async def recognise(self, request: DecodeRequest, **options: object) -> RecognitionResult:
        _, result = await self.recognise_newest(request, **options)  # type: ignore[arg-type]  # as a Scheduler takes them
        return result

    async def detect_language(self, samples: Samples, **_: object) -> Mapping[str, float]:
        start, _, found = self.spoken.at(samples)
        self.asked.append((self.name, "?"))
        rest = (1 - self.probability) / 2
        return self.spoken.seems.get(start, {code: self.probability if code == found else rest for code in MANY})


@dataclass
class FakeModels:
    """A small model of English, and one of many languages."""

    spoken: Spoken
    small: bool = True
    languages: frozenset[str] = MANY
    asked: list[tuple[str, str]] = field(default_factory=list)

    @property
    def first(self) -> str | None:
        return "en" if self.small else None

    def shows_itself(self, language: str) -> bool:
        return self.small and language == "en"

    async def model_for(self, language: str) -> FakeModel:
        return FakeModel(self.spoken, self.asked, "small" if self.shows_itself(language) else "many")

    async def detector(self) -> FakeModel | None:
        return FakeModel(self.spoken, self.asked, "many")


def request_of(spoken: Spoken, start_s: float, end_s: float, **members: object) -> DecodeRequest:
    """Return a request for a part of the audio, with the speech in it."""
    voiced = tuple((position(first), position(last)) for first, last, _ in spoken.said if first < end_s)
    samples = np.arange(position(start_s), position(end_s), dtype=np.float32) / position(1)
    return DecodeRequest(samples=samples, start=position(start_s), voiced=voiced, **members)  # type: ignore[arg-type]


def hear(models: FakeModels, request: DecodeRequest) -> RecognitionResult:
    return asyncio.run(LanguageRouter(models).recognise(request, tenant="a"))


@pytest.mark.parametrize("turn", [None, 0])
def test_english_is_heard_by_its_own_model_alone(turn: int | None):
    spoken = Spoken([(0, 4, "en"), (5, 9, "en")])
    models = FakeModels(spoken)
    heard = hear(models, request_of(spoken, 0, 9.5, turn=turn))
    assert heard.language_probability == pytest.approx(0.9)
    assert {word.language for word in heard.words} == {"en"}
    assert models.asked == [("small", "en")], "nothing is detected where the model is sure of its words"


def test_each_utterance_of_a_file_is_heard_in_its_language():
    spoken = Spoken([(0, 3, "en"), (4, 7, "fr"), (8, 11, "en"), (12, 15, "es")])
    heard = hear(FakeModels(spoken), request_of(spoken, 0, 16))
    assert [word.language for word in heard.words] == ["en"] * 6 + ["fr"] * 6 + ["en"] * 6 + ["es"] * 6
    assert not [word.text for word in heard.words if word.text.startswith("wrong")]


@pytest.mark.parametrize(("latin", "named", "found"), [(0.8, "", "es"), (0.95, "", "la"), (0.8, "es la", "la")])
def test_a_language_that_nobody_tested_is_found_where_it_is_certain_or_the_order_names_it(latin, named, found):
    spoken = Spoken([(0, 4, found)], seems={0: {"la": latin, "es": 1 - latin}})
    models = FakeModels(spoken, small=False, languages=MANY | {"la"})
    assert hear(models, request_of(spoken, 0, 4.5, languages=frozenset(named.split()))).language == found


@pytest.mark.parametrize("turn", [None, 0])
def test_nothing_is_lost_where_somebody_goes_on_in_another_language_without_a_pause(turn):
    spoken = Spoken([(0, 3, "en"), (3, 6, "fr")])
    heard = hear(FakeModels(spoken), request_of(spoken, 0, 6.5, turn=turn))
    if turn is None:
        assert [word.language for word in heard.words] == ["en"] * 6 + ["fr"] * 6
    else:
        assert heard.changed == (position(3), "fr"), "a live turn ends there"
    assert [word.text for word in heard.words][:6] == [f"en{at:g}" for at in np.arange(0, 3, 0.5)]


def test_what_is_said_again_shows_a_language_once():
    loop = [
        Word(text, at, at + 1, sure) for at, (text, sure) in enumerate([("do", 0.3), *[("it.", 0.2), ("It", 1.0)] * 9])
    ]
    assert surety(loop) == pytest.approx(0.25)


def test_all_utterances_beside_one_with_improbable_words_are_looked_at():
    spoken = Spoken([(0, 3, "es"), (4, 7, "es")])

    class Loops(FakeModels):
        async def model_for(self, language: str) -> FakeModel:
            model = await super().model_for(language)
            if language == "en":  # it repeats in the second utterance what it is sure of
                model.spoken = Spoken([(0, 3, "es"), (4, 7, "en")])
            return model

    heard = hear(Loops(spoken), request_of(spoken, 0, 8))
    assert {word.language for word in heard.words} == {"es"}


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("language", ["es", "fr"])
def test_the_words_decide_where_an_utterance_seems_to_differ_from_those_around_it(language, *, small):
    seems = {4: {"fr": 0.7, "es": 0.2, "en": 0.1}}
    spoken = Spoken([(0, 3, "es"), (4, 7, language), (8, 11, "es")], seems)
    heard = hear(FakeModels(spoken, small=small), request_of(spoken, 0, 12))
    assert [word.language for word in heard.words] == ["es"] * 6 + [language] * 6 + ["es"] * 6


@pytest.mark.parametrize("said", [[(0, 3, "es"), (4, 7, "es"), (8, 11, "es")], [(4, 7, "es")]])
def test_improbable_words_in_a_language_that_seemed_certain_give_way_to_the_neighbours(said):
    spoken = Spoken(said, {4: {"fr": 0.97, "es": 0.01, "en": 0.02}})
    heard = hear(FakeModels(spoken, small=False), request_of(spoken, 0, 12, before="es"))
    assert {word.language for word in heard.words} == {"es"}
    live = hear(FakeModels(spoken, small=False), request_of(spoken, 0, 7.5, before="es", turn=0))
    assert (live.language, live.changed) == ("es", None)


def test_an_utterance_without_likely_words_in_either_language_keeps_its_neighbours():
    spoken = Spoken([(0, 3, "es"), (4, 7, "unknown"), (8, 11, "es")], {4: {"fr": 0.89, "es": 0.0, "en": 0.11}})
    heard = hear(FakeModels(spoken, small=False), request_of(spoken, 0, 12))
    assert {word.language for word in heard.words} == {"es"}
    live = hear(FakeModels(spoken, small=False), request_of(spoken, 0, 7.5, before="es", turn=position(4)))
    assert (live.language, live.changed) == ("es", None)


def test_the_only_utterance_of_a_job_is_compared_with_the_jobs_before():
    spoken = Spoken([(0, 3, "es")], {0: {"fr": 0.7, "es": 0.2, "en": 0.1}})
    heard = hear(FakeModels(spoken, small=False), request_of(spoken, 0, 4, before="es"))
    assert {word.language for word in heard.words} == {"es"}


def test_without_a_model_of_one_language_each_utterance_is_detected():
    spoken = Spoken([(0, 3, "es"), (4, 7, "fr"), (8, 11, "fr")])
    models = FakeModels(spoken, small=False)
    heard = hear(models, request_of(spoken, 0, 12))
    assert [word.language for word in heard.words] == ["es"] * 6 + ["fr"] * 12
    assert models.asked == [("many", "?")] * 3 + [("many", "es"), ("many", "fr")]


def test_a_short_utterance_keeps_the_language_of_its_neighbour():
    spoken = Spoken([(0, 3, "en"), (4, 4.5, "es"), (6, 9, "en")])
    heard = hear(FakeModels(spoken), request_of(spoken, 0, 10))
    assert {word.language for word in heard.words} == {"en"}


def test_only_languages_that_may_be_spoken_are_found():
    spoken = Spoken([(0, 4, "es")])
    heard = hear(FakeModels(spoken), request_of(spoken, 0, 5, languages=frozenset({"en", "fr"})))
    assert {word.language for word in heard.words} <= {"en", "fr"}


@pytest.mark.parametrize("turn", [None, 0])
@pytest.mark.parametrize("before", [None, "fr"])
def test_languages_of_which_none_seems_to_be_spoken_are_improbable(turn: int | None, before: str | None):
    spoken = Spoken([(0, 4, "es")], {0: {"es": 0.96, "fr": 0.03, "en": 0.01}})
    request = request_of(spoken, 0, 5, turn=turn, before=before)
    mistaken = hear(FakeModels(spoken, small=False), replace(request, languages=frozenset({"en", "fr"})))
    right = hear(FakeModels(spoken, small=False), replace(request, languages=frozenset({"es", "fr"})))
    assert (mistaken.language, mistaken.language_probability) == ("fr", 0.03)
    assert (right.language, right.language_probability) == ("es", pytest.approx(0.97, abs=0.001))


def test_a_language_that_is_fixed_is_never_detected():
    spoken = Spoken([(0, 4, "es")])
    models = FakeModels(spoken)
    hear(models, request_of(spoken, 0, 5, language="fr"))
    assert models.asked == [("many", "fr")]


def test_a_live_turn_that_was_taken_for_english_is_heard_again_when_more_was_said():
    spoken = Spoken([(0, 4, "fr")])
    models = FakeModels(spoken)
    early = hear(models, replace(request_of(spoken, 0, 0.6, turn=0), voiced=((0, position(0.6)),), before="en"))
    later = hear(models, replace(request_of(spoken, 0, 2.2, turn=0), voiced=((0, position(2.2)),), before="en"))
    assert (early.language, later.language, later.detected) == ("fr", "fr", (0, position(2.2)))
    assert (later.language_probability or 0) > 0.8


def test_the_place_where_the_language_changes_amid_a_live_turn_is_reported():
    spoken = Spoken([(0, 3, "en"), (3.5, 6, "fr")])
    heard = hear(FakeModels(spoken), request_of(spoken, 0, 6, turn=0, before="en"))
    assert heard.changed == (position(3.5), "fr")


def test_a_newer_request_is_answered_in_place_of_the_one_that_waited():
    spoken = Spoken([(0, 4, "en")])
    newest = request_of(spoken, 0, 4, turn=0, before="en")

    async def main() -> RecognitionResult:
        router = LanguageRouter(FakeModels(spoken))
        old = request_of(spoken, 0, 1, turn=0, before="en")
        return await router.recognise(old, tenant="a", newer=lambda: newest)

    assert len(asyncio.run(main()).words) == 8


@given(st.lists(st.tuples(st.floats(0.1, 4), st.floats(0.1, 4)), min_size=1, max_size=8))
def test_utterances_are_apart_in_order_and_hold_all_speech(pieces):
    voiced, at = [], 0
    for speech, pause in pieces:
        voiced.append((at, at + position(speech)))
        at += position(speech + pause)
    request = DecodeRequest(samples=np.zeros(at, np.float32), start=0, voiced=tuple(voiced))
    spans = utterances(request)
    assert all(first < last for first, last in spans)
    assert all(after[0] - before[1] >= PAUSE for before, after in itertools.pairwise(spans))
    assert all(any(first <= a and b <= last for first, last in spans) for a, b in voiced)


def test_every_word_belongs_to_the_nearest_utterance():
    spans = [(0, position(2)), (position(4), position(6))]
    words = [Word(str(at), position(at), position(at + 0.2), 0.9) for at in (0, 2.2, 3.5, 5, 7)]
    assert [[word.text for word in words_in(span, spans, words)] for span in spans] == [["0", "2.2"], ["3.5", "5", "7"]]
    answer = RecognitionResult(tuple(words), "en", 1.0, -0.1, 0.0)
    assert merge_answers(spans, dict.fromkeys(spans, answer)).words == tuple(words)


def test_the_language_of_a_live_utterance_does_not_change_once_words_of_it_are_final():
    spoken = Spoken([(0, 2, "es"), (3, 7, "fr")])
    request = request_of(spoken, 0, 7.5, turn=position(2.6), before="es")
    before, inside = Word("es0", 0, position(0.4), 0.9), Word("es3", position(3), position(3.4), 0.9)
    found = [
        hear(FakeModels(spoken, small=False), replace(request, decided=decided)).language
        for decided in ((before,), (before, inside), (inside,))
    ]
    assert found == ["fr", "es", "fr"], "where nothing was said before, the first guess may have been wrong"


@pytest.mark.parametrize("turn", [None, 0])
@pytest.mark.parametrize("small", [True, False])
def test_a_lone_short_word_keeps_the_language_before_it_unless_its_words_are_sure_in_another(turn, small):
    lone = Spoken([(0, 0.5, "en")], seems={0: {"fr": 0.97, "en": 0.02, "es": 0.01}})
    assert hear(FakeModels(lone, small=small), request_of(lone, 0, 1, turn=turn, before="en")).language == "en"
    plain = Spoken([(0, 0.5, "fr")])
    assert hear(FakeModels(plain, small=small), request_of(plain, 0, 1, turn=turn, before="en")).language == "fr"
