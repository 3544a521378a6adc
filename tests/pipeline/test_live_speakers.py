"""Tests of speakers/live.py: labels of a live stream are provisional, revised, and at the end those of a file."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from pipeline.attribution import SpeakerRun, speaker_runs
from pipeline.audio import RATE, Samples
from pipeline.speakers.known import known_voices
from pipeline.speakers.live import LabelledWord, LiveSpeakers, SpeakerState, read_state
from pipeline.speakers.options import SpeakerOptions
from pipeline.words import SpeakerTurn, Word
from tests.pipeline.conversations import clip, conversation, diarize, error_rate, models, recording

TALK = ("flite/rms_0.flac", "flite/slt_1.flac", "flite/rms_4.flac", "flite/slt_5.flac", "flite/rms_0.flac")


def words(samples: Samples) -> list[Word]:
    """Return a word for every half second."""
    return [Word("w", at, at + RATE // 2, 1.0) for at in range(0, len(samples) - RATE, RATE // 2)]


class Listening(LiveSpeakers):
    """Speakers of a stream, with the words that were said to them, as the timeline keeps them."""

    def __init__(self, *of: Any, **more: Any) -> None:
        super().__init__(*of, **more)
        self.said = [(one.word, one.channel) for one in (of[3] if len(of) > 3 else ())]

    def label(self, word: Word, channel: int | None) -> str | None:
        self.said.append((word, channel))
        return super().label(word, channel)

    def result(self) -> tuple[tuple[SpeakerTurn, ...], list[SpeakerRun]]:
        """End the stream; return the turns of all speakers and the runs of all words."""
        turns = self.finish()
        return turns, speaker_runs(self.said, turns)


def labels_of(runs: list[SpeakerRun]) -> dict[int, str]:
    return {number: run.speaker for run in runs for number in range(run.first, run.last + 1)}


def stream(speakers: Listening, each: Mapping[int | None, Samples], origin: int = 0) -> dict[int, str | None]:
    """Tell the words of each channel a second after they were said; return the labels that readers have at the end."""
    left = sorted((word.end, channel or 0, channel, word) for channel, heard in each.items() for word in words(heard))
    told: dict[int, str | None] = {}
    for at in range(0, max(map(len, each.values())) + 2 * RATE, RATE // 5):
        while left and left[0][0] + RATE <= at:
            _, _, channel, word = left.pop(0)
            moved = Word("w", word.start + origin, word.end + origin, 1.0)
            told[len(told)] = speakers.label(moved, channel)
        pieces = {channel: heard[at : at + RATE // 5] for channel, heard in each.items()}
        told |= labels_of(speakers.listen(pieces))
    return told


@pytest.fixture(scope="module")
def talk() -> Samples:
    return conversation(*TALK)[0]


def test_labels_are_soon_right_and_at_the_end_as_good_as_those_of_a_file(talk):
    true = conversation(*TALK)[1]
    speakers = Listening(models(), SpeakerOptions(), {None: 0})
    told = stream(speakers, {None: talk})
    turns, runs = speakers.result()
    assert abs(error_rate(true, list(turns)) - error_rate(true, diarize(talk))) < 0.03
    final = labels_of(runs)
    assert list(final) == list(range(len(words(talk)))), "every word has one speaker"
    assert [number for run in runs for number in range(run.first, run.last + 1)] == list(final)
    assert len(set(final.values())) == 2
    agreeing = sum(told[number] == label for number, label in final.items())
    assert agreeing > 0.8 * len(final)
    assert set(final.values()) == {turn.speaker for turn in turns}


def test_the_last_labels_are_those_that_readers_have_now(talk):
    speakers = Listening(models(), SpeakerOptions(), {None: 0})
    told = stream(speakers, {None: talk[: 18 * RATE]})
    for count in (1, 15, len(told)):
        assert speakers.last_labels(count, None) == Counter([told[number] for number in sorted(told)][-count:])
    assert not speakers.last_labels(1, 0), "nothing was said on this channel"


def one_person(name: str) -> Samples:
    """Return speech of one person with words that sound unlike the rest: shouted, or cut off."""
    if name == "shouted":
        return recording("human/jfk.flac")
    once = recording("espeak/en_05.flac")
    return np.concatenate([once[-2 * RATE :], np.zeros(2 * RATE, np.float32), once[: round(3.9 * RATE)]])


@pytest.mark.parametrize("name", ["shouted", "cut off"])
def test_one_person_is_one_however_unlike_some_words_sound(name):
    speakers = Listening(models(), SpeakerOptions(), {None: 0})
    stream(speakers, {None: one_person(name)})
    assert {turn.speaker for turn in speakers.result()[0]} == {"S1"}
    assert len({turn.speaker for turn in diarize(one_person(name))}) == 1


def test_a_person_who_speaks_after_a_silence_has_a_label_at_once():
    speakers = Listening(models(), SpeakerOptions(), {None: 0})
    speech = recording("human/two_cities.flac")[: 5 * RATE]
    stream(speakers, {None: np.concatenate([np.zeros(2 * RATE, np.float32), speech])})
    assert speakers.label(Word("w", 3 * RATE, 4 * RATE, 1.0), None) == "S1"


def test_a_stream_that_began_earlier_keeps_its_labels_and_goes_on_with_higher_ones(talk):
    before = [LabelledWord(Word("w", n * RATE, (n + 1) * RATE, 1.0), None, f"S{n + 1}") for n in range(3)]
    speakers = Listening(models(), SpeakerOptions(), {None: 5 * RATE}, before)
    stream(speakers, {None: talk[: 12 * RATE]}, origin=5 * RATE)
    turns, runs = speakers.result()
    final = labels_of(runs)
    assert [final[n] for n in range(3)] == ["S1", "S2", "S3"]
    assert min(int(final[n][1:]) for n in range(3, len(final))) > 3
    assert all(turn.start >= 5 * RATE for turn in turns if int(turn.speaker[1:]) > 3)


def stream_with_restarts(
    heard: Samples, cuts_s: Sequence[float], options: SpeakerOptions | None = None
) -> tuple[dict[int, str], dict[int, str | None]]:
    """Stream with a restart after each of *cuts_s*, 2 s before which the audio goes on.

    Returns the label of each word at the end, and the last one that readers saw before it.
    """
    options = options or SpeakerOptions()
    speakers = Listening(models(), options, {None: 0})
    left, told = words(heard), dict[int, str | None]()
    at = 0
    for cut in [*(round(cut_s * RATE) for cut_s in cuts_s), len(heard) + 2 * RATE]:
        while at < cut:
            while left and left[0].end + RATE <= at:
                told[len(told)] = speakers.label(left.pop(0), None)
            told |= labels_of(speakers.listen({None: heard[at : at + RATE // 5]}))
            at += RATE // 5
        if at < len(heard):
            before = [LabelledWord(word, None, told[number]) for number, word in enumerate(words(heard)[: len(told)])]
            state = read_state(speakers.state().to_bytes())
            at = max(0, at - 2 * RATE)
            speakers = Listening(models(), options, {None: at}, before, state)
    return labels_of(speakers.result()[1]), told


def test_after_restarts_nobody_has_another_label(talk):
    twice = np.concatenate([talk, talk])
    whole, _ = stream_with_restarts(twice, [])
    cuts_s = (16, 21)
    final, told = stream_with_restarts(twice, cuts_s)
    assert set(whole.values()) == set(final.values()) == {"S1", "S2"}
    assert final.keys() == whole.keys()
    assert sum(final[number] == label for number, label in whole.items()) > 0.9 * len(whole)
    before = [number for number, word in enumerate(words(twice)) if word.end + RATE < cuts_s[-1] * RATE]
    assert all(final[number] == told[number] for number in before), "readers keep what they have"


def test_after_a_restart_a_stranger_has_a_label_of_her_own(talk):
    stranger = np.concatenate([clip("human/LJ001-0004.flac"), clip("human/austen_0870.flac")])
    final, _ = stream_with_restarts(np.concatenate([talk, stranger]), [len(talk) / RATE])
    count = len(words(talk))
    later = Counter(final[number] for number in range(count + 4, len(final)))
    assert {final[number] for number in range(count - 4)} == {"S1", "S2"}
    assert not {"S1", "S2"} & {label for label, count in later.items() if count > 3}


def test_after_a_restart_there_are_no_more_voices_than_there_may_be(talk):
    stranger = clip("human/LJ001-0004.flac")
    final, _ = stream_with_restarts(np.concatenate([talk, stranger]), [len(talk) / RATE], SpeakerOptions(most=2))
    assert set(final.values()) == {"S1", "S2"}


def test_a_label_is_never_given_to_another_voice_even_if_no_word_has_it_any_more(talk):
    said = [LabelledWord(Word("w", 0, RATE, 1.0), None, "S1")]
    speakers = Listening(models(), SpeakerOptions(), {None: RATE}, said, SpeakerState(next_label=4))
    stream(speakers, {None: talk[: 8 * RATE]}, origin=RATE)
    assert {run.speaker for run in speakers.result()[1]} == {"S1", "S4"}


def test_a_state_is_read_as_it_was_written(talk):
    speakers = Listening(models(), SpeakerOptions(), {0: 0, 1: 0})
    for at in range(0, 8 * RATE, RATE):
        speakers.listen({0: talk[at : at + RATE], 1: talk[at + RATE : at + 2 * RATE]})
    state = speakers.state()
    read = read_state(state.to_bytes())
    assert state.labels() == read.labels() != set()
    assert read.next_label == state.next_label > 1
    for channel, own in state.voices.items():
        for label, voice in own.items():
            np.testing.assert_array_equal(read.voices[channel][label], voice)


def test_channels_share_their_numbers_and_their_limit(talk):
    half = talk[: 10 * RATE]
    speakers = Listening(models(), SpeakerOptions(most=2), {0: 0, 1: 0})
    stream(speakers, {0: half, 1: half})
    turns, _ = speakers.result()
    assert len({(turn.channel, turn.speaker) for turn in turns}) == len({turn.speaker for turn in turns}) == 2


def test_nobody_is_found_in_silence():
    speakers = Listening(models(), SpeakerOptions(), {None: 0})
    told = stream(speakers, {None: np.zeros(4 * RATE, np.float32)})
    assert set(told.values()) == {None}
    assert speakers.result() == ((), [])


def test_scripted_speakers_change_after_each_sentence():
    speakers = Listening(None, SpeakerOptions(), {None: 0})
    said = ["One", "two.", "Three?", "Four", "five"]
    told = [speakers.label(Word(text, n * RATE, (n + 1) * RATE, 1.0), None) for n, text in enumerate(said)]
    assert told == ["S1", "S1", "S2", "S1", "S1"]
    assert speakers.result()[1] == [SpeakerRun(0, 1, "S1"), SpeakerRun(2, 2, "S2"), SpeakerRun(3, 4, "S1")]


def test_scripted_speakers_go_on_after_a_restart_where_they_were():
    before = [LabelledWord(Word(text, 0, RATE, 1.0), None, label) for text, label in (("One.", "S1"), ("Two", "S2"))]
    speakers = Listening(None, SpeakerOptions(), {None: RATE}, before)
    assert [speakers.label(Word(text, RATE, 2 * RATE, 1.0), None) for text in ("and.", "Three")] == ["S2", "S1"]


def test_a_known_person_has_her_name_live(talk):
    known = known_voices(models(), {"Cindy": clip("flite/slt_5.flac")})
    speakers = Listening(models(), SpeakerOptions(known=known), {None: 0})
    told = stream(speakers, {None: talk})
    assert {"Cindy", "S1"} <= set(told.values()) <= {"Cindy", "S1", "S2"}
    assert "Cindy" not in speakers.state().labels(), "her voice comes from her reference"
    turns, runs = speakers.result()
    assert "Cindy" in {run.speaker for run in runs}
    assert len({turn.speaker for turn in turns}) == 2
