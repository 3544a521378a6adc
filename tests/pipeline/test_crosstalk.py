"""Tests of channels that hold copies of each other: the quieter copy is silenced, and what a person says never is."""

import numpy as np
import pytest

from pipeline.audio import RATE, WINDOW, Samples, position
from pipeline.ingest.crosstalk import LIVE_AHEAD, CrosstalkGate
from tests.pipeline.sounds import SPEECH, read

ONE = read(SPEECH / "human" / "jfk.flac")
OTHER = read(SPEECH / "human" / "two_cities.flac")[: len(ONE)]
OTHER = np.asarray(OTHER * ONE.std() / OTHER.std(), np.float32)  # as loud
CHANCE = np.random.default_rng(1)


def noise(db: float) -> Samples:
    return np.asarray(CHANCE.standard_normal(len(ONE)) * 10 ** (db / 20), np.float32)


def room(sound: Samples, *, late_s: float, gain: float) -> Samples:
    """Return *sound* as a microphone hears it from a loudspeaker, in a room that echoes for 0.4 s."""
    count = position(0.4)
    echo = CHANCE.standard_normal(count) * np.exp(-6.9 * np.arange(count) / count) * 0.05
    response = np.concatenate((np.zeros(position(late_s)), [0.5], echo))
    return np.asarray(gain * np.convolve(sound, response)[: len(sound)] + noise(-65), np.float32)


def gated(*channels: Samples, piece: int = RATE, ahead: int | None = None) -> tuple[Samples, CrosstalkGate]:
    sound = np.stack(channels, axis=1)
    gate = CrosstalkGate(len(channels)) if ahead is None else CrosstalkGate(len(channels), ahead=ahead, together=1)
    pieces = [gate.add(sound[at : at + piece]) for at in range(0, len(sound), piece)]
    return np.concatenate([*pieces, gate.flush()]), gate


def silenced(before: Samples, after: Samples) -> float:
    """Return the share of the loud windows of one channel that were silenced."""
    whole = len(before) // WINDOW * WINDOW
    loud, left = (np.abs(one[:whole]).reshape(-1, WINDOW).max(axis=1) for one in (before, after))
    return float(np.mean(left[loud > 0.06 * loud.max()] == 0))


COPIES = {
    "a cable at -20 dB": 0.1 * ONE,
    "a cable at -30 dB with noise": 0.03 * ONE + noise(-70),
    "a loudspeaker beside the microphone": room(ONE, late_s=0.005, gain=0.4),
    "a loudspeaker through a meeting": room(ONE, late_s=0.12, gain=0.4),
    "the same": ONE,
    "the same with the other sign": -0.7 * ONE,
}


@pytest.mark.parametrize("ahead", [None, LIVE_AHEAD], ids=["file", "live"])
@pytest.mark.parametrize("name", COPIES)
def test_the_quieter_copy_is_silenced_on_whichever_channel_it_is(name, ahead):
    copy = COPIES[name]
    heard, gate = gated(ONE, copy, ahead=ahead, piece=RATE if ahead is None else RATE // 10)
    assert silenced(copy, heard[:, 1]) > 0.85
    assert silenced(ONE, heard[:, 0]) < 0.03
    if name != "the same":
        turned, _ = gated(copy, ONE, ahead=ahead)
        assert silenced(copy, turned[:, 0]) > 0.85
        assert silenced(ONE, turned[:, 1]) < 0.03
    assert gate.copies == ({1: 0} if name.startswith("the same") else {})


def test_a_quiet_recording_is_compared_too():
    heard, gate = gated(0.003 * ONE, 0.0003 * ONE)
    assert silenced(ONE, heard[:, 1]) > 0.85
    assert gated(0.003 * ONE, 0.0027 * ONE)[1].copies == {1: 0}
    assert gated(0.003 * ONE, 0.003 * OTHER)[1].copies == {}
    assert not gate.copies


@pytest.mark.parametrize("ahead", [None, LIVE_AHEAD], ids=["file", "live"])
def test_two_people_who_speak_at_once_are_both_kept(ahead):
    for left, right in ((ONE, OTHER), (ONE, 0.1 * OTHER), (ONE + 0.1 * OTHER, OTHER + 0.1 * ONE)):
        heard, gate = gated(left, right, ahead=ahead)
        assert silenced(left, heard[:, 0]) < 0.03
        assert silenced(right, heard[:, 1]) < 0.03
        assert gate.copies == {}
    whispered = 0.1 * ONE + 0.1 * OTHER  # as loud as the copy
    heard, _ = gated(ONE, whispered, ahead=ahead)
    assert silenced(whispered, heard[:, 1]) < 0.15


def test_who_answers_is_heard_from_the_first_word_although_the_channel_leaks():
    pause = np.zeros(RATE // 4, np.float32)
    asked, answered = ONE[: position(4)], OTHER[position(0.2) : position(4)]
    left = np.concatenate((asked, pause, 0.1 * answered))
    right = np.concatenate((0.1 * asked, pause, answered))
    heard, _ = gated(left, right)
    assert silenced(right[: len(asked)], heard[: len(asked), 1]) > 0.95
    assert silenced(right[-len(answered) :], heard[-len(answered) :, 1]) == 0
    assert silenced(left[-len(answered) :], heard[-len(answered) :, 0]) > 0.9


def test_of_many_channels_each_person_is_kept_once_on_the_own_one():
    third = np.roll(ONE[::-1], RATE)
    mixes = np.array([[1, 0.1, 0.1], [0.1, 1, 0.1], [0.1, 0.1, 1], [1, 0.1, 0.1]]) @ np.stack((ONE, OTHER, third))
    heard, gate = gated(*np.asarray(mixes, np.float32))
    assert [silenced(mix, heard[:, channel]) < 0.05 for channel, mix in enumerate(mixes)] == [True] * 3 + [False]
    assert gate.copies == {3: 0}


def test_the_pieces_make_no_difference_and_no_sample_is_lost():
    whole, _ = gated(ONE, 0.1 * ONE, piece=len(ONE))
    for piece in (160, 777, RATE):
        assert np.array_equal(gated(ONE, 0.1 * ONE, piece=piece)[0], whole)
    for length in (0, 1, WINDOW, 3 * WINDOW + 7):
        assert gated(ONE[:length], OTHER[:length])[0].shape == (length, 2)
