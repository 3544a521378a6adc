"""Tests of the variants of speech for the benchmarks: they sound as they should, and their words are known."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.conditions import (
    BAND_HZ,
    CONDITIONS,
    NEAR_S,
    PAUSES_S,
    PIECE_S,
    PIECES,
    RT60_S,
    SHORT_S,
    at_pace,
    by_telephone,
    cut_anywhere,
    in_a_room,
    noisy,
    pauses,
    short,
    speech_level,
    string_together,
)
from benchmarks.tracks import PEOPLE, Track, Truth, clips
from pipeline.audio import RATE, Samples

CLIPS = clips(PEOPLE)


def texts(track: Track) -> list[str]:
    return [word.text for word in track.truth]


def sound(samples: Samples) -> Track:
    return Track("sound", "en", samples.astype(np.float32), ())


def level_db(samples: np.ndarray) -> float:
    return float(10 * np.log10(np.mean(samples.astype(np.float64) ** 2)))


def late_s(clean: Samples, variant: Samples, factor: float = 1.0) -> float:
    """Return by how many seconds *variant* is later than *clean*, both at the pace of *clean*."""
    one, other = (np.convolve(np.abs(samples), np.hanning(320), "same")[::16] for samples in (clean, variant))
    other = np.interp(np.arange(len(one)) / factor, np.arange(len(other)), other)
    most = 100  # ms, which is what 16 samples are
    shifts = range(-most, most + 1)
    return max(shifts, key=lambda by: float((one[most:-most] * other[most + by : len(one) - most + by]).sum())) / 1000


@pytest.mark.parametrize("name", CONDITIONS)
def test_the_same_clip_and_seed_give_the_same_samples_whatever_else_is_given(name: str) -> None:
    vary = CONDITIONS[name]
    for one, again in zip(vary(CLIPS, 3), vary(CLIPS, 3), strict=True):
        assert (one.name, one.truth, one.edges) == (again.name, again.truth, again.edges)
        assert np.array_equal(one.samples, again.samples)
    if name != "joined":
        alone = {one.name: one.samples for one in vary(CLIPS[4:5], 3)}
        among = {one.name: one.samples for one in vary(CLIPS, 3) if one.name in alone}
        assert all(np.array_equal(alone[clip], among[clip]) for clip in alone)
        assert among.keys() == alone.keys()


@pytest.mark.parametrize("name", CONDITIONS)
def test_every_variant_can_be_kept_as_a_file_and_has_its_words_within_it(name: str) -> None:
    for track in CONDITIONS[name](CLIPS, 1):
        assert track.samples.dtype == np.float32
        assert np.isfinite(track.samples).all()
        assert np.abs(track.samples).max() < 1.0
        assert track.truth
        assert all(0 <= word.start <= word.end <= track.seconds for word in track.truth)
        assert all(left.start <= right.start for left, right in pairwise(track.truth))


@pytest.mark.parametrize("name", [name for name in CONDITIONS if name not in (*PIECES, "joined")])
def test_a_condition_that_changes_the_sound_keeps_the_words(name: str) -> None:
    assert [texts(track) for track in CONDITIONS[name](CLIPS, 1)] == [texts(clip) for clip in CLIPS]


@pytest.mark.parametrize("colour", ["white", "pink"])
@pytest.mark.parametrize("snr_db", [10, 20])
def test_noise_is_as_far_below_the_speech_as_its_name_says(colour: str, snr_db: float) -> None:
    quiet = [replace(clip, samples=clip.samples / 4) for clip in CLIPS]  # so that nothing reaches full scale
    for clip, variant in zip(quiet, noisy(quiet, 1, colour=colour, snr_db=snr_db), strict=True):
        noise = variant.samples - clip.samples
        assert 20 * np.log10(speech_level(clip.samples)) - level_db(noise) == pytest.approx(snr_db, abs=0.2)


def test_a_click_in_the_room_stays_where_it_is_and_dies_away_in_time() -> None:
    click = np.zeros(RATE, np.float32)
    click[4000] = 0.5
    heard = in_a_room([sound(click)], 1)[0].samples
    assert int(np.argmax(np.abs(heard))) == 4000
    energy = np.cumsum((heard.astype(np.float64) ** 2)[::-1])[::-1]  # the energy that is still to come
    after = [4000 + round(share * RT60_S * RATE) for share in (0.1, 0.6)]
    assert 10 * np.log10(energy[after[0]] / energy[after[1]]) == pytest.approx(30, abs=2)


@pytest.mark.parametrize("name", ["small room", "telephone", "white noise, 20 dB", "pink noise, 20 dB"])
def test_words_stay_where_they_were(name: str) -> None:
    for clip, variant in zip(CLIPS, CONDITIONS[name](CLIPS, 1), strict=True):
        assert abs(late_s(clip.samples, variant.samples)) <= 0.005


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_another_pace_moves_sounds_and_words_alike_and_keeps_the_pitch(factor: float) -> None:
    for clip, variant in zip(CLIPS, at_pace(CLIPS, 1, factor=factor), strict=True):
        assert variant.seconds == pytest.approx(clip.seconds / factor, abs=0.001)
        assert abs(late_s(clip.samples, variant.samples, factor)) <= 0.02
        assert variant.truth[-1].end == pytest.approx(clip.truth[-1].end / factor)
    tone = np.sin(np.arange(RATE) * 2 * np.pi * 440 / RATE) / 2
    heard = at_pace([sound(tone)], 1, factor=factor)[0].samples
    assert np.argmax(np.abs(np.fft.rfft(heard, RATE))) == pytest.approx(440, abs=3)


def test_a_telephone_lets_its_band_through_and_nothing_else() -> None:
    white = np.random.default_rng(1).uniform(-0.5, 0.5, 4 * RATE)
    heard = by_telephone([sound(white)], 1)[0].samples
    hz = np.fft.rfftfreq(len(heard), 1 / RATE)
    power = np.abs(np.fft.rfft(heard)) ** 2
    inside = power[(hz > BAND_HZ[0] + 50) & (hz < BAND_HZ[1] - 50)].mean()
    before = (np.abs(np.fft.rfft(white)) ** 2)[(hz > BAND_HZ[0] + 50) & (hz < BAND_HZ[1] - 50)].mean()
    assert 10 * np.log10(inside / before) == pytest.approx(0, abs=0.5)
    assert 10 * np.log10(power[hz < BAND_HZ[0] - 100].mean() / inside) < -25  # the noise of 8 bits alone
    assert 10 * np.log10(power[hz > 4100].mean() / inside) < -60


def test_a_pause_is_quiet_and_lies_between_two_words() -> None:
    found = pauses(CLIPS[0])
    after = [CLIPS[0].truth[words - 1].text for _, words in found]
    assert after == [
        "times", "times", "wisdom", "foolishness", "belief", "incredulity", "light", "darkness", "hope", "despair",
        "us", "heaven", "way", "short", "period", "received", "evil",
    ]  # fmt: skip
    for clip in CLIPS:
        for middle, _ in pauses(clip):
            at = round(middle * RATE)
            assert level_db(clip.samples[at - 800 : at + 800]) < 20 * np.log10(speech_level(clip.samples)) - 15


@settings(max_examples=10)
@given(st.integers(0, 1000))
def test_short_utterances_are_of_the_asked_length_and_whole_words_in_order(seed: int) -> None:
    pieces = short(CLIPS, seed)
    assert all(SHORT_S[0] - 0.001 <= piece.seconds <= SHORT_S[1] + 0.001 for piece in pieces)
    for clip in CLIPS:
        of = [word for piece in pieces if piece.name.startswith(clip.name) for word in texts(piece)]
        rest = iter(texts(clip))
        assert all(word in rest for word in of), "a subsequence"
    assert sum(len(piece.truth) for piece in pieces) > 120


@settings(max_examples=10)
@given(st.integers(0, 1000))
def test_words_that_a_cut_goes_through_are_asked_of_nobody(seed: int) -> None:
    for piece in cut_anywhere(CLIPS, seed):
        clip = next(clip for clip in CLIPS if piece.name.startswith(clip.name))
        begin, end = map(float, piece.name.removeprefix(clip.name).split("-"))
        inside = [
            word for word in clip.truth if word.start >= begin + NEAR_S + 0.01 and word.end <= end - NEAR_S - 0.01
        ]
        touched = [word for word in clip.truth if word.end > begin - NEAR_S - 0.01 and word.start < end + NEAR_S + 0.01]
        assert PIECE_S[0] - 0.01 <= piece.seconds <= PIECE_S[1] + 0.01
        assert len(inside) <= len(piece.truth) <= len(piece.truth) + sum(piece.edges) <= len(touched)


def test_a_cut_through_a_word_is_remembered_at_its_own_end() -> None:
    words = tuple(Truth(text, at, at + 0.8) for at, text in enumerate(("one", "two", "three", "four")))
    clip = Track("clip", "en", np.ones(4 * RATE, np.float32) / 2, words)
    edges = {(len(piece.truth), piece.edges) for seed in range(50) for piece in cut_anywhere([clip], seed)}
    assert (3, (1, 0)) in edges, "the first second is cut off, the end of the clip is no cut"
    assert all(before <= 2 and after <= 2 for _, (before, after) in edges)


def test_the_clips_of_a_joined_track_are_heard_whole_apart_by_pauses_and_all_before_any_again() -> None:
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
