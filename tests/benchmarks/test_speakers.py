"""Tests of benchmarks/speakers.py and talks.py: who speaks when in made conversations, and how answers are scored."""

import numpy as np

from benchmarks.speakers import Answer, Score, most_agreeing
from benchmarks.talks import DEVELOPMENT, Talk, converse, speech_spans, voices
from pipeline.audio import RATE
from pipeline.words import SpeakerTurn, Word


def word(start_s: float, end_s: float) -> Word:
    return Word("w", round(start_s * RATE), round(end_s * RATE), 1.0)


def test_labels_are_matched_to_speakers_one_to_one():
    assert most_agreeing([("ann", "S2"), ("ann", "S2"), ("bob", "S2"), ("bob", "S1")]) == 3
    assert most_agreeing([("ann", "S1"), ("bob", "S1"), ("ann", "S2"), (None, "S3"), ("bob", None)]) == 2
    assert most_agreeing([]) == 0


def test_speech_is_where_a_clip_is_loud_and_short_pauses_belong_to_it():
    tone = np.sin(np.arange(RATE, dtype=np.float32))
    clip = np.concatenate([np.zeros(RATE // 2), tone, np.zeros(RATE // 5), tone, np.zeros(RATE), tone, np.zeros(RATE)])
    assert np.allclose(speech_spans(clip.astype(np.float32)), [(0.5, 2.7), (3.7, 4.7)], atol=0.03)


def test_everybody_speaks_in_a_conversation_and_its_turns_are_in_the_audio():
    people, _ = voices(DEVELOPMENT, None)
    samples, turns = converse(people, 40, np.random.default_rng(3))
    assert {who for who, *_ in turns} == people.keys()
    assert all(0 <= start < end <= len(samples) / RATE for _, start, end in turns)
    silent = np.ones(len(samples), bool)
    for _, start, end in turns:
        silent[round(start * RATE) : round(end * RATE)] = False
    assert np.abs(samples[silent]).mean() < 0.1 * np.abs(samples[~silent]).mean()


def test_a_perfect_answer_has_no_errors_and_one_voice_taken_for_two_counts():
    talk = Talk("people, 2", np.zeros(4 * RATE, np.float32), [("ann", 0.0, 2.0), ("bob", 2.0, 4.0)])
    said = [word(0, 0.5), word(0.9, 1.5), word(3, 3.5)]
    turns = [SpeakerTurn("S1", 0, 2 * RATE), SpeakerTurn("S2", 2 * RATE, 4 * RATE)]
    score = Score()
    score.add(talk, said, Answer(turns, ["S1", "S1", "S2"]), cpu_s=1.0)
    row = score.row()
    assert (row["DER"], row["numbers of voices right"], row["words right"], row["CPU s a second"]) == (0, 1, 1, 0.25)
    score.add(talk, said, Answer(turns[:1], ["S1", "S1", "S1"], most=1), cpu_s=0.0)
    row = score.row()
    assert (row["missed"], row["numbers of voices right"]) == (0.25, 1)
