"""Tests of the figures of whole files, with known answers."""

import numpy as np

from benchmarks.file_scores import RecognitionResult, row
from benchmarks.live_scores import Shown, Truth
from benchmarks.tracks import Track
from pipeline.audio import RATE

SECOND = np.zeros(RATE, np.float32)


def track(*words: str, edges: tuple[int, int] = (0, 0), language: str = "en") -> Track:
    truth = tuple(Truth(word, float(at), at + 0.5) for at, word in enumerate(words))
    return Track("clip", language, SECOND, truth, edges=edges)


def answer(*words: str, late: float = 0.0, language: str = "en") -> RecognitionResult:
    return RecognitionResult([Shown(word, at + late, at + 0.5 - late) for at, word in enumerate(words)], language)


def test_errors_are_a_share_of_all_words_of_the_group() -> None:
    figures = row([(track("one", "dog"), answer("one", "fog")), (track("a", "big", "cat"), answer("a", "big", "cat"))])
    assert (figures["clips"], figures["seconds"], figures["words"], figures["wer"]) == (2, 2, 5, 0.2)


def test_how_a_word_is_written_is_no_error() -> None:
    said = track("mister", "Smith", "has", "twenty", "dollars")
    assert row([(said, answer("Mr.", "Smith", "has", "$20."))])["wer"] == 0.0


def test_times_are_those_of_words_that_were_heard_right() -> None:
    figures = row([(track("the", "dog", "barks"), answer("the", "fog", "barks", late=0.125))])
    assert [figures[f"{edge} p{share} ms"] for edge in ("start", "end") for share in (50, 95)] == [125] * 4
    apart = row([(track("the", "dog"), RecognitionResult([Shown("the", 0.0, 0.5), Shown("dog", 3.0, 3.5)], "en"))])
    assert (apart["start p50 ms"], apart["start p95 ms"]) == (1000, 1900)


def test_words_that_a_cut_goes_through_may_come_or_not() -> None:
    cut = track("big", "dog", edges=(1, 0))
    assert row([(cut, answer("big", "dog"))])["wer"] == row([(cut, answer("the", "big", "dog"))])["wer"] == 0.0
    assert row([(cut, answer("big", "dog", "barks"))])["wer"] == 0.5


def test_a_wrong_language_is_counted() -> None:
    assert row([(track("dog"), answer("dog", language="de"))])["wrong languages"] == 1


def test_where_nobody_speaks_every_word_is_out_of_nothing() -> None:
    silence = Track("silence", "", SECOND, ())
    assert row([(silence, answer("thank", "you"))]) == {"clips": 1, "seconds": 1, "words out of nothing": 2}


def test_where_nothing_was_heard_there_are_no_times() -> None:
    figures = row([(track("dog"), answer())])
    assert figures["wer"] == 1.0
    assert "start p50 ms" not in figures
