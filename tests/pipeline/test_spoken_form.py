"""Tests of spoken_form.py: what is the same speech however it is written, and how long it takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import position
from pipeline.recognition.spoken_form import is_number, longest_time, may_pause, plain, units_of
from pipeline.words import Word


def words(text: str) -> list[Word]:
    return [Word(word, 8000 * at, 8000 * (at + 1), 0.9) for at, word in enumerate(text.split())]


def units(text: str) -> list[str]:
    return [unit.text for unit in units_of(words(text))]


@pytest.mark.parametrize(
    "texts",
    [
        ("526-018-1590", "5 2 6 0 1 8 1 5 9 0", "526, 018, 1590.", "five two six oh one eight one five nine zero"),
        ("450,000", "four hundred and fifty thousand", "450000", "Four hundred fifty thousand,"),
        ("S-M-I-T-H", "S. M. I. T. H.", "SMITH", "s m i t h"),
        ("gnz7379", "G-N-Z-7-3-7-9", "GNZ 7379", "G N Z seven three seven nine"),
        ("64 percent", "sixty four percent", "64%", "64 %"),
        ("March 24th", "March twenty-fourth", "march twenty fourth", "March 24"),
        ("1984", "nineteen eighty four", "19 84", "nineteen 84"),
        ("www.silver.com", "www silver com", "www dot silver dot com"),
        ("8 million", "eight million", "8000000", "8,000,000"),
        ("1-800-Flowers", "1 800 flowers", "one eight hundred flowers"),
        ("Don't stop!", "don't, stop", "don’t stop", "dont stop"),  # noqa: RUF001
    ],
)
def test_what_is_said_alike_has_the_same_units(texts):
    assert len({tuple(units(text)) for text in texts}) == 1


@pytest.mark.parametrize(
    ("text", "other"), [("twenty one", "20 2"), ("five", "fifty"), ("$83", "$43"), ("no", "oh no"), ("A", "B")]
)
def test_what_is_said_otherwise_has_other_units(text, other):
    assert units(text) != units(other)


def test_a_zero_is_also_said_as_a_letter_but_only_among_figures():
    assert units("five oh six") == units("506")
    assert units("oh no") == ["oh", "no"]


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        ("six hundred eighty four people", ["6", "", "8", "4", "people"]),
        ("six hundred eighty", ["6", "", "80"]),
        ("six hundred", ["6", "00"]),
        ("four hundred and fifty thousand", ["4", "", "", "50", "000"]),
        ("four hundred thousand", ["4", "00", "000"]),
        ("two million two hundred two thousand six hundred eighty", ["2", "", "2", "0", "2", "", "6", "", "80"]),
        ("nineteen oh four", ["19", "0", "4"]),
        ("oh five seventeenth 8 million", ["0", "5", "17", "8", "000000"]),
    ],
)
def test_each_word_of_a_number_has_its_own_figures(text, figures):
    found = units_of(words(text))
    assert ["".join(unit.text for unit in found if unit.word == at) for at in range(len(figures))] == figures


def test_units_stand_in_the_time_of_their_words_and_tell_where_the_text_can_be_parted():
    [word] = words("526-018")
    found = units_of([word])
    assert [unit.start for unit in found] == sorted(unit.start for unit in found)
    assert (found[0].start, found[-1].end) == (word.start, word.end)
    assert [word.text[unit.upto :] for unit in found] == ["26-018", "6-018", "-018", "18", "8", ""]


def test_numbers_and_spelled_words_take_longer_than_other_words_of_so_many_letters():
    assert longest_time("861930274918.") > position(6)
    assert longest_time("$450,000") > position(3)
    assert longest_time("S-M-I-T-H") > position(2)
    assert longest_time("understanding") < position(2)


def test_the_letters_and_dots_of_a_web_address_take_time():
    assert longest_time("www.example.org") > position(3)
    assert longest_time("Maria.garcia") > longest_time("Mariangarcia")
    assert [unit.text for unit in units_of(words("www.example.org"))] == ["w", "w", "w", "example", "org"]


def test_people_pause_within_numbers_and_spelled_words_alone():
    assert all(map(may_pause, ("526-018", "12", "S-M-I-T-H", "AXJ")))
    assert not any(map(may_pause, ("7", "hello", "I", "don't")))


def test_numbers_are_told_from_words():
    assert all(map(is_number, ("5", "$12", "twelve", "526-018.", "64%", "hundred")))
    assert not any(map(is_number, ("no", "AXJ3", "and", "-", "12th-century")))


@given(st.text(max_size=40))
def test_any_text_has_units_in_order_within_its_words(text):
    given_words = words(text)
    found = units_of(given_words)
    assert [unit.word for unit in found] == sorted(unit.word for unit in found)
    for unit in found:
        word = given_words[unit.word]
        assert word.start <= unit.start <= unit.end <= word.end
        assert unit.upto is None or 0 < unit.upto <= len(word.text)
    assert longest_time(text) >= 0


# In any language


@pytest.mark.parametrize("language", ["pl", "hi", "zh"])
def test_number_words_of_english_are_words_in_other_languages(language):
    words = [Word(text, 0, 0, 1.0, language=language) for text in ("ten", "seven")]
    assert [unit.text for unit in units_of(words)] == ["ten", "seven"]
    assert not is_number("ten", language)
    assert is_number("10", language)
    assert is_number("ten")


def test_words_of_a_script_with_vowel_signs_are_one_unit_each_and_keep_the_signs():
    words = [Word(text, 0, 0, 1.0) for text in ("नमस्ते", "दुनिया", "สวัสดี")]
    assert [unit.text for unit in units_of(words)] == ["नमस्ते", "दुनिया", "สวัสดี"]
    assert not any(may_pause(word.text) for word in words)


def test_accents_that_stand_apart_make_no_other_word():
    assert plain("مَرحَبًا") == plain("مرحبا")
    assert plain("e\u0301te\u0301") == plain("\u00e9t\u00e9")
    assert plain("काल") != plain("कल")


def test_figures_of_any_script_are_figures():
    assert [unit.text for unit in units_of([Word("٣٥", 0, 0, 1.0)])] == ["3", "5"]
    assert is_number("३५", "hi")


def test_a_full_width_letter_takes_as_long_as_two_others():
    assert longest_time("今天") == longest_time("abcd")
