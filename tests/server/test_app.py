"""Tests of the app as a whole: health, index, sandbox, uploads, memory, any input, and shutdown."""

import os
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pipeline.documents.formats import OUTPUT_FORMATS
from server.storage.sqlite import connections
from server.storage.sqlite.open import FILE_NAME
from tests.server.serving import serve, wav
from tests.waiting import until

AUDIO = {"file": ("talk.wav", wav())}
BIG = 200 * 1024 * 1024


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("served")) as it:
        yield it


# --- for machines and people -----------------------------------------------------------------------------------------


def test_alive_and_ready_say_what_runs(server):
    with server.client() as client:
        assert client.get("/healthz").json() == {"status": "ok"}
        ready = client.get("/readyz").json()
        assert ready == {
            "status": "ready", "engine": "scripted", "model": "test", "languages": ["de", "en"], "bundled": False,
            "speakers": True, "endpointing": ["silence"], "translates_to": ["en"],
            "models": [{"name": "test", "languages": ["de", "en"], "hears": ["de", "en"], "translates": True}],
        }  # fmt: skip


def test_a_server_that_stops_is_alive_but_not_ready_and_takes_nothing_new(tmp_path):
    with serve(tmp_path) as it, it.new_client() as client:
        it.call(it.service.begin_stop)
        assert client.get("/healthz").status_code == 200
        ready = client.get("/readyz")
        assert (ready.status_code, int(ready.headers["retry-after"]) >= 1) == (503, True)
        refused = client.post("/v1/transcribe", files=AUDIO)
        assert (refused.status_code, refused.json()["code"]) == (503, "shutting_down")
        assert int(refused.headers["retry-after"]) >= 1


def test_while_another_process_holds_the_database_reading_goes_on_and_writing_is_refused_for_now(tmp_path, monkeypatch):
    monkeypatch.setattr(connections, "BUSY_S", 0.05)
    with serve(tmp_path, WORKERS="0") as it, it.client(it.key()) as client:
        with closing(sqlite3.connect(tmp_path / "data" / FILE_NAME, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert client.get("/v1/jobs").json()["data"] == []
            refused = client.post("/v1/transcribe", files=AUDIO, headers={"Prefer": "respond-async"})
            assert refused.status_code == 503, refused.text
            assert refused.json()["code"] == "not_ready"
            assert int(refused.headers["retry-after"]) >= 1
        assert client.post("/v1/transcribe", files=AUDIO, headers={"Prefer": "respond-async"}).status_code == 202


def test_requests_that_are_held_are_answered_when_the_server_stops(tmp_path):
    with serve(tmp_path, WORKERS="0") as it:
        key, answers = it.key(), []

        def hold() -> None:
            with it.client(key) as client:
                answers.append(client.post("/v1/transcribe", files=AUDIO, params={"wait": 60}).status_code)

        holding = threading.Thread(target=hold)
        holding.start()
        with it.client(key) as client:
            until(lambda: client.get("/v1/jobs").json()["data"])
        it.call(it.service.begin_stop)
        holding.join(10)
        assert answers == [202]


def test_formats_are_more_than_thirty_and_each_is_named(server):
    with server.client() as client:
        answer = client.get("/v1/formats").json()
    rows = answer["data"]
    assert [row["name"] for row in answer["outputs"]] == [*OUTPUT_FORMATS]
    assert len({row["extension"] for row in rows}) == len(rows) > 30
    assert all(re.fullmatch(r"(audio|video|application)/[a-z0-9.+-]+", row["mime"]) for row in rows)


def test_the_metrics_page_is_prometheus_text(server):
    with server.new_client() as client:
        client.post("/v1/transcribe", files=AUDIO)
    with server.client() as client:
        until(lambda: 'scribewire_jobs_ended_total{error="",state="completed"}' in client.get("/metrics").text)
        page = client.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "scribewire_jobs_waiting 0.0" in page.text


def test_refusals_by_a_limit_are_counted_by_their_code(server):
    with server.new_client("free", transcriptions_per_month=0) as client:
        client.post("/v1/transcribe", files=AUDIO)
        assert 'scribewire_refused_total{code="quota_exceeded"}' in client.get("/metrics").text


# --- sandbox ---------------------------------------------------------------------------------------------------------


def test_the_sandbox_hears_the_same_in_the_same_bytes(server):
    with server.new_client(sandbox=True) as client:
        first, second = (
            client.post("/v1/transcribe", files={"file": ("a.wav", wav(3))}, data={"word_timestamps": "true"}).json()
            for _ in range(2)
        )
        assert first["text"]
        for record in (first, second):
            for name in ("job_id", "created_at", "started_at", "finished_at", "expires_at", "formats", "events_url"):
                record.pop(name)
        assert first == second


@pytest.mark.parametrize(
    ("scenario", "status", "outcome"),
    [
        ("fail", 200, "failed"),
        ("empty", 200, "completed"),
        ("canceled", 200, "canceled"),
        ("quota_exceeded", 429, "quota_exceeded"),
        ("rate_limited", 429, "rate_limited"),
        ("boom", 422, "invalid_parameter"),
    ],
)
def test_a_scenario_gives_its_outcome(server, scenario, status, outcome):
    with server.new_client(sandbox=True) as client:
        response = client.post("/v1/transcribe", files=AUDIO, data={"sandbox_scenario": scenario})
    assert response.status_code == status
    assert (response.json().get("code") or response.json()["status"]) == outcome


# --- uploads of any size and manner ----------------------------------------------------------------------------------


def resident_bytes() -> int:
    """Return the resident memory of this process, which is server and test together."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="Linux tells a process its size")
def test_memory_is_flat_while_200_megabytes_arrive(server):
    sizes: list[int] = []

    def body() -> Iterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        piece = wav() + bytes(256 * 1024 - len(wav()))
        for number in range(BIG // len(piece)):
            if number % 32 == 0:
                sizes.append(resident_bytes())
            yield piece
        yield b"\r\n--b--\r\n"

    with server.new_client() as client:
        response = client.post(
            "/v1/transcribe",
            content=body(),
            headers={"Content-Type": "multipart/form-data; boundary=b", "Prefer": "respond-async"},
        )
        assert (response.status_code, response.json()["source"]["bytes"]) == (202, BIG)
        client.delete(f"/v1/jobs/{response.json()['job_id']}?force=true")
    assert max(sizes) - sizes[1] < 24 * 1024 * 1024
