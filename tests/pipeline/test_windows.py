"""Tests of windows.py: which windows are chosen for models that lose known words in each."""

import asyncio
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from pipeline.audio import RATE
from pipeline.recognition.engine import DecodeRequest, Heard
from pipeline.recognition.engines import windows as fitted
from pipeline.recognition.engines.prompts import WINDOWS_S
from pipeline.recognition.engines.windows import FULL, JOBS_S, Clip, Fit, Trial, bundled_speech, find_fit
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
    for condition in ("_noisy", "_by_telephone"):
        monkeypatch.setattr(fitted, condition, lambda clip: clip)


class Script:
    """A model that loses a share of its words, which depends on the window, the length of the audio and *final*."""

    def __init__(self, lost: Callable[[int, float, bool], float]) -> None:
        self.lost = lost
        self.lengths: list[float] = []

    async def __call__(self, fit: Fit, request: DecodeRequest) -> Heard:
        length_s = len(request.samples) / RATE
        self.lengths.append(length_s)
        told = np.round(100 * request.samples[:: RATE // 50]).astype(int)
        numbers = [one for one, other in pairwise([*told, 0]) if one and one != other]
        share = self.lost(fit.window_s(len(request.samples), final=request.final), length_s, request.final)
        words = [Word(TEXT[number - 1], 0, 1, 1.0) for number in numbers]
        return Heard(tuple(words[round(share * len(words)) :]), "en", 1.0, -0.1, 0.0)


def fit(lost: Callable[[int, float, bool], float], **settings: float) -> tuple[Fit, list[Trial]]:
    return asyncio.run(find_fit(Script(lost), CLIPS, **settings))


def test_the_shortest_windows_are_used_when_they_lose_nothing() -> None:
    found, trials = fit(lambda _window, _length, _final: 0.0)
    assert found == Fit(WINDOWS_S[0], WINDOWS_S[0], JOBS_S[0])
    assert [trial.kind for trial in trials] == ["partial"] * 6 + ["final"] * 6 + ["job"] * 5


def test_windows_that_are_shorter_than_full_ones_may_be_better() -> None:
    """Then the shortest windows that are no worse than these are chosen."""
    lost = {30: 0.9, 20: 0.9, 15: 0.3, 10: 0.3, 7: 0.9, 5: 0.9}
    found, _ = fit(lambda window, _length, _final: lost[window])
    assert (found.partial_s, found.final_s) == (10, 10)


def test_a_model_that_needs_full_windows_keeps_them() -> None:
    found, _ = fit(lambda window, _length, _final: 0.0 if window == 30 else 0.2)
    assert found == FULL


@pytest.mark.parametrize("min_s", [7, 10, 15, 20])
def test_partials_and_finals_each_have_their_least_window(min_s: int) -> None:
    partials, _ = fit(lambda window, _length, final: 0.9 if window < min_s and not final else 0.0)
    assert (partials.partial_s, partials.final_s) == (min_s, WINDOWS_S[0])
    finals, _ = fit(lambda window, _length, final: 0.9 if window < min_s and final else 0.0)
    assert (finals.partial_s, finals.final_s) == (WINDOWS_S[0], min_s)
    assert finals.job_s >= min_s - 1, "a shorter job is heard in the same window"


@pytest.mark.parametrize(("heard_s", "job_s"), [(0, 4), (4.5, 9), (9.5, 14), (14.5, 19), (19.5, 28)])
def test_jobs_are_longer_when_short_ones_lose_words(
    heard_s: float, job_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Utterances alone lose as many words in full windows, so short windows are not worse."""
    monkeypatch.setattr(fitted, "TOLERATED", 0.05)  # the last job is short too
    found, _ = fit(lambda _window, length, final: 0.3 if final and length < heard_s else 0.0)
    assert found == Fit(WINDOWS_S[0], WINDOWS_S[0], job_s)


def test_one_word_more_or_less_in_two_hundred_is_tolerated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitted, "TOLERATED", 0.3)
    assert fit(lambda window, _length, _final: 0.0 if window == 30 else 0.2)[0].final_s == WINDOWS_S[0]


def test_a_voice_that_the_model_does_not_know_has_no_say() -> None:
    full = Trial("final", FULL, {"one": 10, "two": 90}, {"one": 100, "two": 100})
    assert not fitted._worse(Trial("final", FULL, {"one": 10, "two": 100}, full.words), full)
    assert fitted._worse(Trial("final", FULL, {"one": 12, "two": 80}, full.words), full)
    assert not fitted._worse(Trial("final", FULL, {"one": 12, "two": 40}, full.words), full)
    strange = Trial("final", FULL, {"one": 90, "two": 90}, full.words)
    assert fitted._worse(strange, strange), "nothing can be told"


def test_when_time_is_over_what_is_not_known_stays_at_full_windows() -> None:
    assert fit(lambda _window, _length, _final: 0.0, max_s=-1.0)[0] == FULL


def test_a_worse_window_is_given_up_before_everything_was_heard() -> None:
    script = Script(lambda window, _length, _final: 0.0 if window == 30 else 0.9)
    asyncio.run(find_fit(script, CLIPS))
    full = Script(lambda _window, _length, _final: 0.1)
    asyncio.run(find_fit(full, CLIPS))
    assert len(script.lengths) < len(full.lengths)


def test_the_words_at_the_cut_of_a_partial_may_be_missing_or_wrong() -> None:
    said = ["and", "so", "my", "fellow", "americans", "ask"]
    assert fitted._errors_so_far(said, said) == 0
    assert fitted._errors_so_far(said, said[:-1]) == 0
    assert fitted._errors_so_far(said, [*said[:-1], "as", "knots"]) == 0
    assert fitted._errors_so_far(said, [*said, "not", "what"]) == 1
    assert fitted._errors_so_far(said, ["and", *said]) == 1


def test_the_bundled_speech_is_a_minute_of_people_and_some_spanish() -> None:
    clips = bundled_speech()
    assert {(clip.voice, clip.language) for clip in clips} == {("people", "en"), ("espeak es", "es")}
    assert 40 <= sum(len(clip.samples) for clip in clips) / RATE <= 70
    assert all(0.1 < np.abs(clip.samples).max() <= 1 for clip in clips)
    assert all(one[2] <= other[2] for clip in clips for one, other in pairwise(clip.words))
    assert fitted.SPEECH.stat().st_size < 1_500_000


def test_noise_and_telephone_leave_the_length_and_most_of_the_loudness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    clip = bundled_speech()[0]
    for condition in (fitted._as_it_is, fitted._noisy, fitted._by_telephone):
        heard = condition(clip).samples
        assert (len(heard), heard.dtype) == (len(clip.samples), np.float32)
        assert 0.3 < np.std(heard) / np.std(clip.samples) < 1.2
