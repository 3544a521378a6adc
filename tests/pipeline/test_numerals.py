"""Tests of numerals: numbers in figures as people write them, and sentences without numbers as they were."""

import pytest

from pipeline.text.options import TextOptions
from tests.pipeline.saying import said, text_of, told

NUMERALS = TextOptions(numerals=True)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("I own twenty-five percent of it.", "I own 25 percent of it."),
        ("It was nineteen eighty-four, not twenty twenty.", "It was 1984, not 2020."),
        ("Since nineteen oh five and two thousand six.", "Since 1905 and 2006."),
        ("The twenty first of May, the first of June.", "The 21st of May, the first of June."),
        ("About two point five million people.", "About 2.5 million people."),
        ("Three million and four hundred thousand two hundred.", "3 million and 400,200."),
        ("Call five five five, one two three four.", "Call 555, 1234."),
        ("It is oh seven oh oh seven.", "It is 07007."),
        ("It is two eight zero eight one four zero zero one, not zero five.", "It is 280814001, not 05."),
        ("Chapter seventeen, page one hundred and five.", "Chapter 17, page 105."),
        ("We have fifteen, sixteen or ninety nine.", "We have 15, 16 or 99."),
    ],
)
def test_numbers_are_written_in_figures(text, written):
    assert text_of(text, NUMERALS) == written


@pytest.mark.parametrize(
    "text",
    [
        "One of them said wait a second, oh well.",
        "A hundred people, two by two.",
        "In 1984 there were 25,000 of us, and 3.5 percent left.",
        "It is a one-way street for someone.",
        "No one won the first prize, nor the third.",
    ],
)
def test_other_sentences_are_left_as_they_are(text):
    assert text_of(text, NUMERALS) == text


@pytest.mark.parametrize(
    ("language", "text", "written"),
    [
        ("fr", "J'ai vingt-cinq pour cent de quatre-vingt-dix-neuf euros.", "J'ai 25 pour cent de 99 euros."),
        ("es", "El veinticinco por ciento en mil novecientos ochenta y cuatro.", "El 25 por ciento en 1984."),
        ("de", "Ich habe fünfundzwanzig Prozent und einen Hund.", "Ich habe 25 Prozent und einen Hund."),
        ("it", "Il venticinque per cento di mille.", "Il 25 per cento di 1000."),
        ("pt", "Tenho trinta e dois anos.", "Tenho 32 anos."),
        ("nl", "Ik heb vijfentwintig procent.", "Ik heb 25 procent."),
        ("ja", "二十五 パーセント", "二十五 パーセント"),
    ],
)
def test_other_languages_are_read_by_their_own_words(language, text, written):
    assert text_of(text, NUMERALS, language=language) == written


def test_a_number_has_the_times_of_its_words_and_keeps_what_was_heard():
    words = said("about twenty five people")
    number = told(words, NUMERALS)[1]
    assert (number.text, number.heard) == ("25", "twenty five")
    assert (number.start, number.end) == (words[1].start, words[2].end)
