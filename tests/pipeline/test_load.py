"""Tests of load.py: which engine the settings give, and what is remembered about a model."""

import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.audio import position
from pipeline.errors import ModelUnavailable
from pipeline.recognition.engine import DecodeRequest, Engine, RecognitionResult
from pipeline.recognition.engines import models
from pipeline.recognition.engines.load import find_models, load
from pipeline.recognition.engines.whisper import loading
from pipeline.recognition.engines.whisper.windows import FULL, WindowSizes
from pipeline.recognition.model_set import EngineSettings, FoundModel
from tests.pipeline.sounds import SPEECH

MODEL = str(SPEECH / "tiny-whisper")


def choose(settings: EngineSettings) -> FoundModel:
    return find_models(settings).models[0]


def test_the_named_engine_is_loaded():
    assert load(EngineSettings(engine="scripted")).name == "scripted"
    with pytest.raises(ValueError, match="whisprr"):
        load(EngineSettings(engine="whisprr"))


# --- which windows suit a model --------------------------------------------------------------------------------------

QUICK = WindowSizes(7, 10, 14)


def windows(cache: Path, model: str = MODEL, *, wanted: Any = "auto") -> WindowSizes:
    found = choose(EngineSettings(engine="whisper", model=model, windows=wanted, cache_dir=cache))
    engine = found.load()
    engine.close()
    assert (found.measure is None) == (found.sizes is not None)
    return engine.sizes  # type: ignore[attr-defined]  # a WhisperEngine


@pytest.fixture
def strange(tmp_path: Path) -> str:
    """Return an unknown model: the test model with one more byte."""
    folder = tmp_path / "strange"
    shutil.copytree(MODEL, folder)
    with (folder / "model.bin").open("ab") as weights:
        weights.write(b"\0")
    return str(folder)


def replace_measurement(monkeypatch: pytest.MonkeyPatch, found: WindowSizes) -> list[RecognitionResult]:
    """Replace the measurement, which takes minutes, by one that recognises one request and returns *found*."""
    heard: list[RecognitionResult] = []

    def measure_sizes(hear: Any, clips: Any) -> WindowSizes:
        request = DecodeRequest(samples=clips[0].samples[: position(2)], start=0, language=clips[0].language)
        heard.append(hear(WindowSizes(20, 20, 19), request))
        return found

    monkeypatch.setattr(loading, "measure_sizes", measure_sizes)
    return heard


def test_known_models_need_no_measuring(tmp_path):
    assert windows(tmp_path) == WindowSizes(5, 5, 4)
    assert windows(tmp_path, "tiny.en") == WindowSizes(7, 15, 19)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("base_model")
def test_the_windows_of_base_are_known(tmp_path):
    [base] = find_models(EngineSettings(model="base", cache_dir=tmp_path)).models
    assert base.sizes == WindowSizes(7, 15, 28)


def test_a_model_of_the_same_size_as_a_known_one_is_not_taken_for_it(tmp_path):
    folder = tmp_path / "other"
    shutil.copytree(MODEL, folder)
    weights = bytearray((folder / "model.bin").read_bytes())
    weights[-1] ^= 1
    (folder / "model.bin").write_bytes(weights)
    assert choose(EngineSettings(engine="whisper", model=MODEL, cache_dir=tmp_path)).sizes is not None
    assert choose(EngineSettings(engine="whisper", model=str(folder), cache_dir=tmp_path)).sizes is None


def test_windows_can_be_given(tmp_path, strange):
    assert windows(tmp_path, wanted="full") == FULL
    assert windows(tmp_path, strange, wanted=QUICK) == QUICK


def test_an_unknown_model_hears_in_full_windows_until_it_was_measured_once(tmp_path, strange, monkeypatch):
    heard = replace_measurement(monkeypatch, QUICK)
    assert windows(tmp_path, strange) == FULL
    measure = choose(EngineSettings(engine="whisper", model=strange, cache_dir=tmp_path)).measure
    assert measure is not None
    assert (measure(), len(heard)) == (QUICK, 1)
    assert windows(tmp_path, strange) == QUICK


