"""Tests of phrases(): where the words of one decode job are cut into segments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import position
from pipeline.recognition.engine import RecognitionResult, phrases
from pipeline.words import Word


def answer_of(*words: tuple[str, float]) -> RecognitionResult:
    """Return words of a tenth of a second, each so many seconds after the one before."""
    at, placed = 0, []
    for text, pause_s in words:
        start = at + position(pause_s)
        at = start + position(0.1)
        placed.append(Word(text, start, at, 0.9))
    return RecognitionResult(tuple(placed), "en", 1.0, avg_logprob=-0.1, no_speech_prob=0.2)


@pytest.mark.parametrize(
    ("before", "pause_s", "parted"),
    [
        ("end.", 0.2, True), ("e.g.", 0.19, False), ("really?", 0.2, True), ("完。", 0.2, True),
        ("word", 0.8, True), ("word", 0.79, False), ("comma,", 0.79, False),
    ],
)  # fmt: skip
def test_a_pause_parts_words_where_it_is_long_or_stands_behind_a_sentence(
    before: str,
    pause_s: float,
    parted: bool,  # noqa: FBT001  a column of the table
) -> None:
    assert len(phrases(answer_of((before, 0.0), ("next", pause_s)))) == 1 + parted


@given(st.lists(st.tuples(st.sampled_from(["one", "two.", "three?", "四。"]), st.floats(0, 2))))
def test_no_word_is_lost_and_all_keep_their_order_and_doubts(words):
    said = answer_of(*words)
    found = phrases(said)
    assert tuple(word for segment in found for word in segment.words) == said.words
    assert {(segment.avg_logprob, segment.no_speech_prob) for segment in found} <= {(-0.1, 0.2)}
