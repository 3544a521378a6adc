"""Tests of `scribewire models`, and of what a server then says about its model."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from pipeline.recognition.engines.models import bundled_folder
from pipeline.speakers.options import INSTALL
from pipeline.weights import PUBLISHED, PackagedFile
from server.commands import models
from server.commands.models import speaker_summary
from tests.hubs import hub
from tests.server.commanding import run_command
from tests.server.running import CLIP, ROOT, SPEECH, environment, run_server, until_over
from tests.waiting import until

NOBODY = "http://127.0.0.1:1"
FILES = {path.name: path.read_bytes() for path in (SPEECH / "tiny-whisper").iterdir()}
"""A model that hears a few languages; its hub calls it base."""


MINE = "somebody/whisper-of-mine"


def run_models(*words: str, cache: Path, address: str = NOBODY, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run `scribewire models` with *words*, with this cache and this hub."""
    settings = {"ENGINE": "auto", "WHISPER_MODEL": "auto", "DEVICE": "cpu", **variables}
    return subprocess.run(  # huggingface_hub reads its variables when it is imported
        [sys.executable, "-m", "server", "models", *words],
        cwd=ROOT, env=environment(cache, **settings) | hub_variables(cache, address), capture_output=True, timeout=60,
        text=True, check=False,
    )  # fmt: skip


def hub_variables(cache: Path, address: str) -> Mapping[str, str]:
    return {"HF_HUB_CACHE": str(cache), "HF_ENDPOINT": address, "NO_PROXY": "127.0.0.1"}


def rows(printed: str) -> dict[str, list[str]]:
    """Return the list: for each model its other columns, and whether it is marked."""
    lines = [line.split() for line in printed.splitlines()]
    marked = [[*line[1:], "*"] if line[:1] == ["*"] else line for line in lines]
    return {line[0]: line[1:] for line in marked if line and line[0] in (*PUBLISHED, MINE)}


def test_the_list_has_every_name_with_its_facts_and_marks_what_is_used(tmp_path):
    done = run_models(cache=tmp_path)
    assert done.returncode == 0, done.stderr
    listed = rows(done.stdout)
    assert list(listed) == list(PUBLISHED)
    assert listed["tiny.en"][:4] == ["75", "MB", "English", "bundled"]
    assert listed["large-v3"] == ["3.1", "GB", "100"]
    marked = {name: row[4:-1] for name, row in listed.items() if "*" in row}
    if bundled_folder("base") is None:
        assert marked == {"tiny.en": ["all"]}
    else:
        assert marked == {"tiny.en": ["en"], "base": ["all", "others"]}
    assert rows(run_models("list", cache=tmp_path).stdout) == listed
    assert done.stdout.endswith("Speakers are told apart by their voices.\n")


def test_the_list_says_what_to_install_where_speakers_are_not_told_apart(monkeypatch):
    assert speaker_summary() == "told apart by their voices"
    monkeypatch.setattr(models, "SEGMENTATION", PackagedFile("no-such-package", "x.onnx", "", INSTALL))
    assert "scripts/setup speakers" in speaker_summary()


def test_the_list_follows_the_settings(tmp_path):
    named = run_models(cache=tmp_path, WHISPER_MODEL="small").stdout
    assert rows(named)["small"] == ["484", "MB", "99", "all", "*"]
    assert "(SCRIBEWIRE_WHISPER_MODEL=small). small will be downloaded when the server starts." in named
    several = rows(run_models(cache=tmp_path, WHISPER_MODEL="small,en=tiny.en,medium").stdout)
    marked = {name: row for name, row in several.items() if "*" in row}
    assert marked["small"][-3:] == ["all", "others", "*"]
    assert marked["tiny.en"][-2:] == ["en", "*"]
    assert marked["medium"][-5:] == ["if", "it", "is", "named", "*"]
    assert (
        "*"
        in rows(run_models(cache=tmp_path, WHISPER_MODEL="somebody/whisper-of-mine").stdout)["somebody/whisper-of-mine"]
    )
    assert "tests/speech/tiny-whisper" in run_models(cache=tmp_path, WHISPER_MODEL="tests/speech/tiny-whisper").stdout
    for settings, said in (
        ({"ENGINE": "scripted"}, "uses none of them, because SCRIBEWIRE_ENGINE=scripted is set"),
        ({"WHISPER_MODEL": "bass"}, "no Whisper model called 'bass'"),
    ):
        done = run_models(cache=tmp_path, **settings)
        assert done.returncode == 0
        assert said in done.stdout
        assert not [row for row in rows(done.stdout).values() if "*" in row]


