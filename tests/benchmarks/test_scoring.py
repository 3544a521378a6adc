"""Tests of scoring.py and intervals.py: words as they sound, counted by jiwer, and how far a share may be off."""

from benchmarks.intervals import difference, interval
from benchmarks.scoring import matches, spoken_words, word_errors


def test_english_is_compared_as_it_sounds_and_other_languages_without_case_and_punctuation():
    assert spoken_words("It's twenty dollars, Mr. Smith.", "en") == spoken_words("it is $20 mister Smith", "en-GB")
    assert spoken_words("¿Dónde está, el RÍO?", "es") == ["dónde", "está", "el", "río"]


def test_errors_are_words_replaced_left_out_and_put_in():
    assert word_errors(["the", "cat", "sat"], ["the", "cat", "sat"]) == 0
    assert word_errors(["the", "cat", "sat"], ["a", "cat"]) == 2
    assert word_errors([], ["two", "more"]) == 2
    assert word_errors(["two", "more"], []) == 2


def test_matches_are_the_equal_words_in_order():
    assert matches(["the", "cat", "sat", "down"], ["cat", "sit", "down", "now"]) == [(1, 0), (3, 2)]
    assert matches([], ["one"]) == matches(["one"], []) == []


def test_an_interval_holds_the_share_and_is_narrower_with_more_clips():
    few, many = interval([0, 2, 1, 5], [20] * 4), interval([0, 2, 1, 5] * 25, [20] * 100)
    assert few[0] < many[0] < 0.1 < many[1] < few[1]
    assert interval([3], [20]) is None, "one clip says nothing about others"


def test_the_same_clips_go_wrong_in_both_systems_so_their_difference_is_surer_than_each_alone():
    apart = difference([1, 9, 4, 0], [2, 10, 5, 1], [20] * 4)
    assert apart == (-0.05, -0.05)
    assert difference([1, 9], [9, 1], [20, 20]) == (-0.4, 0.4)
