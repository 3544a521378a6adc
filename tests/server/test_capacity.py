"""Tests of capacity.py: how many live sessions a machine can carry is measured, stored and enforced."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Hashable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import pytest

from pipeline.audio import LONGEST_JOB, RATE, Samples
from pipeline.ingest import seccomp
from pipeline.recognition.engine import DecodeRequest, RecognitionResult
from server.capacity import CAPACITY_FILE, Capacity, capacities_of, measure, write
from tests.pipeline.conversations import models
from tests.server.commanding import run_command
from tests.server.running import Server, environment, run_server
from tests.server.talking import Caller, open_talk, silence

SPEECH = np.zeros(RATE, np.float32)


@dataclass
class SlowEngine:
    """An engine whose calls take a fixed time, however many requests are in them."""

    call_s: float
    max_batch: int
    name: str = "slow"
    model: str = "slow"
    languages: frozenset[str] = frozenset({"en"})
    translates: bool = False
    longest_job: int = LONGEST_JOB
    replicas: int = 1
    file_replicas_during_speech: int = 1

    def bucket(self, request: DecodeRequest) -> Hashable:
        return request.final

    def recognise(self, requests: Sequence[DecodeRequest]) -> list[RecognitionResult]:
        time.sleep(self.call_s)
        return [RecognitionResult((), "en", 1.0, 0.0, 0.0) for _ in requests]

    def detect_language(self, samples: Samples) -> Mapping[str, float]:  # noqa: ARG002  Engine gives the name
        return {"en": 1.0}

    def close(self) -> None:
        pass


def test_sessions_are_as_many_as_one_call_a_second_each_leaves_room_for():
    found = measure(SlowEngine(call_s=0.1, max_batch=8), SPEECH)
    assert 12 <= found.sessions <= 36, (
        "8 windows in 0.1 s and one each half second, at 90 %: 36, less what sleeping overslept"
    )
    assert found.alone_ms >= 100


def test_telling_speakers_apart_counts_as_a_part_of_a_session():
    assert measure(SlowEngine(call_s=0.01, max_batch=1), SPEECH).speakers_load == 0
    assert 0.2 < measure(SlowEngine(call_s=0.01, max_batch=1), SPEECH, models()).speakers_load < 40


def test_what_was_measured_counts_for_the_same_model_only(tmp_path):
    assert capacities_of("whisper", ["base"], tmp_path) == {}, "nothing was measured"
    base, tiny = Capacity("whisper", "base", 7, 1.0, 2.0, 0.2), Capacity("whisper", "tiny.en", 20, 1.0, 2.0)
    write([base, tiny], tmp_path)
    assert capacities_of("whisper", ["base", "small"], tmp_path) == {"base": base}
    assert capacities_of("whisper", ["tiny.en", "base"], tmp_path) == {"base": base, "tiny.en": tiny}
    assert capacities_of("scripted", ["base"], tmp_path) == {}


@pytest.mark.parametrize("text", ["", "{", "[]", "[3]", '{"sessions": 3}', '[{"engine": "scripted", "more": 1}]'])
def test_a_note_that_is_none_counts_as_not_measured(tmp_path, text):
    (tmp_path / CAPACITY_FILE).write_text(text)
    assert capacities_of("scripted", ["scripted"], tmp_path) == {}


def test_doctor_finds_this_machine_well_and_changes_nothing(tmp_path):
    said = " ".join(Server(tmp_path / "data").cli("doctor", "--force").split())
    assert "tiny.en, as published" in said
    assert re.search(r"ok engine whisper, model tiny-whisper [(].*[)], heard", said)
    assert re.search(r"ok live sessions \d+ with tiny-whisper:", said)
    assert "--save notes it" in said
    if seccomp.missing_support() is None:
        assert "ok decoders system calls are filtered" in said
    assert list(tmp_path.iterdir()) == []


async def test_the_server_holds_to_what_doctor_saved(tmp_path):
    Server(tmp_path, {"ENGINE": "scripted"}).cli("doctor", "--save", "--force")
    [noted] = json.loads((tmp_path / CAPACITY_FILE).read_text())
    assert (noted["engine"], noted["sessions"] >= 1) == ("scripted", True)
    write([Capacity("scripted", "scripted", 1, 1.0, 2.0)], tmp_path)
    with run_server(tmp_path, ENGINE="scripted") as server:
        assert "carries 1 live sessions (measured by doctor), " in "\n".join(server.log)
        await one_too_many(server)


def test_a_busy_machine_is_not_measured(tmp_path):
    with ExitStack() as stack:
        for _ in range(os.cpu_count()):
            one = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(one.kill)
        done = run_command("doctor", "--save", environ=environment(tmp_path / "data", ENGINE="scripted"))
    said = " ".join(done.stdout.split())
    assert done.returncode == 1
    assert "no live sessions not measured and nothing saved: this machine is" in said
    assert not (tmp_path / "data" / CAPACITY_FILE).exists()


async def test_the_setting_counts_before_what_was_measured(tmp_path):
    write([Capacity("scripted", "scripted", 7, 1.0, 2.0)], tmp_path)
    with run_server(tmp_path, ENGINE="scripted", MAX_LIVE_SESSIONS="1") as server:
        assert "carries 1 live sessions (MAX_LIVE_SESSIONS), " in "\n".join(server.log)
        await one_too_many(server)


async def one_too_many(server: Server) -> None:
    me = Caller(server, server.new_key())
    first = await me.start()
    async with open_talk(first["live"]["ingest_ws"]) as talk:
        await talk.until("session.started")
        async with me.client() as client:
            refused = await client.post("/v1/live", json={})
        assert (refused.status_code, refused.json()["code"]) == (503, "queue_full")
        assert "carries 1 live sessions" in refused.json()["detail"]
        assert int(refused.headers["retry-after"]) > 0
        await talk.send(silence(1))
        await talk.close()
    assert (await me.start())["status"] == "queued", "there is room again"
