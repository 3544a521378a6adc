"""Tests of the figures of live words, with readers whose every moment is known."""

import pytest

from benchmarks.live_scores import Scores, Seen, Shown, Truth, count_said_twice

TRUTH = (Truth("one", 1.0, 1.4), Truth("two", 1.5, 1.9), Truth("three", 2.0, 2.4), Truth("four", 4.0, 4.4))


def words(text: str) -> list[str]:
    return text.split()


def final(*texts: str) -> tuple[Shown, ...]:
    return tuple(map(Shown, texts))


def score(*seen: Seen, offline: str = "one two three four") -> Scores:
    scores = Scores()
    scores.add(TRUTH, seen, offline=offline)
    return scores


def test_a_word_is_late_by_the_time_from_its_end_to_its_final_event() -> None:
    scores = score(Seen(1.6, partial=("one",)), Seen(2.4, final=final("one", "two")), Seen(5.0, final=final("four")))
    assert scores.commit == pytest.approx([1.0, 0.5, 0.6])
    assert scores.first_seen == pytest.approx([0.2, 0.5, 0.6])
    assert (scores.said, scores.matched, scores.errors) == (4, 3, 1)


def test_words_before_the_warm_up_is_over_count_for_accuracy_alone() -> None:
    scores = Scores()
    scores.add(TRUTH, [Seen(5.0, final=final("one", "two", "three", "four"))], offline="", since=3.0)
    assert (scores.matched, scores.commit) == (4, pytest.approx([0.6]))


@pytest.mark.parametrize(
    ("seen", "erased"),
    [
        ((Seen(1, partial=("one", "too")), Seen(2, partial=("one", "two", "three"))), 1),
        ((Seen(1, partial=("one", "two")), Seen(2, final=final("one")), Seen(3, partial=("two",))), 0),
        ((Seen(1, partial=("one", "two")), Seen(2, final=final("one"), partial=())), 1),
        ((Seen(1, partial=("won", "two")), Seen(2, final=final("one"))), 2),
        ((Seen(1, partial=("one",)), Seen(2, partial=(), closed=True)), 1),
    ],
)
def test_what_was_shown_and_is_taken_back_is_erased(seen: tuple[Seen, ...], erased: int) -> None:
    assert score(*seen).erased == erased


def test_a_word_that_never_comes_is_lost_at_the_end_only_where_it_could_be_heard() -> None:
    heard = Seen(3.0, final=final("one", "two", "three"))
    assert score(heard).lost_at_end == 1
    assert score(heard, offline="one two three").lost_at_end == 0
    assert score(heard, Seen(5.0, final=final("for"))).lost_at_end == 0, "misheard is not lost"


def test_an_utterance_is_over_when_its_last_word_is_final_and_it_was_closed() -> None:
    scores = score(
        Seen(3.0, final=final("one", "two", "three")), Seen(3.2, partial=(), closed=True), Seen(5, final=final("four"))
    )
    assert scores.first_commit == pytest.approx([2.0, 1.0])
    assert scores.final == pytest.approx([0.8])


def test_an_utterance_that_comes_all_at_once_lags_by_the_time_since_it_began() -> None:
    scores = score(Seen(3.0, final=final("one", "two", "three")), Seen(5.0, final=final("four")))
    assert scores.laal == pytest.approx([2.0, 1.0])


def test_lagging_is_counted_from_a_speaker_who_says_all_words_at_an_even_pace() -> None:
    """Three words in 1.4 s are due at 0, 0.467 and 0.933 s, and are final after 0.7, 1.2 and 1.5 s."""
    scores = score(Seen(1.7, final=final("one")), Seen(2.2, final=final("two")), Seen(2.5, final=final("three")))
    assert scores.laal == pytest.approx([(0.7 + 1.2 - 1.4 / 3 + 1.5 - 2.8 / 3) / 3])


def test_words_that_nobody_said_belong_to_the_utterance_before_them() -> None:
    """With four words instead of three the pace is that of the four, so that more words do not look faster."""
    scores = score(
        Seen(1.7, final=final("one")), Seen(2.2, final=final("two")), Seen(2.3, final=final("three")),
        Seen(5.0, final=final("uh", "four")),
    )  # fmt: skip
    assert scores.laal == pytest.approx([(0.7 + 1.2 + 1.3 + 4.0 - 6 * 1.4 / 4) / 4, 1.0])


def test_closing_an_utterance_is_measured_beside_the_silence_that_it_needs() -> None:
    table = score(Seen(3.0, final=final("one", "two", "three")), Seen(3.2, partial=(), closed=True)).table()
    assert (table["final_s"]["p50"], table["final_beyond_endpointing_s"]["p50"]) == (0.8, 0.3)


