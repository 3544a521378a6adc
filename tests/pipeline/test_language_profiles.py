"""Tests of profiles in languages.py: how wide text is, what may not be parted, and what is read from right to left."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.languages import (
    CREDITS,
    PLAIN,
    UNSPACED,
    columns,
    continues_grapheme,
    graphemes,
    kept_right_to_left,
    profile_of,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@pytest.mark.parametrize(
    ("language", "width", "speed"),
    [
        ("zh", 32, 22), ("ja", 26, 14), ("ko", 32, 28), ("th", 35, 20), ("ar", 42, 23), ("hi", 42, 25), ("en", 42, 20),
        ("de", 42, 17), ("xx", 42, 17), (None, 42, 17),
    ],
)  # fmt: skip
def test_lines_are_as_wide_and_as_fast_as_the_guides_say(language, width, speed):
    assert (profile_of(language).columns, profile_of(language).columns_per_second) == (width, speed)


def test_a_language_without_a_profile_has_the_plain_one():
    assert profile_of("sw") is profile_of(None) is PLAIN
    assert {"zh", "ja", "th", "lo", "km", "my", "yue"} == UNSPACED


@given(TEXT)
def test_graphemes_are_the_text_and_each_has_one_or_two_columns(text):
    assert "".join(graphemes(text)) == text
    assert len(graphemes(text)) <= columns(text) <= 2 * len(graphemes(text))


@given(st.text(st.sampled_from("abcñéкש今カ한"), min_size=1), st.sampled_from("\u0301\u0308\u05b8\u064e\u200d"))
def test_a_combining_mark_takes_no_column(text, mark):
    assert columns(text + mark) == columns(text)
    assert continues_grapheme(text, mark)


@given(st.text(st.sampled_from("今日カタ한국、。"), min_size=1))
def test_a_full_width_sign_takes_two_columns(text):
    assert columns(text) == 2 * len(text)


@given(TEXT, TEXT)
def test_a_grapheme_goes_on_exactly_where_joining_makes_fewer(before, after):
    joined = len(graphemes(before + after))
    if not continues_grapheme(before, after) and max(before + after, default="") < "\U0001f1e6":
        assert joined == len(graphemes(before)) + len(graphemes(after))


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("S1: مرحبا", "\u200fS1: مرحبا"),
        ("- שלום", "\u200f- שלום"),
        ("مرحبا S1", "مرحبا S1"),
        ("S1: hello", "S1: hello"),
        ("", ""),
    ],
)
def test_a_mark_keeps_a_line_from_right_to_left_only_where_it_is_needed(line, shown):
    assert kept_right_to_left(line, line.removeprefix("S1: ")) == shown


def test_credits_are_compared_without_spaces_marks_and_case():
    assert "字幕由amaraorg" in CREDITS
    assert all(credit == credit.casefold() and credit.isalnum() for credit in CREDITS)
