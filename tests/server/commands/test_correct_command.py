"""Tests of `scribewire correct`: an edited file goes back to the server, and what fits nowhere is named."""

import httpx

from tests.server.commanding import run_command
from tests.server.running import CLIP, Server, environment


def test_an_edited_file_corrects_and_one_that_fits_nowhere_changes_nothing(small_server: Server, tmp_path):
    key = small_server.new_key()
    client: httpx.Client = small_server.client(key)
    files = {"file": CLIP.read_bytes()}
    job_id = client.post("/v1/transcribe", files=files, data={"output_formats": "srt,txt"}).json()["job_id"]
    edited, strange = tmp_path / "edited.srt", tmp_path / "strange.txt"
    edited.write_text(client.get(f"/v1/jobs/{job_id}/outputs/srt").text.replace("sandbox", "Ljubljana"))
    strange.write_text("Nothing of this was ever said by anybody anywhere, in no recording of the world. " * 3)

    def correct(*words: str):
        environ = environment(small_server.data_dir, **small_server.variables)
        return run_command("correct", *words, "--server", small_server.base, "--key", key, environ=environ)

    done = correct(job_id, str(edited))
    assert (done.returncode, done.stdout) == (0, "Revision 1: 1 change.\n"), done.stderr
    assert "This is the Ljubljana speaking." in client.get(f"/v1/jobs/{job_id}/outputs/txt").text
    refused = correct(job_id, str(strange))
    assert refused.returncode == 1
    assert refused.stderr.endswith("Nothing was changed. With --force the rest is taken.\n")
    assert len(refused.stderr.splitlines()) > 1
    assert correct(job_id, str(tmp_path / "none.srt")).returncode == 2
