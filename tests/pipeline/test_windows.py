"""Choosing windows for a model, by scripts of what it would hear in each."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from pipeline.audio import RATE, position
from pipeline.recognition.engine import DecodeRequest, Heard
from pipeline.recognition.engines.windows import FULL, SHORTER, Fit, Sentence, bundled_speech, fitting
from pipeline.words import Word

VOICES = ("one", "two")
TEXT = "the captain wanted twenty ticket at seven and nobody remembered the green harbor light"
SENTENCES = [
    Sentence(np.full(position(4), 0.1, np.float32), TEXT, "en", voice) for voice in VOICES for _ in range(6)
]  # fmt: skip


def speaking(rate: Callable[[Fit, str], float]) -> Callable[[Fit, Sequence[DecodeRequest]], list[Heard]]:
    """A model that loses, of the words of each voice, the share that *rate* says."""
    asked: list[Fit] = []

    def hear(fit: Fit, requests: Sequence[DecodeRequest]) -> list[Heard]:
        voice = VOICES[asked.count(fit)]
        asked.append(fit)
        words = TEXT.split() * 6
        kept = words[round(len(words) * rate(fit, voice)) :]
        said = [Word(text, 0, 1, 1.0) for text in kept]
        return [Heard(tuple(said) if index == 0 else (), "en", 1.0, -0.1, 0.0) for index, _ in enumerate(requests)]

    return hear


def test_the_cheapest_windows_are_taken_when_they_lose_nothing() -> None:
    fit, trials = fitting(speaking(lambda _fit, _voice: 0.1), SENTENCES)
    assert fit == SHORTER[0]
    assert [trial.fit for trial in trials] == [FULL, SHORTER[0]]


def test_a_model_that_needs_full_windows_keeps_them() -> None:
    fit, trials = fitting(speaking(lambda fit, _voice: 0.1 if fit == FULL else 0.2), SENTENCES)
    assert fit == FULL
    assert [trial.fit for trial in trials] == [FULL, *SHORTER]


def test_longer_jobs_are_tried_when_short_ones_lose_words() -> None:
    fit, _ = fitting(speaking(lambda fit, _voice: 0.2 if fit == SHORTER[0] else 0.1), SENTENCES)
    assert fit == SHORTER[1]


def test_a_voice_that_the_model_does_not_know_has_no_say() -> None:
    def rate(fit: Fit, voice: str) -> float:
        return 0.1 if voice == "one" else (0.8 if fit == FULL else 1.0)

    assert fitting(speaking(rate), SENTENCES)[0] == SHORTER[0]


def test_a_model_that_knows_no_voice_keeps_full_windows() -> None:
    assert fitting(speaking(lambda _fit, _voice: 0.9), SENTENCES)[0] == FULL


@pytest.mark.parametrize("fit", [FULL, *SHORTER])
def test_jobs_hold_whole_sentences_up_to_their_length(fit: Fit) -> None:
    lengths: dict[Fit, list[int]] = {}

    def hear(tried: Fit, requests: Sequence[DecodeRequest]) -> list[Heard]:
        lengths.setdefault(tried, []).extend(len(request.samples) for request in requests)
        return [Heard((), None, None, -1.0, 0.0) for _ in requests]

    fitting(hear, [replace(sentence, voice="one") for sentence in SENTENCES])
    heard = lengths[fit]
    assert sum(heard) == 12 * position(4)
    assert max(heard) == max(fit.job // position(4), 1) * position(4)


def test_the_bundled_speech_is_a_minute_of_sentences_in_three_voices() -> None:
    sentences = bundled_speech()
    assert {sentence.voice for sentence in sentences} == {"espeak en", "espeak es", "flite"}
    assert 50 <= sum(len(sentence.samples) for sentence in sentences) / RATE <= 70
    assert all(0.1 < np.abs(sentence.samples).max() <= 1 and sentence.text for sentence in sentences)
