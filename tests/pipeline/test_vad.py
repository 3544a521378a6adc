"""Tests of vad.py: it agrees with silero-vad's plain model, and streams do not affect each other."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.audio import RATE, WINDOW, Framer, Samples, Windows
from pipeline.errors import ModelUnavailable
from pipeline.ingest.gain import GainControl
from pipeline.ingest.vad import CALM, CONTEXT, Vad, model_path
from tests.pipeline.sounds import CLIP, SPEECH, read
from tests.processes import output_of

NOISY = SPEECH / "espeak" / "en_noisy_2.flac"


@pytest.fixture(scope="module")
def detector() -> Vad:
    return Vad()


def windows_of(path: Path) -> Windows:
    framer = Framer()
    return np.concatenate([framer.windows_of(read(path)), framer.flush()[0]])


def one_by_one(windows: Windows) -> list[float]:
    """Return the probabilities of silero-vad's plain model, called as its authors do, one window at a time.

    It starts after a second of silence, as every stream does here, and quiet audio is raised.
    """
    windows = np.concatenate([np.zeros((CALM, WINDOW), np.float32), GainControl()(windows)])
    session = onnxruntime.InferenceSession(str(model_path().with_name("silero_vad.onnx")))
    state, context = np.zeros((2, 1, 128), np.float32), np.zeros(CONTEXT, np.float32)
    found = []
    for window in windows:
        seen: Samples = np.concatenate((context, window))[np.newaxis, :]
        speech, state = session.run(None, {"input": seen, "state": state, "sr": np.array(16000, np.int64)})
        context = window[-CONTEXT:]
        found.append(float(speech[0, 0]))
    return found[CALM:]


@pytest.mark.parametrize("path", [CLIP, NOISY, SPEECH / "flite" / "kal16_3.flac"], ids=lambda path: path.stem)
def test_probabilities_are_those_of_the_plain_model(detector, path):
    windows = windows_of(path)
    assert detector.stream()(windows) == pytest.approx(one_by_one(windows), abs=1e-6)


@settings(max_examples=25)
@given(lengths=st.lists(st.integers(0, 70), min_size=1, max_size=40))
def test_how_many_windows_come_in_a_call_changes_nothing(detector, lengths):
    windows = windows_of(NOISY)
    stream, found, at = detector.stream(), [], 0
    for length in lengths:
        found += stream(windows[at : at + length])
        at += length
    found += stream(windows[at:])
    assert found == pytest.approx(detector.stream()(windows), abs=1e-6)


@settings(max_examples=15)
@given(lengths=st.lists(st.lists(st.integers(1, 7), min_size=1, max_size=6), min_size=1, max_size=12))
def test_the_streams_that_share_a_call_do_not_change_each_other(detector, lengths):
    """*lengths* has the windows of each stream in each call: the streams take part in different calls."""
    windows = windows_of(NOISY)
    streams = [detector.stream() for _ in lengths]
    starts, at = [7 * number for number in range(len(lengths))], [0] * len(lengths)
    found: list[list[float]] = [[] for _ in lengths]
    for call in range(max(map(len, lengths))):
        some = [number for number, of in enumerate(lengths) if call < len(of)]
        pieces = []
        for number in some:
            begin = starts[number] + at[number]
            at[number] += lengths[number][call]
            pieces.append(windows[begin : starts[number] + at[number]])
        for number, speech in zip(some, detector.detect([streams[one] for one in some], pieces), strict=True):
            found[number] += speech
    for number, start in enumerate(starts):
        alone = detector.stream()(windows[start : start + at[number]])
        assert found[number] == pytest.approx(alone, abs=1e-6)


def test_speech_is_told_from_silence_noise_and_music(detector):
    assert np.mean(np.array(detector.stream()(windows_of(CLIP))) > 0.5) > 0.6
    for name in ("silence", "noise", "music"):  # the first chord may count as speech, but too briefly for a word
        speech = detector.stream()(windows_of(SPEECH / "other" / f"{name}.flac"))
        assert max(speech[3:]) < 0.35


def test_a_missing_model_is_named_with_what_to_do():
    with pytest.raises(ModelUnavailable, match="Install silero-vad"):
        model_path("silero_vad_of_another_age.onnx")


def test_a_recording_that_begins_amid_speech_is_heard_from_its_first_word(detector):
    """The clip is cut in its first words and limited to telephone frequencies."""
    samples = read(SPEECH / "human" / "two_cities.flac")[round(0.9 * RATE) : round(5.3 * RATE)]
    spectrum = np.fft.rfft(samples)
    hertz = np.fft.rfftfreq(len(samples), 1 / RATE)
    spectrum[(hertz < 300) | (hertz > 3400)] = 0
    narrow = np.fft.irfft(spectrum, len(samples)).astype(np.float32)
    windows = Framer().windows_of(narrow)
    assert max(detector.stream()(windows)[:16]) >= 0.5


def test_voice_detection_reports_to_nobody_and_keeps_nothing_at_home(tmp_path):
    script = "from pipeline.ingest.vad import Vad; Vad()"
    output_of(script, HOME=str(tmp_path), XDG_CACHE_HOME="")
    assert list(tmp_path.rglob("*")) == []
