"""Tests of Polarity: opposite channels are kept, in files and raw audio, and usual stereo stays as it is."""

import io
from itertools import pairwise

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.audio import RATE, Samples, position
from pipeline.ingest.decode import recording
from pipeline.ingest.input_formats import DecodeLimits
from pipeline.ingest.mixing import BLOCK_S, Polarity
from pipeline.ingest.raw_audio import PcmDecoder
from tests.pipeline.sounds import CLIP, SPEECH, read

CLIP_SAMPLES = read(CLIP)[: position(5.7)]
OTHER = read(SPEECH / "espeak" / "en_long.flac")[: len(CLIP_SAMPLES)]
BEGUN = np.flatnonzero(np.abs(CLIP_SAMPLES) > 1e-3)[0]  # before it is silence
FOUND = position(0.15)  # the time after a voice begins in which its sign is found; half a word at most


def opposite(clip: Samples, other: Samples | None = None) -> Samples:
    return np.stack((clip, -clip if other is None else -other), axis=1)


def encode(frames: Samples, kind: str, subtype: str, rate: int = RATE) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, frames, rate, format=kind, subtype=subtype)
    return file.getvalue()


def decode(data: bytes) -> Samples:
    with recording(io.BytesIO(data), DecodeLimits()) as heard:
        return np.concatenate(list(heard))


@pytest.mark.parametrize(
    ("kind", "subtype", "most"),
    [
        ("WAV", "PCM_U8", 0.01),
        ("WAV", "PCM_16", 1e-4),
        ("WAV", "PCM_32", 1e-4),
        ("WAV", "FLOAT", 1e-6),
        ("WAV", "DOUBLE", 1e-6),
        ("FLAC", "PCM_16", 1e-4),
        ("OGG", "VORBIS", 0.3),
    ],
)
def test_a_file_with_opposite_channels_sounds_like_one_of_them(kind, subtype, most):
    heard = decode(encode(opposite(CLIP_SAMPLES), kind, subtype))
    assert len(heard) == len(CLIP_SAMPLES)
    assert np.abs(heard - CLIP_SAMPLES)[BEGUN + FOUND :].max() < most
    assert np.std(heard) == pytest.approx(np.std(CLIP_SAMPLES), rel=0.05)


@pytest.mark.parametrize("rate", [8000, 44100, 48000])
def test_raw_audio_with_opposite_channels_is_heard_at_every_rate(rate):
    tone = np.sin(np.arange(2 * rate) * (2 * np.pi * 440 / rate)).astype("<f4") / 2
    decoder = PcmDecoder("pcm_f32le", rate=rate, channels=2)
    heard = np.concatenate((decoder.decode(opposite(tone).tobytes()), decoder.flush()))
    assert np.sqrt(np.mean(np.square(heard[FOUND:]))) == pytest.approx(0.5 / np.sqrt(2), rel=0.02)


@settings(max_examples=20, deadline=None)
@given(cuts=st.lists(st.integers(0, 8 * position(1.0)), max_size=60))
def test_any_cut_gives_the_same_samples(cuts):
    data = opposite(CLIP_SAMPLES[: position(1.0)]).tobytes()
    decoder = PcmDecoder("pcm_f32le", rate=RATE, channels=2)
    heard = np.concatenate([decoder.decode(data[start:end]) for start, end in pairwise([0, *sorted(cuts), len(data)])])
    assert np.array_equal(heard, PcmDecoder("pcm_f32le", rate=RATE, channels=2).decode(data))


def test_noise_offset_and_unequal_levels_do_not_hide_the_voice():
    noise = np.random.default_rng(1).normal(0, np.std(CLIP_SAMPLES) / 10, (2, len(CLIP_SAMPLES))).astype(np.float32)
    gains = Polarity(RATE).gains(CLIP_SAMPLES + noise[0] + 0.005, -0.8 * CLIP_SAMPLES + noise[1] + 0.005)
    assert np.all(gains[BEGUN + FOUND :] == -1.0)  # in pauses too


@pytest.mark.parametrize("balance", [0.0, 0.5, 1.0])
def test_usual_stereo_stays_as_it_is(balance):
    first, second = CLIP_SAMPLES + balance * OTHER, balance * CLIP_SAMPLES + OTHER
    assert Polarity(RATE).gains(first, second) is None
    assert Polarity(RATE).gains(first, np.zeros_like(first)) is None
    heard = PcmDecoder("pcm_f32le", rate=RATE, channels=2).decode(np.stack((first, second), axis=1).tobytes())
    clipped = np.clip(np.stack((first, second), axis=1), -1.0, 1.0)
    assert np.array_equal(heard, clipped.mean(axis=1, dtype=np.float32))


def test_a_change_of_the_sign_is_heard_soon_and_does_not_click():
    length = position(2.0)
    sides = np.concatenate([opposite(CLIP_SAMPLES[:length]), np.stack((OTHER[:length],) * 2, axis=1)])
    gains = Polarity(RATE).gains(*sides.T)
    assert gains[length - 1] == -1.0
    assert gains[-1] == 1.0
    assert np.abs(np.diff(gains)).max() <= 2 / (BLOCK_S * RATE) + 1e-6


def test_samples_that_are_no_numbers_change_nothing():
    polarity = Polarity(RATE)
    strange = np.tile(np.array([np.nan, np.inf, -np.inf, 1e38], np.float32), 1000)
    assert polarity.gains(strange, -strange) is None
    gains = polarity.gains(CLIP_SAMPLES, -CLIP_SAMPLES)
    assert gains[-1] == -1.0
