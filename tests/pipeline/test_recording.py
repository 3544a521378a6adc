"""Tests of recording.py: the FLAC file has all samples, in whatever pieces they came."""

import io

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.audio import RATE
from pipeline.ingest.recording import Recording


@settings(max_examples=20)
@given(st.lists(st.integers(0, 3 * RATE), max_size=8).filter(any), st.integers(0, 2**32 - 1))
def test_a_recording_holds_every_sample_in_any_pieces(sizes, seed):
    audio = np.random.default_rng(seed).uniform(-1, 1, sum(sizes)).astype(np.float32)
    with Recording() as recording:
        for piece in np.split(audio, np.cumsum(sizes)[:-1]):
            recording.write(piece)
        data = recording.finish().read()
    read, rate = soundfile.read(io.BytesIO(data), dtype="float32")
    assert (rate, read.shape) == (RATE, audio.shape)
    assert np.abs(read - audio).max(initial=0) < 1e-4


def test_loud_samples_are_cut_off():
    with Recording() as recording:
        recording.write(np.array([2.0, -2.0], np.float32))
        read, _ = soundfile.read(io.BytesIO(recording.finish().read()))
    assert read == pytest.approx([1, -1], abs=1e-4)


def test_a_full_disk_is_an_os_error(monkeypatch):
    with open("/dev/full", "r+b", buffering=0) as full:  # noqa: PTH123  a device, not a file
        monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: full)
        with pytest.raises(OSError, match=r".+"), Recording() as recording:  # noqa: PT012  the error may come from either line
            for _ in range(100):
                recording.write(np.random.default_rng(1).uniform(-1, 1, RATE).astype(np.float32))
            recording.finish()
