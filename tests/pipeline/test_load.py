"""Which engine the settings give, and what is remembered of a model."""

import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.errors import ModelUnavailable
from pipeline.recognition.engines import load as loading
from pipeline.recognition.engines import models
from pipeline.recognition.engines.load import EngineSettings, Loaded, choose, load
from pipeline.recognition.engines.models import KNOWN, pull
from pipeline.recognition.engines.windows import FULL, SHORTER
from tests.hubs import put_into_cache
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


# --- which model -----------------------------------------------------------------------------------------------------


@pytest.fixture
def lonely(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A hub that nobody may speak to: it never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield silent


def chosen(cache: Path, *, model: str = "auto", engine: str = "auto") -> Loaded:
    loaded = choose(EngineSettings(engine=engine, model=model, windows="full", cache_dir=cache, device="cpu"))
    loaded.engine.close()
    return loaded


@pytest.mark.parametrize("engine", ["auto", "whisper"])
def test_where_none_is_named_the_bundled_model_hears_and_no_hub_is_asked(
    tmp_path: Path, lonely: socket.socket, engine: str
) -> None:
    loaded = chosen(tmp_path, engine=engine)
    assert (loaded.engine.name, loaded.engine.model, loaded.engine.languages) == ("whisper", "tiny.en", {"en"})
    assert (loaded.bundled, loaded.instead_of) == (True, None)
    lonely.settimeout(0.1)
    with pytest.raises(TimeoutError):
        lonely.accept()


def test_a_pulled_model_hears_from_then_on(tmp_path: Path) -> None:
    files = {path.name: path.read_bytes() for path in Path(MODEL).iterdir()}
    put_into_cache(tmp_path, KNOWN["base"].repository, files)
    pull("base", cache_dir=tmp_path, tell=lambda *_: None, every_s=1.0)
    loaded = chosen(tmp_path)
    assert (loaded.engine.model, loaded.bundled, loaded.instead_of) == ("base", False, None)
    assert "es" in loaded.engine.languages


def test_a_named_model_is_the_one_that_hears(tmp_path: Path) -> None:
    loaded = chosen(tmp_path, model=MODEL)
    assert (loaded.engine.model, loaded.bundled, loaded.instead_of) == ("tiny-whisper", False, None)


@pytest.mark.parametrize(("model", "why"), [("base", "could not be downloaded"), ("empty", "holds no model.bin")])
def test_a_named_model_that_cannot_be_had_is_replaced_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, model: str, why: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    loaded = chosen(tmp_path / "cache", model=model)
    assert (loaded.engine.model, loaded.bundled, loaded.instead_of) == ("tiny.en", True, model)
    assert "another one takes its place" in caplog.text
    assert why in caplog.text
    with pytest.raises(ModelUnavailable, match=why):
        chosen(tmp_path / "cache", model=model, engine="whisper")


def test_files_that_are_no_model_are_replaced_too(tmp_path: Path) -> None:
    put_into_cache(tmp_path, KNOWN["base"].repository, {"model.bin": b"?", "tokenizer.json": b"{}"})
    assert chosen(tmp_path).instead_of == "base"
    with pytest.raises(ModelUnavailable, match="could not be loaded"):
        chosen(tmp_path, engine="whisper")


@pytest.mark.usefixtures("lonely")
def test_without_any_model_the_sentence_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_PACKAGE", "no-such-package")
    for engine in ("auto", "whisper"):
        with pytest.raises(ModelUnavailable, match="`scribewire models pull base`"):
            chosen(tmp_path, engine=engine)
