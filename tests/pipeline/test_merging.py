"""Tests of find_new_words(): no word comes twice, and new words are found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import position
from pipeline.recognition.agreement import find_new_words, select_of_turn
from pipeline.recognition.engine import DecodeRequest, RecognitionResult
from pipeline.words import Word, join_words
from tests.pipeline.scripted_streams import perfect, result_of, stream, talk, timed_words, voice


@given(
    count=st.integers(0, 20),
    texts=st.lists(st.sampled_from("abc"), min_size=20, max_size=20),
    moved=st.floats(-0.15, 0.15),
)
def test_a_new_hearing_goes_on_after_the_final_words_though_their_times_move(count, texts, moved):
    said = tuple(Word(text, word.start, word.end, 0.9) for text, word in zip(texts, talk(20), strict=True))
    again = [
        Word(one.text.upper(), max(0, one.start + position(moved)), max(0, one.end + position(moved)), 0.9)
        for one in said
    ]
    fresh = find_new_words(said[:count], again, said[count - 1].end if count else 0)
    assert list(fresh) == again[count:]


def fresh_text(said, heard_again, end: float) -> str:
    return join_words(find_new_words(timed_words(*said), timed_words(*heard_again), position(end)))


def test_a_price_after_a_word_that_the_model_stretches_over_it_is_new():
    said = [("It", 0.54, 0.72), ("was", 0.72, 1.08)]
    again = [("It", 0.54, 0.72), ("was", 0.72, 2.38), ("$575", 2.38, 2.42), ("in", 2.42, 3.02)]
    assert fresh_text(said, again, 1.08) == "$575 in"


def test_a_word_that_was_not_heard_while_the_one_before_it_was_stretched_over_it_is_new():
    said = [("extend", 26.17, 26.57), ("the", 26.58, 27.54)]
    again = [("extend", 26.26, 26.52), ("the", 26.52, 26.96), ("conference", 26.96, 27.36), ("7", 27.38, 28.31)]
    assert fresh_text(said, again, 27.54) == "conference 7"


def test_counting_goes_on_after_the_last_final_number_though_its_time_is_a_second_off():
    said = [("24,", 4.93, 5.55), ("25,", 5.56, 6.59), ("26", 6.59, 7.28)]
    again = [("24,", 4.61, 5.57), ("25,", 5.57, 6.85), ("26,", 6.85, 8.25), ("27,", 8.25, 9.15)]
    assert fresh_text(said, again, 7.28) == "27,"
    again = [("25,", 6.51, 6.86), ("26,", 6.86, 7.84), ("27,", 7.84, 8.84), ("28,", 8.84, 9.56)]
    assert fresh_text([*said, ("26,", 7.28, 8.25)], again, 8.25) == "27, 28,"


def test_a_long_number_over_a_pause_is_told_once():
    again = [("order", 27.9, 28.2), ("8888888.", 28.4, 31.0), ("Send", 31.0, 31.3)]
    assert fresh_text([("order", 27.9, 28.2), ("8888888.", 28.4, 29.6)], again, 29.6) == "Send"


def across_a_pause(first, second, again) -> str:
    """Return what is told of two turns whose words the final of the second hears as *again*."""
    words = timed_words(*first, *second)

    def listen(request: DecodeRequest) -> RecognitionResult:
        whole = request.final and request.start + len(request.samples) > words[-1].end
        return result_of(timed_words(*again)) if whole else perfect(words[: len(first)])(request)

    return stream(voice(words, words[-1].end + position(1)), listen).text


def test_the_last_word_of_a_turn_is_told_once_where_a_model_puts_it_behind_the_pause():
    first = [("order", 1.0, 1.4), ("number", 1.4, 1.8), ("please", 1.8, 2.2)]
    again = [("order", 1.0, 1.4), ("number", 1.4, 2.2), ("please", 3.0, 3.3), ("it", 3.3, 3.6)]
    assert across_a_pause(first, [("it", 3.0, 3.6)], again) == "order number please it"


def test_a_turn_over_which_a_model_stretches_the_last_word_before_it_is_heard_by_itself():
    first = [("order", 1.0, 1.4), ("number", 1.4, 1.8), ("please", 1.8, 2.2)]
    second = [("it", 3.0, 3.3), ("is", 3.3, 3.6), ("in", 3.6, 4.0), ("here", 4.0, 4.4)]
    words = timed_words(*first, *second)

    def listen(request: DecodeRequest) -> RecognitionResult:
        stretched = [("order", 1.0, 1.4), ("number", 1.4, 2.2), ("please", 3.0, 4.0), ("here", 4.0, 4.4)]
        whole = request.start < words[0].end and request.start + len(request.samples) > words[-1].end
        return result_of(timed_words(*stretched), incomplete=True) if whole else perfect(words)(request)

    run = stream(voice(words, words[-1].end + position(1)), listen)
    assert run.text == "order number please it is in here"


@pytest.mark.parametrize("word", ["oh", "no"])
def test_a_word_that_is_said_again_after_a_pause_is_told_again(word):
    first, second = [(word, 1.0, 1.4), ("no", 1.4, 1.8)], [("no", 2.6, 3.0)]
    assert across_a_pause(first, second, [*first, *second]) == f"{word} no no"


def of_turn(*heard: tuple[str, float, float]) -> list[Word]:
    """Return the words of a turn that begins at 2.6 s, after "come down." which ended at 1.6 s."""
    earlier = timed_words(("come", 0.8, 1.1), ("down.", 1.1, 1.6))
    return list(select_of_turn(timed_words(*heard), earlier, position(2.6)))


def test_the_first_word_of_a_turn_is_kept_where_it_is_placed_before_the_pause():
    words = of_turn(("come", 0.8, 1.1), ("down.", 1.1, 1.5), ("The", 1.5, 1.6), ("child", 3.0, 3.6))
    assert [word.text for word in words] == ["The", "child"]
    assert words[0].start == position(3.0)
    assert words[0].end == words[1].start
    assert words[1].end == position(3.6)


def test_the_last_word_before_a_turn_is_left_out_where_it_is_placed_in_the_turn():
    words = of_turn(("come", 0.8, 1.1), ("down.", 1.1, 2.9), ("The", 2.9, 3.0), ("down", 3.0, 3.6))
    assert [word.text for word in words] == ["The", "down"]
    assert of_turn(("come", 0.8, 1.1), ("down.", 1.1, 1.5), ("The", 1.5, 1.6)) == [], "the turn has no word yet"
