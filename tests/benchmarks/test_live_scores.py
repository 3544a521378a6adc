"""What the benchmarks of live words count, on readers whose every moment is known."""

import pytest

from benchmarks.live_scores import Scores, Seen, Shown, Truth

TRUTH = (Truth("one", 1.0, 1.4), Truth("two", 1.5, 1.9), Truth("three", 2.0, 2.4), Truth("four", 4.0, 4.4))


def final(*words: str) -> tuple[Shown, ...]:
    return tuple(map(Shown, words))


def scored(*seen: Seen, offline: str = "one two three four") -> Scores:
    scores = Scores()
    scores.add(TRUTH, seen, offline=offline)
    return scores


def test_a_word_is_late_by_the_time_from_its_end_to_its_final_event() -> None:
    scores = scored(Seen(1.6, partial=("one",)), Seen(2.4, final=final("one", "two")), Seen(5.0, final=final("four")))
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
    assert scored(*seen).erased == erased


def test_a_word_that_never_comes_is_lost_at_the_end_only_where_it_could_be_heard() -> None:
    heard = Seen(3.0, final=final("one", "two", "three"))
    assert scored(heard).lost_at_end == 1
    assert scored(heard, offline="one two three").lost_at_end == 0
    assert scored(heard, Seen(5.0, final=final("for"))).lost_at_end == 0, "misheard is not lost"


def test_an_utterance_is_over_when_its_last_word_is_final_and_it_was_closed() -> None:
    scores = scored(
        Seen(3.0, final=final("one", "two", "three")), Seen(3.2, partial=(), closed=True), Seen(5, final=final("four"))
    )
    assert scores.first_commit == pytest.approx([2.0, 1.0])
    assert scores.final == pytest.approx([0.8])


def test_an_utterance_that_comes_all_at_once_lags_by_the_time_since_it_began() -> None:
    scores = scored(Seen(3.0, final=final("one", "two", "three")), Seen(5.0, final=final("four")))
    assert scores.laal == pytest.approx([2.0, 1.0])


def test_lagging_is_counted_from_a_speaker_who_says_all_words_at_an_even_pace() -> None:
    """1.4 s for three words: at 0, 0.467 and 0.933 s; final after 0.7, 1.2 and 1.5 s, of which the last ends it."""
    scores = scored(Seen(1.7, final=final("one")), Seen(2.2, final=final("two")), Seen(2.5, final=final("three")))
    assert scores.laal == pytest.approx([(0.7 + 1.2 - 1.4 / 3 + 1.5 - 2.8 / 3) / 3])


def test_words_that_nobody_said_belong_to_the_utterance_before_them() -> None:
    """Four words where three were said: the pace is theirs, so that saying more does not look quicker."""
    scores = scored(
        Seen(1.7, final=final("one")), Seen(2.2, final=final("two")), Seen(2.3, final=final("three")),
        Seen(5.0, final=final("uh", "four")),
    )  # fmt: skip
    assert scores.laal == pytest.approx([(0.7 + 1.2 + 1.3 + 4.0 - 6 * 1.4 / 4) / 4, 1.0])


def test_closing_an_utterance_is_measured_beside_the_silence_that_it_needs() -> None:
    table = scored(Seen(3.0, final=final("one", "two", "three")), Seen(3.2, partial=(), closed=True)).table()
    assert (table["final_s"]["p50"], table["final_beyond_endpointing_s"]["p50"]) == (0.8, 0.3)
