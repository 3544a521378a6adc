"""Tests that the backup which operating.md describes can be made while the server runs, and be restored."""

import re
import shlex
import shutil
import subprocess
import sys

from tests.server.running import ROOT, run_server
from tests.server.serving import wav


def documented_backup() -> list[str]:
    """Return the words of the command with which operating.md copies the database."""
    text = " ".join((ROOT / "server" / "operating.md").read_text(encoding="utf-8").split())
    found = re.search(r"\*\*Back it up:\*\*.*?`(\.venv/bin/python -c .*?)`", text)
    assert found is not None
    python, *words = shlex.split(found[1])
    assert python == ".venv/bin/python"
    return [sys.executable, *words]


def test_a_backup_made_while_the_server_runs_is_restored_into_an_empty_folder(tmp_path):
    data, restored = tmp_path / "data", tmp_path / "restored"
    with run_server(data, ENGINE="scripted") as server:
        key = server.new_key()
        client = server.client(key)
        job = client.post("/v1/transcribe", files={"file": wav(2.0)}, data={"output_formats": "srt"}).json()
        subtitles = client.get(job["formats"]["srt"]).text
        subprocess.run(documented_backup(), cwd=tmp_path, check=True)
        restored.mkdir()
        shutil.copytree(data / "blobs", restored / "blobs")
        shutil.copy(data / "secrets.json", restored)
        shutil.copy(tmp_path / "copy.db", restored / "scribewire.db")
        after = client.post("/v1/transcribe", files={"file": wav(1.0)}).json()
    with run_server(restored, ENGINE="scripted") as server:
        client = server.client(key)
        again = client.get(f"/v1/jobs/{job['job_id']}").json()
        assert (again["status"], again["text"]) == ("completed", job["text"])
        assert (
            client.get(again["formats"]["srt"].replace(again["formats"]["srt"].split("/v1/")[0], server.base)).text
            == subtitles
        )
        assert client.get(f"/v1/jobs/{after['job_id']}").status_code == 404, "it came after the backup"
        assert client.post("/v1/transcribe", files={"file": wav(1.0)}).is_success
