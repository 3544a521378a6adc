"""Tests of PcmDecoder: every encoding of raw audio, in pieces of any size."""

from itertools import pairwise
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.audio import RATE, Samples
from pipeline.ingest.input_formats import CHANNELS, RATES, SAMPLE_BYTES, Encoding
from pipeline.ingest.raw_audio import PcmDecoder
from tests.pipeline.sounds import tone


def decode_pcm(data: bytes, encoding: Encoding, *, rate: int = RATE, channels: int = 1, cuts: Any = ()) -> Samples:
    decoder = PcmDecoder(encoding, rate=rate, channels=channels)
    places = [0, *sorted(cuts), len(data)]
    pieces = [decoder.decode(data[start:end]) for start, end in pairwise(places)]
    return np.concatenate([*pieces, decoder.flush()])


@pytest.mark.parametrize(("encoding", "codec"), [("mulaw", "pcm_mulaw"), ("alaw", "pcm_alaw")])
def test_companded_samples_have_the_values_of_the_standard(encoding, codec):
    """Compares all 256 codes with FFmpeg's decoder of G.711."""
    codes = bytes(range(256))
    reader: Any = av.CodecContext.create(codec, "r")
    reader.sample_rate, reader.layout = 8000, "mono"
    (frame,) = reader.decode(av.Packet(codes))
    assert np.array_equal(decode_pcm(codes, encoding), frame.to_ndarray()[0] / np.float32(32768))


def test_sixteen_bits_and_floats_are_taken_as_they_are():
    assert decode_pcm(np.array([0, 16384, -32768, 32767], "<i2").tobytes(), "pcm_s16le").tolist() == [
        0.0,
        0.5,
        -1.0,
        32767 / 32768,
    ]
    floats = np.array([0.25, np.nan, np.inf, -1.0], "<f4").tobytes()
    assert decode_pcm(floats, "pcm_f32le").tolist() == [0.25, 0.0, 1.0, -1.0]


def test_stereo_becomes_the_mean_of_both():
    pairs = np.array([[1000, 3000], [-32768, 32767]], "<i2").tobytes()
    assert decode_pcm(pairs, "pcm_s16le", channels=2) == pytest.approx([2000 / 32768, -0.5 / 32768])


def test_separate_channels_stay_apart_in_their_order():
    pairs = np.array([[1000, -3000], [2000, -4000]], "<i2")
    decoded = PcmDecoder("pcm_s16le", rate=RATE, channels=2, separate=True).decode(pairs.tobytes())
    assert decoded == pytest.approx(pairs / 32768)


def test_the_mean_of_two_floats_is_one_too_however_large_they_are():
    largest = np.full(2000, np.finfo("<f4").max, "<f4").tobytes()
    for rate in (RATE, 44100):
        assert np.isfinite(decode_pcm(largest, "pcm_f32le", rate=rate, channels=2)).all()


@settings(max_examples=80)
@given(
    encoding=st.sampled_from([*SAMPLE_BYTES]),
    channels=st.sampled_from(CHANNELS),
    rate=st.sampled_from((8000, 11025, 16000, 22050, 44100, 48000)),
    cuts=st.lists(st.integers(0, 4001), max_size=30),
    seed=st.integers(0, 99),
)
def test_any_cut_of_the_bytes_even_an_odd_one_gives_the_same_samples(encoding, channels, rate, cuts, seed):
    data = np.random.default_rng(seed).bytes(4001)
    whole = decode_pcm(data, encoding, rate=rate, channels=channels)
    assert np.array_equal(decode_pcm(data, encoding, rate=rate, channels=channels, cuts=cuts), whole)


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 47999, 48000])
def test_every_rate_keeps_length_and_pitch(rate):
    sound = tone(1.0, rate=rate, hertz=1000)
    heard = decode_pcm(sound.astype("<f4").tobytes(), "pcm_f32le", rate=rate)
    assert len(heard) == pytest.approx(RATE, abs=2)
    middle = slice(200, -200)
    length = min(len(heard), RATE)
    assert np.abs(heard[:length] - tone(1.0, hertz=1000)[:length])[middle].max() < 0.01


def test_what_no_client_may_send_is_refused():
    for encoding, rate, channels in (
        ("mp3", RATE, 1),
        ("mulaw", RATES.start - 1, 1),
        ("mulaw", RATES.stop, 1),
        ("mulaw", RATE, 3),
    ):
        with pytest.raises(ValueError, match="no raw audio"):
            PcmDecoder(encoding, rate=rate, channels=channels)  # type: ignore[arg-type]  # wrong on purpose
