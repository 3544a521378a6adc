"""POST /v1/transcribe: accepting and holding, what a plan allows, idempotency keys."""

import time

import httpx
import pytest

from server.clock import parse_iso
from server.model.errors import OutcomeUnknown
from tests.server.peers import RawClient
from tests.server.serving import AppServer, serve, wav
from tests.server.submitting import AUDIO, code, serve_gates, submit, wait_for_record
from tests.waiting import until


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serve_gates(tmp_path_factory.mktemp("served")) as it:
        yield it


# --- accepting and holding -------------------------------------------------------------------------------------------


def test_a_short_file_is_answered_with_its_result(client):
    response = client.post(
        "/v1/transcribe", files=AUDIO, data={"output_formats": "json,srt,vtt", "word_timestamps": "1"}
    )
    record = response.json()
    assert (response.status_code, record["status"], record["text"]) == (200, "completed", "so my fellow")
    assert response.headers["content-location"] == f"/v1/jobs/{record['job_id']}"
    assert list(record["formats"]) == ["json", "srt", "vtt"]
    assert [word["word"] for word in record["words"]] == ["so", "my", "fellow"]
    assert record["source"] == {"type": "upload", "filename": "talk.wav", "bytes": len(wav()), "format": "wav"}
    assert parse_iso(record["created_at"]) <= parse_iso(record["started_at"]) <= parse_iso(record["finished_at"])
    assert "preference-applied" not in response.headers


def test_without_words_and_json_neither_is_in_the_record(client):
    record = submit(client, output_formats="txt")
    assert not record.keys() & {"words", "schema"}


@pytest.mark.parametrize(
    ("headers", "query", "data", "status", "applied"),
    [
        ({"Prefer": "respond-async"}, {}, {}, 202, "respond-async"),
        ({"Prefer": "wait=0"}, {}, {}, 202, "wait=0"),
        ({}, {"wait": "0"}, {}, 202, "wait=0"),
        ({}, {}, {"wait": "0"}, 202, "wait=0"),
        ({"Prefer": "respond-async"}, {"wait": "30"}, {}, 200, "wait=30"),
        ({"Prefer": "wait=0"}, {"wait": "30"}, {}, 200, "wait=30"),
        ({"Prefer": "respond-async, wait=30"}, {}, {}, 200, "wait=30"),
        ({}, {"wait": "100000"}, {}, 200, "wait=30"),
        ({"Prefer": "wait=100000"}, {}, {}, 200, "wait=30"),
        ({"Prefer": 'wait="30"; x=1, other'}, {}, {}, 200, "wait=30"),
        ({"Prefer": "wait=soon"}, {}, {}, 200, None),
        ({}, {}, {"webhook_url": "http://127.0.0.1:9/hook"}, 202, None),
        ({}, {}, {"webhook_url": "http://127.0.0.1:9/hook", "wait": "30"}, 200, "wait=30"),
    ],
)
def test_the_hold_is_what_was_asked_for_clamped(client, headers, query, data, status, applied):  # noqa: PLR0917  a table
    response = client.post("/v1/transcribe", files=AUDIO, data=data, params=query, headers=headers)
    assert (response.status_code, response.headers.get("preference-applied")) == (status, applied)
    if status == 202:
        record = response.json()
        assert response.headers["location"] == f"/v1/jobs/{record['job_id']}"
        assert response.headers["retry-after"] == "2"
        assert record["formats"] == {}


def test_without_a_wish_the_answer_is_held_for_wait_default(tmp_path):
    with serve(tmp_path, WORKERS="0", WAIT_DEFAULT="1") as idle, idle.new_client() as client:
        began = time.monotonic()
        response = client.post("/v1/transcribe", files=AUDIO)
        held_s = time.monotonic() - began
    assert (response.status_code, response.json()["status"]) == (202, "queued")
    assert 1 <= held_s < 15


@pytest.mark.parametrize("wait", ["abc", "-1", "1.5", "", "٣"])
def test_a_wait_that_is_no_number_is_422(client, wait):
    response = client.post("/v1/transcribe", files=AUDIO, params={"wait": wait})
    assert (response.status_code, response.json()["errors"][0]["param"]) == (422, "wait")
    assert client.get("/v1/jobs").json()["data"] == []


def test_a_job_goes_on_when_its_client_hangs_up(server, client):
    body = client.build_request("POST", "/v1/transcribe", files=AUDIO)
    with RawClient(server.base) as raw:
        head = "".join(f"{name}: {value}\r\n" for name, value in body.headers.items())
        raw.send(f"POST /v1/transcribe HTTP/1.1\r\n{head}\r\n")
        raw.send(body.read())
        [job] = until(lambda: client.get("/v1/jobs").json()["data"])
    assert wait_for_record(client, job["job_id"], lambda job: job["status"] == "completed")


