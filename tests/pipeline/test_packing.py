"""Tests of Packer: decode jobs contain all speech, in order, within their limits."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.audio import LONGEST_JOB, WINDOW, Samples, position
from pipeline.ingest.speech import DecodeJob, EvenPacker, Packed, Packer, PackingOptions, Passed, SegmenterOptions

RUNS = st.lists(
    st.tuples(st.sampled_from((0.0, 0.0, 0.3, 0.45, 0.95, 0.95)), st.integers(1, 150)), min_size=1, max_size=25
).map(lambda runs: [speech for speech, count in runs for _ in range(count)])
OPTIONS = st.builds(
    PackingOptions,
    segmenter=st.builds(
        SegmenterOptions, silence=st.integers(position(0.1), position(0.5)), pad=st.integers(0, position(0.1))
    ),
    target=st.integers(position(1), position(8)),
    longest=st.integers(position(8), position(15)),
    pause=st.integers(position(0.5), position(3)),
)


def sound(probabilities: list[float], last: int = WINDOW) -> Samples:
    """Return audio whose samples are all different, so that a job shows where it was cut."""
    count = (len(probabilities) - 1) * WINDOW + last
    return np.linspace(0.1, 0.9, count, dtype=np.float32)


def pack(audio: Samples, probabilities: list[float], options: PackingOptions) -> list[Packed]:
    packer, items = Packer(options), []
    for number, speech in enumerate(probabilities):
        items += packer.pack(audio[number * WINDOW : (number + 1) * WINDOW], speech)
    return items + packer.flush()


def jobs_in(items: list[Packed]) -> list[DecodeJob]:
    return [item for item in items if isinstance(item, DecodeJob)]


@settings(max_examples=60)
@given(probabilities=RUNS, options=OPTIONS, last=st.integers(1, WINDOW))
def test_jobs_are_the_audio_they_say_in_order_and_within_the_limit(probabilities, options, last):
    audio = sound(probabilities, last)
    end = 0
    items = pack(audio, probabilities, options)
    for item in items:
        if isinstance(item, DecodeJob):
            assert item.start >= end
            assert 0 < len(item.samples) <= options.longest
            assert np.array_equal(item.samples, audio[item.start : item.end])
            end = item.end
        else:
            assert item.at >= end
            end = item.at
    assert items[-1] == Passed(len(audio))


@settings(max_examples=60)
@given(probabilities=RUNS, options=OPTIONS)
def test_all_speech_is_inside_a_job(probabilities, options):
    """Three windows in a row are speech by the default options. A cut may fall between windows, never beside them."""
    jobs = jobs_in(pack(sound(probabilities), probabilities, options))
    covered = np.zeros(len(probabilities) * WINDOW, bool)
    for job in jobs:
        covered[job.start : job.end] = True
    for first in range(len(probabilities) - 2):
        if min(probabilities[first : first + 3]) >= 0.5:
            assert covered[first * WINDOW : (first + 3) * WINDOW].all()


@settings(max_examples=60)
@given(probabilities=RUNS, options=OPTIONS)
def test_a_job_is_short_only_where_a_long_pause_or_the_end_follows(probabilities, options):
    jobs = jobs_in(pack(sound(probabilities), probabilities, options))
    margin = options.lead + options.segmenter.pad + options.segmenter.min_speech + 2 * WINDOW
    for job, following in pairwise(jobs):
        filled = len(job.samples) >= min(options.target, options.longest // 2)
        assert filled or following.start - job.end >= options.pause - margin


def test_a_job_says_where_in_it_somebody_speaks():
    probabilities = [0.0] * 20 + [0.9] * 30 + [0.1] * 5 + [0.9] * 20 + [0.0] * 40
    [job] = jobs_in(pack(sound(probabilities), probabilities, PackingOptions()))
    assert job.voiced == ((20 * WINDOW, 50 * WINDOW), (55 * WINDOW, 75 * WINDOW))


def test_short_pauses_stay_in_a_job_as_they_are_and_long_ones_end_it():
    probabilities = [0.9] * 60 + [0.0] * 40 + [0.9] * 60 + [0.0] * 150 + [0.9] * 60 + [0.0] * 100
    first, second = jobs_in(pack(sound(probabilities), probabilities, PackingOptions()))
    pad, lead = PackingOptions().segmenter.pad, PackingOptions().lead
    assert (first.start, first.end) == (0, 160 * WINDOW + pad)
    assert (second.start, second.end) == (310 * WINDOW - pad - lead, 370 * WINDOW + pad)


@pytest.mark.parametrize("silence", [30, 75, 110, 150, 1000])
def test_a_job_begins_a_second_before_its_speech_however_long_the_silence_was(silence):
    probabilities = [0.0] * silence + [0.9] * 60
    items = pack(sound(probabilities), probabilities, PackingOptions())
    [job] = jobs_in(items)
    options = PackingOptions()
    assert job.start == max(0, silence * WINDOW - options.segmenter.pad - options.lead)
    assert all(item.at <= job.start for item in items if isinstance(item, Passed) and item.at < job.end)


def test_a_job_that_is_long_enough_ends_at_the_next_pause():
    sentence = [0.9] * 120 + [0.0] * 16  # 3.8 s and a pause of 0.5 s
    jobs = jobs_in(pack(sound(sentence * 10), sentence * 10, PackingOptions(target=position(10))))
    assert all(position(10) <= len(job.samples) <= position(14.5) for job in jobs[:-1])
    assert len(jobs) == 4


def test_speech_without_a_pause_is_cut_where_it_is_quietest():
    probabilities = [0.9] * 2000
    audio = np.full(2000 * WINDOW, 0.5, np.float32)
    audio[700 * WINDOW : 703 * WINDOW] = 0.01  # 22.4 s from the start, too short for a pause
    jobs = jobs_in(pack(audio, probabilities, PackingOptions()))
    assert jobs[0].end == pytest.approx(701.5 * WINDOW, abs=2 * WINDOW)
    assert all(len(job.samples) <= LONGEST_JOB for job in jobs)
    assert [job.start for job in jobs[1:]] == [job.end for job in jobs[:-1]]


def test_where_loudness_says_nothing_the_least_like_speech_is_cut():
    probabilities = [0.9] * 600 + [0.4] * 3 + [0.9] * 900
    jobs = jobs_in(pack(np.full(1503 * WINDOW, 0.5, np.float32), probabilities, PackingOptions()))
    assert jobs[0].end == pytest.approx(601.5 * WINDOW, abs=2 * WINDOW)


@settings(max_examples=30)
@given(lengths=st.lists(st.integers(0, 40_000), max_size=12), length=st.integers(1, 50_000))
def test_even_jobs_hold_everything_in_equal_lengths(lengths, length):
    audio = np.arange(sum(lengths), dtype=np.float32)
    chunks = np.split(audio, np.cumsum(lengths, dtype=int)[:-1]) if lengths else []
    packer = EvenPacker(length)
    items = [item for chunk in chunks for item in packer.pack(chunk)] + [*packer.flush()]
    jobs = jobs_in(items)
    assert [len(job.samples) for job in jobs[:-1]] == [length] * (len(jobs) - 1)
    assert [job.start for job in jobs] == list(range(0, len(audio), length))
    assert np.array_equal(np.concatenate([np.zeros(0, np.float32), *(job.samples for job in jobs)]), audio)
    assert items[-1] == Passed(len(audio))
