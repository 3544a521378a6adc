"""Tests of Framer: samples in pieces of any size become the same windows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import WINDOW, Framer


@given(lengths=st.lists(st.integers(0, 3 * WINDOW), max_size=20))
def test_any_chunking_gives_the_same_windows(lengths):
    samples = np.arange(sum(lengths), dtype=np.float32)
    framer = Framer()
    windows = []
    for end, length in zip(np.cumsum(lengths, dtype=int), lengths, strict=True):
        windows += list(framer.windows_of(samples[end - length : end]))
    last, real = framer.flush()
    assert all(window.shape == (WINDOW,) for window in windows)
    assert len(windows) == len(samples) // WINDOW
    assert real == len(samples) % WINDOW
    assert len(last) == (real > 0)
    everything = np.concatenate([*windows, *last, np.zeros(0, np.float32)])
    assert np.array_equal(everything[: len(samples)], samples)
    assert not everything[len(samples) :].any()


def test_a_framer_that_has_ended_is_empty():
    framer = Framer()
    framer.windows_of(np.ones(10, np.float32))
    framer.flush()
    assert framer.flush()[1] == 0
