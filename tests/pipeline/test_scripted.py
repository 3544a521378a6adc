"""Tests of scripted.py: the engine without a model says its words at fixed times."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import LONGEST_JOB, RATE
from pipeline.recognition.engine import DecodeRequest
from pipeline.recognition.engines.scripted import SCRIPT, WORD_LENGTH, WORD_STEP, ScriptedEngine
from pipeline.words import Word

windows = st.tuples(st.integers(0, 60 * RATE), st.integers(1, LONGEST_JOB))


def expected_words(start: int, length: int) -> tuple[Word, ...]:
    request = DecodeRequest(samples=np.zeros(length, np.float32), start=start)
    return ScriptedEngine().recognise([request])[0].words


@given(windows, windows)
def test_what_lies_wholly_in_two_windows_is_the_same_in_both(one, other):
    start, end = max(one[0], other[0]), min(sum(one), sum(other))
    inside = [
        [word for word in expected_words(*window) if start <= word.start and word.end <= end] for window in (one, other)
    ]
    assert inside[0] == inside[1]


@given(windows)
def test_every_word_that_fits_is_said_and_no_other(window):
    start, end = window[0], sum(window)
    numbers = [
        number
        for number in range(end // WORD_STEP + 1)
        if start <= number * WORD_STEP and number * WORD_STEP + WORD_LENGTH <= end
    ]
    assert [word.start for word in expected_words(*window)] == [number * WORD_STEP for number in numbers]
    assert [word.text for word in expected_words(*window)] == [SCRIPT[number % len(SCRIPT)] for number in numbers]