def test_a_pulled_model_is_listed_and_heard_with(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    with hub({MINE: FILES}) as address:
        done = run_models("pull", MINE, cache=cache, address=address)
    assert done.returncode == 0, done.stderr
    assert f"{MINE} is in " in done.stdout
    assert "The server uses it from its next start on." in done.stdout
    assert rows(run_models(cache=cache).stdout)[MINE] == ["on", "this", "machine", "all", "*"]
    again = run_models("pull", MINE, cache=cache)
    assert again.returncode == 0, "what is here needs no hub"
    assert (
        "SCRIBEWIRE_WHISPER_MODEL=small is set" in run_models("pull", MINE, cache=cache, WHISPER_MODEL="small").stdout
    )

    for name, value in hub_variables(cache, NOBODY).items():
        monkeypatch.setenv(name, value)
    with run_server(tmp_path / "data", ENGINE="auto", WHISPER_MODEL="auto", DEVICE="cpu") as server:
        [ready] = [line for line in server.log if "ready http" in line]
        assert "engine=whisper model=whisper-of-mine languages=" in ready
        assert not [line for line in server.log if "came with the installation" in line]
        with server.client(None) as client:
            state = client.get("/readyz").json()
        assert (state["model"], state["bundled"]) == ("whisper-of-mine", False)
        assert {"en", "es"} <= set(state["languages"])


def test_going_back_to_the_bundled_model_needs_no_hub(tmp_path):
    done = run_models("pull", "tiny.en", cache=tmp_path)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "tiny.en is bundled.")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("medium", f"'medium' could not be downloaded from {NOBODY}"),
        ("bass", "There is no folder and no Whisper model called"),
    ],
)
def test_what_cannot_be_pulled_is_one_sentence(tmp_path, name, said):
    done = run_models("pull", name, cache=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    [sentence] = done.stderr.splitlines()
    assert sentence.startswith("scribewire: ")
    assert said in sentence


def test_the_server_says_which_model_hears_and_how_to_get_a_bigger_one(bundled_server):
    [ready] = [line for line in bundled_server.log if "ready http" in line]
    assert 'engine=whisper model=tiny.en languages="English only" speakers=' in ready
    assert 'heard="The quick brown fox' in ready
    hint = "models pull base` brings a model with fewer errors and 99 languages"
    until(lambda: any(hint in line for line in bundled_server.log))
    with bundled_server.client(bundled_server.new_key()) as client:
        state = client.get("/readyz").json()
        assert (state["model"], state["languages"], state["bundled"]) == ("tiny.en", ["en"], True)
        listed = client.get("/v1/models").json()["data"]
        assert {"whisper-1", "tiny.en"} <= {row["id"] for row in listed}
        assert all(row["languages"] == ["en"] for row in listed)


def test_a_language_that_the_model_does_not_hear_is_refused_everywhere(bundled_server):
    said = "the model tiny.en knows English (en) only, not 'es'; base knows 99 languages (scribewire models pull base)"
    with bundled_server.client(bundled_server.new_key()) as client:
        files = {"file": ("a.flac", CLIP.read_bytes())}
        by_upload = client.post("/v1/transcribe", files=files, data={"language": "es"})
        by_live = client.post("/v1/live", json={"language": "es"})
        for answer in (by_upload, by_live):
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_parameter")
            assert answer.json()["errors"] == [
                {"param": "language", "pointer": "/language", "code": "unknown_value", "message": said}
            ]
        by_openai = client.post("/v1/audio/transcriptions", files=files, data={"model": "whisper-1", "language": "es"})
        assert by_openai.status_code == 422
        assert by_openai.json()["error"] == {
            "message": f"language: {said}", "type": "invalid_request_error", "param": "language",
            "code": "invalid_parameter",
        }  # fmt: skip
        assert client.post("/v1/transcribe", files=files, data={"language": "EN"}).json()["text"]
    here = environment(bundled_server.data_dir, **bundled_server.variables)
    done = run_command("transcribe", str(CLIP), "--language", "es", environ=here)
    assert (done.returncode, done.stderr) == (2, f"scribewire: --language: {said}.\n")


@pytest.mark.parametrize("wanted", ["/no/such/whisper", "tests/speech/tiny-whisper,es=/no/such/whisper"])
def test_a_model_that_is_named_and_missing_stops_the_start(tmp_path, wanted):
    done = run_command("serve", environ=environment(tmp_path, ENGINE="auto", WHISPER_MODEL=wanted))
    assert done.returncode == 2
    assert "There is no folder and no Whisper model called '/no/such/whisper'" in done.stderr


def test_requests_may_name_any_model_of_the_set(tmp_path):
    with run_server(tmp_path, ENGINE="auto", WHISPER_MODEL="tests/speech/tiny-whisper,en=tiny.en") as server:
        [ready] = [line for line in server.log if "ready http" in line]
        assert 'model=tiny-whisper,en=tiny.en languages="de, en, es, fr"' in ready
        with server.client(server.new_key()) as client:
            state = client.get("/readyz").json()
            assert [(one["name"], one["hears"]) for one in state["models"]] == [
                ("tiny-whisper", ["de", "es", "fr"]),
                ("tiny.en", ["en"]),
            ]
            listed = {row["id"]: row for row in client.get("/v1/models").json()["data"]}
            assert listed["tiny-whisper"]["languages"] == listed["whisper-1"]["languages"] == ["de", "en", "es", "fr"]
            assert listed["tiny.en"]["languages"] == ["en"]

            def heard_by(**members: str) -> str:
                files = {"file": ("a.flac", CLIP.read_bytes())}
                job = client.post("/v1/transcribe", files=files, data=members).json()
                return str(until_over(client, job["job_id"])["model"])

            assert heard_by(language="en") == heard_by(model="whisper-1", language="en") == "tiny.en"
            assert heard_by(language="es") == heard_by(model="tiny-whisper", language="en") == "tiny-whisper"
            refused = client.post("/v1/live", json={"model": "nope"})
            assert (refused.status_code, refused.json()["errors"][0]["param"]) == (422, "model")
            assert "the models are tiny-whisper, tiny.en" in refused.json()["errors"][0]["message"]
            spanish = client.post("/v1/live", json={"model": "tiny.en", "language": "es"})
            assert (spanish.status_code, spanish.json()["errors"][0]["param"]) == (422, "language")
            metrics = client.get("/metrics").text
        for name in ("tiny-whisper", "tiny.en"):
            assert f'scribewire_model_calls_total{{environment="production",model="{name}"}}' in metrics
