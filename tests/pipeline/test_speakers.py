"""Tests of pipeline/speakers: the weights, the clustering, and who speaks when in conversations with known turns."""

import hashlib
import os
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import pdist, squareform

from pipeline.audio import RATE
from pipeline.errors import ModelUnavailable, UnusableReference
from pipeline.speakers.clustering import FOR_SURE_S, UNSURE_S, average_linkage, find_voices, join_groups
from pipeline.speakers.diarizer import match
from pipeline.speakers.known import known_voices
from pipeline.speakers.models import LENGTH, PIECE, SIZE, STEP, VoiceEncoder, mel_frames, read_encoder
from pipeline.speakers.options import INSTALL, SpeakerOptions
from pipeline.speakers.windows import FILE_STEP, LocalTurn, Piece, Window
from pipeline.weights import SEGMENTATION, PackagedFile
from tests.pipeline.conversations import clip, conversation, diarize, error_rate, meeting, models, recording

TWO = ("flite/rms_0.flac", "flite/slt_1.flac", "flite/rms_4.flac", "flite/slt_5.flac")


def test_the_installed_weights_are_the_ones_we_know():
    assert SEGMENTATION.installed
    assert not SEGMENTATION.damaged
    assert len(read_encoder()) < 3_000_000


def test_missing_weights_are_named_with_the_way_to_install_them():
    for package in ("no-such-package", "numpy"):
        missing = PackagedFile(package, "x.onnx", "", INSTALL)
        with pytest.raises(ModelUnavailable, match=r"x\.onnx .*scripts/setup speakers"):
            missing.find()


def test_weights_with_other_bytes_are_refused():
    with pytest.raises(ModelUnavailable, match="damaged"):
        replace(SEGMENTATION, sha256=hashlib.sha256(b"other").hexdigest()).read()


def test_the_converted_encoder_computes_what_the_published_one_does():
    """These are the greatest numbers that Resemblyzer's own weights gave for this speech, before the conversion."""
    published = {134: 0.2428, 10: 0.2192, 224: 0.2185, 225: 0.2061, 2: 0.1969, 236: 0.1867, 16: 0.1758, 180: 0.1624}
    ((found,),) = VoiceEncoder()([mel_frames(clip("flite/rms_0.flac"))[:PIECE]])
    np.testing.assert_allclose(found[list(published)], list(published.values()), atol=0.0005)


@settings(max_examples=30)
@given(st.integers(2, 40), st.integers(0, 1000), st.floats(0.2, 3))
def test_clusters_are_those_of_scipy(count, seed, apart):
    distances = pdist(np.random.default_rng(seed).normal(size=(count, 3)))
    expected = fcluster(linkage(distances, "average"), apart, "distance")
    found = average_linkage(squareform(distances), apart)
    assert len(set(zip(found.tolist(), expected.tolist(), strict=True))) == len(set(found)) == len(set(expected))


@pytest.mark.parametrize(("seconds", "expected"), [(FOR_SURE_S, 2), (UNSURE_S, 1)])
def test_what_is_heard_for_long_is_two_voices_sooner(seconds, expected):
    """Two groups of four turns, 0.05 apart within a group and 0.27 between them."""
    distances = np.full((8, 8), 0.27, np.float32)
    distances[:4, :4] = distances[4:, 4:] = 0.05
    frames = round(seconds * RATE / STEP / 4) + 1
    groups = join_groups(distances, [[(turn * frames, (turn + 1) * frames)] for turn in range(8)], 10)
    assert len(set(groups.tolist())) == expected
    assert len(set(groups[:4].tolist())) == len(set(groups[4:].tolist())) == 1


