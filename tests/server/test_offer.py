"""Tests of offers.py: what clients are told about the model and its languages."""

import pytest

from server.model.offers import Offer

CODES = [f"{first}{second}" for first in "abcdefghij" for second in "abcdefghij"]


def offer(model: str, *languages: str, engine: str = "whisper") -> Offer:
    return Offer(engine=engine, model=model, languages=frozenset(languages))


@pytest.mark.parametrize(
    ("languages", "said"),
    [(["en"], "English only"), (["es"], "es"), (["es", "en", "de"], "de, en, es"), (CODES[:99], "99 languages")],
)
def test_few_languages_are_listed_and_many_counted(languages: list[str], said: str) -> None:
    assert offer("base", *languages).hears == said


def test_a_language_that_is_not_heard_is_refused_with_what_helps() -> None:
    assert offer("tiny.en", "en").refusal("es") == (
        "the model tiny.en hears English only, not 'es'; scribewire models pull base brings 99 languages"
    )
    assert offer("mine", "en", "de").refusal("es") == "the model mine hears de, en, not 'es'"
    assert offer("base", *CODES).refusal("xx") == (
        "the model base hears 100 languages, not 'xx'; GET /v1/models lists their codes"
    )
    assert offer("scripted", "en", engine="scripted").refusal("es") == "the model scripted hears English only, not 'es'"
    assert len(offer("base", "en").refusal("x" * 10_000)) < 300
