"""Tests of repeats.py: figures that are repeated faster than anybody speaks are cut to as many as were said."""

import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile

from benchmarks.latency import Bench
from pipeline.audio import RATE, position
from pipeline.ingest.vad import VoiceDetector
from pipeline.recognition.engines.gates import count_before_echo, failed_gate
from pipeline.recognition.engines.load import EngineSettings, load
from pipeline.recognition.engines.repeats import better_repeats, fit_figures, has_repeats, with_surroundings
from pipeline.words import join_words
from tests.pipeline.scripted_streams import timed_words

LOOP = timed_words(("Charge", 0.9, 1.4), ("42" * 23 + "5", 1.4, 4.7), ("and", 4.7, 5.0), ("send", 5.0, 5.2))


def fit_text(words, *voiced: tuple[float, float]) -> str:
    return join_words(fit_figures(words, [(position(start), position(end)) for start, end in voiced]))


def test_a_number_that_goes_on_without_end_is_cut_to_the_figures_that_fit_and_what_follows_stays():
    assert fit_text(LOOP, (0.9, 5.2)) == "Charge 42424242424242425 and send"
    assert fit_text(LOOP, (0.9, 3.0), (4.7, 5.2)) == "Charge 424242425 and send", "there is speech for eight of them"
    assert fit_text(LOOP) == fit_text(LOOP, (0.9, 5.2)), "without a voice detector all time is speech"


def test_figures_in_words_of_their_own_are_cut_as_well():
    row = timed_words(
        *((text, 1 + 0.1 * at, 1.1 + 0.1 * at) for at, text in enumerate(["4,", "2,"] * 12)), ("ok", 3.4, 3.7)
    )
    assert fit_text(row) == "4, 2, " * 6 + "ok"
    assert fit_text(timed_words(*(("five", 1 + 0.1 * at, 1.1 + 0.1 * at) for at in range(16)))) == "five " * 7 + "five"


@pytest.mark.parametrize(
    "text",
    ["4242424242424242", "888-888-8888", "4,000 4,000 4,000", "eight billion", "1234 5678 9012", "no no no no no"],
)
def test_what_can_be_said_in_its_time_is_left(text):
    words = timed_words(*((word, 1 + 2.6 * at, 3.6 + 2.6 * at) for at, word in enumerate(text.split())))
    assert fit_figures(words, []) == words


def test_a_row_is_told_from_other_numbers():
    assert has_repeats(timed_words(("4242-4242-4242", 0, 3)))
    assert not has_repeats(timed_words(("555-5555", 0, 3))), "too short"
    assert not has_repeats(timed_words(("eight", 0, 1), ("billion", 1, 2))), "one word says nine zeros"


def test_the_better_of_two_answers_has_all_other_words_and_no_more_figures_than_fit():
    again = timed_words(("Charge", 0.9, 1.4), ("42" * 9, 1.4, 4.7), ("and", 4.7, 5.0), ("send", 5.0, 5.2))
    assert better_repeats(LOOP, again, [])
    assert not better_repeats(again, LOOP, [])
    assert not better_repeats(LOOP, again[:2], []), "it lost two words"


SAID = (("My", 0.1, 0.3), ("card", 0.3, 0.7), ("4,", 0.9, 1.4), ("2.", 1.4, 1.8), ("4,", 2.1, 2.6), ("2.", 2.6, 3.0))
REST = (("It", 3.5, 3.7), ("expires", 3.7, 4.1), ("in", 4.6, 4.8), ("May.", 4.8, 5.2))
SPEECH = ((0.1, 1.8), (2.1, 3.0), (3.5, 4.1), (4.6, 5.2))


def hear_surroundings(words, said=SAID + REST):
    voiced = [(position(start), position(end)) for start, end in SPEECH]
    all_words = timed_words(*said)
    hear = lambda start, end: tuple(word for word in all_words if start <= word.start and word.end <= end)  # noqa: E731
    return with_surroundings(words, voiced, hear)


def test_what_a_row_of_figures_took_of_the_speech_around_it_is_heard_by_itself():
    row = timed_words(("42" * 10, 0.1, 5.2))
    both = hear_surroundings(row)
    assert join_words(both) == "My card 4242424242 It expires in May.", "figures have two seconds of speech"
    assert all(one.end <= two.start for one, two in pairwise(both))
    my_card, rest = timed_words(*SAID[:2]), timed_words(*REST)
    assert join_words(hear_surroundings(my_card + row)) == join_words(both)
    assert join_words(hear_surroundings(my_card + row, REST)) == join_words(both), (
        "the figures have their time all the same"
    )
    assert hear_surroundings(my_card + row + rest) == my_card + row + rest, "it has the words around it"


@pytest.mark.parametrize("text", ["4 2", "for two", "4242 It", ""])
def test_figures_by_themselves_are_no_words_around_a_row(text):
    row = timed_words(("Card", 0.1, 0.5), ("42" * 6, 0.5, 5.2))
    assert hear_surroundings(row, [(word, 4.6, 5) for word in text.split()]) == row


@pytest.mark.skipif(shutil.which("flite") is None, reason="flite is not installed")
def test_the_real_model_hears_what_is_said_after_a_card_number(bundled_model: Path, tmp_path: Path) -> None:
    card = ", ".join(["four two four two"] * 4)
    text = f"Please charge {card}, and send me the receipt. Thank you very much."
    subprocess.run(["flite", "-voice", "rms", "-t", text, "-o", str(tmp_path / "said.wav")], check=True)
    said, rate = soundfile.read(tmp_path / "said.wav", dtype="float32")
    assert rate == RATE
    samples = np.pad(said * (0.3 / np.abs(said).max()), position(0.5))
    engine = load(EngineSettings(model=str(bundled_model)))
    try:
        text = join_words(Bench(engine, VoiceDetector()).offline(samples))
    finally:
        engine.close()
    assert text.startswith("Please charge 4242")
    assert text.casefold().endswith("and send me the receipt. thank you very much.")


def test_the_gates_leave_rows_of_figures_alone():
    few = {"seconds": 6.0, "avg_logprob": -0.2, "no_speech_prob": 0.0}
    assert failed_gate("The number is " + "five " * 16, **few, cut_off=False) is None
    assert failed_gate("The number is " + "42" * 100, **few, cut_off=True) is None
    assert failed_gate("The number is " * 16, **few, cut_off=False) == "repetition"
    assert count_before_echo(LOOP[:2], []) == len(LOOP[:2])
    sixes = timed_words(("The", 0.5, 0.9), ("number", 0.9, 1.2), ("6" * 17, 1.2, 7.9))
    assert count_before_echo(sixes, []) == len(sixes)
