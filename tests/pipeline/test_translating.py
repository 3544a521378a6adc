"""Tests of translations on a real but very small model: it follows the task, although it never learnt to translate."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from pipeline.audio import RATE
from pipeline.errors import EngineFailed
from pipeline.recognition.engine import TASKS, TRANSCRIBE, TRANSLATE, DecodeRequest, RecognitionResult
from pipeline.recognition.engines import bootstrap
from pipeline.recognition.engines.gates import failed_gate
from pipeline.words import join_words
from tests.pipeline.noting import RecordingModel
from tests.pipeline.sounds import SPEECH, read

bootstrap.prepare()
from pipeline.recognition.engines.whisper import WhisperEngine  # noqa: E402  after prepare(), as in load.py

MODEL = SPEECH / "tiny-whisper"
ONE, TWO = (read(SPEECH / "espeak" / name) for name in ("es_09.flac", "es_10.flac"))


@pytest.fixture(scope="module")
def engine() -> Iterator[WhisperEngine]:
    engine = WhisperEngine(MODEL, model="tiny-whisper")
    yield engine
    engine.close()


def texts(heard: list[RecognitionResult]) -> list[str]:
    return [join_words(answer.words) for answer in heard]


def test_both_tasks_share_a_call_and_neither_disturbs_the_other(engine: WhisperEngine) -> None:
    asked = [DecodeRequest(samples=TWO, start=0, task=task) for task in TASKS]
    assert engine.bucket(asked[0]) == engine.bucket(asked[1])
    alone = [engine.recognise([request])[0] for request in asked]
    assert texts(alone)[0] != texts(alone)[1]
    for order in ((0, 1), (1, 0)):
        together = engine.recognise([asked[index] for index in order])
        assert texts(together) == [texts(alone)[index] for index in order]
        for index, heard in zip(order, together, strict=True):
            times = [(word.start, word.end) for word in heard.words]
            assert times == [(word.start, word.end) for word in alone[index].words]
            assert all(one.end <= two.start for one, two in pairwise(heard.words))
            assert heard.language == "es", "the language that is spoken"


def test_words_are_aligned_with_the_task_that_their_answer_began_with(
    engine: WhisperEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    noting = RecordingModel(engine._model)
    monkeypatch.setattr(engine, "_model", noting)
    engine.recognise([DecodeRequest(samples=TWO, start=0, task=task) for task in TASKS])
    [prompts] = noting.calls
    assert sorted(noting.starts) == sorted(prompt[:-1] for prompt in prompts), "without <|notimestamps|>"


def test_english_speech_is_transcribed_for_both_tasks(engine: WhisperEngine) -> None:
    samples = read(SPEECH / "espeak" / "en_02.flac")
    first, second = engine.recognise([DecodeRequest(samples=samples, start=0, task=task) for task in TASKS])
    assert texts([second]) == texts([first]) != [""]


def test_speech_that_a_translation_seems_to_leave_out_is_not_heard_twice(
    engine: WhisperEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = np.concatenate([ONE, np.zeros(3 * RATE, np.float32)])
    asked = DecodeRequest(samples=samples, start=0, language="es", voiced=((0, len(samples)),))
    calls = {}
    for task in TASKS:
        noting = RecordingModel(engine._model)
        with monkeypatch.context() as patched:
            patched.setattr(engine, "_model", noting)
            engine.recognise([replace(asked, task=task)])
        calls[task] = len(noting.calls)
    assert calls[TRANSCRIBE] > calls[TRANSLATE] == 1


def test_each_stretch_of_speech_is_translated_once_where_the_whole_is_refused(
    engine: WhisperEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    silence = np.zeros(2 * RATE, np.float32)
    samples, second = np.concatenate([ONE, silence, TWO]), len(ONE) + len(silence)
    spans = ((0, len(ONE)), (second, len(samples)))
    asked = DecodeRequest(samples=samples, start=0, language="es", task=TRANSLATE, voiced=spans)

    def refuse_the_whole(text: str, *, seconds: float, **numbers: float) -> str | None:
        whole = seconds > len(samples) / RATE - 1
        return "repetition" if whole else failed_gate(text, seconds=seconds, **numbers)  # type: ignore[arg-type]  # one is a bool

    monkeypatch.setattr("pipeline.recognition.engines.whisper.failed_gate", refuse_the_whole)
    noting = RecordingModel(engine._model)
    monkeypatch.setattr(engine, "_model", noting)
    (heard,) = engine.recognise([asked])
    assert heard.rejected is None
    assert {(word.start + word.end) // 2 < second for word in heard.words} == {True, False}
    assert len(noting.calls) == 4, "the whole, its second look, and each stretch"


def test_a_model_that_cannot_translate_says_so_and_does_not_pretend() -> None:
    engine = WhisperEngine(MODEL, model="tiny-turbo")
    assert not engine.translates
    asked = DecodeRequest(samples=ONE, start=0, language="es", task=TRANSLATE)
    for ask in (engine.bucket, lambda request: engine.recognise([request])):
        with pytest.raises(EngineFailed, match="tiny-turbo does not translate"):
            ask(asked)
        assert ask(replace(asked, task=TRANSCRIBE))
        assert ask(replace(asked, language="en"))
    engine.close()
