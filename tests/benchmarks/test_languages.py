"""The benchmark of languages: what it counts, and what it remembers of a model's work."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.corpora import Clip
from benchmarks.language_scores import Heard, Recording, errors_of_clips, languages_of, longest_wrong_s
from benchmarks.memo import Memo
from benchmarks.tracks import MODEL
from pipeline.audio import RATE
from pipeline.recognition.engine import DecodeRequest
from pipeline.recognition.engines.load import load
from pipeline.recognition.engines.whisper.engine import WhisperEngine
from pipeline.recognition.model_set import EngineSettings
from pipeline.words import Word


def recording(*texts: tuple[str, str]) -> Recording:
    """Clips of a second each, with a second between them."""
    places = [
        (2 * at * RATE, (2 * at + 1) * RATE, Clip(language, Path("clip"), text))
        for at, (language, text) in enumerate(texts)
    ]
    return Recording("track", np.zeros(2 * len(texts) * RATE, np.float32), tuple(places))


@pytest.mark.parametrize(
    ("heard", "errors"),
    [
        ("uno dos tres cuatro", [(0, 2), (0, 2)]),
        ("uno tres cuatro", [(1, 2), (0, 2)]),
        ("uno dos mas tres seis cuatro", [(0, 2), (2, 2)]),
        ("", [(2, 2), (2, 2)]),
    ],
)
def test_each_clip_of_a_track_has_its_own_errors(heard, errors):
    assert errors_of_clips(recording(("es", "Uno dos."), ("es", "Tres, cuatro.")), heard) == errors


def test_a_wrong_language_counts_for_as_long_as_its_words_in_a_row():
    words = [
        Word("a", at * RATE // 2, (at + 1) * RATE // 2, 1.0, language=language)
        for at, language in [(0, "es"), (1, "it"), (4, "it"), (5, "en")]
    ]
    track = recording(("es", "uno dos"), ("en", "three four"))
    heard = Heard("", 0.0, words)
    assert languages_of(track, heard) == ["es", "it"]
    assert longest_wrong_s(track, heard) == 1.0


def test_a_remembered_call_gives_the_same_answer_without_the_model(tmp_path):
    engine = load(EngineSettings(engine="whisper", model=MODEL, device="cpu", threads=1))
    assert isinstance(engine, WhisperEngine)
    request = DecodeRequest(samples=np.random.default_rng(1).normal(0, 0.1, RATE).astype(np.float32), start=0)
    alone = engine.recognise([request])
    engine._model = first = Memo(engine._model, "tiny", tmp_path)
    assert engine.recognise([request]) == alone
    assert first.saved_s == pytest.approx(0)
    engine._model = second = Memo(None, "tiny", tmp_path)
    second.is_multilingual = first.is_multilingual
    assert engine.recognise([request]) == alone
    assert second.saved_s == second.counted_s == pytest.approx(first.counted_s)
