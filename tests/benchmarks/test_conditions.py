"""Tests of the variants of speech for the benchmarks: they sound as they should, and their words are known."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.conditions import CONDITIONS, PAUSES_S, SHORT_S, noisy, short, speech_level, string_together
from benchmarks.tracks import PEOPLE, Track, clips
from pipeline.audio import RATE

CLIPS = clips(PEOPLE)


def texts(track: Track) -> list[str]:
    return [word.text for word in track.truth]


def level_db(samples: np.ndarray) -> float:
    return float(10 * np.log10(np.mean(samples.astype(np.float64) ** 2)))


@pytest.mark.parametrize("name", CONDITIONS)
def test_the_same_clip_and_seed_give_the_same_samples_whatever_else_is_given(name):
    vary = CONDITIONS[name]
    for one, again in zip(vary(CLIPS, 3), vary(CLIPS, 3), strict=True):
        assert (one.name, one.truth) == (again.name, again.truth)
        assert np.array_equal(one.samples, again.samples)
    alone = {one.name: one.samples for one in vary(CLIPS[4:5], 3)}
    among = {one.name: one.samples for one in vary(CLIPS, 3) if one.name in alone}
    assert all(np.array_equal(alone[clip], among[clip]) for clip in alone)
    assert among.keys() == alone.keys()


@pytest.mark.parametrize("name", CONDITIONS)
def test_every_variant_can_be_kept_as_a_file_and_has_its_words_within_it(name):
    for track in CONDITIONS[name](CLIPS, 1):
        assert track.samples.dtype == np.float32
        assert np.isfinite(track.samples).all()
        assert np.abs(track.samples).max() < 1.0
        assert track.truth
        assert all(0 <= word.start <= word.end <= track.seconds for word in track.truth)
        assert all(left.start <= right.start for left, right in pairwise(track.truth))


@pytest.mark.parametrize("name", [name for name in CONDITIONS if name != "short alone"])
def test_a_condition_that_changes_the_sound_keeps_the_words(name):
    assert [texts(track) for track in CONDITIONS[name](CLIPS, 1)] == [texts(clip) for clip in CLIPS]


@pytest.mark.parametrize("colour", ["white", "pink"])
@pytest.mark.parametrize("snr_db", [10, 20])
def test_noise_is_as_far_below_the_speech_as_its_name_says(colour, snr_db):
    quiet = [replace(clip, samples=clip.samples / 4) for clip in CLIPS]  # so that nothing reaches full scale
    for clip, variant in zip(quiet, noisy(quiet, 1, colour=colour, snr_db=snr_db), strict=True):
        noise = variant.samples - clip.samples
        assert 20 * np.log10(speech_level(clip.samples)) - level_db(noise) == pytest.approx(snr_db, abs=0.2)


@settings(max_examples=10)
@given(st.integers(0, 1000))
def test_short_utterances_are_of_the_asked_length_and_whole_words_in_order(seed):
    pieces = short(CLIPS, seed)
    assert all(SHORT_S[0] - 0.001 <= piece.seconds <= SHORT_S[1] + 0.001 for piece in pieces)
    for clip in CLIPS:
        of = [word for piece in pieces if piece.name.startswith(clip.name) for word in texts(piece)]
        rest = iter(texts(clip))
        assert all(word in rest for word in of), "a subsequence"
    assert sum(len(piece.truth) for piece in pieces) > 120


def test_the_clips_of_a_joined_track_are_heard_whole_apart_by_pauses_and_all_before_any_again():
    track = string_together(CLIPS, 5, 240)
    loudness = 1.0 if np.abs(track.samples).max() < 0.99 else None
    starts = {}
    for clip in CLIPS:
        first = next(
            at
            for at in range(len(track.truth))
            if [word.text for word in track.truth[at : at + len(clip.truth)]] == texts(clip)
        )
        begin = round((track.truth[first].start - clip.truth[0].start) * RATE)
        starts[clip.name] = begin, begin + len(clip.samples)
        part = track.samples[begin : begin + len(clip.samples)]
        same = np.corrcoef(part, clip.samples)[0, 1]
        assert same > 0.99
        assert loudness is None or level_db(part) == pytest.approx(level_db(clip.samples), abs=0.2)
    order = sorted(starts.values())
    assert len(order) == len(CLIPS)
    for (_, end), (begin, _) in pairwise(order):
        assert PAUSES_S[0] - 0.01 <= (begin - end) / RATE <= PAUSES_S[1] + 0.01
        assert -75 < level_db(track.samples[end:begin]) < -65
