"""Tests of downloads: from a hub that answers, one that is silent, and one that does not know the model."""

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.errors import ModelUnavailable
from pipeline.recognition.engines import models
from pipeline.recognition.engines.models import ModelDownload, find_cached
from tests.hubs import hub, put_into_cache

REPOSITORY = "somebody/whisper-of-mine"
FILES = {
    "model.bin": b"weights " * 40_000,
    "config.json": b"{}",
    "tokenizer.json": b"{}",
    "vocabulary.json": b"[]",
    "README.md": b"not needed",
}


@pytest.fixture(autouse=True)
def _hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with hub({REPOSITORY: FILES}) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield


def download(cache_dir: Path, repository: str = REPOSITORY, *, wait_s: float = 60.0) -> Path:
    return ModelDownload(model="mine", repository=repository, cache_dir=cache_dir, wait_s=wait_s).run()


def test_a_download_lands_in_the_cache_and_is_found_there(tmp_path, caplog):
    assert find_cached(REPOSITORY, tmp_path) is None
    with caplog.at_level(logging.INFO, logger=models.__name__):
        folder = download(tmp_path)
    assert {path.name for path in folder.iterdir()} == set(FILES) - {"README.md"}
    assert (folder / "model.bin").read_bytes() == FILES["model.bin"]
    assert "downloading Whisper model" in caplog.messages
    assert find_cached(REPOSITORY, tmp_path) == folder


@pytest.mark.parametrize("missing", ["model.bin", "tokenizer.json"])
def test_a_download_that_broke_off_is_not_taken_for_a_model(tmp_path, missing):
    put_into_cache(tmp_path, REPOSITORY, {name: data for name, data in FILES.items() if name != missing})
    assert find_cached(REPOSITORY, tmp_path) is None
    assert (download(tmp_path) / missing).read_bytes() == FILES[missing]


def test_whoever_waits_is_told_how_far_it_is(tmp_path):
    told: list[tuple[int, int]] = []
    ModelDownload(
        model="mine",
        repository=REPOSITORY,
        cache_dir=tmp_path,
        wait_s=60.0,
        report_progress=lambda here, total: told.append((here, total)),
        every_s=0.01,
    ).run()
    assert told
    assert {total for _, total in told} == {len(FILES["model.bin"])}
    assert [here for here, _ in told] == sorted(here for here, _ in told)


def test_a_download_that_takes_too_long_says_how_far_it_came(tmp_path):
    with pytest.raises(ModelUnavailable, match="came in time; the next attempt continues from there"):
        download(tmp_path, wait_s=0.0)


@pytest.mark.parametrize("repository", ["somebody/else", "some body/else"])
def test_a_model_that_the_hub_does_not_have_is_refused(tmp_path, repository):
    assert find_cached(repository, tmp_path) is None
    with pytest.raises(ModelUnavailable, match="could not be downloaded"):
        download(tmp_path, repository)


def test_without_a_network_the_sentence_says_how_to_bring_a_model(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(ModelUnavailable, match=r"'mine' could not be downloaded from .* Copy the folder"):
        download(tmp_path)


def test_a_hub_that_is_silent_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "REACH_S", 3.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(ModelUnavailable, match="gave no answer within 3 s"):
            download(tmp_path)
