"""The embedded recogniser's segments become words of the stream."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import RATE
from pipeline.recognition.engine import DecodeRequest
from pipeline.recognition.engines.sphinx_words import Segment, heard

START = 5 * RATE


def window(seconds: float = 3.0, *, final: bool = True) -> DecodeRequest:
    return DecodeRequest(samples=np.zeros(round(seconds * RATE), np.float32), start=START, final=final)


@st.composite
def segmentations(draw: st.DrawFn) -> list[Segment]:
    """Segments as the decoder gives them: one after the other, of one frame or more, past the end of the window too."""
    at, segments = draw(st.integers(0, 50)), []
    for entry in draw(st.lists(st.sampled_from(["<s>", "</s>", "<sil>", "[NOISE]", "++UH++", "a", "and(2)", "i'm"]))):
        length = draw(st.integers(1, 200))
        segments.append((entry, at, at + length - 1, draw(st.floats(0, 1.001))))
        at += length
    return segments


@given(segmentations(), st.booleans())
def test_words_are_in_order_have_a_length_and_lie_in_their_window(segments: list[Segment], final: bool) -> None:  # noqa: FBT001  hypothesis gives it by position
    request = window(final=final)
    answer = heard(request, segments)
    bounds = [position for word in answer.words for position in (word.start, word.end)]
    assert bounds == sorted(bounds)
    assert all(START <= word.start < word.end <= START + len(request.samples) for word in answer.words)
    assert all(0 < word.probability <= 1 for word in answer.words)
    assert answer.avg_logprob <= 0 <= answer.no_speech_prob <= 1


def test_fillers_are_no_words_and_pronunciations_are_no_spelling() -> None:
    segments = [("<s>", 0, 9, 1.0), ("and(2)", 10, 29, 0.9), ("<sil>", 30, 39, 1.0), ("i'm", 40, 60, 0.8)]
    answer = heard(window(), [*segments, ("[NOISE]", 61, 70, 1.0), ("++UH++", 71, 80, 1.0), ("it", 81, 99, 0.9)])
    assert [word.text for word in answer.words] == ["and", "I'm", "it"]
    assert (answer.words[0].start, answer.words[0].end) == (START + RATE // 10, START + 3 * RATE // 10)
    assert answer.words[0].probability == 0.9


def test_a_word_of_a_partial_is_not_sure() -> None:
    (word,) = heard(window(final=False), [("and", 10, 29, 1.0)]).words
    assert word.probability == 0.5


def test_a_word_stretched_over_noise_is_dropped_and_the_answer_says_so() -> None:
    answer = heard(window(), [("up", 0, 199, 1.0)])
    assert (answer.words, answer.no_speech_prob, answer.rejected) == ((), 1.0, "no_speech")


def test_a_few_unlikely_words_in_a_long_window_are_dropped_but_a_likely_one_stays() -> None:
    assert heard(window(10), [("poop", 300, 380, 0.006)]).rejected == "no_speech"
    assert [word.text for word in heard(window(10), [("yes", 300, 340, 0.9)]).words] == ["yes"]
    assert [word.text for word in heard(window(1), [("yes", 30, 70, 0.3)]).words] == ["yes"]


def test_silence_has_no_words_and_nothing_was_rejected() -> None:
    answer = heard(window(), [("<s>", 0, 200, 1.0), ("</s>", 201, 299, 1.0)])
    assert (answer.words, answer.no_speech_prob, answer.rejected) == ((), 1.0, None)
