"""Tests of normalising.py: texts that sound the same give the same tokens."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks.normalising import Token, tokens
from benchmarks.scoring import spoken_words

UNITS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def below_100(value: int, hyphen: str = " ") -> str:
    if value < 20:
        return UNITS[value]
    return TENS[value // 10] + (hyphen + UNITS[value % 10] if value % 10 else "")


def cardinal(value: int, *, joined_by: str, hyphen: str) -> str:
    """One thousand seven hundred and seventy-five."""
    parts = []
    if value >= 1000:
        parts.append(f"{UNITS[value // 1000]} thousand")
    if value % 1000 >= 100:
        parts.append(f"{UNITS[value % 1000 // 100]} hundred")
    if value % 100 or not parts:
        parts += [joined_by] * bool(parts and joined_by) + [below_100(value % 100, hyphen)]
    return " ".join(parts)


def as_a_year(value: int) -> str:
    """Seventeen seventy five."""
    rest = value % 100
    if rest == 0:
        return f"{below_100(value // 100)} hundred"
    return f"{below_100(value // 100)} {'oh ' if rest < 10 else ''}{below_100(rest)}"


def english(text: str) -> list[str]:
    return spoken_words(text, "en")


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("4 of clubs", "four of clubs"),
        ("in 1775", "in seventeen seventy five"),
        ("in 1905", "in nineteen oh five"),
        ("1,775 men", "one thousand seven hundred and seventy-five men"),
        ("100 men", "a hundred men"),
        ("5,000,000", "five million"),
        ("1.5 million", "one point five million"),
        ("pi is 3.14", "pi is three point one four"),
        ("3.05", "three point oh five"),
        ("200 and 300", "two hundred and three hundred"),
        ("2000, 3000", "two thousand three thousand"),
        ("555-1234", "five five five one two three four"),
        ("1, 2, 3.", "one two three"),
        ("$20", "twenty dollars"),
        ("a $20 note", "a twenty dollar note"),
        ("$2.50", "two dollars and fifty cents"),
        ("$0.05", "five cents"),
        ("$1.5 million", "one point five million dollars"),
        ("£5, €6", "five pounds six euros"),
        ("50%", "fifty per cent"),
        ("50%", "fifty percent"),
        ("the 3rd", "the third"),
        ("the 22nd", "the twenty second"),
        ("a 20 second pause", "a twenty second pause"),
        ("the 100th", "the one hundredth"),
        ("the 112th", "the one hundred twelfth"),
        ("the 2021st", "the two thousand twenty first"),
        ("the 1960s", "the nineteen sixties"),
        ("the 60's", "the sixties"),
        ("the 1900s", "the nineteen hundreds"),
        ("10:30 a.m.", "ten thirty AM"),
        ("5pm", "five p.m."),
    ],
)
def test_numbers_are_the_same_in_digits_and_in_words(written: str, said: str) -> None:
    assert english(written) == english(said)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("It's here.", "it is here"),
        ("it's been", "it has been"),
        ("I'd go, I'd been, he'd better", "I would go I had been he had better"),
        ("We'll; they've; you're; I'm", "we will they have you are I am"),
        ("won't, can't, shan't, don't, cannot", "will not can not shall not do not can not"),
        ("couldn't've", "could not have"),
        ("don\u2019t", "do not"),
        ("let's", "let us"),
        ("Mr. Smith and Mrs. Smith, Dr. Who", "mister Smith and missus Smith doctor who"),
        ("Uh, it was, um, fine. Hmm.", "it was fine"),
        ("gonna, wanna, gotta", "going to want to got to"),
        ("OK", "okay"),
        ("the U.S.", "the US"),
        ("ill-disposed", "ill disposed"),
        ("grey colours of the neighbour's theatre", "gray colors of the neighbor's theater"),
        ("salt & pepper", "salt and pepper"),
    ],
)
def test_ways_to_write_the_same_words_are_the_same(written: str, said: str) -> None:
    assert english(written) == english(said)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("for", "four"),
        ("its", "it's"),
        ("we're", "we were"),
        ("fifteen", "fifty"),
        ("third", "three"),
        ("second", "2"),
        ("Smith's", "Smith is"),
        ("4.5", "45"),
        ("your hour", "yor hor"),
        ("hundreds", "hundred"),
    ],
)
def test_different_words_stay_different(one: str, other: str) -> None:
    assert english(one) != english(other)


@given(st.integers(0, 9999), st.sampled_from(["", "and"]), st.sampled_from([" ", "-"]))
def test_a_number_is_the_same_however_it_is_said(value: int, joined_by: str, hyphen: str) -> None:
    assert english(cardinal(value, joined_by=joined_by, hyphen=hyphen)) == english(f"{value}") == [f"{value}"]
    assert english(f"about {value:,} men") == ["about", f"{value}", "men"]
    if value >= 1000 and value % 1000 >= 100:
        assert english(as_a_year(value)) == [f"{value}"]


@given(st.integers(1, 999))
def test_an_ordinal_is_the_same_in_digits_and_in_words(value: int) -> None:
    last = value % 100
    if last == 0:
        said = f"{UNITS[value // 100]} hundredth"
    elif last in (1, 2, 3) or (last > 20 and last % 10 in (1, 2, 3)):
        said = cardinal(value, joined_by="", hyphen=" ").rsplit(" ", 1)[0] if value > 3 else ""
        said = f"{said} {('first', 'second', 'third')[last % 10 - 1]}"
    else:
        *before, end = cardinal(value, joined_by="", hyphen=" ").split()
        irregular = {"five": "fifth", "eight": "eighth", "nine": "ninth", "twelve": "twelfth"}
        ordinal = irregular.get(end, end[:-1] + "ieth" if end.endswith("y") else end + "th")
        said = " ".join([*before, ordinal])
    assert english(f"the {value}th of them") == english(f"the {said} of them")


PIECES = st.sampled_from(
    [
        *UNITS, *TENS[2:], "hundred", "thousand", "million", "and", "a", "point", "oh", "o", "first", "second", "uh",
        "$", "£", "%", "&", "5", "20", "007", "1,000", "4.5", "3rd", "22nd", "1960s", "60's", "5pm", "p.m.", "it's",
        "he'd", "been", "won't", "Mr.", "St.", "colour", "'quoted'", "n't", "'s", "U.S.", "dollar", "cents", ":30",
        ".5", ",000",
    ]
)  # fmt: skip


@given(st.one_of(st.lists(PIECES, max_size=10).map(" ".join), st.lists(PIECES, max_size=6).map("".join), st.text()))
@example("5 $ 6")
@example("one point a hundred")
@example("zero point oh ten")
@example("$0.0A")
def test_what_is_compared_stays_the_same_when_it_is_compared_again(text: str) -> None:
    once = english(text)
    assert english(" ".join(once)) == once


@given(st.lists(st.one_of(PIECES, st.text(max_size=5)), max_size=12), st.sampled_from(["en", "en-GB", "es", None]))
def test_tokens_come_from_words_in_order(words: list[str], language: str | None) -> None:
    found = tokens(words, language)
    assert all(0 <= token.first <= token.last < len(words) for token in found)
    assert all(left.first <= right.first and left.last <= right.last for left, right in pairwise(found))
    assert all(token.text and " " not in token.text for token in found)


@given(st.lists(PIECES, max_size=12))
def test_words_one_by_one_give_the_tokens_of_the_text(words: list[str]) -> None:
    assert [token.text for token in tokens(words, "en")] == english(
        " ".join(words).replace(" ,", ",").replace(" :", ":")
    )


def test_a_token_knows_which_words_it_came_from() -> None:
    heard = ["It's", "seventeen", "seventy", "five,", "uh,", "$5"]
    assert tokens(heard, "en") == [
        Token("it", 0, 0),
        Token("is", 0, 0),
        Token("17755", 1, 5),
        Token("dollars", 5, 5),
    ]


def test_a_number_that_a_recogniser_parted_is_one_number() -> None:
    assert [token.text for token in tokens([" $1", ",775", ".50", " in", " 4", ".5"], "en")] == english(
        "$1,775.50 in 4.5"
    )


def test_other_languages_are_only_folded() -> None:
    assert spoken_words("¿Dónde está, el RÍO? Veinte 20.", "es") == ["dónde", "está", "el", "río", "veinte", "20"]
    assert spoken_words("It's twenty, Mr. Smith") == ["it's", "twenty", "mr", "smith"]
    assert spoken_words("नमस्ते, दुनिया!", "hi") == ["नमस्ते", "दुनिया"]
