"""A server or worker is killed in the middle of a job, and nothing is lost, repeated or counted twice."""

import io
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile

from pipeline.audio import RATE
from tests.pipeline.conversations import conversation
from tests.server.receiving import receiver
from tests.server.running import ROOT, Server, environ_of, long_recording, run_server, until_over
from tests.waiting import until

THREE = ("flite/rms_0.flac", "flite/slt_1.flac", "espeak/en_03.flac", "flite/rms_4.flac", "flite/slt_5.flac")


def submit(client: httpx.Client, audio: bytes, **fields: str) -> str:
    data = {"wait": "0", "word_timestamps": "true", **fields}
    return str(client.post("/v1/transcribe", files={"file": audio}, data=data).json()["job_id"])


def deliveries(client: httpx.Client, job_id: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = client.get(f"/v1/jobs/{job_id}/deliveries").json()["data"]
    return rows


def results_of(record: dict[str, Any]) -> dict[str, Any]:
    return {name: record[name] for name in ("text", "words", "language", "duration")}


def the_same(record: dict[str, Any]) -> dict[str, Any]:
    """Return what two records must have in common. Requests in the same call change the last digit of probabilities."""
    words = [{**word, "probability": pytest.approx(word["probability"], abs=0.002)} for word in record["words"]]
    return {**results_of(record), "words": words}


@pytest.mark.timeout(240)
def test_a_job_whose_server_is_killed_resumes_at_its_last_chunk_and_says_the_same(tmp_path):
    audio = long_recording(2)
    server = Server(tmp_path / "data").start()
    key = server.new_key("pro")
    with receiver() as hook:
        try:
            client = server.client(key)
            undisturbed = until_over(client, submit(client, audio), max_s=120)
            job_id = submit(client, audio, webhook_url=hook.url)
            until(lambda: client.get(f"/v1/jobs/{job_id}").json()["progress"] >= 0.2, max_s=100)
            server.kill()
            server.start()
            client = server.client(key)
            resumed = client.get(f"/v1/jobs/{job_id}").json()
            assert resumed["status"] in ("queued", "processing")
            assert resumed["progress"] >= 0.2
            record = until_over(client, job_id, max_s=150)
            assert record["status"] == "completed"
            assert record["attempt"] == 2
            assert results_of(record) == the_same(undisturbed)
            [delivery] = until(lambda: [row for row in deliveries(client, job_id) if row["state"] == "delivered"])
            assert [got.headers["webhook-id"] for got in hook.got] == [delivery["webhook_id"]]
            usage = {row["name"]: row["used"] for row in client.get("/v1/usage").json()["usage"]}
            assert usage["transcriptions"] == 2
        finally:
            server.stop()


def test_a_server_that_stops_hands_its_job_back_without_counting_the_attempt(tmp_path):
    audio = long_recording(2)
    server = Server(tmp_path / "data").start()
    key = server.new_key("pro")
    try:
        client = server.client(key)
        job_id = submit(client, audio)
        until(lambda: client.get(f"/v1/jobs/{job_id}").json()["progress"] >= 0.1, max_s=100)
        server.stop()
        server.start()
        record = until_over(server.client(key), job_id, max_s=100)
        assert record["status"] == "completed"
        assert record["attempt"] == 1
    finally:
        server.stop()


def test_a_second_server_on_the_same_folder_is_refused_with_one_sentence(tmp_path):
    first = Server(tmp_path / "data", {"ENGINE": "scripted"}).start()
    second = Server(tmp_path / "data", {"ENGINE": "scripted"})
    try:
        with pytest.raises(AssertionError, match="Another server"):
            second.start()
    finally:
        first.stop()


@contextmanager
def run_worker(server: Server) -> Iterator["subprocess.Popen[bytes]"]:
    """Start `scribewire worker` on the server's data folder. At the end of the block it is killed."""
    environ = {**environ_of(server), "SCRIBEWIRE_WORKERS": "1"}
    worker = subprocess.Popen([sys.executable, "-m", server.program, "worker"], cwd=ROOT, env=environ)
    try:
        yield worker
    finally:
        worker.kill()
        worker.wait()


def documents(client: httpx.Client, job_id: str) -> dict[str, Any]:
    """Wait for the job; return its outputs, without what differs between any two jobs."""
    assert until_over(client, job_id)["status"] == "completed"
    whole, vtt = (client.get(f"/v1/jobs/{job_id}/outputs/{name}") for name in ("json", "vtt"))
    own = {name: value for name, value in whole.json().items() if name not in ("job_id", "created_at")}
    return {**own, "vtt": vtt.text}


def test_a_job_whose_worker_is_killed_gets_the_same_speakers_from_another_worker(tmp_path):
    recording = io.BytesIO()
    soundfile.write(recording, np.tile(conversation(*THREE)[0], 6), RATE, format="FLAC")
    speakers = {"diarize": "true", "output_formats": "json,vtt"}
    with run_server(tmp_path / "data", program="tests.server.voiced_server", ENGINE="scripted", WORKERS="0") as server:
        client = server.client(server.new_key("enterprise"))
        with run_worker(server):
            undisturbed = documents(client, submit(client, recording.getvalue(), **speakers))
            job_id = submit(client, recording.getvalue(), **speakers)
            until(lambda: client.get(f"/v1/jobs/{job_id}").json()["progress"] > 0.4)
        record = client.get(f"/v1/jobs/{job_id}").json()
        assert record["status"] == "processing"
        with run_worker(server):
            assert documents(client, job_id) == undisturbed
        assert client.get(f"/v1/jobs/{job_id}").json()["attempt"] == 2
        assert len({word["speaker"] for word in undisturbed["words"]}) == 3
