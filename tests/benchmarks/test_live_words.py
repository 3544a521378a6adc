"""Tests of live words of a real model on real clips, with a clock on which each call takes a tenth of a second."""

from collections.abc import Iterator
from functools import partial
from itertools import count

import numpy as np
import pytest

from benchmarks.latency import Bench, heard_clips
from benchmarks.tracks import MODEL, SPEECH, Track
from benchmarks.virtual_time import VirtualTimeLoop
from pipeline.audio import RATE
from pipeline.ingest.vad import Vad
from pipeline.recognition.engine import Engine
from pipeline.recognition.engines.load import load
from pipeline.recognition.model_set import EngineSettings
from tests.pipeline.sounds import read


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    engine = load(EngineSettings(engine="whisper", model=MODEL, device="cpu", threads=1))
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def bench(engine: Engine) -> Bench:
    ticks = count(0.0, 0.1)
    return Bench(engine, Vad(), clock=partial(VirtualTimeLoop, lambda: next(ticks)))


@pytest.fixture(scope="module")
def tracks(bench: Bench) -> list[Track]:
    return heard_clips(SPEECH, bench, longest_s=30)


def test_streamed_words_are_as_right_as_those_of_a_file_and_soon_final(bench, tracks):
    scores = bench.one_by_one(tracks)
    assert scores["words"] > 150
    assert scores["wer_gap"] <= 0.022, "more than four words: two with most processors"
    assert scores["coverage_of_offline"] >= 0.98
    assert scores["lost_at_end"] <= 1, "in es_11 the model itself does not know one word when it hears the end alone"
    assert scores["retractions"] == 0
    assert scores["commit_s"]["p50"] <= 1.0
    assert scores["commit_s"]["p95"] <= 2.0
    assert scores["first_seen_s"]["p50"] <= 0.5
    assert scores["start_error_s"]["p95"] <= 0.35
    assert scores["end_error_s"]["p95"] <= 0.35


@pytest.mark.parametrize("name", ["silence", "noise", "music"])
def test_what_is_not_speech_gives_no_words_and_asks_the_model_nothing(bench, name):
    sound = np.tile(read(SPEECH / f"other/{name}.flac"), 3)
    scores = bench.one_by_one([Track(name, "", sound, ())])
    assert (scores["errors"], scores["calls_per_audio_s"]) == (0, 0.0)


def test_ten_minutes_of_pause_between_two_sentences_are_ten_minutes_of_rest(bench, tracks):
    first, second = tracks[1], tracks[3]
    apart = bench.one_by_one([first, second])
    pause = np.zeros(600 * RATE, np.float32)
    joined = bench.one_by_one([Track("joined", "en", np.concatenate([first.samples, pause, second.samples]), ())])
    calls = apart["calls_per_audio_s"] * apart["audio_s"]
    assert joined["calls_per_audio_s"] * joined["audio_s"] == pytest.approx(calls, abs=1.0)
    assert joined["errors"] == pytest.approx(apart["words"], abs=1), "every word that came out counts, none is expected"
