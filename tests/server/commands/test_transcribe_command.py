"""Tests of `scribewire transcribe`: on this machine or by a server, from a file, an address or a pipe."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.recognition.engines.scripted import SCRIPT
from server.commands.recordings import INDEX
from tests.processes import free_port
from tests.server.commanding import run_command
from tests.server.receiving import host_folder
from tests.server.running import CLIP, ROOT, SPEECH, Server, environment, long_recording, until_over
from tests.server.serving import wav
from tests.waiting import until

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
        INDEX,
        *(f"{CLIP.stem}.{kind}" for kind in ("json", "srt", "txt")),
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
        assert sorted(path.name for path in folder.iterdir()) == [INDEX, f"{stem}.json", f"{stem}.srt"]
        assert json.loads((folder / f"{stem}.json").read_bytes())["text"].startswith(BEGINNING)
        assert done.stderr.endswith(f"wrote {stem}.json, {stem}.srt\n")


@pytest.mark.parametrize("formats", ["json,srt", "srt"])
def test_the_input_is_never_written_over(small_server, tmp_path, formats):
    (tmp_path / "talk.srt").write_bytes(CLIP.read_bytes())
    words = ("--force",) if "," in formats else ("--force", "--out", ".")
    done = run_transcribe(small_server, str(tmp_path / "talk.srt"), "--formats", formats, *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("talk.srt: This is a recording, which is not written over; choose another --out.\n")
    assert (tmp_path / "talk.srt").read_bytes() == CLIP.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["talk.srt"]


def test_what_cannot_be_done_is_one_sentence(small_server, elsewhere, tmp_path):
    nobody = f"http://127.0.0.1:{free_port()}"
    wrong, empty = tmp_path / "notes.mp3", tmp_path / "empty.wav"
    wrong.write_text("no sound here")
    empty.touch()
    ann = ("--known-speaker", f"Ann={CLIP}")
    for words, status, said in (
        (("none.wav",), 2, "none.wav: There is no such file."),
        (("*.none",), 2, "*.none: No file matches this pattern."),
        ((str(CLIP), "--formats", "doc"), 2, "scribewire: --formats must be a comma list"),
        ((str(CLIP), *ann), 2, "scribewire: --known-speaker needs diarize=true"),
        ((str(CLIP), "--max-speakers", "11"), 2, "--max-speakers must be a whole number from 1 to 10, got 11"),
        ((str(CLIP), "--diarize", *ann, *ann), 2, "--known-speaker must differ from each other"),
        ((str(CLIP), "--diarize", "--known-speaker", f"A={CLIP}"), 2, "'A' could be a speaker without a name"),
        ((str(wrong),), 1, f"{wrong}: The file is in no known audio format. Convert it"),
        ((str(empty),), 1, f"{empty}: The file has no bytes."),
        ((f"{elsewhere}/none.flac",), 1, f"{elsewhere}/none.flac: The address cannot be fetched."),
        ((f"{nobody}/a.flac",), 1, f"{nobody}/a.flac: The address cannot be reached"),
        ((str(CLIP), "--server", nobody), 1, f"No server answers at {nobody}"),
        ((str(CLIP), "--server", "speech"), 2, "--server must be an address such as"),
        (
            (str(CLIP), "--server", "https://speech.example.org"),
            2,
            "--key must be given for https://speech.example.org",
        ),
        ((str(CLIP), "--server", small_server.base, "--key", "sw_live_nonsense"), 1, "(invalid_key)."),
        ((str(wrong), "--server", small_server.base), 1, f"{wrong}: "),
        ((f"{elsewhere}/none.flac", "--server", small_server.base), 1, "status 404"),
        ((str(CLIP), "--max-cue-s", "half"), 2, "--max-cue-s must be a number from 1 to 20, got 'half'."),
        ((str(CLIP), "--keywords", ",".join(map(str, range(101)))), 2, "--keywords must be at most 100, got 101"),
        ((str(CLIP), "--language", "klingon"), 2, "--language: 'klingon' is no language"),
        ((str(CLIP), str(wrong), "-o", str(tmp_path / "x.srt")), 2, "-o takes one recording, got 2"),
        ((str(CLIP), "--formats", "srt,txt", "-o", str(tmp_path / "x.srt")), 2, "-o takes one format"),
        ((str(CLIP), "--out", str(wrong)), 2, "--out cannot be written to"),
        ((str(CLIP), "--csv", str(tmp_path)), 2, "--csv cannot be written"),
        ((str(CLIP), "--jobs", "0"), 2, "--jobs must be from 1 to 16, got 0."),
        ((str(CLIP), "-"), 2, "- reads one recording from the pipe"),
    ):
        done = run_transcribe(small_server, *words)
        assert (done.returncode, done.stdout) == (status, ""), (words, done.stderr)
        sentences = done.stderr.splitlines()
        assert len(sentences) == 1, (words, sentences)
        assert said in sentences[0]
        assert sentences[0].endswith("."), sentences


def table_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with recordings whose names collide, a silent one, an empty one, and one that is none."""
    inside = tmp_path / "in"
    (inside / "day1").mkdir(parents=True)
    for name in ("talk.flac", "talk.mka", "day1/talk.flac"):
        (inside / name).write_bytes(CLIP.read_bytes())
    (inside / "empty.mp3").touch()
    (inside / "notes.txt").write_text("no recording by its name")
    return inside


