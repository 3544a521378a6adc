"""Tests of the figures of whole files, with known answers."""

import numpy as np

from benchmarks.accuracy import by_clip, compare
from benchmarks.file_scores import RecognitionResult, row
from benchmarks.live_scores import Shown
from benchmarks.tracks import Track, Truth
from pipeline.audio import RATE

SECOND = np.zeros(RATE, np.float32)


def track(*words: str, edges: tuple[int, int] = (0, 0)) -> Track:
    truth = tuple(Truth(word, float(at), at + 0.5) for at, word in enumerate(words))
    return Track(" ".join(words), "en", SECOND, truth, edges=edges)


def answer(*words: str, late: float = 0.0) -> RecognitionResult:
    return RecognitionResult([Shown(f" {word}", at + late, at + 0.5 - late) for at, word in enumerate(words)], "en")


def test_errors_are_a_share_of_all_words_of_the_group() -> None:
    figures = row([(track("one", "dog"), answer("one", "fog")), (track("a", "big", "cat"), answer("a", "big", "cat"))])
    assert (figures["clips"], figures["seconds"], figures["words"], figures["wer"]) == (2, 2, 5, 0.2)
    assert figures["each"] == {"one dog": (1, 2), "a big cat": (0, 3)}


def test_times_are_those_of_words_that_were_heard_right() -> None:
    figures = row([(track("the", "dog", "barks"), answer("the", "fog", "barks", late=0.125))])
    assert [figures[f"{edge}_s"][share] for edge in ("start", "end") for share in ("p50", "p95")] == [0.125] * 4


def test_where_nobody_speaks_every_word_is_out_of_nothing() -> None:
    silence = Track("silence", "", SECOND, ())
    assert row([(silence, answer("thank", "you"))]) == {"clips": 1, "seconds": 1, "words out of nothing": 2}


def test_a_clip_in_many_conditions_is_one_clip() -> None:
    assert by_clip([{"a": (1, 10), "b": (0, 5)}, {"a 0.50-3.00": (2, 4)}]) == {"a": (3, 14), "b": (0, 5)}
    figures = compare({"a": (3, 14), "b": (0, 6)}, {"a": (4, 14), "b": (0, 6)})
    assert (figures["clips"], figures["words"], figures["scribewire"], figures["difference"]) == (2, 20, 0.15, -0.05)
