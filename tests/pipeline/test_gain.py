"""Tests of gain.py: quiet speech is raised, what is loud stays as it is, and very quiet inputs are noticed."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import RATE, WINDOW, Framer, Samples, Windows, position
from pipeline.events import SpeechStarted
from pipeline.ingest.gain import (
    HEADROOM_DB,
    MAX_GAIN_DB,
    SPEECH_DB,
    GainControl,
    InputLevel,
    levels_db,
    raise_level,
)
from pipeline.ingest.speech import Segmenter, SegmenterOptions
from pipeline.ingest.vad import Vad
from tests.pipeline.sounds import CLIP, SPEECH, read


def windows_of(samples: Samples) -> Windows:
    return Framer().windows_of(samples)


def quieter(samples: Samples, db: float) -> Samples:
    return np.asarray(samples * 10 ** (-db / 20), np.float32)


def noise(seconds: float, db: float) -> Samples:
    return np.asarray(np.random.default_rng(1).normal(0, 10 ** (db / 20), position(seconds)), np.float32)


def test_loud_speech_stays_as_it_is_from_its_first_loud_windows_on():
    windows = windows_of(read(CLIP))
    loud = np.array(levels_db(windows)) > -40
    sustained = loud & np.roll(loud, 1) & np.roll(loud, 2)
    assert sustained.any()
    assert (GainControl()(windows)[sustained] == windows[sustained]).all()


@pytest.mark.parametrize("db", [30, 45, 60])
def test_quiet_speech_is_heard_by_the_voice_detector_where_loud_speech_is(db):
    samples, detector = read(CLIP), Vad()
    loud = np.array(detector.stream()(windows_of(samples)))
    quiet = np.array(detector.stream()(windows_of(quieter(samples, db))))
    assert ((quiet > 0.5) == (loud > 0.5)).mean() > 0.93


@pytest.mark.parametrize("after_s", [2, 3, 4])
def test_a_voice_that_becomes_quieter_is_heard_again_after_two_seconds(after_s):
    samples, detector = read(SPEECH / "human/austen_0920.flac"), Vad()
    loud = np.array(detector.stream()(windows_of(samples))) > 0.5
    fallen = np.concatenate([samples[: position(after_s)], quieter(samples[position(after_s) :], 30)])
    heard = np.array(detector.stream()(windows_of(fallen))) > 0.5
    later = slice(position(after_s + 2) // WINDOW, None)
    assert (heard[later] == loud[later]).mean() > 0.9


@pytest.mark.parametrize(("name", "db"), [("jfk.flac", 0), ("austen_0920.flac", 30)])
def test_single_words_after_long_pauses_are_heard(name, db):
    folder, pause = SPEECH / "human", np.zeros(position(2), np.float32)
    [row] = [row for row in json.loads((folder / "manifest.json").read_text()) if row["file"] == name]
    samples = read(folder / name)
    words = [samples[position(start) : position(end + 0.02)] for _, start, end in row["words"] if end - start > 0.25]
    sound = np.concatenate([pause, *(part for word in words for part in (word, pause))])
    segmenter = Segmenter(SegmenterOptions())
    events = [
        event for speech in Vad().stream()(windows_of(quieter(sound, db))) for event in segmenter.add_window(speech)
    ]
    assert sum(isinstance(event, SpeechStarted) for event in events) > 0.85 * len(words) > 8


@given(levels=st.lists(st.floats(-100, 0), min_size=4, max_size=60))
def test_the_beginning_of_a_sound_is_raised_little_more_than_speech(levels):
    windows, control = np.concatenate([noise(WINDOW / RATE, level)[np.newaxis] for level in levels]), GainControl()
    control(windows_of(noise(1.1, -90)))
    raised = levels_db(control(windows))
    highest = SPEECH_DB + HEADROOM_DB
    assert all(after <= max(before, highest) + 0.1 for before, after in zip(levels_db(windows), raised, strict=True))


def test_noise_with_which_a_stream_begins_does_not_seem_to_be_speech():
    samples = read(SPEECH / "espeak/en_noisy_0.flac")[: position(0.4)]
    assert max(Vad().stream()(windows_of(samples))) < 0.15


@pytest.mark.parametrize("db", [-30, -50, -70, -90])
def test_no_hiss_becomes_speech(db):
    assert max(Vad().stream()(windows_of(noise(20, db)))) < 0.5


@given(levels=st.lists(st.floats(-100, -20), min_size=1, max_size=60), cuts=st.lists(st.integers(1, 20), max_size=8))
def test_the_pieces_in_which_windows_come_change_nothing(levels, cuts):
    windows = np.concatenate([noise(WINDOW / RATE, level)[np.newaxis] for level in levels])
    control, parts, at = GainControl(), [], 0
    for cut in [*cuts, len(windows)]:
        parts.append(control(windows[at : at + cut]))
        at += cut
    assert np.array_equal(np.concatenate(parts), GainControl()(windows))


@given(level=st.floats(-100, 0), offset=st.floats(-0.5, 0.5), length=st.integers(1, 3 * RATE))
def test_the_samples_of_a_request_keep_their_number_and_are_raised_at_most_by_the_bound(level, offset, length):
    samples = noise(3, level)[:length]
    loud = raise_level(samples + np.float32(offset))
    assert loud.shape == samples.shape
    assert loud.dtype == np.float32
    span = float(np.ptp(samples)) + 1e-6
    assert float(np.ptp(loud)) <= 1.01 * span * 10 ** (MAX_GAIN_DB / 20)


def test_a_far_voice_is_raised_and_the_near_one_beside_it_is_not():
    near, far = noise(2, -20), noise(2, -60)
    loud = raise_level(np.concatenate([near, np.zeros(position(2), np.float32), far]))
    assert (loud[: position(1)] == near[: position(1)]).all()
    assert np.abs(loud[-position(1) :]).max() > 10 * np.abs(far).max()


def test_speech_outside_the_samples_does_not_count():
    far = noise(2, -60)
    assert raise_level(far, [(-position(3), -position(1)), (position(3), position(4))]) is far


def level_of(samples: Samples, speech: float) -> InputLevel:
    level = InputLevel()
    windows = windows_of(samples)
    level.measure(windows, [speech] * len(windows))
    return level


def test_very_quiet_speech_is_noticed_with_its_level():
    assert "-60 dBFS" in str(level_of(noise(4, -60), 0.9).quiet_speech)
    assert level_of(noise(4, -30), 0.9).quiet_speech is None
    assert level_of(noise(2, -60), 0.9).quiet_speech is None, "a word is no proof"


def test_an_input_on_which_nothing_is_heard_is_noticed():
    assert "-80 dBFS" in str(level_of(noise(11, -80), 0.0).silence)
    assert level_of(noise(11, -50), 0.0).silence is None
    assert level_of(noise(9, -80), 0.0).silence is None
    assert level_of(noise(11, -80), 0.9).silence is None, "quiet_speech is told of instead"
