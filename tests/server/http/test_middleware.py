"""Tests of middleware.py: what every answer has, and answers to clients that are refused while they send."""

import json
import re

import httpx
import pytest

from server.http import middleware
from server.http.middleware import EXPOSING, PREFLIGHT, Origins
from tests.server.peers import RawClient
from tests.server.serving import chunk, serve, wav

PAGE = "https://page.test"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("served"), CORS_ORIGINS="*") as it:
        yield it


def upload_head(key: str, *more: str) -> str:
    lines = ["POST /v1/transcribe HTTP/1.1", "Host: x", f"Authorization: Bearer {key}", *more]
    return "\r\n".join([*lines, "Content-Type: multipart/form-data; boundary=b", "", ""])


# --- on every answer -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/formats", "/v1/jobs", "/nowhere", "/healthz"])
def test_every_answer_has_an_id_and_says_what_it_varies_by(server, path):
    with server.client() as client:
        response = client.get(path)
    assert re.fullmatch(r"req_[0-9A-Z]{26}", response.headers["x-request-id"])
    assert response.headers["vary"] == "Origin, Accept-Encoding"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "server" not in response.headers


def test_an_answer_is_not_stored_unless_it_says_otherwise(server):
    with server.client() as client:
        assert client.get("/v1/jobs").headers["cache-control"] == "no-store"
        assert client.get("/v1/formats").headers["cache-control"] == "public, max-age=86400"


@pytest.mark.parametrize(
    ("given", "taken"), [("abc", True), ("A.b_c-1" * 9, True), ("a b", False), ("x" * 65, False), ("", False)]
)
def test_a_request_id_is_taken_when_it_is_one(server, given, taken):
    with server.client() as client:
        response = client.get("/v1/jobs", headers={"X-Request-Id": given})
    assert (response.headers["x-request-id"] == given) is taken
    assert response.json()["request_id"] == response.headers["x-request-id"]


@pytest.mark.parametrize("path", ["/v1/jobs", "/healthz", "/nowhere", "/v1/jobs/job_1/events"])
def test_a_query_of_many_fields_is_refused_before_anything_else(server, path):
    with server.client() as client:
        refused = client.get(f"{path}?{'&'.join('a' * 33)}")
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid_request")
        assert client.get(f"{path}?{'&'.join('a' * 32)}").status_code in (200, 401, 404)


def test_as_many_keyterms_may_stand_in_a_query_as_an_order_may_have(server):
    with server.new_client() as client:
        for path, many in (("/v1/listen", 132), ("/sandbox/v1/listen", 133)):
            answer = client.post(path, params=[("keyterm", "a")] * many, content=b"")
            assert (answer.json().get("code") == "invalid_request") is (many == 133)


def test_the_metrics_count_routes_not_paths_and_no_invented_methods(server):
    with server.client() as client:
        client.get("/v1/jobs/job_1")
        client.request("PURGE", "/v1/jobs")
        page = client.get("/metrics").text
    assert 'scribewire_requests_total{method="GET",route="/v1/jobs/{job_id}",status="401"}' in page
    assert 'method="other"' in page
    assert "BREW" not in page
    assert "job_1" not in page


@pytest.mark.parametrize("path", ["/v1/jobs/", "//v1/jobs", "/sandbox//v1/jobs//", "/v1//jobs"])
def test_a_slash_too_many_makes_no_difference(server, path):
    sandbox = "sandbox" in path
    with server.client(server.key(environment="sandbox" if sandbox else "production")) as client:
        assert httpx.get(f"{server.base}{path}", headers=client.headers).json()["data"] == []


def test_a_path_without_its_version_is_told_so(server):
    for path in ("/audio/transcriptions", "/v1/v1/audio/transcriptions"):
        assert "/v1/audio/transcriptions" in httpx.post(f"{server.base}{path}").json()["detail"]


# --- CORS ----------------------------------------------------------------------------------------------------------