@pytest.mark.parametrize("by_server", [False, True], ids=["here", "by a server"])
@pytest.mark.usefixtures("folder")
def test_a_folder_becomes_files_that_are_kept_apart_and_a_table(small_server, tmp_path, *, by_server):
    where = ("--server", small_server.base) if by_server else ()
    words = ("in", "--formats", "srt,json", "--out", "out", "--csv", "index.csv", *where)
    done = run_transcribe(small_server, *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    lines = done.stderr.splitlines()
    assert sorted(line.partition("]")[0] for line in lines[:4]) == [f"[{number}/4" for number in range(1, 5)]
    assert lines[4] == "1 of 4 failed:"
    assert lines[5].startswith("  in/empty.mp3: ")
    rows = {row["file"]: row for row in table_of(tmp_path / "index.csv")}
    assert list(rows) == ["in/day1/talk.flac", "in/empty.mp3", "in/talk.flac", "in/talk.mka"]
    header = (tmp_path / "index.csv").read_text().splitlines()[0]
    assert header == "file,status,seconds,language,model,words,outputs,warnings,error"
    assert rows["in/talk.flac"]["status"] == "done"
    assert int(rows["in/talk.flac"]["words"]) > 3
    assert float(rows["in/talk.flac"]["seconds"]) > 3
    assert (rows["in/empty.mp3"]["status"], rows["in/empty.mp3"]["outputs"]) == ("failed", "")
    assert rows["in/empty.mp3"]["error"]
    outputs = [one for row in rows.values() for one in row["outputs"].split("; ") if one]
    assert len({*outputs}) == 6
    assert "out/day1/talk.srt" in outputs
    assert all((tmp_path / one).read_bytes() for one in outputs)


def test_what_is_done_is_skipped_until_its_content_or_an_option_changes(small_server, folder, tmp_path):
    def states(*more: str) -> list[str]:
        run_transcribe(small_server, "in/talk.flac", "in/day1", "--out", "out", "--csv", "t.csv", *more, cwd=tmp_path)
        return [row["status"] for row in table_of(tmp_path / "t.csv")]

    assert states() == ["done", "done"]
    assert states() == ["skipped", "skipped"]
    os.utime(folder / "talk.flac")
    assert states() == ["skipped", "skipped"]
    assert states("--force") == ["done", "done"]
    assert states("--numerals") == ["done", "done"]
    (folder / "talk.flac").write_bytes((SPEECH / "human" / "jfk.flac").read_bytes())
    assert states("--numerals") == ["done", "skipped"]
    (tmp_path / "out" / "talk.txt").unlink()
    assert states("--numerals") == ["done", "skipped"]
    names = [row["outputs"] for row in table_of(tmp_path / "t.csv")]
    assert len({*names}) == 2


def test_a_file_of_somebody_else_is_overwritten_only_by_force(small_server, tmp_path):
    notes = tmp_path / f"{CLIP.stem}.txt"
    notes.write_text("written by hand")
    done = run_transcribe(small_server, str(CLIP), "--out", ".", cwd=tmp_path)
    assert (done.returncode, notes.read_text()) == (2, "written by hand")
    assert "--force overwrites it" in done.stderr
    assert run_transcribe(small_server, str(CLIP), "--out", ".", "--force", cwd=tmp_path).returncode == 0
    assert notes.read_text().startswith(BEGINNING)


def test_one_recording_goes_into_the_file_that_is_named(small_server, tmp_path):
    done = run_transcribe(small_server, str(CLIP), "-o", "new/podcast.srt", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "new" / "podcast.srt").read_text().startswith("1\n00:00:")


def test_a_recording_without_speech_is_done_with_a_warning(tmp_path):
    (tmp_path / "silence.wav").write_bytes(wav(4))
    environ = environment(tmp_path / "data", WHISPER_MODEL=str(SPEECH / "tiny-whisper"))
    words = ("transcribe", "silence.wav", "--out", ".", "--csv", "t.csv")
    done = run_command(*words, environ=environ, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [row] = table_of(tmp_path / "t.csv")
    assert (row["status"], row["words"], row["error"]) == ("done", "0", "")
    assert row["warnings"] == "Nobody speaks in it, as far as the model can tell."


@pytest.mark.parametrize("by_server", [False, True], ids=["here", "by a server"])
def test_ctrl_c_leaves_what_is_done_and_ends_the_rest(small_server, tmp_path, *, by_server):
    (tmp_path / "long.flac").write_bytes(long_recording(12))
    (tmp_path / "short.flac").write_bytes(CLIP.read_bytes())
    where = ("--server", small_server.base) if by_server else ()
    variables = environment(small_server.data_dir, **small_server.variables)
    command = [sys.executable, "-m", "server", "transcribe", "short.flac", "long.flac", "--out", "out", "--jobs", "1"]
    with subprocess.Popen(
        [*command, *where], cwd=tmp_path, env={**variables, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True
    ) as process:
        until((tmp_path / "out" / "short.txt").exists)
        if by_server:
            client = small_server.client((small_server.data_dir / "operator-key").read_text().strip())
            until(lambda: client.get("/v1/jobs", params={"status": "queued,processing"}).json()["data"])
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.splitlines()[-1] == "Stopped: 1 of 2 are done. The same command goes on with the others."
    assert [path.name for path in (tmp_path / "out").glob("*.txt")] == ["short.txt"]
    if by_server:
        job_id = re.search(r"long.flac: Canceled (job_\w+)[.]", said)[1]
        assert until_over(client, job_id)["status"] == "canceled"


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
    assert done.stderr.startswith("scribewire: --task: the model tiny-turbo writes every")
