"""Tests of `scribewire inspect`: what would be heard of a recording."""

import json
import os
import subprocess

import numpy as np
import pytest
import soundfile

from pipeline.audio import RATE
from tests.pipeline.sounds import SPEECH, Sound, read, tracks_in
from tests.server.commanding import run_command

VOICE = read(SPEECH / "human" / "LJ001-0002.flac")


def inspect(*words: object) -> subprocess.CompletedProcess[str]:
    return run_command("inspect", *map(str, words), environ=os.environ)


def test_it_tells_which_track_is_heard_and_on_which_somebody_speaks(tmp_path):
    path = tmp_path / "screen.mkv"
    tracks = (Sound(np.zeros(len(VOICE), np.float32)), Sound(VOICE, title="Microphone"), Sound(VOICE, title="Guest"))
    path.write_bytes(tracks_in("matroska", *tracks))
    found = json.loads(inspect(path, "--json").stdout)
    assert (found["format"], found["heard"]) == ("matroska", {"track": 2, "channel": None})
    assert [(track["track"], track["title"], track["speech"]) for track in found["tracks"]] == [
        (1, None, False), (2, "Microphone", True), (3, "Guest", True)
    ]  # fmt: skip
    assert found["length"]["container"] == pytest.approx(found["length"]["sound"], abs=0.1)
    assert 0.5 < found["speech"] <= found["length"]["sound"]
    assert [warning["code"] for warning in found["warnings"]] == ["other_tracks"]
    said = inspect(path)
    assert "→ track 2 (Microphone): aac, 48000 Hz, mono, somebody speaks, is transcribed" in said.stdout
    assert "  track 1: aac, 48000 Hz, mono, nobody speaks" in said.stdout


def test_it_tells_the_level_the_copies_and_what_would_be_left_out(tmp_path):
    path = tmp_path / "quiet.wav"
    quiet = np.tile(VOICE * 10 ** (-50 / 20), 3)
    soundfile.write(path, np.stack((quiet, quiet), axis=1), RATE, subtype="FLOAT")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])
    found = json.loads(inspect(path, "--json").stdout)
    assert found["level"]["speech"] < -45
    assert [one["copy_of"] for one in found["channels"]] == [None, 0]
    assert {warning["code"] for warning in found["warnings"]} == {"audio_truncated", "quiet_input"}
    assert all(warning["message"] for warning in found["warnings"])


@pytest.mark.parametrize(("content", "says"), [(None, "There is no such file."), (b"?" * 999, "no known audio format")])
def test_what_cannot_be_inspected_is_one_sentence(tmp_path, content, says):
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    done = inspect(path)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
