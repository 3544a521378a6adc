"""Which engine the settings give, and what is remembered of a model."""

import json
import logging
from pathlib import Path

import pytest

from pipeline.errors import ModelUnavailable
from pipeline.recognition.engines import load as loading
from pipeline.recognition.engines.load import EngineSettings, load
from pipeline.recognition.engines.windows import FULL, SHORTER
from tests.pipeline.sounds import SPEECH

MODEL = str(SPEECH / "tiny-whisper")


def whisper(cache: Path, *, windows: str = "auto", engine: str = "whisper") -> tuple[str, str, int]:
    engine_ = load(EngineSettings(engine=engine, model=MODEL, windows=windows, cache_dir=cache))
    engine_.close()
    return engine_.name, engine_.model, engine_.job


def test_the_named_engine_is_loaded(tmp_path: Path) -> None:
    assert load(EngineSettings(engine="scripted")).name == "scripted"
    assert whisper(tmp_path, windows="short") == ("whisper", "tiny-whisper", SHORTER[0].job)
    assert whisper(tmp_path, windows="full") == ("whisper", "tiny-whisper", FULL.job)
    with pytest.raises(ValueError, match="whisprr"):
        load(EngineSettings(engine="whisprr"))


def test_the_windows_of_a_model_are_measured_once_and_noted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with caplog.at_level(logging.INFO, logger=loading.__name__):
        assert whisper(tmp_path)[2] == SHORTER[0].job
    assert "measuring which windows suit the model" in caplog.messages
    (notes,) = tmp_path.iterdir()
    assert list(json.loads(notes.read_text()).values()) == ["short 3"]

    monkeypatch.setattr(loading, "measured_fit", lambda _: pytest.fail("it was measured already"))
    assert whisper(tmp_path)[2] == SHORTER[0].job
    notes.write_text(notes.read_text().replace("short 3", "full 28"))
    assert whisper(tmp_path)[2] == FULL.job


@pytest.mark.parametrize("notes", ["", "[]", "{", '{"x": 3}', "\udcff"])
def test_notes_that_cannot_be_read_are_made_again(tmp_path: Path, notes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "measured_fit", lambda _: (SHORTER[1], []))
    path = tmp_path / "scribewire-windows.json"
    path.write_bytes(notes.encode("utf-8", "surrogateescape"))
    assert whisper(tmp_path)[2] == SHORTER[1].job
    assert "short 10" in json.loads(path.read_text()).values()


def test_notes_that_cannot_be_written_are_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loading, "measured_fit", lambda _: (SHORTER[0], []))
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert whisper(tmp_path / "cache")[2] == SHORTER[0].job
    assert "could not note" in caplog.text


def test_a_named_engine_without_its_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable):
        load(EngineSettings(engine="whisper", model=str(tmp_path)))


def test_auto_is_whisper_where_its_model_is(tmp_path: Path) -> None:
    assert whisper(tmp_path, engine="auto", windows="short")[0] == "whisper"
