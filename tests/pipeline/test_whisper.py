"""Tests of the Whisper engine on a real but very small model: words, times, and requests that share a call."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.scoring import matches, spoken_words, word_errors
from pipeline.audio import LONGEST_JOB, RATE, Samples, position
from pipeline.batch import packing_options
from pipeline.errors import EngineFailed, ModelUnavailable
from pipeline.ingest.vad import Vad
from pipeline.recognition.engine import DecodeRequest, Hints, RecognitionResult
from pipeline.recognition.engines import bootstrap
from pipeline.recognition.engines.whisper.windows import FULL, WindowSizes
from pipeline.words import Word, join_words
from tests.pipeline.sounds import CLIPS, SPEECH, jobs_of, read

bootstrap.prepare()
from pipeline.recognition.engines.whisper.engine import WhisperEngine  # noqa: E402  after prepare(), as in load.py

MODEL = SPEECH / "tiny-whisper"
SHORT = WindowSizes(5, 5, 4)
TOGETHER = 8  # requests in one call
KNOWN = [clip for clip in CLIPS if clip["file"].startswith("espeak/") and clip["seconds"] < 15]
OTHER = [clip for clip in CLIPS if clip["file"].startswith("other/")]


@pytest.fixture(scope="module")
def engine() -> Iterator[WhisperEngine]:
    engine = WhisperEngine(MODEL, model="tiny-whisper", sizes=SHORT)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def jobs(engine: WhisperEngine) -> dict[str, list[DecodeRequest]]:
    """Return the decode jobs of each known clip, as a file has them."""
    detector, options = Vad(), packing_options(engine.longest_job)
    return {
        clip["file"]: [
            DecodeRequest(samples=item.samples, start=item.start)
            for item in jobs_of(read(SPEECH / clip["file"]), detector, options)
        ]
        for clip in KNOWN
    }


@pytest.fixture(scope="module")
def alone(engine: WhisperEngine, jobs: dict[str, list[DecodeRequest]]) -> dict[str, list[RecognitionResult]]:
    """Return the answer to each job alone in a call."""
    return {name: [engine.recognise([request])[0] for request in requests] for name, requests in jobs.items()}


def clip_words(answers: list[RecognitionResult]) -> list[Word]:
    return [word for heard in answers for word in heard.words]


def clip(name: str) -> Samples:
    return read(SPEECH / name)


def request(samples: Samples, **settings: Any) -> DecodeRequest:
    return DecodeRequest(samples=samples, start=0, **settings)


def decided(text: str, end: int = 0) -> tuple[Word, ...]:
    return tuple(Word(word, end, end, 1.0) for word in text.split())


def same(one: RecognitionResult, two: RecognitionResult) -> bool:
    """Return whether both are equal except for rounding: a call pads token lists, and adds in another order."""

    def bare(heard: RecognitionResult) -> RecognitionResult:
        words = tuple(replace(word, probability=0.0) for word in heard.words)
        return replace(heard, words=words, avg_logprob=0.0, no_speech_prob=0.0)

    numbers = [
        [*(word.probability for word in heard.words), heard.avg_logprob, heard.no_speech_prob] for heard in (one, two)
    ]
    return bare(one) == bare(two) and bool(np.allclose(*numbers, atol=2e-3))


def test_words_of_short_clips_are_heard_almost_without_error(alone):
    errors = words = 0
    for row in KNOWN:
        said = spoken_words(row["text"])
        errors += word_errors(said, spoken_words(join_words(clip_words(alone[row["file"]]))))
        words += len(said)
    assert errors / words <= 0.06


def test_the_language_of_every_clip_is_right(engine, jobs, alone):
    for row in KNOWN:
        found = engine.detect_language(jobs[row["file"]][0].samples)
        assert (row["file"], max(found, key=found.__getitem__)) == (row["file"], row["language"])
        assert found[row["language"]] > 0.5
        assert {heard.language for heard in alone[row["file"]] if heard.words} == {row["language"]}


def test_word_times_are_true(alone):
    starts, ends = [], []
    for row in KNOWN:
        heard = clip_words(alone[row["file"]])
        truth = [(spoken_words(word)[0], start, end) for word, start, end in row["words"]]
        for said, index in matches([word for word, _, _ in truth], [spoken_words(word.text)[0] for word in heard]):
            starts.append(abs(heard[index].start / RATE - truth[said][1]))
            ends.append(abs(heard[index].end / RATE - truth[said][2]))
    for errors in (starts, ends):
        assert np.percentile(errors, 50) <= 0.08
        assert np.percentile(errors, 95) <= 0.35


def test_words_are_in_order_inside_their_window_with_some_length(jobs, alone):
    for name, requests in jobs.items():
        for job, heard in zip(requests, alone[name], strict=True):
            assert all(one.end <= two.start for one, two in pairwise(heard.words))
            assert all(0 < word.probability <= 1 and word.spaced for word in heard.words)
            assert all(job.start <= word.start < word.end <= job.start + len(job.samples) for word in heard.words)


def test_company_in_a_call_changes_nothing(engine, jobs, alone):
    """English and Spanish, with and without a given language, in one call and in any order."""
    pairs = [(job, heard) for name in jobs for job, heard in zip(jobs[name], alone[name], strict=True)]
    by_bucket: dict[Any, list[tuple[DecodeRequest, RecognitionResult]]] = {}
    for index, (job, heard) in enumerate(pairs):
        named = replace(job, language=heard.language) if index % 3 == 0 else job
        by_bucket.setdefault(engine.bucket(named), []).append((named, heard))
    for members in by_bucket.values():
        members.sort(key=lambda pair: len(pair[0].samples) % 997)
        for first in range(0, len(members), TOGETHER):
            group = members[first : first + TOGETHER]
            for heard, (job, expected) in zip(engine.recognise([job for job, _ in group]), group, strict=True):
                if job.language is not None:
                    heard = replace(heard, language_probability=expected.language_probability)  # noqa: PLW2901  the compared copy
                assert same(heard, expected)


def test_the_same_request_gives_the_same_answer(engine):
    asked = request(clip("espeak/en_noisy_1.flac"))
    assert engine.recognise([asked]) == engine.recognise([asked])


@pytest.mark.parametrize("row", OTHER, ids=lambda row: str(row["file"]))
@pytest.mark.parametrize("sizes", [SHORT, FULL], ids=["short", "full"])
def test_silence_noise_and_music_say_nothing(engine, row, sizes):
    """Even without voice detection before it."""
    samples = clip(row["file"])
    engine.sizes = sizes
    try:
        answers = [
            engine.recognise([request(part)])[0] for part in (samples, samples[: position(3)], samples[: RATE // 2])
        ]
    finally:
        engine.sizes = SHORT
    assert [heard.words for heard in answers] == [()] * 3


def test_a_partial_is_heard_at_once_and_almost_as_well(engine):
    row = next(row for row in KNOWN if row["file"] == "espeak/en_07.flac")
    (heard,) = engine.recognise([request(clip(row["file"]), final=False)])
    assert word_errors(spoken_words(row["text"]), spoken_words(join_words(heard.words))) <= 2


def test_a_window_that_stops_inside_a_sentence_says_what_was_said_so_far(engine):
    samples = clip("espeak/en_01.flac")  # Two simple ocean in our yellow computer.
    (heard,) = engine.recognise([request(samples[: position(1.1)], final=False)])
    assert spoken_words(join_words(heard.words))[:3] == ["two", "simple", "ocean"]
    assert len(heard.words) <= 4


def test_an_answer_begins_with_what_is_decided_and_goes_on_from_there(engine):
    samples = clip("espeak/en_01.flac")  # Two simple ocean in our yellow computer.
    (heard,) = engine.recognise([request(samples, final=False, decided=decided("Two sample ocean", position(1.3)))])
    words = spoken_words(join_words(heard.words))
    assert (words[:3], words[-2:]) == (["two", "sample", "ocean"], ["yellow", "computer"])  # processors differ on "in"
    assert heard.words[2].end < heard.words[-1].end
    (heard,) = engine.recognise([request(samples, final=False, decided=decided("Two sample ocean"))])
    assert "simple" in join_words(heard.words), "what is decided ended before somebody spoke"


def test_buckets_part_what_cannot_share_a_call(engine):
    second = np.zeros(RATE, np.float32)
    plain = engine.bucket(request(second))
    assert engine.bucket(request(np.zeros(3 * RATE, np.float32))) == plain
    assert engine.bucket(request(second, language="es")) == plain
    assert engine.bucket(request(np.zeros(4 * RATE + 1, np.float32))) != plain
    partial = engine.bucket(request(second, final=False))
    assert partial != plain
    assert engine.bucket(request(second, hints=Hints(("Scribewire",)))) != plain
    assert engine.bucket(request(second, final=False, decided=decided("two simple"))) not in (plain, partial)


def test_the_least_windows_of_partials_and_finals_are_the_fits(engine, monkeypatch):
    def window_s(seconds: float, *, final: bool) -> int:
        shape = engine.bucket(request(np.zeros(round(seconds * RATE), np.float32), final=final))
        return shape.window_s  # type: ignore[attr-defined, no-any-return]  # a bucket is a Shape

    monkeypatch.setattr(engine, "sizes", WindowSizes(10, 15, 19))
    assert [window_s(seconds, final=False) for seconds in (1, 9, 9.1, 14.1, 29.9)] == [10, 10, 15, 20, 30]
    assert [window_s(seconds, final=True) for seconds in (1, 9, 14, 19, 19.1)] == [15, 15, 15, 20, 30]
    assert engine.longest_job == 19 * RATE


def test_a_fit_that_changes_while_requests_wait_harms_none_of_them(engine, monkeypatch):
    """They were grouped when both fitted into the same window."""
    samples = clip("espeak/en_07.flac")
    short, long = request(samples[: 2 * RATE]), request(samples)
    monkeypatch.setattr(engine, "sizes", FULL)
    assert engine.bucket(short) == engine.bucket(long)
    monkeypatch.setattr(engine, "sizes", SHORT)
    heard = engine.recognise([short, long])
    assert same(heard[1], engine.recognise([long])[0])
    assert heard[0].words


def test_a_hint_leaves_words_and_times_in_order(engine):
    samples = clip("espeak/en_02.flac")  # One simple engine across my black orange.
    asked = request(samples, hints=Hints(("engine", "orange")))
    (heard,) = engine.recognise([asked])
    assert (
        word_errors(spoken_words("One simple engine across my black orange."), spoken_words(join_words(heard.words)))
        <= 2
    )
    assert all(0 <= word.start < word.end <= len(samples) for word in heard.words)


def test_a_hint_with_the_models_own_marks_harms_nobody_elses_request_in_the_call(engine):
    asked = request(clip("espeak/en_02.flac"), hints=Hints(("engine", "orange", "black")))
    marked = (replace(asked, hints=Hints(prompt=f"<|startoftranscript|>{count * ' a'}")) for count in range(20))
    hostile = next(other for other in marked if engine.bucket(other) == engine.bucket(asked))
    together, _ = engine.recognise([asked, hostile])
    assert together.words == engine.recognise([asked])[0].words


def test_thirty_seconds_and_a_single_sample_can_be_heard(engine):
    whole = clip("espeak/en_long.flac")[:LONGEST_JOB]
    (heard,) = engine.recognise([request(whole)])
    assert heard.words
    assert heard.words[-1].end <= LONGEST_JOB
    assert engine.recognise([request(whole[:1])])[0].words == ()


def test_voices_that_the_model_never_heard_still_give_a_valid_answer(engine):
    (heard,) = engine.recognise([request(clip("flite/rms_0.flac"))])
    assert all(one.end <= two.start for one, two in pairwise(heard.words))
    assert heard.avg_logprob < 0


@settings(max_examples=15)
@given(at=st.integers(0, 100_000), length=st.integers(1, 60_000), loudness=st.sampled_from([0.0, 1e-4, 1.0, 30.0]))
def test_any_cut_at_any_loudness_gives_words_inside_it(engine, at, length, loudness):
    samples = np.clip(clip("espeak/en_06.flac")[at : at + length] * loudness, -1, 1).astype(np.float32)
    if not len(samples):
        samples = np.zeros(1, np.float32)
    (heard,) = engine.recognise([DecodeRequest(samples=samples, start=at)])
    assert all(at <= word.start <= word.end <= at + len(samples) for word in heard.words)


def test_several_threads_may_ask_at_the_same_time(engine, jobs, alone):
    asked = [job for requests in jobs.values() for job in requests]
    expected = [heard for answers in alone.values() for heard in answers]
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda job: engine.recognise([job])[0], asked))
    assert all(map(same, answers, expected))


def test_a_folder_that_is_no_model_is_refused_with_its_name(tmp_path):
    (tmp_path / "model.bin").write_bytes(b"no model")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelUnavailable, match=str(tmp_path)):
        WhisperEngine(tmp_path, model="x")


def test_a_closed_engine_fails_and_closes_again():
    engine = WhisperEngine(MODEL, model="tiny-whisper", sizes=SHORT)
    engine.close()
    engine.close()
    with pytest.raises(EngineFailed):
        engine.recognise([request(np.zeros(RATE, np.float32))])
