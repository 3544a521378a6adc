"""Tests of primer.py: the recording before short audio helps to hear it, and none of its words can come out."""

import numpy as np
import pytest

from pipeline.audio import RATE, Samples, position
from pipeline.recognition.engine import DecodeRequest
from pipeline.recognition.engines.load import EngineSettings, load
from pipeline.recognition.engines.primer import primed, primer_length, primer_text, repeats_primer
from pipeline.recognition.engines.whisper import WhisperEngine
from tests.pipeline.sounds import SPEECH, read


def test_the_audio_comes_last_and_unchanged_and_the_recording_is_as_loud():
    samples = np.asarray(0.4 * np.sin(np.arange(RATE) / 20), np.float32)
    both = primed(samples)
    assert len(both) == primer_length() + len(samples)
    assert (both[primer_length() :] == samples).all()
    assert np.abs(both[: primer_length()]).max() == pytest.approx(np.abs(samples).max(), rel=0.01)
    assert primer_length() < position(3.1), "a live window of 10 s has room for it and for six seconds of speech"


@pytest.mark.parametrize(
    "text", ["Than in the same operations with ugly ones.", "same operations", "Ugly.", "it was. The same operations"]
)
def test_an_answer_with_its_words_in_a_row_is_seen(text: str):
    assert repeats_primer(text)


@pytest.mark.parametrize(
    "text", ["", "the ugly same", "an ugly house", "in", "Ask not what your country can do for you."]
)
def test_other_answers_are_left(text: str):
    assert repeats_primer(text) == (text == "in")


@pytest.fixture(scope="module")
def engine() -> WhisperEngine:
    engine = load(EngineSettings(engine="whisper", model="tiny.en"))
    assert isinstance(engine, WhisperEngine)
    return engine


def sounds() -> list[Samples]:
    chance = np.random.default_rng(1)
    at = np.arange(2 * RATE) / RATE
    noises = [np.zeros(RATE), *(chance.normal(0, level, 2 * RATE) for level in (1e-3, 0.1))]
    chords = [sum(0.1 * np.sin(2 * np.pi * tone * step * at) for step in (1, 1.25, 1.5)) for tone in (110, 440)]
    spanish = read(SPEECH / "espeak" / "es_11.flac")
    cuts = [spanish[start : start + RATE] for start in range(0, 3 * RATE, RATE)]
    return [np.asarray(sound, np.float32) for sound in (*noises, *chords, *cuts)]


def test_no_word_of_the_recording_comes_out_of_silence_noise_music_or_other_languages(engine: WhisperEngine):
    for final in (True, False):
        for samples in sounds():
            [heard] = engine.hear([DecodeRequest(samples=samples, start=0, final=final, voiced=((0, len(samples)),))])
            said = " ".join(word.text for word in heard.words)
            assert "operations" not in said
            assert primer_text().rstrip(".") not in said


def test_words_of_short_audio_have_their_times_in_it(engine: WhisperEngine):
    samples = read(SPEECH / "human" / "austen_0930.flac")
    [heard] = engine.hear(
        [DecodeRequest(samples=samples, start=RATE, final=True, voiced=((RATE, RATE + len(samples)),))]
    )
    assert [word.text for word in heard.words][:3] == ["He", "might", "even"]
    assert all(RATE <= word.start <= word.end <= RATE + len(samples) for word in heard.words)
    assert heard.words[-1].end > RATE + len(samples) - position(1)