def test_a_preflight_is_granted_whatever_is_at_the_path(server):
    for path in ("/v1/transcribe", "/v1/audio/transcriptions", "/sandbox/v1/listen", "/v1/jobs/x", "/nowhere"):
        with server.client() as client:
            response = client.options(
                path,
                headers={
                    "Origin": PAGE,
                    "Access-Control-Request-Method": "POST",
                    "Access-Control-Request-Headers": "authorization,x-stainless-os,openai-organization",
                },
            )
        assert response.status_code == 204
        assert response.headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in response.headers
        assert response.headers["access-control-allow-headers"] == "authorization,x-stainless-os,openai-organization"
        assert response.headers["access-control-allow-methods"] == "GET, HEAD, POST, DELETE"
        assert response.headers["access-control-max-age"] == "600"


def test_refusals_can_be_read_by_pages_too(server):
    with server.new_client("free", requests_per_minute=1) as client:
        client.get("/v1/jobs")
        limited = client.get("/v1/jobs", headers={"Origin": PAGE})
    with server.client() as client:
        unknown = client.get("/v1/jobs", headers={"Origin": PAGE})
        nowhere = client.get("/nowhere", headers={"Origin": PAGE})
    for response, status in ((limited, 429), (unknown, 401), (nowhere, 404)):
        assert response.status_code == status
        assert response.headers["access-control-allow-origin"] == "*"
        assert "Retry-After" in response.headers["access-control-expose-headers"]


def test_a_fault_of_ours_is_a_500_without_details_that_pages_can_read(server, monkeypatch):
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("secret of /etc/passwd")

    monkeypatch.setattr(type(server.storage.jobs), "find", broken)
    with server.new_client() as client:
        response = client.get("/v1/jobs", headers={"Origin": PAGE})
    assert (response.status_code, response.json()["code"]) == (500, "internal")
    assert response.headers["access-control-allow-origin"] == "*"
    assert "secret" not in response.text
    assert "ratelimit" in response.headers


def test_without_an_origin_there_is_nothing_to_allow(server):
    with server.client() as client:
        assert "access-control-allow-origin" not in client.get("/healthz").headers


def test_only_listed_origins_are_granted_anything():
    origins = Origins(["https://a.test"])
    assert origins.headers("https://a.test", EXPOSING) == {"Access-Control-Allow-Origin": "https://a.test", **EXPOSING}
    assert origins.headers("https://a.test", PREFLIGHT) == {
        "Access-Control-Allow-Origin": "https://a.test",
        **PREFLIGHT,
    }
    for stranger in ("https://b.test", "https://a.test.evil", "null", None):
        assert origins.headers(stranger, EXPOSING) == {}


# --- compression ---------------------------------------------------------------------------------------------------