def two_voices(likeness: float, first_s: float, second_s: float, turns: int, at_once: int = 2) -> list[Window]:
    """Return windows with a turn each, of two voices whose cosine is *likeness*. Each turn sounds its own way.

    So many local voices as *at_once* speak in all windows.
    """
    vectors = np.eye(SIZE, dtype=np.float32)
    voices = vectors[0], likeness * vectors[0] + np.float32(np.sqrt(1 - likeness**2)) * vectors[1]
    windows = []
    for turn in range(turns):
        frames = round((first_s, second_s)[turn % 2] * RATE / STEP / (turns // 2)) + 1
        sound = 0.94 * voices[turn % 2] + np.float32(np.sqrt(1 - 0.94**2)) * vectors[2 + turn]
        piece = Piece(frames, frames * STEP / RATE, sound)
        heard = LocalTurn(0, 0, frames, piece.seconds, sound, (piece,))
        windows.append(Window(turn * FILE_STEP, np.ones((frames, at_once), np.float16), (heard,)))
    return windows


@pytest.mark.parametrize(("seconds", "expected"), [(FOR_SURE_S, 2), (UNSURE_S + 3, 1)])
def test_voices_almost_alike_are_two_where_both_are_heard_for_long(seconds, expected):
    assert len(find_voices(two_voices(0.87, seconds, seconds, turns=20), 10)) == expected


@pytest.mark.parametrize(
    ("likeness", "first_s", "second_s", "expected"),
    [(0.5, 20, 4, 1), (0.5, 20, 6, 2), (0.5, 60, 7, 2), (0.84, 20, 9, 1), (0.84, 20, 11, 2)],
)
def test_a_stream_that_goes_on_needs_more_evidence_for_a_second_voice(likeness, first_s, second_s, expected):
    windows = two_voices(likeness, first_s, second_s, turns=6)
    assert len(find_voices(windows, 10, provisional=True)) == expected
    assert len(find_voices(windows, 10)) == 2


@pytest.mark.parametrize(
    ("likeness", "turns", "at_once", "expected"),
    [(0.8, 2, 1, 1), (0.5, 2, 1, 2), (0.8, 8, 1, 2), (0.8, 2, 2, 2), (0.903, 6, 2, 1)],
)
def test_voices_that_neither_take_turns_nor_speak_at_once_are_two_only_if_they_differ_much(
    likeness, turns, at_once, expected
):
    windows = two_voices(likeness, 16, 16, turns, at_once)
    assert len(find_voices(windows, 10)) == expected
    assert len(find_voices(windows, 10, several=True)) == 2


def test_speech_of_two_windows_is_embedded_once():
    samples, _ = conversation(*TWO)
    first = models().listen(samples[:LENGTH], 0)
    rest = samples[FILE_STEP * STEP :][:LENGTH]
    second = models().listen(rest, FILE_STEP, first)
    alone = models().listen(rest, FILE_STEP)
    known = {piece.embedding.tobytes() for turn in first.turns for piece in turn.pieces}
    again = sum(piece.seconds for turn in second.turns for piece in turn.pieces if piece.embedding.tobytes() in known)
    assert again > 1.5  # of the 5 s: the rest began before them, or goes on after the first window
    assert not known & {piece.embedding.tobytes() for turn in alone.turns for piece in turn.pieces}
    for one, other in zip(second.turns, alone.turns, strict=True):
        assert (one.voice, one.first, one.after) == (other.voice, other.first, other.after)
        assert one.pieces[-1].after == one.after
        assert one.embedding @ other.embedding > 0.85


def test_windows_that_are_analysed_together_are_as_those_that_are_analysed_alone():
    samples, _ = conversation(*TWO)
    stretches = {start: samples[start * STEP :][:LENGTH] for start in (0, FILE_STEP, FILE_STEP + 100)}
    together = models().listen_to_several(stretches, None)
    before = None
    for window, (start, stretch) in zip(together, stretches.items(), strict=True):
        before = models().listen(stretch, start, before)
        np.testing.assert_allclose(window.speech, before.speech, atol=0.001)
        for one, other in zip(window.turns, before.turns, strict=True):
            assert (one.voice, one.first, one.after, one.seconds) == (
                other.voice,
                other.first,
                other.after,
                other.seconds,
            )
            assert np.linalg.norm(one.embedding) == pytest.approx(1, abs=1e-5)
            np.testing.assert_allclose(one.embedding, other.embedding, atol=1e-4)
            for piece, own in zip(one.pieces, other.pieces, strict=True):
                np.testing.assert_allclose(piece.embedding, own.embedding, atol=1e-4)


@given(st.integers(1, 6), st.integers(1, 10), st.integers(0, 1000))
def test_groups_are_never_too_many_and_have_no_gaps(most, turns, seed):
    random = np.random.default_rng(seed)
    distances = (
        squareform(random.random(turns * (turns - 1) // 2)).astype(np.float32) if turns > 1 else np.zeros((1, 1))
    )
    groups = join_groups(distances, [[(turn * 700, turn * 700 + 600)] for turn in range(turns)], most)
    assert set(groups.tolist()) == set(range(max(groups) + 1))
    assert len(set(groups.tolist())) <= most


def test_a_short_answer_without_a_pause_has_its_own_voice():
    """The first model takes two people who follow each other at once for one local voice."""
    one, other = clip("human/jfk.flac"), clip("human/LJ001-0004.flac")
    samples = np.concatenate([one[: 6 * RATE], other[RATE : 3 * RATE], one[-6 * RATE :], other[-6 * RATE :]])
    turns = diarize(samples)
    middle = 7 * RATE
    (speaking,) = {turn.speaker for turn in turns if turn.start <= middle < turn.end}
    assert speaking == max(turns, key=lambda turn: turn.end).speaker != min(turns, key=lambda turn: turn.start).speaker


@given(st.integers(1, 3), st.integers(1, 10), st.integers(0, 1000))
def test_local_voices_get_the_voices_that_are_most_alike(local, voices, seed):
    likeness = np.random.default_rng(seed).random((local, voices))
    found = match(likeness)
    rows, columns = linear_sum_assignment(-likeness)
    if local <= voices:
        assert len(set(found)) == local
    assert [found[row] for row in rows] == columns.tolist()


def test_two_voices_in_turns_are_two_and_every_turn_has_its_own():
    samples, true = conversation(*TWO, *TWO)
    turns = diarize(samples)
    assert len({turn.speaker for turn in turns}) == 2
    assert error_rate(true, turns) < 0.12
    assert all(a.start <= b.start for a, b in pairwise(turns))
    assert all(0 <= turn.start < turn.end <= len(samples) for turn in turns)


def test_three_people_are_three():
    samples, true = conversation(
        "human/austen_0870.flac", "human/LJ001-0004.flac", "human/jfk.flac", "human/austen_0920.flac"
    )
    turns = diarize(samples)
    assert len({turn.speaker for turn in turns}) == 3
    assert error_rate(true, turns) < 0.15


@pytest.mark.parametrize("name", ["human/two_cities.flac", "human/jfk.flac", "espeak/en_05.flac", "flite/rms_4.flac"])
def test_one_voice_is_one(name):
    turns = diarize(clip(name))
    assert len({turn.speaker for turn in turns}) == 1


@pytest.mark.parametrize(("times", "pause_s"), [(2, 0.0), (3, 1.0), (10, 1.0)])
def test_one_voice_is_one_if_it_is_played_again_and_again(times, pause_s):
    once = np.concatenate([clip("human/jfk.flac"), np.zeros(round(pause_s * RATE), np.float32)])
    assert len({turn.speaker for turn in diarize(np.tile(once, times))}) == 1


@pytest.mark.parametrize("name", ["human/two_cities.flac", "flite/rms_4.flac"])
def test_one_voice_is_one_near_and_far(name):
    samples = np.tile(clip(name), 6)[: 24 * RATE].copy()
    samples[8 * RATE : 16 * RATE] *= 0.05
    assert len({turn.speaker for turn in diarize(samples)}) == 1


@pytest.mark.parametrize("name", ["music", "noise", "silence"])
def test_nobody_speaks_where_there_is_no_voice(name):
    samples = np.tile(clip(f"other/{name}.flac") if name != "silence" else np.zeros(RATE, np.float32), 2)
    assert diarize(samples) == []


def test_meetings_are_not_heard_worse_than_before():
    assert error_rate(meeting("trn06.flac")[1], diarize(meeting("trn06.flac")[0])) < 0.25
    assert error_rate(meeting("trn04.flac")[1], diarize(meeting("trn04.flac")[0])) < 0.50


def test_no_more_voices_are_found_than_there_may_be():
    samples, _ = conversation(*TWO)
    assert len({turn.speaker for turn in diarize(samples, SpeakerOptions(most=1))}) == 1


def test_the_end_of_a_recording_is_heard_whatever_its_length():
    samples, _ = conversation(*TWO)
    for length in (RATE // 10, RATE, 10 * RATE, 10 * RATE + 1, len(samples) - RATE):
        turns = diarize(samples[:length])
        assert all(turn.end <= length for turn in turns)
        assert max((turn.end for turn in turns), default=0) > length - RATE or length < RATE


def test_people_who_are_known_have_their_names():
    samples, true = conversation("flite/rms_0.flac", "flite/slt_1.flac", "flite/rms_0.flac", "flite/slt_1.flac")
    known = known_voices(models(), {"Robert": clip("flite/rms_4.flac"), "Cindy": clip("flite/slt_5.flac")})
    for names in (["Robert", "Cindy"], ["Cindy"]):
        turns = diarize(samples, SpeakerOptions(known={name: known[name] for name in names}))
        assert error_rate(true, turns) < 0.15
        assert {turn.speaker for turn in turns if turn.start < 4 * RATE} & set(names) == set(names) & {"Robert"}
        assert {turn.speaker for turn in turns} >= set(names)
        assert len({turn.speaker for turn in turns}) == 2


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        (np.zeros(5 * RATE, np.float32), "0.0 s of speech"),
        (clip("flite/rms_0.flac")[:RATE], "s of speech, and 2 to 10 s are needed"),
        (clip("human/two_cities.flac")[: 29 * RATE], "s of speech, and 2 to 10 s are needed"),
        (np.zeros(31 * RATE, np.float32), "lasts 31.0 s"),
        (conversation("flite/rms_0.flac", "flite/slt_1.flac")[0], "more than one voice"),
        (np.concatenate([clip("human/jfk.flac")[: 4 * RATE], clip("human/LJ001-0004.flac")[: 2 * RATE]]), "one voice"),
    ],
)
def test_a_reference_that_would_mislead_is_refused(samples, reason):
    with pytest.raises(UnusableReference, match=f"The reference of Ann cannot be used: .*{reason}") as refused:
        known_voices(models(), {"Ann": samples})
    assert refused.value.name == "Ann"


@pytest.mark.parametrize("name", ["human/jfk.flac", "human/LJ001-0004.flac", "human/austen_0870.flac"])
def test_a_person_in_any_clip_is_a_reference(name):
    assert set(known_voices(models(), {"Ann": recording(name)})) == {"Ann"}


def test_two_references_of_one_voice_are_refused():
    with pytest.raises(UnusableReference, match="of Bob cannot be used: it has the same voice as the reference of Ann"):
        known_voices(models(), {"Ann": clip("flite/rms_0.flac"), "Bob": clip("flite/rms_4.flac")})


KILLED_WHILE_DECODING = """
import os, signal, sys
from pipeline.ingest.isolation import Isolation
from pipeline.speakers.known import learn_voices

class Killed(Isolation):
    def decoding(self, path, limits):
        assert path.read_bytes() == b"a recording"
        os.kill(os.getpid(), signal.SIGKILL)

learn_voices(Killed(), None, {"Ann": b"a recording"})
"""


def test_a_killed_server_leaves_no_recording_of_a_known_person(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", KILLED_WHILE_DECODING], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []
