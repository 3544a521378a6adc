"""Tests of what is compared and timed in words: what is the same word however it is written, and how long it takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import position
from pipeline.languages import plain
from pipeline.recognition.voicing import longest_time, may_pause


def test_numbers_and_spelled_words_take_longer_than_other_words_of_so_many_letters():
    assert longest_time("861930274918.") > position(6)
    assert longest_time("$450,000") > position(3)
    assert longest_time("S-M-I-T-H") > position(2)
    assert longest_time("understanding") < position(2)
    assert longest_time("Maria.garcia") > longest_time("Mariangarcia"), "the dot is said"
    assert longest_time("今天") == longest_time("abcd"), "a full-width letter is a syllable or more"


def test_people_pause_within_numbers_and_spelled_words_alone():
    assert all(map(may_pause, ("526-018", "12", "S-M-I-T-H", "AXJ")))
    assert not any(map(may_pause, ("7", "hello", "I", "don't", "नमस्ते", "สวัสดี")))


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("Don't,", "dont"),
        ("¿Dónde?", "dónde"),
        ("\uff13pm", "3pm"),
        ("…", "..."),
        ("مَرحَبًا", "مرحبا"),
        ("e\u0301te\u0301", "\u00e9t\u00e9"),
    ],
)
def test_case_marks_and_accents_that_stand_apart_make_no_other_word(text, same):
    assert plain(text) == same


def test_a_vowel_sign_makes_another_word():
    assert plain("काल") != plain("कल")


@given(st.text(max_size=40))
def test_any_text_may_be_compared_and_takes_some_time(text):
    assert bool(plain(text)) == bool(text)
    assert longest_time(text) > 0