@pytest.mark.parametrize(
    ("heard", "twice"),
    [
        ("for good or for evil in the", 0),
        ("for good or for evil evil in the", 1),
        ("for good or for evil or for evil in the", 3),
        ("for good or for evil in then the", 1),
        ("for for for good or for evil in the", 2),
        ("for good or for evil in the the", 1),
        ("for good or for devil in", 0),
        ("for good or for evil it in the", 0),
        ("", 0),
    ],
)
def test_a_word_that_repeats_its_neighbour_and_was_not_said_was_said_twice(heard: str, twice: int) -> None:
    assert count_said_twice(words("for good or for evil in the"), heard.split()) == twice


def test_what_was_really_said_twice_is_no_fault() -> None:
    assert count_said_twice(words("no no no it was was it"), words("no no no it was was it")) == 0


LONG = tuple(Truth(word, at, at + 0.4) for at, word in enumerate(words("it was the best of times"), start=1))
"""Words with pauses of 0.6 s between them: each is an utterance."""

RUN = tuple(Truth(word, 1 + at / 2, 1.4 + at / 2) for at, word in enumerate(words("it was the best of times")))
"""One utterance of 2.9 s, with pauses of 0.1 s."""


@pytest.mark.parametrize(
    ("heard", "offline", "first", "last"),
    [
        ("it was the best of times", "it was the best of times", 0, 0),
        ("the best of times", "it was the best of times", 2, 0),
        ("was the best of times", "was the best of times", 0, 0),
        ("hit was the best of times", "it was the best of times", 0, 0),
        ("it was the best", "it was the best of times", 0, 2),
        ("it was the best", "it was the best of", 0, 1),
        ("it was of times", "it was the best of times", 0, 0),
        ("", "it was the best of times", 2, 2),
    ],
)
def test_words_at_the_edges_of_an_utterance_are_lost_where_nothing_came_and_the_whole_recording_has_them(
    heard: str, offline: str, first: int, last: int
) -> None:
    scores = Scores()
    scores.add(RUN, [Seen(9.0, final=final(*heard.split()))], offline=offline)
    assert (scores.lost_first, scores.lost_last) == (first, last)


def test_each_utterance_has_edges_of_its_own() -> None:
    scores = Scores()
    scores.add(LONG, [Seen(9.0, final=final("it", "the", "best", "times"))], offline="it was the best of times")
    assert (scores.lost_first, scores.lost_last) == (2, 2), "six utterances of one word"


def test_a_word_of_another_utterance_is_not_taken_for_a_lost_one() -> None:
    truth = (*RUN, *(Truth(word, 10 + at / 2, 10.4 + at / 2) for at, word in enumerate(("no", "more"))))
    scores = Scores()
    scores.add(truth, [Seen(9.0, final=final(*words("it was the best of rhymes no more")))],
               offline="it was the best of times no more")  # fmt: skip
    assert (scores.lost_first, scores.lost_last) == (0, 0)


def test_numbers_contractions_and_fillers_are_compared_as_they_sound() -> None:
    truth = tuple(
        Truth(word, at, at + 0.5) for at, word in enumerate(words("it is uh seventeen seventy five twenty dollars"))
    )
    seen = [
        Seen(2.0, final=(Shown("It's", 0.0, 1.5),)),
        Seen(6.0, final=(Shown("17", 3.0, 3.5), Shown("75,", 4.0, 5.5))),
        Seen(9.0, final=(Shown("$20.", 6.1, 7.6),)),
    ]
    scores = Scores()
    scores.add(truth, seen, offline="It is 1775, 20 dollars", language="en")
    assert (scores.said, scores.errors, scores.offline_errors) == (4, 0, 0), "it is 177520 dollars"
    assert scores.commit == pytest.approx([1.5, 0.5, 2.5, 1.5])
    assert scores.start_error == pytest.approx([0.0, 0.0]), 'nobody says where "is" starts in "It\'s"'
    assert scores.end_error == pytest.approx([0.0, 0.1])


def test_a_word_that_was_cut_through_may_be_heard_or_not() -> None:
    for heard, errors in (
        ("one two", 0),
        ("none one two", 0),
        ("one two three", 0),
        ("oh none one two", 1),
        ("two", 1),
    ):
        scores = Scores()
        scores.add(TRUTH[:2], [Seen(3.0, final=final(*heard.split()))], offline=heard, edges=(1, 1))
        assert (scores.errors, scores.offline_errors) == (errors, errors), heard