def test_a_job_that_fails_is_a_result_too(client):
    record = submit(client, prompt="fail")
    assert (record["status"], record["formats"]) == ("failed", {})
    assert record["error"] == {"code": "invalid_audio", "message": "cut off", "retryable": False, "param": None}


@pytest.mark.parametrize(
    ("files", "data", "status", "fault"),
    [
        (None, {}, 400, "invalid_multipart"),
        ({"other": ("a", b"x")}, {}, 422, "missing_input"),
        (AUDIO, {"url": "https://x.test/a"}, 422, "ambiguous_input"),
        ({"file": ("a.wav", b"")}, {}, 422, "empty_file"),
        ({"file": ("a.mp3", b"some text, no audio at all" * 20)}, {}, 415, "unsupported_audio_format"),
        ({"file": ("a.flac", b"fLaC\x00\x00\x00\x22" + bytes(20))}, {}, 422, "invalid_audio"),
        (AUDIO, {"output_formats": "doc"}, 422, "invalid_parameter"),
        (AUDIO, {"webhook_url": "https://10.0.0.1/x"}, 422, "url_not_allowed"),
        (AUDIO, {"webhook_url": "ftp://x.test/x"}, 422, "url_not_allowed"),
        (AUDIO, {"webhook_url": ""}, 422, "url_not_allowed"),
    ],
)
def test_what_cannot_become_words_makes_no_job(server, client, files, data, status, fault):  # noqa: PLR0917  a table
    if files is None:
        response = client.post(
            "/v1/transcribe", content=b"", headers={"Content-Type": "multipart/form-data; boundary=x"}
        )
    else:
        response = client.post("/v1/transcribe", files=files, data=data)
    assert (response.status_code, code(response)) == (status, fault)
    assert client.get("/v1/jobs").json()["data"] == []
    assert client.get("/v1/usage").json()["usage"][0]["used"] == 0
    assert server.wait(orphans(server)) == []


async def orphans(server: AppServer) -> list[str]:
    """Return the prefixes in the blob store that belong to no job."""
    prefixes = [prefix for prefix, _ in await server.storage.blobs.prefixes()]
    return [prefix for prefix in prefixes if await server.storage.jobs.get(prefix) is None]


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.53.nip.example:99999/",
        "http://169.254.169.254/",
        "https://[::ffff:10.0.0.1]/",
        "https://[64:ff9b::7f00:1]/",
        "file:///etc/passwd",
        "https://u:p@x.test/",
        "https://x.test/ a",
    ],
)
@pytest.mark.parametrize("kind", ["json", "form", "multipart"])
def test_an_address_that_may_not_be_called_is_refused_at_once(client, url, kind):
    said = {
        "json": {"json": {"url": url}},
        "form": {"data": {"url": url}},
        "multipart": {"files": {"url": (None, url)}},
    }
    response = client.post("/v1/transcribe", **said[kind])
    assert (response.status_code, code(response)) == (422, "url_not_allowed")
    assert response.json()["errors"][0]["param"] == "url"


# --- allowances ------------------------------------------------------------------------------------------------------


def test_the_sixth_transcription_of_a_free_month_is_refused(server):
    with server.new_client("free") as client:
        for left in range(4, -1, -1):
            response = client.post("/v1/transcribe", files=AUDIO)
            assert f'"transcriptions";r={left};' in response.headers["ratelimit"]
        refused = client.post("/v1/transcribe", files=AUDIO)
        assert (refused.status_code, code(refused)) == (429, "quota_exceeded")
        assert refused.headers["x-should-retry"] == "false"
        assert refused.headers["x-ratelimit-resource"] == "transcriptions"
        assert (refused.json()["limit"], refused.json()["used"], refused.json()["window"]) == (5, 5, "transcriptions")
        usage = client.get("/v1/usage").json()["usage"][0]
        assert (usage["used"], usage["remaining"]) == (5, 0)
        wait_s = parse_iso(usage["resets_at"]) / 1000 - parse_iso(refused.json()["resets_at"]) / 1000
        assert wait_s == 0


