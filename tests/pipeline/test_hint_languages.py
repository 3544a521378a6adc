"""Tests of which speech is heard with which hint."""
# ruff: noqa: RUF001  words of several scripts

import pytest

from pipeline.languages import language_of_prose
from pipeline.recognition.engine import Hints, hints_for

ENGLISH, FRENCH = "This is a call about the new medicine.", "C'est un appel pour la nouvelle pharmacie et les patients."
TERMS = ("Siobhan",)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (ENGLISH, "en"), (FRENCH, "fr"), ("Das ist ein Anruf für die Apotheke.", "de"),
        ("Esta es una llamada para el médico.", "es"), ("Это звонок, и он не для врача.", "ru"),
        ("Це дзвінок, і він не для лікаря.", "uk"), ("薬局への電話です。", "ja"), ("打给药房的电话", "zh"),
        ("약국에 건 전화입니다.", "ko"), ("Kubernetes, metoprolol, Siobhan", None), ("", None), ("A call.", None),
    ],
)  # fmt: skip
def test_prose_shows_its_language_and_a_list_of_terms_has_none(text, language):
    assert language_of_prose(text) == language


def test_terms_are_for_speech_in_any_language_and_a_prompt_for_its_own():
    hints = hints_for(TERMS, ENGLISH, written=None, allowed=())
    assert hints == Hints(TERMS, ENGLISH, "en")
    assert [hints.prompt_in(language) for language in ("en", "fr", None)] == [ENGLISH, "", ""]
    assert hints_for(TERMS, "metoprolol", written=None, allowed=()).prompt_in("fr") == "metoprolol"


def test_a_prompt_is_for_the_first_language_of_the_list_unless_it_shows_to_be_in_another_one():
    assert hints_for((), FRENCH, written=None, allowed=("en", "fr")).language == "fr"
    assert hints_for((), FRENCH, written=None, allowed=("en", "de")).language == "en"


def test_where_the_order_says_the_language_the_prompt_is_for_all_speech():
    assert hints_for(TERMS, FRENCH, written="en", allowed=()) == Hints(TERMS, FRENCH)
