"""Tests of turns.py: where the turns of a live stream begin and end."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import RATE, WINDOW, position
from pipeline.events import SpeechEnded
from pipeline.recognition.turns import Turn, TurnOptions, Turns
from pipeline.words import join_words
from tests.pipeline.scripted_streams import perfect, stream, talk, voice

OPTIONS = TurnOptions(onset=2 * WINDOW, endpointing=5 * WINDOW)


def turns_of(probabilities: list[float], *, flush: bool = True) -> list[Turn]:
    turns, found, now = Turns(OPTIONS), [], 0
    for frame, probability in enumerate(probabilities):
        now = (frame + 1) * WINDOW
        if turns.first is not None and not turns.first.open:
            turns.remove_first()
        turns.add_window(now, probability)
        if turns.first is not None and turns.first not in found:
            found.append(turns.first)
    if flush:
        turns.end(now)
    return found


def test_a_turn_starts_with_its_first_frame_and_ends_after_the_silence():
    [turn] = turns_of([0.1, 0.6, 0.9, 0.9, *[0.1] * 6])
    assert turn == Turn(start=WINDOW, voiced=4 * WINDOW, ended=9 * WINDOW)


def test_doubtful_frames_continue_speech_but_do_not_start_it():
    assert turns_of([0.4] * 30) == []
    [turn] = turns_of([0.6, 0.6, *[0.4] * 30], flush=False)
    assert turn.open
    assert turn.voiced == 32 * WINDOW


def test_one_frame_is_a_click():
    assert turns_of([0.1, 0.99, 0.1, 0.99, 0.1]) == []


def test_a_turn_that_is_ended_by_hand_ends_there_and_the_next_starts_later():
    turns = Turns(OPTIONS)
    for frame in range(4):
        turns.add_window((frame + 1) * WINDOW, 0.9)
    assert turns.end(4 * WINDOW) == [SpeechEnded(4 * WINDOW)]
    assert turns.first == Turn(start=0, voiced=4 * WINDOW, ended=4 * WINDOW)
    assert turns.end(4 * WINDOW) == []
    for frame in range(4, 8):
        turns.add_window((frame + 1) * WINDOW, 0.9)
    turns.remove_first()
    assert turns.first == Turn(start=4 * WINDOW, voiced=8 * WINDOW)


@given(st.lists(st.sampled_from((0.0, 0.4, 0.6, 1.0)), max_size=200))
def test_turns_follow_each_other_without_overlap_and_are_long_enough(probabilities):
    turns = turns_of(probabilities)
    for turn in turns:
        assert turn.start + 2 * WINDOW <= turn.voiced <= turn.ended <= len(probabilities) * WINDOW
    assert all(before.ended <= after.start for before, after in pairwise(turns))


@pytest.mark.parametrize(("faint", "begin"), [(0.15, 1.6), (0.02, 2.1)])
def test_first_words_that_the_voice_detector_doubts_are_in_the_window(faint, begin):
    words = talk(5, start=2.5)
    sounds = (max(speech, faint if 2.0 <= frame * WINDOW / RATE < 2.5 else 0.0) for frame, speech in enumerate(
        voice(words, position(6))))  # fmt: skip
    run = stream(sounds, perfect(words))
    assert run.text == join_words(words)
    assert run.requests[0].start == pytest.approx(position(begin), abs=2 * WINDOW)
