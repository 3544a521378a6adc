"""Tests of how far words are from their sound at pauses."""

import numpy as np
import pytest

from benchmarks.live_scores import Shown
from benchmarks.word_times import offsets, sound_of, sounds_of, summary
from pipeline.audio import RATE
from pipeline.ingest.vad import Vad
from tests.pipeline.sounds import SPEECH, read

SOUNDS = [(1.0, 2.0), (4.0, 5.0)]


def test_the_words_on_both_sides_of_a_pause_are_compared_with_the_sound():
    words = [Shown("a", 1.1, 1.5), Shown("b", 1.5, 2.2), Shown("c", 3.7, 4.2), Shown("d", 4.2, 4.9)]
    starts, ends = offsets(SOUNDS, words)
    assert starts == pytest.approx([0.1, -0.3])
    assert ends == pytest.approx([0.2, -0.1])
    assert summary(starts) == {"count": 2, "mean": 0.2, "worst": -0.3, "far": 0}


def test_a_word_that_hangs_over_the_pause_is_off_and_one_of_other_speech_is_not_counted():
    assert offsets(SOUNDS, [Shown("a", 1.0, 4.0)]) == ([0.0], [2.0])
    assert summary([0.0, 2.0])["far"] == 1
    assert offsets(SOUNDS, []) == ([], [])


def test_sound_is_found_to_a_hundredth_of_a_second():
    speech = read(SPEECH / "human/jfk.flac")[round(0.3 * RATE) : round(2.3 * RATE)]
    first, last = sound_of(speech)
    speech = speech[round(first * RATE) : round(last * RATE)]
    silence = np.zeros(2 * RATE, np.float32)
    found = sounds_of(np.concatenate([silence, speech, silence, speech, silence]), Vad())
    assert len(found) == 2
    length = last - first
    assert [*found[0], *found[1]] == pytest.approx([2, 2 + length, 4 + length, 4 + 2 * length], abs=0.02)
