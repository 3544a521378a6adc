"""Tests of `scribewire jobs`, of `serve` with options, and of how client commands find the server that runs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from server.commands.connection import ADDRESS
from server.config import PREFIX, VARIABLES
from tests.processes import ROOT, free_port
from tests.server.commanding import run_command
from tests.server.running import CLIP, Server, environ_of, environment, until_over
from tests.waiting import until


def run_jobs(server: Server, *words: str, cwd: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    return run_command("jobs", *words, environ=environ_of(server), cwd=cwd)


@pytest.fixture
def job(small_server: Server) -> str:
    """Return the id of the operator's newest job, which is done."""
    client = small_server.client((small_server.data_dir / "operator-key").read_text().strip())
    with CLIP.open("rb") as audio:
        made = client.post("/v1/transcribe", files={"file": audio}, data={"output_formats": "srt,txt"}).json()
    assert until_over(client, made["job_id"])["status"] == "completed"
    return made["job_id"]


def test_jobs_are_listed_shown_downloaded_and_deleted(small_server, job, tmp_path):
    listed = run_jobs(small_server, "list", "--status", "completed")
    assert listed.returncode == 0, listed.stderr
    assert f"{job}  completed" in listed.stdout
    assert CLIP.name in listed.stdout
    assert json.loads(run_jobs(small_server, "show", job).stdout)["text"]
    loaded = run_jobs(small_server, "download", job, "--out", "texts", cwd=tmp_path)
    assert loaded.returncode == 0, loaded.stderr
    names = sorted(path.name for path in (tmp_path / "texts").iterdir())
    assert names == [f"{CLIP.stem}.srt", f"{CLIP.stem}.txt"]
    again = run_jobs(small_server, "download", job, "--out", "texts", "--formats", "txt", cwd=tmp_path)
    assert again.stdout == f"{job}: wrote texts/{CLIP.stem}-{job}.txt\n"
    assert (
        run_jobs(small_server, "download", job, "--formats", "vtt").stderr == f"{job}: It has no vtt, only srt, txt.\n"
    )
    assert run_jobs(small_server, "cancel", job).returncode == 1
    assert run_jobs(small_server, "delete", job).stdout == f"{job}: deleted\n"
    gone = run_jobs(small_server, "show", job)
    assert (gone.returncode, gone.stderr) == (1, "scribewire: There is no such job (job_not_found).\n")


def test_a_job_at_work_is_canceled(small_server):
    client = small_server.client((small_server.data_dir / "operator-key").read_text().strip())
    live = client.post("/v1/live", json={}).json()["job_id"]
    done = run_jobs(small_server, "cancel", live)
    assert done.returncode == 0, done.stderr
    assert until_over(client, live)["status"] == "canceled"


def test_serve_takes_options_and_clients_find_it_without_any(tmp_path):
    port, variables = free_port(), environment(tmp_path / "unused", ENGINE="scripted")
    for name in ("DATA_DIR", "PORT"):
        del variables[f"{PREFIX}{name}"]
    variables |= {"XDG_STATE_HOME": str(tmp_path / "state"), "PYTHONPATH": str(ROOT)}
    options = ("--host", "127.0.0.1", "--port", str(port), "--data-dir", str(tmp_path / "kept"), "--model", "tiny.en")
    command = [sys.executable, "-m", "server", "serve", *options]
    with subprocess.Popen(command, env=variables, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            until((tmp_path / "kept" / ADDRESS).exists)
            assert (tmp_path / "kept" / ADDRESS).read_text() == f"http://127.0.0.1:{port}"
            done = run_command("jobs", "list", environ=variables, cwd=tmp_path)
            assert (done.returncode, done.stdout) == (0, "No jobs.\n"), done.stderr
            named = run_command("jobs", "list", "--data-dir", "kept", environ=variables, cwd=tmp_path)
            assert (named.returncode, named.stdout) == (0, "No jobs.\n"), named.stderr
        finally:
            process.terminate()
            process.communicate(timeout=30)
    assert not (tmp_path / "kept" / ADDRESS).exists()
    absent = run_command("jobs", "list", "--data-dir", "kept", environ=variables, cwd=tmp_path)
    assert absent.returncode == 1
    assert absent.stderr.startswith("scribewire: No server answers at http://127.0.0.1:8000 (")


def test_help_names_every_variable():
    said = run_command("serve", "--help", environ=os.environ).stdout
    assert all(f"{PREFIX}{row.name}" in said for row in VARIABLES)


@pytest.mark.parametrize(
    ("words", "variables", "said"),
    [
        (("--port", "99999"), {}, "--port must be a whole number from 0 to 65535, got '99999'."),
        (("--host", "0.0.0.0"), {}, f"{PREFIX}PUBLIC_BASE_URL must be set to the https address that clients use"),
        ((), {"WHISPER_MODLE": "base"}, f"{PREFIX}WHISPER_MODLE is no setting. Did you mean {PREFIX}WHISPER_MODEL?"),
    ],
)
def test_a_wrong_option_or_variable_stops_the_start(tmp_path, words, variables, said):
    environ = {**os.environ, **{f"{PREFIX}{name}": value for name, value in variables.items()}}
    done = run_command("serve", *words, "--data-dir", str(tmp_path / "new"), environ=environ)
    assert done.returncode == 2
    assert done.stderr.startswith(f"scribewire: {said}")
    assert not (tmp_path / "new").exists()
