"""Tests of numerals: numbers in figures as people write them, and sentences without numbers as they were."""

from collections import Counter
from pathlib import Path

import pytest

from pipeline.text.languages import NUMERAL_LANGUAGES
from pipeline.text.options import TextOptions, TextSettings
from pipeline.text.stage import TextStage
from pipeline.words import join_words
from tests.pipeline.decided_words import rewrite, text_of, words_of

NUMERALS = TextOptions(numerals=True)

WRITTEN = Path(__file__).parent / "written_numbers.tsv"
"""A language, a sentence as people say it, and as it is written."""

SENTENCES = Path(__file__).parent / "numbers.tsv"
"""A language, a sentence as people say it (num2words spelled its numbers), and as they write it, or the same again."""


def test_sentences_are_written_with_their_numbers_in_figures_and_all_else_in_words():
    for line in WRITTEN.read_text(encoding="utf-8").splitlines():
        language, text, written = line.split("\t")
        assert text_of(text, NUMERALS, language=language) == written


def test_a_number_has_the_times_of_its_words_and_keeps_what_was_heard():
    words = words_of("about twenty five people")
    number = rewrite(words, NUMERALS)[1]
    assert (number.text, number.heard) == ("25", "twenty five")
    assert (number.start, number.end) == (words[1].start, words[2].end)


def test_made_sentences_of_each_language_are_written_as_people_write_them():
    count, right, changed = Counter[str](), Counter[str](), list[str]()
    for line in SENTENCES.read_text(encoding="utf-8").splitlines():
        language, text, wanted = line.split("\t")
        shown = text_of(text, NUMERALS, language=language)
        if text == wanted:
            changed += [shown] if shown != text else []
            continue
        count[language] += 1
        right[language] += shown == wanted
    assert set(count) == set(NUMERAL_LANGUAGES) - {"en"}
    assert set(count.values()) == {200}
    assert all(right[language] >= 0.97 * 200 for language in count), right
    assert not changed


@pytest.mark.parametrize(
    ("text", "region", "written"),
    [
        ("Call two one two, five five five, oh one two three, please.", "US", "Call (212) 555-0123, please."),
        ("Call 212-555-0123 in twenty five days.", "US", "Call (212) 555-0123 in 25 days."),
        ("It is zero two zero seven nine four six zero one two three.", "GB", "It is 020 7946 0123."),
        (
            "It is plus four nine three zero one two three four five six seven eight.",
            "US",
            "It is plus 49 30 12345678.",
        ),
        ("It is +49 30 12345678.", "US", "It is +49 30 12345678."),
        ("It is five five five one two.", "US", "It is 55512."),
        ("Count: one two three four five six seven eight nine ten.", "US", "Count: 123456789 10."),
        ("They sold twelve million three hundred thousand.", "DE", "They sold 12,300,000."),
    ],
)
def test_telephone_numbers_are_written_as_in_their_region(text, region, written):
    assert text_of(text, TextOptions(numerals=True, phone_region=region)) == written


def test_the_operators_region_counts_where_an_order_names_none():
    settings = TextSettings(phone_region="GB")
    for region, written_there in ((None, "020 7946 0123"), ("US", "0 2 0 7 9 4 6 0 1 2 3")):
        stage = TextStage(TextOptions(numerals=True, phone_region=region), language="en", settings=settings)
        decided = [one for word in words_of("0 2 0 7 9 4 6 0 1 2 3") for one in stage.add(word, 0)]
        assert join_words(word for word, _ in [*decided, *stage.release()]) == written_there
