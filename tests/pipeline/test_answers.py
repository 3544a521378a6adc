"""Tests of short answers after a pause, at the end of a recording: tiny.en writes them once, where they are said."""

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from pipeline.audio import RATE, Samples, position
from pipeline.batch import packing_options
from pipeline.ingest.vad import Vad
from pipeline.recognition.engine import DecodeRequest, Engine
from pipeline.recognition.engines.load import load
from pipeline.recognition.model_set import EngineSettings
from pipeline.words import Word
from tests.pipeline.sounds import SPEECH, jobs_of, read

ENDS_S = 10.6  # of the last word of jfk.flac


@pytest.fixture(scope="module")
def engine(bundled_model: Path) -> Iterator[Engine]:
    engine = load(EngineSettings(model=str(bundled_model)))
    yield engine
    engine.close()


def cut_word(text: str) -> Samples:
    """Return a word as it is said in two_cities.flac."""
    [row] = [
        row for row in json.loads((SPEECH / "human/manifest.json").read_text()) if row["file"] == "two_cities.flac"
    ]
    start, end = next((start, end) for word, start, end in row["words"] if word.strip(",.").lower() == text)
    return read(SPEECH / "human/two_cities.flac")[round((start - 0.03) * RATE) : round((end + 0.05) * RATE)]


def hush(seconds: float) -> Samples:
    return (np.random.default_rng(1).standard_normal(round(seconds * RATE)) * 3e-4).astype(np.float32)


def words_of_file(engine: Engine, samples: Samples) -> list[Word]:
    jobs = jobs_of(samples, Vad(), packing_options(engine.longest_job))
    requests = (DecodeRequest(samples=job.samples, start=job.start, voiced=job.voiced) for job in jobs)
    return list(chain.from_iterable(engine.recognise([request])[0].words for request in requests))


@pytest.mark.parametrize(("answer", "pause_s"), [("wisdom", 1.5), ("good", 0.8), ("good", 3.0)])
def test_a_short_answer_at_the_end_is_written_once_where_it_is_said(engine, answer, pause_s):
    sentence = read(SPEECH / "human/jfk.flac")[: round(ENDS_S * RATE)]
    words = words_of_file(engine, np.concatenate((sentence, hush(pause_s), cut_word(answer), hush(1.0))))
    *before, last = words
    assert before[-1].text.strip(".") == "country"
    assert last.text.strip(".").lower() == answer
    assert before[-1].end <= position(ENDS_S + 0.2)
    assert last.start >= position(ENDS_S + pause_s - 0.1)
    assert last.end <= position(ENDS_S + pause_s + 1.0)


def test_no_word_reaches_over_a_silence_or_stays_in_it(engine):
    sentence = read(SPEECH / "human/jfk.flac")[: round(2.3 * RATE)]  # And so my fellow Americans
    words = words_of_file(engine, np.concatenate((hush(0.5), sentence, hush(3.5), sentence, hush(2.0))))
    silences = [(2.8 + 0.3, 6.3), (2.8 + 5.8 + 0.3, 10.6)]
    assert len(words) == 10
    for start, end in silences:
        assert not [word for word in words if word.end > position(start) and word.start < position(end)]
