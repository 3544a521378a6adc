"""Tests of missed speech in answers.py: which speech without words is found, and which is left alone."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import position
from pipeline.recognition.engine import DecodeRequest
from pipeline.recognition.engines.whisper.answers import UNHEARD, missed_speech, misses_turn, skips_speech, with_missed
from pipeline.words import Word, join_words


def timed_words(*words: tuple[str, float, float]) -> tuple[Word, ...]:
    return tuple(Word(text, position(start), position(end), 0.9) for text, start, end in words)


def spans(*spans: tuple[float, float]) -> tuple[tuple[int, int], ...]:
    return tuple((position(start), position(end)) for start, end in spans)


def test_speech_after_the_last_word_is_not_heard():
    assert missed_speech(timed_words(("hello", 0.0, 0.5)), spans((0.0, 0.5), (2.0, 4.0))) == list(spans((2.0, 4.0)))


def test_a_short_answer_between_pauses_is_sought_if_that_is_asked():
    words = timed_words(("hello", 0.0, 0.5))
    voiced = spans((0.0, 0.5), (2.0, 2.3))
    assert missed_speech(words, voiced) == []
    assert missed_speech(words, voiced, short=True) == list(spans((2.0, 2.3)))
    assert missed_speech(words, spans((0.0, 0.5), (2.0, 2.1)), short=True) == [], "a click"
    assert missed_speech(timed_words(("no", 2.0, 2.1)), spans((2.0, 2.35)), short=True) == [], "the end of a word"


def test_groups_of_figures_that_pause_count_together_unless_a_word_begins_between_them():
    voiced = spans((3.4, 4.1), (4.6, 5.15), (6.1, 6.6))
    assert missed_speech(timed_words(("54", 3.4, 4.1)), voiced) == list(spans((4.6, 6.6)))
    assert missed_speech(timed_words(("54", 3.4, 4.1), ("uh", 5.5, 5.6)), voiced) == []


def test_sentences_with_a_pause_between_them_are_sought_one_by_one_and_a_short_rest_with_the_one_before():
    voiced = spans((0.5, 2.0), (4.0, 6.0), (6.6, 7.0))
    assert missed_speech([], voiced) == list(spans((0.5, 2.0), (4.0, 7.0)))
    assert missed_speech(timed_words(("so", 0.0, 0.3)), voiced) == list(spans((0.5, 2.0), (4.0, 7.0)))


def test_a_word_that_is_drawn_over_a_sentence_does_not_hide_it():
    words = timed_words(("world.", 0.0, 6.0), ("And", 6.0, 6.3))
    [(start, end)] = missed_speech(words, spans((0.0, 0.6), (2.0, 6.3)))
    assert start == position(2.0)
    assert end == position(6.0)


def test_the_end_of_a_word_is_no_part_of_the_sentence_after_the_pause():
    voiced = spans((0.0, 0.6), (2.0, 4.0))
    assert missed_speech(timed_words(("world.", 0.0, 0.5)), voiced) == list(spans((2.0, 4.0)))
    assert missed_speech(timed_words(("world.", 0.0, 0.3)), voiced) == list(spans((0.3, 4.0)))


def test_a_number_that_is_drawn_over_a_sentence_ends_in_the_pause_before_it():
    voiced = spans((0.0, 1.0), (2.0, 4.0))
    assert missed_speech(timed_words(("$97.22.", 0.0, 4.0)), voiced) == list(spans((2.0, 4.0)))
    assert missed_speech(timed_words(("97.22.526-018.", 0.0, 4.0)), voiced) == []


def with_missed_text(missed: list[tuple[str, float, float]]) -> str:
    words = timed_words(("This", 0.2, 0.6), ("is,", 0.6, 1.2), ("and", 4.0, 4.4))
    placed, _ = with_missed(words, timed_words(*missed), (position(1.2), position(4.0)))
    assert all(one.start <= one.end <= two.start for one, two in pairwise(placed))
    return join_words(placed)


def test_words_of_missed_speech_come_between_those_that_were_there():
    assert with_missed_text([("my", 1.5, 2.0), ("song", 2.0, 3.0)]) == "This is, my song and"
    assert with_missed_text([("my", 1.1, 2.0), ("song", 2.0, 4.2)]) == "This is, my song and", "times reach too far"
    assert with_missed_text([]) == "This is, and"


def test_words_around_the_missed_speech_are_not_written_twice():
    assert with_missed_text([("is", 1.1, 1.4), ("my", 1.5, 2.0), ("And", 3.7, 4.2)]) == "This is, my and"
    assert with_missed_text([("this", 0.2, 0.6), ("is", 0.7, 1.1)]) == "This is, and"


def test_what_comes_after_the_words_that_were_found_is_sought_again():
    voiced = spans((0.0, 9.0))
    words, reached = with_missed((), timed_words(("my", 0.2, 1.0), ("song", 1.0, 1.5)), (0, position(9)))
    assert missed_speech(words, voiced, since=reached) == list(spans((1.5, 9.0)))
    assert missed_speech((), voiced, since=with_missed((), (), (0, position(9)))[1]) == []


def test_a_word_put_too_early_is_sought_where_the_voice_begins():
    assert missed_speech(timed_words(("hello", 0.0, 3.0)), spans((2.4, 3.0))) == []


TURN = spans((0.0, 2.0), (3.0, 6.0))


def misses(*words: tuple[str, float, float], until: float = 6.0, turn: float | None = 2.6, **members: Any) -> bool:
    request = DecodeRequest(samples=np.zeros(position(until), np.float32), start=0, voiced=TURN, **members)
    return misses_turn(replace(request, turn=None if turn is None else position(turn)), timed_words(*words))


SAID = ("order", 0.0, 1.0), ("please", 1.0, 2.0)


def test_an_answer_that_ends_before_the_turn_misses_it():
    assert misses(*SAID, final=False)
    assert not misses(*SAID, ("it", 3.0, 3.6), ("is", 3.6, 4.4), ("here", 4.4, 5.2), final=False)
    assert not misses(*SAID, until=4.1, final=False), "the word has yet to end"
    assert not misses(*SAID, turn=None), "a file"
    assert not misses(*SAID), "it was recognised by itself"


def test_an_answer_that_puts_the_word_before_the_pause_on_the_turn_misses_it():
    late = ("order", 0.0, 1.0), ("please", 3.0, 4.0), ("here", 4.5, 5.6)
    assert misses(*late, decided=timed_words(*SAID))
    assert not misses(*late), "nothing was decided before the turn"


@pytest.mark.parametrize(("voice", "skips"), [((19.0, 22.0), True), ((21.0, 22.0), False)])
def test_words_that_go_on_after_speech_after_the_decided_ones_skip_it(voice, skips):
    the, zeros = timed_words(("the", 19.7, 19.8)), np.zeros(position(22.0), np.float32)
    request = DecodeRequest(samples=zeros, start=0, voiced=spans(voice), decided=the)
    assert skips_speech(request, timed_words(("the", 19.7, 21.1), ("first", 21.1, 21.6))) is skips
    assert not skips_speech(request, timed_words(("the", 19.7, 20.1), ("directory", 20.1, 21.0)))


def test_a_breath_or_a_drawn_out_vowel_is_not_worth_a_look():
    assert missed_speech(timed_words(("so", 0.0, 0.3)), spans((0.0, 0.3), (1.0, 1.6))) == []


@given(
    gaps=st.lists(st.integers(1, position(2)), min_size=2, max_size=16),
    words=st.lists(st.tuples(st.integers(0, position(10)), st.integers(0, position(1))), max_size=10),
)
def test_stretches_are_in_order_and_begin_and_end_with_voice(gaps, words):
    edges = [sum(gaps[: n + 1]) for n in range(len(gaps) // 2 * 2)]
    voiced = list(zip(edges[::2], edges[1::2], strict=True))
    spoken, at = [], 0
    for offset, length in sorted(words):
        at = max(at, offset)
        spoken.append(Word("word", at, at + length, 0.9))
        at += length
    last = 0
    for start, end in missed_speech(spoken, voiced):
        assert last <= start < end
        assert any(first <= start < stop for first, stop in voiced)
        assert any(first < end <= stop for first, stop in voiced)
        assert end - start >= UNHEARD
        last = end
