"""Tests of the figures of live words, with readers whose every moment is known."""

import pytest

from benchmarks.live_scores import Scores, Seen, Shown
from benchmarks.tracks import Truth

TRUTH = (Truth("one", 1.0, 1.4), Truth("two", 1.5, 1.9), Truth("three", 2.0, 2.4), Truth("four", 4.0, 4.4))


def final(*texts: str) -> tuple[Shown, ...]:
    return tuple(map(Shown, texts))


def score(*seen: Seen, offline: str = "one two three four") -> Scores:
    scores = Scores()
    scores.add(TRUTH, seen, offline=offline)
    return scores


def test_a_word_is_late_by_the_time_from_its_end_to_its_final_event():
    scores = score(Seen(1.6, partial=("one",)), Seen(2.4, final=final("one", "two")), Seen(5.0, final=final("four")))
    assert scores.commit_s == pytest.approx([1.0, 0.5, 0.6])
    assert scores.first_seen_s == pytest.approx([0.2, 0.5, 0.6])
    assert (scores.words, scores.matched, scores.errors) == ([4], 3, [1])


def test_a_word_shown_in_a_partial_was_seen_at_its_place_after_the_final_words():
    truth = tuple(Truth(text, at, at + 0.4) for at, text in enumerate(("no", "yes", "no", "yes")))
    scores = Scores()
    seen = [Seen(1.0, final=final("no", "yes")), Seen(2.5, partial=("no",)), Seen(4.0, final=final("no", "yes"))]
    scores.add(truth, seen, offline="")
    assert scores.first_seen_s == pytest.approx([0.6, -0.4, 0.1, 0.6])


def test_words_before_the_warm_up_is_over_count_for_accuracy_alone():
    scores = Scores()
    scores.add(TRUTH, [Seen(5.0, final=final("one", "two", "three", "four"))], offline="", since=3.0)
    assert (scores.matched, scores.commit_s) == (4, pytest.approx([0.6]))


@pytest.mark.parametrize(
    ("seen", "erased"),
    [
        ((Seen(1, partial=("one", "too")), Seen(2, partial=("one", "two", "three"))), 1),
        ((Seen(1, partial=("one", "two")), Seen(2, final=final("one")), Seen(3, partial=("two",))), 0),
        ((Seen(1, partial=("one", "two")), Seen(2, final=final("one"), partial=())), 1),
        ((Seen(1, partial=("won", "two")), Seen(2, final=final("one"))), 2),
    ],
)
def test_what_was_shown_and_is_taken_back_is_erased(seen, erased):
    assert score(*seen).erased == erased


def test_a_word_that_never_comes_is_lost_at_the_end_only_where_it_could_be_heard():
    heard = Seen(3.0, final=final("one", "two", "three"))
    assert score(heard).lost_at_end == 1
    assert score(heard, offline="one two three").lost_at_end == 0
    assert score(heard, Seen(5.0, final=final("for"))).lost_at_end == 0, "misheard is not lost"


def test_errors_are_those_of_the_normalised_text_and_times_those_of_the_words_as_they_are_written():
    truth = tuple(Truth(text, at, at + 0.5) for at, text in enumerate(("it", "is", "twenty", "dollars", "Sir")))
    scores = Scores()
    seen = [Seen(6.0, final=(Shown("It's", 0.0, 1.5), Shown("$20,", 2.0, 3.5), Shown("sir.", 4.25, 4.5)))]
    scores.add(truth, seen, offline="It is 20 dollars, Sir.", language="en")
    assert (scores.errors, scores.offline_errors) == ([0], 0)
    assert (scores.commit_s, scores.start_error_s, scores.end_error_s) == ([1.5], [0.25], [0.0])
