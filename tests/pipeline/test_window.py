"""Tests of window.py: which frames it holds, returns and forgets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import LONGEST_JOB, WINDOW
from pipeline.recognition.window import MAX_FRAMES, AudioWindow


def frame(number: int) -> np.ndarray:
    """Return one frame whose samples tell its place in the stream, in steps of 16 bits."""
    return np.arange(number * WINDOW, (number + 1) * WINDOW, dtype=np.float32)[np.newaxis] / 2**15 % 1


@given(cuts=st.lists(st.integers(-1000, 60 * WINDOW), max_size=12), end=st.integers(1, WINDOW * 40))
def test_cutting_never_moves_what_remains(cuts, end):
    window = AudioWindow()
    for number in range(40):
        window.append(frame(number), [number / 100])
    for cut in cuts:
        start = window.start
        window.cut(cut)
        assert start <= window.start <= max(start, cut)
        assert window.end == 40 * WINDOW
        assert max(start, cut) - window.start < WINDOW or window.start == window.end
    if end > window.start:
        samples = window.samples(window.start, end)
        assert samples[0] == window.start % 2**15
        assert end <= window.start + len(samples) < end + WINDOW
        assert np.array_equal(samples, np.arange(window.start, window.start + len(samples)) % 2**15)


def test_samples_and_voice_between_two_positions_are_whole_frames():
    window = AudioWindow()
    for number, speech in enumerate((0.1, 0.9, 0.8, 0.2, 0.7)):
        window.append(frame(number), [speech])
    assert window.samples(WINDOW + 5, 3 * WINDOW - 5)[0] == WINDOW
    assert len(window.samples(WINDOW + 5, 3 * WINDOW - 5)) == 2 * WINDOW
    assert window.voiced_spans(0, 5 * WINDOW, 0.5) == ((WINDOW, 3 * WINDOW), (4 * WINDOW, 5 * WINDOW))
    window.cut(2 * WINDOW)
    assert window.voiced_spans(0, 5 * WINDOW, 0.5) == ((2 * WINDOW, 3 * WINDOW), (4 * WINDOW, 5 * WINDOW))
    assert window.voiced_spans(2 * WINDOW, -WINDOW, 0.5) == ()


def test_a_full_window_holds_one_decode_job_and_refuses_more():
    window = AudioWindow()
    for number in range(MAX_FRAMES):
        assert window.room
        window.append(frame(number), [0.0])
    assert not window.room
    assert LONGEST_JOB - WINDOW < len(window.samples(0, window.end)) <= LONGEST_JOB
    with pytest.raises(ValueError, match="full"):
        window.append(frame(0), [0.0])
    window.cut(WINDOW)
    window.append(frame(0), [0.0])


def test_a_frame_of_another_size_is_refused():
    with pytest.raises(ValueError, match="512"):
        AudioWindow().append(np.zeros((1, 511), np.float32), [0.0])
