"""The server is killed in the middle of a job, and nothing is lost, repeated or counted twice."""

import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.receiving import receiver
from tests.server.running import Server, long_recording, until_over
from tests.server.serving import until


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
def test_a_job_whose_server_is_killed_resumes_at_its_last_chunk_and_says_the_same(tmp_path: Path) -> None:
    audio = long_recording(4)
    server = Server(tmp_path / "data").start()
    key = server.new_key("pro")
    with receiver() as hook:
        try:
            client = server.client(key)
            undisturbed = until_over(client, submit(client, audio), max_s=120)
            job_id = submit(client, audio, webhook_url=hook.url)
            while client.get(f"/v1/jobs/{job_id}").json()["progress"] < 0.2:
                time.sleep(0.1)
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


def test_a_server_that_stops_hands_its_job_back_without_counting_the_attempt(tmp_path: Path) -> None:
    audio = long_recording(4)
    server = Server(tmp_path / "data").start()
    key = server.new_key("pro")
    try:
        client = server.client(key)
        job_id = submit(client, audio)
        while client.get(f"/v1/jobs/{job_id}").json()["progress"] < 0.1:
            time.sleep(0.1)
        server.stop()
        server.start()
        record = until_over(server.client(key), job_id, max_s=100)
        assert record["status"] == "completed"
        assert record["attempt"] == 1
    finally:
        server.stop()


def test_a_second_server_on_the_same_folder_is_refused_with_one_sentence(tmp_path: Path) -> None:
    first = Server(tmp_path / "data", {"ENGINE": "scripted"}).start()
    second = Server(tmp_path / "data", {"ENGINE": "scripted"})
    try:
        with pytest.raises(AssertionError, match="another server"):
            second.start()
    finally:
        first.stop()
