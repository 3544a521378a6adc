"""Tests of prompts.py: windows hold their samples, and answers get the tokens that their window allows."""

from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import LONGEST_JOB, RATE
from pipeline.recognition.engines.prompts import (
    HINT_TOKENS,
    PAD_S,
    WINDOWS_S,
    Shape,
    max_length,
    window_for,
)

POSITIONS = 448  # positions of Whisper's decoder


@given(st.integers(1, LONGEST_JOB))
def test_a_window_holds_the_audio_and_is_the_shortest_with_room_for_silence(samples: int) -> None:
    window_s = window_for(samples)
    assert window_s in WINDOWS_S
    assert samples <= window_s * RATE
    assert window_s == WINDOWS_S[-1] or samples + PAD_S * RATE <= window_s * RATE
    shorter = [other for other in WINDOWS_S if other < window_s]
    assert all(samples + PAD_S * RATE > other * RATE for other in shorter)


@given(st.sampled_from(WINDOWS_S), st.integers(0, HINT_TOKENS), st.booleans())
def test_every_answer_has_the_room_its_shape_grants(window_s: int, prefix: int, final: bool) -> None:  # noqa: FBT001  hypothesis fills it
    shape = Shape(window_s, prefix, final)
    prompt = prefix + 5
    length = max_length(prompt, shape.max_tokens)
    assert length <= POSITIONS
    assert min(length // 2, length - prompt) >= shape.max_tokens  # CTranslate2's two limits
    assert shape.max_tokens >= min(8 * window_s, 224)
