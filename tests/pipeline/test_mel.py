"""Tests of mel.py: its features equal those of faster-whisper's extractor with the same padding."""

import numpy as np
import pytest
from faster_whisper.feature_extractor import FeatureExtractor
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.audio import Samples
from pipeline.recognition.engines.whisper.mel import HOP, LogMel

THEIRS = {mels: FeatureExtractor(feature_size=mels) for mels in (80, 128)}


def noise(samples: int) -> Samples:
    return (np.random.default_rng(samples).standard_normal(samples) * 0.1).astype(np.float32)


@pytest.mark.parametrize("mels", [80, 128])
@settings(max_examples=25)
@given(samples=st.integers(1, 40_000), frames=st.sampled_from([200, 256, 500]))
def test_features_are_those_of_the_padded_audio(mels, samples, frames):
    audio = noise(samples)
    padded = np.zeros(frames * HOP, np.float32)
    padded[: len(audio)] = audio[: len(padded)]
    following = audio[len(padded) : len(padded) + HOP]  # the last frame reaches beyond the end of its window
    theirs = THEIRS[mels](np.concatenate([padded, following, np.zeros(HOP, np.float32)]), padding=0)[:, :frames]
    ours = LogMel(THEIRS[mels].mel_filters)(audio, frames)
    assert ours.shape == (mels, frames)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, theirs, atol=2e-3)


def test_silence_has_features_too():
    features = LogMel(THEIRS[80].mel_filters)(np.zeros(1000, np.float32), 500)
    np.testing.assert_allclose(features, -1.5, atol=1e-6)
