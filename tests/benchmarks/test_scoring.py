"""Tests of scoring.py: word errors and the pairs of equal words."""

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.scoring import matches, spoken_words, word_errors

WORDS = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=12)


def test_words_are_compared_as_they_sound() -> None:
    assert spoken_words("¿Dónde está, el RÍO? It's 7 o'clock.") == [
        "dónde",
        "está",
        "el",
        "río",
        "it's",
        "7",
        "o'clock",
    ]
    assert spoken_words("नमस्ते, दुनिया!") == ["नमस्ते", "दुनिया"]


def test_known_distances() -> None:
    assert word_errors(["the", "cat", "sat"], ["the", "cat", "sat"]) == 0
    assert word_errors(["the", "cat", "sat"], ["a", "cat"]) == 2
    assert word_errors([], ["two", "more"]) == 2
    assert matches(["the", "cat", "sat", "down"], ["cat", "sit", "down", "now"]) == [(1, 0), (3, 2)]


@given(WORDS, WORDS, WORDS)
def test_errors_are_a_distance(one: list[str], two: list[str], three: list[str]) -> None:
    assert (word_errors(one, two) == 0) == (one == two)
    assert word_errors(one, two) == word_errors(two, one)
    assert word_errors(one, three) <= word_errors(one, two) + word_errors(two, three)


@given(WORDS, WORDS)
def test_matches_are_equal_words_in_order_and_account_for_the_errors(said: list[str], heard: list[str]) -> None:
    pairs = matches(said, heard)
    assert pairs == sorted(pairs)
    assert all(said[left] == heard[right] for left, right in pairs)
    assert len({left for left, _ in pairs}) == len({right for _, right in pairs}) == len(pairs)
    assert (
        max(len(said), len(heard)) - len(pairs) <= word_errors(said, heard) <= len(said) + len(heard) - 2 * len(pairs)
    )
