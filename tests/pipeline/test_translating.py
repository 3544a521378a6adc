"""Tests of translations on a real but very small model: it follows the task, although it never learnt to translate."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest

from pipeline.errors import EngineFailed
from pipeline.recognition.engine import TASKS, TRANSCRIBE, TRANSLATE, DecodeRequest, RecognitionResult
from pipeline.recognition.engines import bootstrap
from pipeline.words import join_words
from tests.pipeline.sounds import SPEECH, read

bootstrap.prepare()
from pipeline.recognition.engines.whisper.engine import WhisperEngine  # noqa: E402  after prepare(), as in load.py

MODEL = SPEECH / "tiny-whisper"
ONE, TWO = (read(SPEECH / "espeak" / name) for name in ("es_09.flac", "es_10.flac"))


@pytest.fixture(scope="module")
def engine() -> Iterator[WhisperEngine]:
    engine = WhisperEngine(MODEL, model="tiny-whisper")
    yield engine
    engine.close()


def texts(heard: list[RecognitionResult]) -> list[str]:
    return [join_words(answer.words) for answer in heard]


def test_both_tasks_share_a_call_and_neither_disturbs_the_other(engine):
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


def test_english_speech_is_transcribed_for_both_tasks(engine):
    samples = read(SPEECH / "espeak" / "en_02.flac")
    first, second = engine.recognise([DecodeRequest(samples=samples, start=0, task=task) for task in TASKS])
    assert texts([second]) == texts([first]) != [""]


def test_a_model_that_cannot_translate_says_so_and_does_not_pretend():
    engine = WhisperEngine(MODEL, model="tiny-turbo")
    assert not engine.translates
    asked = DecodeRequest(samples=ONE, start=0, language="es", task=TRANSLATE)
    for ask in (engine.bucket, lambda request: engine.recognise([request])):
        with pytest.raises(EngineFailed, match="tiny-turbo does not translate"):
            ask(asked)
        assert ask(replace(asked, task=TRANSCRIBE))
        assert ask(replace(asked, language="en"))
    engine.close()
