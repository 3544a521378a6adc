"""Tests of `scribewire transcribe`: on this machine or by a server, from a file, an address or a pipe."""

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from pipeline.recognition.engines.scripted import SCRIPT
from tests.processes import free_port
from tests.server.commanding import run_command
from tests.server.receiving import host_folder
from tests.server.running import CLIP, ROOT, Server, environment

BEGINNING = " ".join(SCRIPT[:5])


def run_transcribe(server: Server, *words: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run `scribewire transcribe` with *words*, with the server's settings."""
    return run_command("transcribe", *words, environ=environment(server.data_dir, **server.variables), **options)


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """Yield the address of a web server with the clips."""
    with host_folder(CLIP.parent) as address:
        yield address


@pytest.mark.parametrize("by_server", [False, True], ids=["here", "by a server"])
def test_a_file_becomes_the_files_that_were_asked_for(small_server, tmp_path, *, by_server):
    where = ("--server", small_server.base) if by_server else ()
    done = run_transcribe(
        small_server, str(CLIP), "--formats", "json,srt,txt", "--words", "--out", str(tmp_path), *where
    )
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{CLIP.stem}.{kind}" for kind in ("json", "srt", "txt")
    ]
    transcript = json.loads((tmp_path / f"{CLIP.stem}.json").read_bytes())
    assert transcript["text"].startswith(BEGINNING)
    assert [word["word"] for word in transcript["words"]] == transcript["text"].split()
    assert (tmp_path / f"{CLIP.stem}.txt").read_text() == transcript["text"] + "\n"


@pytest.mark.parametrize("by_server", [False, True], ids=["here", "by a server"])
def test_subtitles_have_the_shape_that_was_asked_for(small_server, *, by_server):
    where = ("--server", small_server.base) if by_server else ()
    done = run_transcribe(
        small_server, str(CLIP), "--formats", "srt", "--max-columns", "20", "--max-lines", "1", *where
    )
    assert done.returncode == 0, done.stderr
    cues = done.stdout.strip().split("\n\n")
    assert len(cues) > 1
    assert all(len(cue.splitlines()) == 3 and len(cue.splitlines()[2]) <= 20 for cue in cues)


@pytest.mark.parametrize("by_server", [False, True], ids=["here", "by a server"])
def test_an_address_is_fetched_by_who_transcribes(small_server, elsewhere, *, by_server):
    where = ("--server", small_server.base) if by_server else ()
    done = run_transcribe(small_server, f"{elsewhere}/{CLIP.name}", *where)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(BEGINNING)


@pytest.mark.parametrize("by_server", [False, True], ids=["here", "by a server"])
def test_a_pipe_is_read_to_its_end(small_server, *, by_server):
    where = ("--server", small_server.base) if by_server else ()
    done = run_transcribe(small_server, "-", *where, stdin=CLIP.read_bytes())
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(BEGINNING)


def test_several_formats_become_files_in_the_current_folder(small_server, elsewhere, tmp_path):
    for source, stem in ((str(CLIP), CLIP.stem), ("-", "transcript"), (f"{elsewhere}/{CLIP.name}#t=0", CLIP.stem)):
        folder = tmp_path / {"-": "pipe", "h": "address", "/": "file"}[source[0]]
        folder.mkdir()
        done = run_transcribe(small_server, source, "--formats", "json,srt", cwd=folder, stdin=CLIP.read_bytes())
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert sorted(path.name for path in folder.iterdir()) == [f"{stem}.json", f"{stem}.srt"]
        assert json.loads((folder / f"{stem}.json").read_bytes())["text"].startswith(BEGINNING)
        assert done.stderr.splitlines() == [f"scribewire: wrote {stem}.{kind}" for kind in ("json", "srt")]


@pytest.mark.parametrize("formats", ["json,srt", "srt"])
def test_the_input_is_never_written_over(small_server, tmp_path, formats):
    (tmp_path / "talk.srt").write_bytes(CLIP.read_bytes())
    words = () if "," in formats else ("--out", ".")
    done = run_transcribe(small_server, str(tmp_path / "talk.srt"), "--formats", formats, *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "talk.srt is not the input" in done.stderr
    assert (tmp_path / "talk.srt").read_bytes() == CLIP.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["talk.srt"]


def test_what_cannot_be_done_is_one_sentence(small_server, elsewhere, tmp_path):
    nobody = f"http://127.0.0.1:{free_port()}"
    (tmp_path / "notes.mp3").write_text("no sound here")
    ann = ("--known-speaker", f"Ann={CLIP}")
    for words, status, said in (
        ((str(tmp_path / "none.wav"),), 2, "FILE must be an existing file"),
        ((str(CLIP), "--formats", "doc"), 2, "--formats must be a comma list"),
        ((str(CLIP), *ann), 2, "--known-speaker needs --diarize"),
        ((str(CLIP), "--max-speakers", "2"), 2, "--max-speakers needs --diarize"),
        ((str(CLIP), "--diarize", *ann, *ann), 2, "--known-speaker must differ from each other"),
        ((str(CLIP), "--diarize", "--known-speaker", f"A={CLIP}"), 2, "'A' could be a speaker without a name"),
        ((str(tmp_path / "notes.mp3"),), 2, "no audio container we know"),
        ((f"{elsewhere}/none.flac",), 1, "source_http_error (404)"),
        ((f"{nobody}/a.flac",), 1, "cannot be reached"),
        ((str(CLIP), "--server", nobody), 1, f"{nobody} cannot be reached"),
        ((str(CLIP), "--server", small_server.base, "--key", "sw_live_nonsense"), 1, "invalid_key (401)"),
        ((str(tmp_path / "notes.mp3"), "--server", small_server.base), 1, "unsupported_audio_format (415)"),
        ((f"{elsewhere}/none.flac", "--server", small_server.base), 1, "status 404"),
        ((str(CLIP), "--max-cue-s", "half"), 2, "--max-cue-s must be a number from 1 to 20, got 'half'"),
        (("none.wav", "--keywords", ",".join(map(str, range(101)))), 2, "--keywords must be at most 100, got 101"),
    ):
        done = run_transcribe(small_server, *words)
        assert (done.returncode, done.stdout) == (status, ""), words
        sentences = done.stderr.splitlines()
        assert len(sentences) == 1, (words, sentences)
        assert sentences[0].startswith("scribewire: ")
        assert said in sentences[0]


@pytest.mark.parametrize("command", ["transcribe", "live"])
def test_a_server_is_told_the_keywords_and_the_task(live_server, command):
    key = live_server.key()
    words = (command, str(CLIP), "--server", live_server.base, "--key", key, "--keywords", "Siobhan, Kim ")
    words += ("--task", "translate") if command == "transcribe" else ()
    done = run_command(*words, environ=os.environ)
    assert done.returncode == 0, done.stderr
    with live_server.client(key) as client:
        [record] = client.get("/v1/jobs").json()["data"]
    job = live_server.wait(live_server.storage.jobs.get(record["job_id"]))
    assert job.order.keywords == ("Siobhan", "Kim")
    assert job.order.task == ("translate" if command == "transcribe" else "transcribe")


def test_a_model_that_cannot_translate_is_not_asked_to(small_server, tmp_path):
    (tmp_path / "tiny-turbo").symlink_to(ROOT / "tests" / "speech" / "tiny-whisper")
    here = {**small_server.variables, "ENGINE": "whisper", "WHISPER_MODEL": str(tmp_path / "tiny-turbo")}
    done = run_transcribe(Server(small_server.data_dir, here), str(CLIP), "--task", "translate")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("scribewire: --task cannot be translate: the model tiny-turbo writes every")
