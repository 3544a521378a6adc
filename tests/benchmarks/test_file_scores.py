"""Tests of the figures of whole files, with known answers."""

import numpy as np

from benchmarks.file_scores import RecognitionResult, row
from benchmarks.live_scores import Shown
from benchmarks.tracks import Track, Truth
from pipeline.audio import RATE

SECOND = np.zeros(RATE, np.float32)


def track(*words: str) -> Track:
    truth = tuple(Truth(word, float(at), at + 0.5) for at, word in enumerate(words))
    return Track(" ".join(words), "en", SECOND, truth)


def answer(*words: str, late: float = 0.0) -> RecognitionResult:
    return RecognitionResult([Shown(f" {word}", at + late, at + 0.5 - late) for at, word in enumerate(words)], "en")


def test_errors_are_a_share_of_all_words_of_the_group():
    figures = row([(track("one", "dog"), answer("one", "fog")), (track("a", "big", "cat"), answer("a", "big", "cat"))])
    assert (figures["clips"], figures["seconds"], figures["words"], figures["wer"]) == (2, 2, 5, 0.2)
    assert figures["each"] == {"one dog": (1, 2), "a big cat": (0, 3)}


def test_times_are_those_of_words_that_were_heard_right():
    figures = row([(track("the", "dog", "barks"), answer("the", "fog", "barks", late=0.125))])
    assert [figures[f"{edge}_s"][share] for edge in ("start", "end") for share in ("p50", "p95")] == [0.125] * 4