def test_answers_of_a_kilobyte_are_compressed_for_who_takes_it(server):
    with server.client() as client:
        packed = client.get("/openapi.json", headers={"Accept-Encoding": "gzip"})
        plain = client.get("/openapi.json", headers={"Accept-Encoding": "identity"})
        small = client.get("/healthz", headers={"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.json() == plain.json()
    assert "content-encoding" not in plain.headers
    assert "content-encoding" not in small.headers


def test_downloads_are_sent_as_they_are_stored(server):
    async def talk(*_: object):
        yield chunk(0, *["word"] * 500)

    server.batch.scripts["long"] = talk
    with server.new_client() as client:
        job = client.post(
            "/v1/transcribe", files={"file": ("a.wav", wav())}, data={"output_formats": "txt", "prompt": "long"}
        ).json()
        response = client.get(f"/v1/jobs/{job['job_id']}/outputs/txt", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in response.headers
    assert int(response.headers["content-length"]) == len(response.content) > 1000


# --- refused while sending -------------------------------------------------------------------------------------------


def test_a_bad_key_is_refused_before_the_upload_and_the_client_can_read_it(server):
    """The answer comes before any byte of the body, and a client that first sends all of it still gets it."""
    with RawClient(server.base) as client:
        client.send(upload_head("sw_live_nonsense", "Content-Length: 20000000"))
        status, headers, body = client.answer()  # nothing of the body was sent
        assert (status, json.loads(body)["code"]) == (401, "invalid_key")
        assert headers["connection"] == "close"
    with RawClient(server.base) as client:
        client.send(upload_head("sw_live_nonsense", "Content-Length: 20000000"))
        for _ in range(20):
            client.send(bytes(1_000_000))
        status, _, body = client.answer()
        assert (status, json.loads(body)["code"]) == (401, "invalid_key")
        assert client.is_closed()


def test_who_waits_for_100_continue_is_refused_without_it(server, monkeypatch):
    monkeypatch.setattr(middleware, "LINGER_IDLE_S", 0.1)
    with RawClient(server.base) as client:
        client.send(upload_head("sw_live_nonsense", "Content-Length: 20000000", "Expect: 100-continue"))
        status, headers, _ = client.answer()
        assert (status, headers["connection"]) == (401, "close")
        assert client.is_closed()


def test_who_waits_for_100_continue_and_may_send_is_told_to(server):
    body = b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\n1\r\n--b--\r\n'
    with RawClient(server.base) as client:
        client.send(upload_head(server.key(), f"Content-Length: {len(body)}", "Expect: 100-continue"))
        assert client.answer()[0] == 100
        client.send(body)
        assert json.loads(client.answer()[2])["code"] == "missing_input"


def test_a_small_body_that_was_not_read_costs_no_connection(server):
    with RawClient(server.base) as client:
        for _ in range(2):
            client.send(upload_head("sw_live_nonsense", "Content-Length: 5") + "hello")
            status, headers, _ = client.answer()
            assert status == 401
            assert "connection" not in headers


@pytest.mark.parametrize(("most_bytes", "max_s"), [(1_000_000, 3600.0), (2**62, 0.2)])
def test_lingering_has_an_end_in_bytes_and_in_time(server, monkeypatch, most_bytes, max_s):
    monkeypatch.setattr(middleware, "LINGER_BYTES", most_bytes)
    monkeypatch.setattr(middleware, "LINGER_S", max_s)
    with RawClient(server.base) as client:
        client.send(upload_head("sw_live_nonsense", "Transfer-Encoding: chunked"))
        assert client.answer()[0] == 401
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            send_for_ever(client)


def send_for_ever(client: RawClient) -> None:
    while True:
        client.send(b"10000\r\n" + bytes(65_536) + b"\r\n")


def test_a_websocket_to_nowhere_is_told_so(server):
    with RawClient(server.base) as client:
        client.send(
            "GET /nowhere HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        status, headers, body = client.answer()
    assert (status, headers["content-type"]) == (404, "application/problem+json")
    assert json.loads(body)["code"] == "not_found"


@pytest.mark.parametrize("path", ["/v1/jobs/job_1/stream", "/v1/listen", "/sandbox/v1/realtime"])
@pytest.mark.parametrize("more", ["", "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 12\r\n"])
def test_a_get_without_a_handshake_where_a_websocket_opens_gets_426(server, path, more):
    with RawClient(server.base) as client:
        client.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n{more}\r\n")
        status, headers, _ = client.answer()
    assert (status, headers["upgrade"], headers["sec-websocket-version"]) == (426, "websocket", "13")
    assert "x-request-id" in headers


def test_a_forged_host_changes_nothing_that_is_said(server):
    with RawClient(server.base) as client:
        client.send("GET /v1/jobs?x=1 HTTP/1.1\r\nHost: evil.test/a?b\r\n\r\n")
        assert json.loads(client.answer()[2])["instance"] == "/v1/jobs"
        client.send("GET / HTTP/1.1\r\nHost: evil.test\r\nX-Forwarded-Host: evil.test\r\n\r\n")
        assert b"evil" not in client.answer()[2]
