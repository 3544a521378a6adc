"""Tests of displaced.py: a sentence that an answer left out, under the first words of the next sentence."""

import pytest

from pipeline.audio import position
from pipeline.recognition.displaced import fill_sparse_speech, find_sparse_speech
from pipeline.words import Word

VOICED = [(position(0), position(1.4)), (position(3.6), position(5))]
"""Two sentences, with a pause between them."""


def words(*parts: tuple[str, float, float]) -> tuple[Word, ...]:
    return tuple(Word(text, position(start), position(end), 0.9) for text, start, end in parts)


STRETCHED = words(("the", 0, 1.3), ("address", 3.6, 4.2), ("is", 4.2, 4.4), ("Rome.", 4.4, 5))
SENTENCE = words(("Visit", 0.1, 0.4), ("planet.com.", 0.4, 1.4))


def filled(first: tuple[Word, ...], again: tuple[Word, ...]) -> tuple[Word, ...]:
    (sparse,) = find_sparse_speech(first, VOICED)
    return fill_sparse_speech(first, again, sparse)


def test_the_sentence_is_put_in_and_its_place_holder_goes_behind_the_pause() -> None:
    found = filled(STRETCHED, SENTENCE)
    assert [word.text for word in found] == ["Visit", "planet.com.", "the", "address", "is", "Rome."]
    assert found[:2] == SENTENCE
    assert found[2].start == position(3.6) < found[2].end == found[3].start < found[3].end == position(4.2)


@pytest.mark.parametrize(
    "again",
    [
        words(("The.", 0, 1.3)),  # drawn out
        words(("Oh.", 0, 1.3)),  # another hearing of one word
        (),
    ],
)
def test_words_stay_if_the_second_answer_has_too_few_as_well(again: tuple[Word, ...]) -> None:
    assert filled(STRETCHED, again) == STRETCHED


def test_words_stay_if_the_second_answer_has_only_some_of_them() -> None:
    first = words(("the", 0, 0.2), ("or", 0.2, 1.3), ("address", 3.6, 5))
    again = words(("Visit", 0.1, 0.4), ("the", 0.4, 0.6), ("planet.", 0.6, 1.4))
    assert filled(first, again) == first


def test_words_stay_if_the_second_answer_has_the_word_before_them() -> None:
    voiced = [(0, position(1)), *((start + position(2), end + position(2)) for start, end in VOICED)]
    first = words(("Americans", 0, 0.8), ("ask", 0.8, 1.5), ("not", 2, 3.3), ("what", 5.6, 6))
    *_, sparse = find_sparse_speech(first, voiced)
    assert fill_sparse_speech(first, words(("Ask", 2, 2.4), ("nought!", 2.6, 3.4)), sparse) == first


@pytest.mark.parametrize(
    ("first", "voiced"),
    [
        (words(("Visit", 0, 0.5), ("planet.com.", 0.5, 1.4), ("Go.", 3.6, 5)), VOICED),  # enough words
        (words(("the", 0, 0.7), ("end.", 3.6, 5)), [(0, position(0.7)), VOICED[1]]),  # too little speech
        (words(("the", 0, 1.3)), VOICED[:1]),  # nothing follows
        (words(("the", 0, 1.3)), VOICED),  # no word follows
        (words(("address", 3.6, 5)), VOICED),  # no word stands there: coverage.py finds that
    ],
)
def test_other_speech_is_left_alone(first: tuple[Word, ...], voiced: list[tuple[int, int]]) -> None:
    assert not list(find_sparse_speech(first, voiced))
