"""Tests of speech.py: decode jobs of the real clips with the real voice detector."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.audio import Samples, position
from pipeline.ingest.speech import DecodeJob, Packed, PackingOptions, Passed
from pipeline.ingest.vad import Vad
from tests.pipeline.sounds import CLIPS, SPEECH, packed, read

SPOKEN = [clip for clip in CLIPS if clip.get("words")]


@pytest.fixture(scope="module")
def detector() -> Vad:
    return Vad()


def pack(samples: Samples, detector: Vad, options: PackingOptions | None = None) -> list[Packed]:
    return packed([samples], detector, options)


def jobs_in(items: list[Packed]) -> list[DecodeJob]:
    return [item for item in items if isinstance(item, DecodeJob)]


@pytest.mark.parametrize("clip", SPOKEN, ids=lambda clip: str(clip["file"]))
def test_every_true_word_lies_inside_a_job(detector, clip):
    samples = read(SPEECH / clip["file"])
    jobs = jobs_in(pack(samples, detector))
    for word, start_s, end_s in clip["words"]:
        start, end = position(start_s), min(position(end_s), len(samples))
        assert any(job.start <= start and end <= job.end for job in jobs), word


@pytest.mark.parametrize("name", ["silence", "noise", "music"])
def test_silence_noise_and_music_give_no_job(detector, name):
    samples = read(SPEECH / "other" / f"{name}.flac")
    items = pack(samples, detector)
    assert jobs_in(items) == []
    assert items[-1] == Passed(len(samples))
    assert len(items) >= len(samples) // position(1.1)


@settings(max_examples=15)
@given(cuts=st.lists(st.integers(0, 128_000), max_size=60))
def test_any_chunking_gives_the_same_jobs(detector, cuts):
    samples = read(SPEECH / "espeak" / "en_noisy_2.flac")
    chunks = [samples[start:end] for start, end in pairwise([0, *sorted(cuts), len(samples)])]
    options = PackingOptions(target=position(2), pause=position(0.5))
    items = packed(chunks, detector, options)
    expected = pack(samples, detector, options)
    assert [(type(item), getattr(item, "start", None), getattr(item, "at", None)) for item in items] == [
        (type(item), getattr(item, "start", None), getattr(item, "at", None)) for item in expected
    ]
    for job, same in zip(jobs_in(items), jobs_in(expected), strict=True):
        assert np.array_equal(job.samples, same.samples)
