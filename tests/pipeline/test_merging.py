"""Tests of merging.py: what is heard twice is told once, and nothing that one hearing alone has is lost."""

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.audio import position
from pipeline.recognition.merging import merge, unsaid
from pipeline.words import Word, written
from tests.pipeline.listening import spoken, stream, voice
from tests.pipeline.respelling import Respelling, dictations, respelled, spelt


def span(start: float, end: float) -> tuple[int, int]:
    return position(start), position(end)


def merged(first, again, start: float, end: float) -> str:
    return written(merge(spoken(*first), spoken(*again), span(start, end)))


@pytest.mark.parametrize(
    ("first", "again", "text"),
    [
        ([("$450,000", 0.6, 3.0), ("today.", 3.0, 3.4)], [("$50,000", 1.2, 2.9)], "$450,000 today."),
        ([("861930274918.", 0.2, 5.4)], [("302", 2.2, 3.0), ("749", 3.1, 4.0), ("918", 4.2, 5.0)], "861930274918."),
        ([("8,", 0.3, 0.9), ("the", 0.9, 1.1), ("press", 1.1, 1.5)], [("The", 0.9, 1.1), ("press.", 1.2, 1.6)], "8, the press"),  # noqa: E501
        ([("526-1590", 0.5, 5)], [("one", 3.2, 3.5), ("five", 3.6, 4), ("nine", 4, 4.4), ("zero", 4.5, 5)], "526-1590"),
    ],
)  # fmt: skip
def test_what_both_hearings_have_is_told_once_however_it_is_written(first, again, text):
    assert merged(first, again, 1.2, 5.0) == text


def test_what_the_second_hearing_alone_has_fills_the_gap():
    first = [("526", 0.6, 1.5), ("1590.", 4.0, 5.0), ("after", 5.0, 5.3)]
    again = [("six", 1.3, 1.5), ("oh", 2.0, 2.3), ("one", 2.5, 3.0), ("eight", 3.0, 3.5), ("one", 4.0, 4.2)]
    assert merged(first, again, 1.6, 3.9) == "526 oh one eight 1590. after"


def test_a_number_with_a_gap_is_replaced_by_the_whole_number():
    first = [("number", 0.0, 0.5), ("526-1590.", 0.6, 5.0), ("after", 5.0, 5.3)]
    again = [("526-018-1590", 0.6, 4.9), ("after", 5.0, 5.2)]
    assert merged(first, again, 2.0, 4.7) == "number 526-018-1590 after"


def test_of_two_words_at_the_same_time_the_first_hearing_has_the_right_one():
    first = [("fellow", 0.5, 1.0), ("Americans", 1.0, 1.8), ("ask", 2.5, 2.8)]
    assert merged(first, [("a", 1.0, 1.1), ("marigold", 1.1, 1.8)], 1.5, 2.4) == "fellow Americans ask"


def test_words_that_people_repeat_stay():
    first = [("no", 0.6, 0.9), ("no", 1.0, 1.3), ("stop", 4.0, 5.0)]
    again = [("no", 1.0, 1.3), ("no", 1.6, 1.9), ("no", 2.2, 2.5)]
    assert merged(first, again, 1.4, 3.2) == "no no no no stop"


def test_a_silence_without_words_around_it_takes_all_that_is_heard_in_it():
    assert merged([("early", 0.1, 0.5)], [("late", 9.2, 9.6), ("words", 9.6, 10.0)], 9.0, 10.1) == "early late words"
    assert merged([], [("late", 9.2, 9.6)], 9.0, 10.1) == "late"
    assert merged([("early", 0.1, 0.5)], [], 9.0, 10.1) == "early"


@given(
    words=dictations(),
    lost=st.tuples(st.integers(0, 29), st.integers(0, 12)),
    seeds=st.tuples(st.integers(), st.integers()),
)
def test_whatever_is_heard_again_nothing_is_told_twice_and_the_gap_is_filled(words, lost, seeds):
    """The first hearing leaves a run of words out; the second hears it again with what is around it."""
    begin, end = lost[0] % len(words), min(lost[0] % len(words) + lost[1], len(words))
    gap = (words[begin].start, words[end - 1].end if end > begin else words[begin].end)
    around = [word for word in words if word.end > gap[0] - position(0.2) and word.start < gap[1] + position(0.2)]
    first = (*respelled(words[:begin], seeds[0]), *respelled(words[end:], seeds[1]))
    result = merge(first, respelled(around, seeds[1]), gap)
    assert spelt(result) == spelt(words)
    assert all(one.start <= one.end <= two.start for one, two in pairwise(result))


@given(words=dictations(), count=st.integers(0, 30), seeds=st.tuples(st.integers(), st.integers()))
def test_a_new_hearing_goes_on_after_the_final_words_even_within_a_number(words, count, seeds):
    said, rest = respelled(words[:count], seeds[0]), words[count:]
    end = said[-1].end if said else 0
    fresh, _ = unsaid(said, respelled(words, seeds[1]), end)
    assert spelt((*said, *fresh)) == spelt((*said, *rest))


@settings(max_examples=150)
@given(words=dictations(), delays=st.lists(st.integers(0, 30), min_size=1, max_size=3))
@example(words=spoken(*((text, 0.5 + n, 0.9 + n) for n, text in enumerate(["five"] * 4))), delays=[2])
def test_a_live_number_is_told_once_however_each_hypothesis_writes_it(words: tuple[Word, ...], delays: list[int]):
    run = stream(voice(words, words[-1].end + position(1)), Respelling(words), delays=delays)
    assert spelt(run.committed) == spelt(words)
