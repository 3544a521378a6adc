"""Tests of measure_sizes(): which windows are chosen for models that lose known words in each."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from pipeline.audio import RATE
from pipeline.recognition.engine import DecodeRequest, RecognitionResult
from pipeline.recognition.engines.whisper import windows
from pipeline.recognition.engines.whisper.windows import (
    FULL,
    JOBS_S,
    WINDOWS_S,
    Clip,
    WindowSizes,
    bundled_speech,
    measure_sizes,
)
from pipeline.words import Word

TEXT = "the captain wanted twenty ticket at seven and nobody remembered the green harbor light".split()  # noqa: SIM905  a list of words would be hard to read
WORD_S = 0.5


def clip(voice: str, number: int) -> Clip:
    """Return a clip of TEXT at a constant pace, with a pause after every fourth word. Each sample tells its word."""
    words = tuple((text, at * WORD_S, (at + 0.9) * WORD_S) for at, text in enumerate(TEXT))
    samples = np.repeat(np.arange(1, len(TEXT) + 1, dtype=np.float32) / 100, round(WORD_S * RATE))
    samples[: number + 1] = 0.001
    return Clip(voice, "en", samples, words, tuple((at * WORD_S, at) for at in range(4, len(TEXT), 4)))


CLIPS = [clip(voice, number) for voice in ("one", "two") for number in range(5)]


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the samples unchanged, because Script reads them."""
    monkeypatch.setattr(windows, "_noisy", lambda clip: clip)


class Script:
    """A model that loses a share of its words, which depends on the window and the length of the audio."""

    def __init__(self, lost: Callable[[int, float], float]) -> None:
        self.lost = lost

    def __call__(self, sizes: WindowSizes, request: DecodeRequest) -> RecognitionResult:
        told = np.round(100 * request.samples[:: RATE // 50]).astype(int)
        numbers = [one for one, other in pairwise([*told, 0]) if one and one != other]
        window_s = sizes.window_s(len(request.samples), final=request.final)
        share = self.lost(window_s, len(request.samples) / RATE)
        words = [Word(TEXT[number - 1], 0, 1, 1.0) for number in numbers]
        return RecognitionResult(tuple(words[round(share * len(words)) :]), "en", 1.0, -0.1, 0.0)


def sizes(lost: Callable[[int, float], float]) -> WindowSizes:
    return measure_sizes(Script(lost), CLIPS)


def test_the_shortest_windows_are_used_when_they_lose_nothing():
    assert sizes(lambda _window, _length: 0.0) == WindowSizes(WINDOWS_S[0], WINDOWS_S[0], JOBS_S[0])


def test_a_model_that_needs_full_windows_keeps_them():
    assert sizes(lambda window, _length: 0.0 if window == 30 else 0.2) == FULL


@pytest.mark.parametrize("min_s", [7, 10, 15, 20])
def test_a_model_has_its_least_window(min_s):
    found = sizes(lambda window, _length: 0.9 if window < min_s else 0.0)
    assert (found.partial_s, found.final_s) == (min_s, min_s)
    assert found.job_s >= min_s - 1, "a shorter job is heard in the same window"


@pytest.mark.parametrize(("heard_s", "job_s"), [(0, 4), (4.5, 9), (9.5, 14), (14.5, 19), (19.5, 28)])
def test_jobs_are_longer_when_short_ones_lose_words(heard_s, job_s, monkeypatch):
    """Utterances alone lose as many words in full windows, so short windows are not worse."""
    monkeypatch.setattr(windows, "TOLERATED", 0.1)  # the last job is short too
    assert sizes(lambda _window, length: 0.3 if length < heard_s else 0.0) == WindowSizes(
        WINDOWS_S[0], WINDOWS_S[0], job_s
    )


def test_a_voice_that_the_model_does_not_know_has_no_say():
    strange = [replace(clip, voice="strange", samples=np.zeros_like(clip.samples)) for clip in CLIPS]
    good = measure_sizes(Script(lambda _window, _length: 0.0), [*CLIPS, *strange])
    assert good == WindowSizes(WINDOWS_S[0], WINDOWS_S[0], JOBS_S[0])
    assert measure_sizes(Script(lambda _window, _length: 0.0), strange) == FULL, "nothing can be told"


def test_the_bundled_speech_is_a_minute_of_people_and_some_spanish():
    clips = bundled_speech()
    assert {(clip.voice, clip.language) for clip in clips} == {("people", "en"), ("espeak es", "es")}
    assert 40 <= sum(len(clip.samples) for clip in clips) / RATE <= 70
    assert all(0.1 < np.abs(clip.samples).max() <= 1 for clip in clips)
    assert all(one[2] <= other[2] for clip in clips for one, other in pairwise(clip.words))
    assert windows.SPEECH.stat().st_size < 1_500_000


def test_noise_leaves_the_length_and_most_of_the_loudness(monkeypatch):
    monkeypatch.undo()
    clip = bundled_speech()[0]
    heard = windows._noisy(clip).samples
    assert (len(heard), heard.dtype) == (len(clip.samples), np.float32)
    assert 0.3 < np.std(heard) / np.std(clip.samples) < 1.2
