"""Tests of models.py: names of models, the choice when none is named, and that the bundled one is genuine."""

import hashlib
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.errors import ModelUnavailable
from pipeline.recognition.engines import models
from pipeline.recognition.engines.models import (
    PINS,
    PUBLISHED,
    LocalModel,
    at_hand,
    automatic,
    locate,
    pull,
    translates,
)
from tests.hubs import hub, put_into_cache

FILES = {"model.bin": b"weights " * 40_000, "config.json": b"{}", "tokenizer.json": b"{}", "vocabulary.json": b"[]"}


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")


@pytest.fixture
def small_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Yield a hub with two models."""
    pin = replace(PINS["small"], sha256=hashlib.sha256(FILES["model.bin"]).hexdigest())
    monkeypatch.setitem(PINS, "small", pin)  # type: ignore[arg-type]  it is a dict
    with hub({PUBLISHED["small"].repository: FILES, "somebody/whisper-of-mine": FILES}) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield


def locate_model(model: str, cache_dir: Path) -> LocalModel:
    return locate(model, cache_dir=cache_dir, download_wait_s=60.0)


def pull_model(model: str, cache_dir: Path) -> LocalModel:
    return pull(model, cache_dir=cache_dir, report_progress=lambda *_: None, every_s=1.0)


def in_cache(name: str, cache_dir: Path) -> Path:
    return put_into_cache(cache_dir, PUBLISHED[name].repository, FILES)


# --- names -----------------------------------------------------------------------------------------------------------


def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    for name in ("model.bin", "tokenizer.json"):
        (tmp_path / name).touch()
    assert locate_model(str(tmp_path), tmp_path / "cache") == LocalModel(tmp_path.name, tmp_path)


@pytest.mark.parametrize("missing", ["model.bin", "tokenizer.json"])
def test_a_folder_without_a_needed_file_is_refused_by_name(tmp_path: Path, missing: str) -> None:
    for name in {"model.bin", "tokenizer.json"} - {missing}:
        (tmp_path / name).touch()
    with pytest.raises(ModelUnavailable, match=missing):
        locate_model(str(tmp_path), tmp_path)


@pytest.mark.parametrize("model", ["bass", "/no/such/folder", "./models/base", "a/b/c", "~/whisper"])
def test_what_is_neither_a_name_nor_a_folder_is_refused_at_once_with_the_names(tmp_path: Path, model: str) -> None:
    with pytest.raises(ModelUnavailable, match=r"large-v3-turbo"):
        locate_model(model, tmp_path)


@pytest.mark.usefixtures("small_hub")
def test_a_name_is_downloaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = locate_model("small", tmp_path)
    assert (found.name, found.bundled) == ("small", False)
    assert (found.folder / "model.bin").read_bytes() == FILES["model.bin"]
    assert locate_model("somebody/whisper-of-mine", tmp_path).name == "whisper-of-mine"
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    assert locate_model("small", tmp_path) == found


def test_a_published_model_of_another_commit_is_not_taken(tmp_path: Path) -> None:
    folder = in_cache("base", tmp_path)
    assert at_hand("base", tmp_path) is not None
    folder.rename(folder.with_name("d" * 40))
    (folder.parents[1] / "refs" / "main").write_text("d" * 40)
    assert at_hand("base", tmp_path) is None


def test_every_published_model_has_a_commit_and_a_digest_of_its_own() -> None:
    assert PINS.keys() == PUBLISHED.keys()
    for pin in PINS.values():
        assert re.fullmatch("[0-9a-f]{40}", pin.revision or "")
        assert re.fullmatch("[0-9a-f]{64}", pin.sha256 or "")
    assert len({pin.sha256 for pin in PINS.values()}) == len(PINS)


def test_models_of_several_languages_translate_unless_they_were_trained_without_translations() -> None:
    several = {name for name, known in PUBLISHED.items() if known.languages > 1}
    assert {name for name in several if not translates(name)} == {"large-v3-turbo"}
    assert not translates("faster-Distil-Whisper-large-v3")


# --- the bundled one -------------------------------------------------------------------------------------------------


def test_the_bundled_model_is_openais_tiny_en_byte_for_byte(bundled_model: Path) -> None:
    assert models.bundled_is_sound()
    assert {path.name for path in bundled_model.iterdir()} >= {
        "config.json",
        "model.bin",
        "tokenizer.json",
        "vocabulary.txt",
    }


def test_other_weights_in_its_place_are_noticed(
    tmp_path: Path, bundled_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(bundled_model, tmp_path / "copy")
    with (tmp_path / "copy" / "model.bin").open("r+b") as weights:
        weights.seek(40_000_000)
        weights.write(b"\0\0\0\0")
    monkeypatch.setattr(models, "bundled_folder", lambda: tmp_path / "copy")
    assert not models.bundled_is_sound()


def test_without_its_package_it_is_missed_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_PACKAGE", "no-such-package")
    assert models.bundled_folder() is None
    with pytest.raises(ModelUnavailable, match="scripts/setup model"):
        models.bundled_is_sound()


# --- where none is named ---------------------------------------------------------------------------------------------


def test_the_model_that_suits_the_device_comes_before_the_bundled_one(tmp_path: Path) -> None:
    in_cache("base", tmp_path)
    in_cache("large-v3-turbo", tmp_path)
    assert automatic("cpu", tmp_path) == ["base", "tiny.en"]
    assert automatic("cuda", tmp_path) == ["large-v3-turbo", "tiny.en"]


def test_what_other_programs_put_into_the_cache_is_not_taken(tmp_path: Path) -> None:
    in_cache("large-v3", tmp_path)
    assert automatic("cpu", tmp_path) == ["tiny.en"]


@pytest.mark.usefixtures("small_hub")
def test_the_model_that_was_pulled_last_comes_first(tmp_path: Path) -> None:
    in_cache("base", tmp_path)
    assert pull_model("small", tmp_path) == at_hand("small", tmp_path)
    assert automatic("cpu", tmp_path) == ["small", "base", "tiny.en"]
    pull_model("somebody/whisper-of-mine", tmp_path)
    assert automatic("cpu", tmp_path) == ["somebody/whisper-of-mine", "base", "tiny.en"]


@pytest.mark.usefixtures("no_hub")
def test_what_is_here_is_pulled_without_a_hub(tmp_path: Path) -> None:
    in_cache("base", tmp_path)
    in_cache("medium", tmp_path)
    assert pull_model("medium", tmp_path).name == "medium"
    assert automatic("cpu", tmp_path)[0] == "medium"
    assert pull_model("tiny.en", tmp_path).bundled
    assert automatic("cpu", tmp_path) == ["tiny.en", "base"]


@pytest.mark.usefixtures("no_hub")
def test_a_pull_that_fails_changes_nothing(tmp_path: Path) -> None:
    in_cache("medium", tmp_path)
    pull_model("medium", tmp_path)
    for name in ("small", "bass"):
        with pytest.raises(ModelUnavailable):
            pull_model(name, tmp_path)
    assert automatic("cpu", tmp_path) == ["medium", "tiny.en"]


def test_a_pulled_model_that_was_deleted_is_forgotten(tmp_path: Path) -> None:
    folder = in_cache("medium", tmp_path)
    pull_model("medium", tmp_path)
    shutil.rmtree(folder)
    assert automatic("cpu", tmp_path) == ["tiny.en"]


@pytest.mark.parametrize("note", [b"", b"bass", b"\xff\xfe", b"a/b/c", b"some body/else"])
def test_a_note_that_pull_never_wrote_is_ignored(tmp_path: Path, note: bytes) -> None:
    (tmp_path / "scribewire-pulled.txt").write_bytes(note)
    assert automatic("cpu", tmp_path) == ["tiny.en"]


def test_a_note_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    in_cache("base", tmp_path)
    (tmp_path / "scribewire-pulled.txt").mkdir()
    with pytest.raises(ModelUnavailable, match="cannot be written"):
        pull_model("base", tmp_path)