@pytest.mark.parametrize("notes", ["", "[]", "{", '{"x": 3}', "\udcff"])
def test_notes_that_cannot_be_read_are_made_again(tmp_path, strange, notes, monkeypatch):
    replace_measurement(monkeypatch, QUICK)
    path = tmp_path / "scribewire-windows.json"
    path.write_bytes(notes.encode("utf-8", "surrogateescape"))
    assert choose(EngineSettings(engine="whisper", model=strange, cache_dir=tmp_path)).measure() == QUICK
    assert "7 10 14" in json.loads(path.read_text()).values()


@pytest.mark.parametrize("noted", ["short 3", "7 10", "7 10 140", "6 10 14", "7 10 1", 3, None])
def test_a_note_that_is_no_fit_counts_as_none(noted):
    assert loading._parse_sizes(noted) is None


def test_notes_that_cannot_be_written_are_no_reason_to_fail(tmp_path, strange, monkeypatch, caplog):
    replace_measurement(monkeypatch, QUICK)
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert choose(EngineSettings(engine="whisper", model=strange, cache_dir=tmp_path / "cache")).measure() == QUICK
    assert "the measurement cannot be stored" in caplog.text


def folder_of(model: str) -> Path:
    return models.locate(model, cache_dir=None, download_wait_s=0.0).folder


# --- which model -----------------------------------------------------------------------------------------------------


@pytest.fixture
def lonely(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Set a hub that never answers, so that no test can use it."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield silent


def choose_model(cache: Path, *, model: str = "auto", engine: str = "auto") -> Engine:
    chosen = load(EngineSettings(engine=engine, model=model, windows="full", cache_dir=cache, device="cpu"))
    chosen.close()
    return chosen


@pytest.mark.usefixtures("without_base")
@pytest.mark.parametrize("engine", ["auto", "whisper"])
def test_where_none_is_named_the_bundled_model_hears_and_no_hub_is_asked(tmp_path, lonely, engine):
    loaded = choose_model(tmp_path, engine=engine)
    assert (loaded.name, loaded.model, loaded.languages) == ("whisper", "tiny.en", {"en"})
    lonely.settimeout(0.1)
    with pytest.raises(TimeoutError):
        lonely.accept()


def test_a_named_model_is_the_one_that_hears(tmp_path):
    assert choose_model(tmp_path, model=MODEL).model == "tiny-whisper"


@pytest.mark.parametrize("engine", ["auto", "whisper"])
@pytest.mark.parametrize(("model", "why"), [("medium", "could not be downloaded"), ("empty", "holds no model.bin")])
def test_a_named_model_that_cannot_be_had_is_not_replaced(tmp_path, monkeypatch, model, why, engine):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    with pytest.raises(ModelUnavailable, match=why):
        choose_model(tmp_path / "cache", model=model, engine=engine)


def test_several_models_are_found_with_what_each_hears(tmp_path):
    found = find_models(EngineSettings(model=f"{MODEL},en=tiny.en", cache_dir=tmp_path, device="cpu"))
    assert [(model.name, len(model.languages), model.bundled) for model in found.models] == [
        ("tiny-whisper", 4, False),
        ("tiny.en", 1, True),
    ]
    assert found.routes == {"en": "tiny.en"}
    weights = [(folder_of(name) / "model.bin").stat().st_size for name in (MODEL, "tiny.en")]
    assert all(model.size > size for model, size in zip(found.models, weights, strict=True))
    assert found.without("tiny.en").routes == {}


def test_a_model_is_not_named_for_a_language_that_it_does_not_know(tmp_path):
    with pytest.raises(ModelUnavailable, match=r"tiny\.en does not know 'es'"):
        find_models(EngineSettings(model=f"{MODEL},es=tiny.en", cache_dir=tmp_path, device="cpu"))


@pytest.mark.usefixtures("lonely", "without_models")
def test_without_any_model_the_sentence_says_what_to_do(tmp_path):
    for engine in ("auto", "whisper"):
        with pytest.raises(ModelUnavailable, match="`scribewire models pull base`"):
            choose_model(tmp_path, engine=engine)
