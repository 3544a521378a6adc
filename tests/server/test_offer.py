"""Tests of offers.py: what clients are told about the model and its languages."""

from dataclasses import asdict

import orjson
import pytest

from server.model.offers import Offer, OfferedModel
from server.storage.postgres.open import offer_of

CODES = [f"{first}{second}" for first in "abcdefghij" for second in "abcdefghij"]


ENGLISH_ONLY = (
    "the model tiny.en knows English only and does not translate; scribewire models pull base brings one that does"
)
UNTRANSLATING = (
    "the model large-v3-turbo writes every language as it is spoken and does not translate; scribewire models pull "
    "large-v3 brings one that does, and base, small and medium do too"
)


def offer(model: str, *languages: str, engine: str = "whisper") -> Offer:
    return Offer(engine=engine, model=model, languages=frozenset(languages))


@pytest.mark.parametrize(
    ("languages", "said"),
    [(["en"], "English only"), (["es"], "es"), (["es", "en", "de"], "de, en, es"), (CODES[:99], "99 languages")],
)
def test_few_languages_are_listed_and_many_counted(languages, said):
    assert offer("base", *languages).language_summary == said


def test_a_language_that_is_not_heard_is_refused_with_what_helps():
    assert offer("tiny.en", "en").refusal("es", "es") == (
        "the model tiny.en knows English (en) only, not 'es'; base knows 99 languages (scribewire models pull base)"
    )
    assert offer("mine", "en", "de").refusal("es", "es") == "the model mine knows de, en, not 'es'"
    assert offer("base", *CODES).refusal("xx", "xx") == (
        "the model base knows 100 languages, not 'xx'; GET /v1/models lists their codes"
    )
    assert (
        offer("scripted", "en", engine="scripted").refusal("es", "es")
        == "the model scripted knows English (en) only, not 'es'"
    )
    assert len(offer("base", "en").refusal("x" * 10_000, "xx")) < 300


def test_a_named_model_is_refused_with_the_names_of_those_here_that_can():
    tiny, base, turbo = (
        OfferedModel(name=name, languages=frozenset(codes), translates=name == "base")
        for name, codes in (("tiny.en", ["en"]), ("base", ["en", "es"]), ("turbo", ["en", "es"]))
    )
    here = Offer(engine="whisper", model="base", languages=base.languages, models=(base, tiny, turbo))
    assert here.of("tiny.en").refusal("Spanish", "es") == (
        "the model tiny.en knows English (en) only, not 'Spanish'; name base or turbo instead, or leave model out"
    )
    assert (here.of("tiny.en").translation_refusal or "").endswith("; name base instead, or leave model out")
    assert (here.of("turbo").translation_refusal or "").endswith("; name base instead, or leave model out")


@pytest.mark.parametrize(
    ("known", "refusal"),
    [
        (Offer(engine="whisper", model="base", languages=frozenset(CODES), translates=True), None),
        (offer("tiny.en", "en"), ENGLISH_ONLY),
        (offer("large-v3-turbo", *CODES), UNTRANSLATING),
    ],
    ids=lambda value: value.model if isinstance(value, Offer) else "",
)
def test_a_model_that_does_not_translate_says_so_and_which_ones_do(known, refusal):
    assert known.translation_refusal == refusal


@pytest.mark.parametrize("translates", [True, False])
def test_an_offer_is_read_as_it_was_told_and_that_of_an_older_program_without_translations(*, translates):
    told = Offer(engine="whisper", model="base", languages=frozenset({"de", "en"}), translates=translates)
    stored = asdict(told) | {"languages": ["de", "en"], "later": 1}
    assert offer_of(orjson.dumps(stored).decode()) == told
    del stored["translates"]
    assert not offer_of(orjson.dumps(stored).decode()).translates