def test_the_sandbox_counts_nothing_against_the_plan(server):
    with server.new_client("free") as owner:
        rehearsing = owner.post("/v1/keys", json={"environment": "sandbox"}).json()["key"]
        production = owner.headers["authorization"].removeprefix("Bearer ")
    with server.client(rehearsing, sandbox=True) as client:
        for _ in range(7):
            assert client.post("/v1/transcribe", files=AUDIO).status_code == 200
        assert {row["used"] for row in client.get("/v1/usage").json()["usage"]} == {0}
    with server.client(production) as client:
        assert client.get("/v1/usage").json()["usage"][0]["used"] == 0


# --- idempotency -----------------------------------------------------------------------------------------------------


def submit_with_key(client: httpx.Client, key: str, *, audio: bytes | None = None, **data: str) -> httpx.Response:
    return client.post(
        "/v1/transcribe", files={"file": ("a.wav", audio or wav())}, data=data, headers={"Idempotency-Key": key}
    )


def test_the_same_request_with_the_same_key_is_the_same_job(client):
    first, second = submit_with_key(client, "k1"), submit_with_key(client, '"k1"')
    assert first.json()["job_id"] == second.json()["job_id"]
    assert "idempotent-replayed" not in first.headers
    assert (second.status_code, second.headers["idempotent-replayed"]) == (200, "true")
    assert client.get("/v1/usage").json()["usage"][0]["used"] == 1
    assert submit_with_key(client, "k2").json()["job_id"] != first.json()["job_id"]


def test_another_request_with_the_same_key_is_refused(client):
    submit_with_key(client, "k1")
    for other in (submit_with_key(client, "k1", audio=wav(2)), submit_with_key(client, "k1", language="de")):
        assert (other.status_code, code(other)) == (422, "idempotency_key_reused")


def test_the_wait_is_no_part_of_the_request(client):
    assert (
        submit_with_key(client, "k1", wait="5").json()["job_id"]
        == submit_with_key(client, "k1", wait="0").json()["job_id"]
    )


def test_a_failed_request_frees_its_key(client):
    assert submit_with_key(client, "k1", audio=b"no audio, but long enough to be looked at").status_code == 415
    assert submit_with_key(client, "k1", output_formats="doc").status_code == 422
    assert submit_with_key(client, "k1").status_code == 200


def wait_until_reserved(server: AppServer, key: str) -> None:
    look = "SELECT 1 FROM idempotency WHERE key = ?"
    until(lambda: server.wait(server.storage.database.read(lambda tx: tx.one(look, (key,)))))


def test_while_the_first_is_arriving_the_second_is_told_to_wait(server, client):
    request = client.build_request("POST", "/v1/transcribe", files=AUDIO, headers={"Idempotency-Key": "slow"})
    body = request.read()
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    with RawClient(server.base) as raw:
        raw.send(f"POST /v1/transcribe HTTP/1.1\r\n{head}\r\n")
        raw.send(body[:100])
        wait_until_reserved(server, "slow")
        second = submit_with_key(client, "slow")
        assert (second.status_code, code(second)) == (409, "idempotency_in_progress")
        assert int(second.headers["retry-after"]) >= 1
        raw.send(body[100:])
        assert raw.answer()[0] == 200
    assert submit_with_key(client, "slow", audio=wav()).headers["idempotent-replayed"] == "true"


def once_free(client: httpx.Client, key: str) -> httpx.Response:
    """The first answer to the key that is not a refusal because of another request under way."""

    def look() -> httpx.Response | None:
        answer = submit_with_key(client, key)
        return None if answer.status_code == 409 else answer

    return until(look)


def test_a_client_that_leaves_while_sending_frees_its_key(server, client):
    request = client.build_request("POST", "/v1/transcribe", files=AUDIO, headers={"Idempotency-Key": "gone"})
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    with RawClient(server.base) as raw:
        raw.send(f"POST /v1/transcribe HTTP/1.1\r\n{head}\r\n")
        raw.send(request.read()[:100])
        wait_until_reserved(server, "gone")
        assert submit_with_key(client, "gone").status_code == 409
    assert once_free(client, "gone").status_code == 200


def test_a_job_that_was_made_without_an_answer_from_the_database_keeps_its_audio(server, client, monkeypatch):
    submit_job = server.storage.jobs.submit

    async def submit_and_lose_the_answer(new, **more):
        await submit_job(new, **more)
        raise OutcomeUnknown("the database went away during a commit; look before you try again")

    with monkeypatch.context() as patch:
        patch.setattr(server.storage.jobs, "submit", submit_and_lose_the_answer)
        assert submit_with_key(client, "unknown").status_code == 503
    record = once_free(client, "unknown").json()
    assert (record["status"], record["text"]) == ("completed", "so my fellow")
    assert [job["job_id"] for job in client.get("/v1/jobs").json()["data"]] == [record["job_id"]]
