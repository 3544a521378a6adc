"""Finding a model's files: in a folder, in the cache, on a hub that answers, is silent, or does not know the model."""

import hashlib
import json
import logging
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest

from pipeline.errors import ModelUnavailable
from pipeline.recognition.engines import models

REPOSITORY = "somebody/whisper-of-mine"
COMMIT = "c" * 40
FILES = {
    "model.bin": b"weights " * 40_000,
    "config.json": b"{}",
    "tokenizer.json": b"{}",
    "vocabulary.json": b"[]",
    "README.md": b"not needed",
}


class Hub(BaseHTTPRequestHandler):
    """As much of the Hugging Face hub as a download asks for."""

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path in (f"/api/models/{REPOSITORY}", f"/api/models/{REPOSITORY}/revision/main"):
            siblings = [{"rfilename": name, "size": len(data)} for name, data in FILES.items()]
            self._answer(json.dumps({"id": REPOSITORY, "sha": COMMIT, "siblings": siblings}).encode())
        elif path.startswith(f"/api/models/{REPOSITORY}/tree/"):
            rows = [
                {"type": "file", "path": name, "size": len(data), "oid": etag(data)} for name, data in FILES.items()
            ]
            self._answer(json.dumps(rows).encode())
        elif path.startswith(f"/{REPOSITORY}/resolve/") and path.rpartition("/")[2] in FILES:
            data = FILES[path.rpartition("/")[2]]
            self._answer(data, etag=etag(data))
        else:
            self._answer(b'{"error":"Repository not found"}', status=404)

    do_HEAD = do_GET  # noqa: N815  http.server calls it by this name

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is http.server's
        pass

    def _answer(self, body: bytes, *, status: int = 200, etag: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Repo-Commit", COMMIT)
        if status == 404:
            self.send_header("X-Error-Code", "RepoNotFound")
        if etag is not None:
            self.send_header("ETag", f'"{etag}"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def etag(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield
    server.shutdown()
    server.server_close()
    thread.join()


def located(model: str, cache_dir: Path, *, wait_s: float = 60.0) -> Path:
    return models.locate(model, cache_dir=cache_dir, download_wait_s=wait_s)


@pytest.mark.usefixtures("hub")
def test_a_download_that_takes_too_long_says_how_far_it_came(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match="came in time; starting again goes on from there"):
        located(REPOSITORY, tmp_path, wait_s=0.0)


def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    for name in ("model.bin", "tokenizer.json"):
        (tmp_path / name).touch()
    assert located(str(tmp_path), tmp_path / "cache") == tmp_path


@pytest.mark.parametrize("missing", ["model.bin", "tokenizer.json"])
def test_a_folder_without_a_needed_file_is_refused_by_name(tmp_path: Path, missing: str) -> None:
    for name in {"model.bin", "tokenizer.json"} - {missing}:
        (tmp_path / name).touch()
    with pytest.raises(ModelUnavailable, match=missing):
        located(str(tmp_path), tmp_path)


@pytest.mark.parametrize("model", ["bass", "/no/such/folder", "./models/base", "a/b/c", "~/whisper"])
def test_what_is_neither_a_name_nor_a_folder_is_refused_at_once_with_the_names(tmp_path: Path, model: str) -> None:
    with pytest.raises(ModelUnavailable, match=r"large-v3-turbo"):
        located(model, tmp_path)


@pytest.mark.usefixtures("hub")
def test_a_download_lands_in_the_cache_and_is_found_there_without_a_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger=models.__name__):
        folder = located(REPOSITORY, tmp_path)
    assert {path.name for path in folder.iterdir()} == set(FILES) - {"README.md"}
    assert (folder / "model.bin").read_bytes() == FILES["model.bin"]
    assert "downloading Whisper model" in caplog.messages
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    assert located(REPOSITORY, tmp_path) == folder


@pytest.mark.usefixtures("hub")
def test_a_model_that_the_hub_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match="could not be downloaded"):
        located("somebody/else", tmp_path)


def test_without_a_network_the_sentence_says_how_to_bring_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(ModelUnavailable, match=r"'base' could not be downloaded: .* Copy the folder"):
        located("base", tmp_path)


def test_a_hub_that_is_silent_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "REACH_S", 3.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        with pytest.raises(ModelUnavailable, match="gave no answer within 3 s"):
            located("base", tmp_path)


def test_the_download_program_says_what_went_wrong_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError("no space\nleft on device")

    monkeypatch.setattr(models.HfApi, "model_info", broken)
    models.main(REPOSITORY, str(tmp_path))
    assert capsys.readouterr().out == "failed OSError: no space left on device\n"


def test_every_name_stands_for_a_repository() -> None:
    assert all(repository.count("/") == 1 for repository in models.REPOSITORIES.values())
    assert {"base", "large-v3-turbo"} <= set(models.REPOSITORIES)
