"""Tests of access control: key, environment, rate, size and media type are checked in this order, before the body."""

import json
import re
from dataclasses import replace

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from server.accounts.keys import make_key
from server.clock import now_ms
from server.model.errors import DiskFull
from tests.server.peers import RawClient
from tests.server.serving import LIMITS, serve, wav

BEARER = 'Bearer realm="api"'
FREE_MOST = 512 * 1024 * 1024


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("served"), TRUSTED_PROXIES="127.0.0.0/8", SANDBOX_HOST="try.test") as it:
        yield it


def code(response: httpx.Response) -> str:
    return str(response.json()["code"])


# --- keys ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "status", "challenge"),
    [
        (None, 401, BEARER),
        ("", 401, BEARER),
        ("Bearer", 401, BEARER),
        ("Basic dXNlcjpwYXNz", 401, BEARER),
        ("Bearer nonsense", 401, f'{BEARER}, error="invalid_token"'),
        ("Bearer sw_live_" + "a" * 36, 401, f'{BEARER}, error="invalid_token"'),
        ("Bearer " + make_key("production", bytes(32)), 401, f'{BEARER}, error="invalid_token"'),
    ],
)
def test_without_a_good_key_the_answer_is_401_and_a_challenge(server, header, status, challenge):
    with server.client() as client:
        response = client.get("/v1/jobs", headers={} if header is None else {"Authorization": header})
    assert (response.status_code, response.headers["www-authenticate"]) == (status, challenge)


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_scheme_may_be_written_in_any_case(server, scheme):
    key = server.key()
    with server.client() as client:
        assert client.get("/v1/jobs", headers={"Authorization": f"{scheme}  {key}"}).status_code == 200


def test_a_key_is_never_taken_from_the_query(server):
    key = server.key()
    with server.client() as client:
        for name in ("key", "token", "access_token", "api_key"):
            assert client.get("/v1/jobs", params={name: key}).status_code == 401


def test_a_revoked_or_expired_key_is_unknown_from_the_next_request_on(server):
    with server.new_client() as client:
        other = client.post("/v1/keys", json={}).json()
        with server.client(other["key"]) as second:
            assert second.get("/v1/jobs").status_code == 200
            assert client.delete(f"/v1/keys/{other['key_id']}").status_code == 204
            assert code(second.get("/v1/jobs")) == "invalid_key"
        third = client.post("/v1/keys", json={}).json()
        with server.client(third["key"]) as old:
            assert old.get("/v1/jobs").status_code == 200
            client.post(f"/v1/keys/{third['key_id']}/rotate", json={"overlap_seconds": 0})
            assert code(old.get("/v1/jobs")) == "invalid_key"


def test_a_key_works_in_its_own_environment_only(server):
    live, test = server.key(), server.key(environment="sandbox")
    for key, sandbox in ((live, True), (test, False)):
        with server.client(key, sandbox=sandbox) as client:
            response = client.get("/v1/jobs")
            assert (response.status_code, code(response)) == (403, "environment_mismatch")
    with server.client(test, sandbox=True) as client:
        assert client.get("/v1/jobs").status_code == 200


def test_the_sandbox_has_a_host_of_its_own_too(server):
    test = server.key(environment="sandbox")
    with server.client(test) as client:
        for host in ("try.test", "TRY.test:8443"):
            assert client.get("/v1/jobs", headers={"Host": host}).status_code == 200
        assert client.get("/v1/jobs", headers={"Host": "nottry.test"}).status_code == 403


# --- web pages -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("origin", "host", "status"),
    [
        (None, None, 201),  # no browser
        ("http://127.0.0.1:{port}", None, 201),  # the page of this server
        ("http://localhost:{port}", "localhost:{port}", 201),
        ("http://192.0.2.7:{port}", "192.0.2.7:{port}", 201),
        ("https://evil.example", None, 403),
        ("http://127.0.0.1:3000", None, 403),  # another server of this machine
        ("http://evil.example:{port}", "evil.example:{port}", 403),  # its name was moved to this machine meanwhile
        ("null", None, 403),
        ("http://[", None, 403),
    ],
)
def test_on_a_laptop_only_the_own_page_makes_keys(server, origin, host, status):
    port = server.base.rpartition(":")[2]
    given = {"X-Forwarded-For": f"2001:db8:{status}:{len(origin or '')}::1", "Origin": origin, "Host": host}
    headers = {name: value.format(port=port) for name, value in given.items() if value is not None}
    with server.client() as client:
        response = client.post("/v1/keys", headers=headers)
    assert response.status_code == status
    if status == 403:
        assert code(response) == "origin_not_allowed"


def test_a_public_server_is_open_to_pages_of_any_origin(tmp_path):
    with serve(tmp_path, PUBLIC_BASE_URL="https://speech.example.org") as server:
        response = httpx.post(f"{server.base}/v1/keys", headers={"Origin": "https://app.example"})
    assert (response.status_code, response.headers["access-control-allow-origin"]) == (201, "*")


# --- order -----------------------------------------------------------------------------------------------------------


def test_the_checks_come_in_their_order(server):
    """Each request also breaks all later rules."""
    small = server.key("free", requests_per_minute=1)
    wrong = {"Content-Type": "text/plain", "Content-Length": str(FREE_MOST * 2)}

    def answer(path: str, method: str = "POST", **headers: str) -> tuple[int, str]:
        with RawClient(server.base) as client:
            lines = "".join(f"{name}: {value}\r\n" for name, value in {**wrong, **headers}.items())
            client.send(f"{method} {path} HTTP/1.1\r\nHost: x\r\n{lines}\r\n")
            status, _, body = client.answer()
            return status, json.loads(body)["code"]

    assert answer("/v1/nowhere") == (404, "not_found")
    assert answer("/v1/transcribe", "PUT") == (405, "method_not_allowed")
    assert answer("/v1/transcribe") == (401, "missing_credentials")
    assert answer("/sandbox/v1/transcribe", Authorization=f"Bearer {small}") == (403, "environment_mismatch")
    assert answer("/v1/transcribe", Authorization=f"Bearer {small}") == (413, "payload_too_large")
    assert answer("/v1/transcribe", Authorization=f"Bearer {small}") == (429, "rate_limited")
    key = server.key("free")
    assert answer("/v1/transcribe", Authorization=f"Bearer {key}", **{"Content-Length": "1"}) == (
        415, "unsupported_media_type",
    )  # fmt: skip


# --- rate ------------------------------------------------------------------------------------------------------------


def test_request_31_of_a_minute_is_refused_until_the_first_is_a_minute_old(server):
    with server.new_client("free") as client:
        answers = [client.get("/v1/usage") for _ in range(31)]
    assert [response.status_code for response in answers] == [200] * 30 + [429]
    remaining = [int(re.match(r'"minute";r=(\d+)', r.headers["ratelimit"])[1]) for r in answers]
    assert remaining == [*range(29, -1, -1), 0]
    refused = answers[-1]
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert refused.headers["ratelimit-policy"] == '"minute";q=30;w=60'
    assert refused.headers["x-ratelimit-resource"] == "minute"
    assert int(refused.headers["x-ratelimit-reset"]) > now_ms() // 1000
    body = refused.json()
    assert (body["code"], body["limit"], body["used"], body["window"]) == ("rate_limited", 30, 30, "minute")
    assert body["violated-policies"] == ["minute"]


def test_all_keys_of_an_account_share_its_minute_and_the_sandbox_has_another(server):
    with server.new_client("free", requests_per_minute=2) as client:
        second = client.post("/v1/keys", json={}).json()["key"]  # counted by address
        rehearsing = client.post("/v1/keys", json={"environment": "sandbox"}).json()["key"]
        assert client.get("/v1/usage").status_code == 200
        with server.client(second) as other:
            assert [other.get("/v1/usage").status_code for _ in range(2)] == [200, 429]
        assert client.get("/v1/usage").status_code == 429
        with server.client(rehearsing, sandbox=True) as other:
            assert other.get("/v1/usage").status_code == 200


def test_a_flood_of_wrong_keys_is_refused_without_reading_the_database(server, monkeypatch):
    good = server.key()
    looked_up = []
    by_hash = server.storage.accounts.by_hash

    async def watch(digest):
        looked_up.append(digest)
        return await by_hash(digest)

    monkeypatch.setattr(server.storage.accounts, "by_hash", watch)
    with server.client() as client:
        client.headers["X-Forwarded-For"] = "203.0.113.77"

        def answer(key: str) -> int:
            return client.get("/v1/jobs", headers={"Authorization": f"Bearer {key}"}).status_code

        assert answer(good) == 200
        answers = [answer(make_key("production", number.to_bytes(32))) for number in range(1, 71)]
        assert answers == [401] * 60 + [429] * 10
        assert len(looked_up) == 61
        assert answer(good) == 200  # an owner at the same address is not shut out
        assert answer(server.key()) == 429
        client.headers["X-Forwarded-For"] = "203.0.113.78"
        assert answer(server.key()) == 200


def test_what_needs_no_key_is_counted_by_address_against_floods(tmp_path):
    few = replace(LIMITS, keyless=replace(LIMITS.keyless, free_requests_per_minute=4))  # the description is one
    with serve(tmp_path, limits=few, TRUSTED_PROXIES="127.0.0.0/8") as server, server.client() as client:
        paths = ["/metrics", "/readyz", "/v1/formats", "/v1/formats", "/healthz"]
        assert [client.get(path).status_code for path in paths] == [200, 200, 200, 429, 200]
        assert client.get("/metrics", headers={"X-Forwarded-For": "203.0.113.79"}).status_code == 200


def test_refusals_without_a_key_are_counted_by_address_whatever_their_status(tmp_path):
    few = replace(LIMITS, keyless=replace(LIMITS.keyless, free_requests_per_minute=4))
    with serve(tmp_path, limits=few, TRUSTED_PROXIES="127.0.0.0/8") as server, server.new_client() as client:
        address_limits = {"Authorization": "", "X-Forwarded-For": "203.0.113.80"}
        socket = f"ws{server.base.removeprefix('http')}/v1/jobs/job_1/stream?token=st_bad"
        asked = [
            ("GET", "/nowhere", 404), ("PUT", "/v1/jobs", 405), ("GET", "/v1/jobs/job_1/events?token=st_bad", 401),
            ("OPTIONS", "/v1/jobs/", 204), ("GET", "/nowhere", 429),
        ]  # fmt: skip
        for method, path, status in asked:
            assert client.request(method, path, headers=address_limits).status_code == status
        with pytest.raises(InvalidStatus) as refused:
            connect(socket, additional_headers={"X-Forwarded-For": "203.0.113.80"}, proxy=None)
        assert refused.value.response.status_code == 429  # and no WebSocket to be told so
        in_openais_shape = client.get("/v1/models", headers=address_limits)
        assert (in_openais_shape.status_code, in_openais_shape.json()["error"]["code"]) == (429, "rate_limited")
        assert client.get("/healthz", headers=address_limits).status_code == 200
        assert client.get("/v1/jobs", headers={"X-Forwarded-For": "203.0.113.80"}).status_code == 200


def test_downloads_health_and_options_cost_nothing(server):
    with server.new_client("free", requests_per_minute=2) as client:
        job = client.post("/v1/transcribe", files={"file": ("a.wav", wav())}).json()
        for _ in range(5):
            assert client.get(f"/v1/jobs/{job['job_id']}/outputs/json").status_code == 200
            assert client.get("/healthz").status_code == 200
            assert client.options("/v1/jobs").status_code == 204
        assert client.get("/v1/usage").status_code == 200
        assert client.get("/v1/usage").status_code == 429


def test_without_a_key_an_address_is_counted_and_cannot_be_forged_away(server):
    """The server trusts 127.0.0.0/8 as proxies: the last other address in X-Forwarded-For is the client."""

    def ask(*hops: str) -> int:
        forwarded = {"Content-Type": "application/json", "X-Forwarded-For": ", ".join(hops)}
        return client.post("/v1/keys", content=b"no JSON: a cheap answer", headers=forwarded).status_code

    client = server.client()
    assert [ask("203.0.113.9") for _ in range(31)] == [400] * 30 + [429]
    assert ask("198.51.100.7", "203.0.113.9") == 429  # what the client itself adds on the left does not count
    assert ask("203.0.113.10") == 400
    assert [ask(f"2001:db8:1:2::{n:x}") for n in range(31)][-1] == 429  # one household
    assert ask("2001:db8:1:3::1") == 400
    client.close()


# --- bodies ----------------------------------------------------------------------------------------------------------


def test_a_media_type_that_is_not_taken_is_told_what_is(server):
    with server.new_client() as client:
        response = client.post("/v1/transcribe", content=b"x", headers={"Content-Type": "text/plain"})
    assert (response.status_code, code(response)) == (415, "unsupported_media_type")
    assert response.headers["accept"] == "multipart/form-data, application/json, application/x-www-form-urlencoded"


def test_an_idempotency_key_that_is_none_is_400_also_where_nothing_is_repeated(server):
    with server.new_client() as client:
        for path in ("/v1/keys", "/v1/webhook-secret/rotate", "/v1/jobs/x/cancel"):
            response = client.post(path, headers={"Idempotency-Key": ""})
            assert (response.status_code, code(response)) == (400, "invalid_idempotency_key")
        assert client.get("/v1/jobs", headers={"Idempotency-Key": ""}).status_code == 200


def test_a_compressed_body_is_refused_before_it_is_a_bomb(server):
    with server.new_client() as client:
        response = client.post(
            "/v1/transcribe", content=b"x", headers={"Content-Type": "application/json", "Content-Encoding": "gzip"}
        )
    assert (response.status_code, code(response)) == (415, "unsupported_encoding")
    assert response.headers["accept-encoding"] == "identity"


def test_where_a_body_is_optional_its_type_is_too(server):
    with server.new_client() as client:
        assert client.post("/v1/keys").status_code == 201
        assert client.post("/v1/keys", content=b"").status_code == 201
        assert client.post("/v1/keys", content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415


def test_methods_are_told(server):
    with server.client() as client:
        options = client.options("/v1/jobs/x")
        assert (options.status_code, options.headers["allow"], options.content) == (
            204,
            "DELETE, GET, HEAD, OPTIONS",
            b"",
        )
        put = client.put("/v1/jobs")
        assert (put.status_code, put.headers["allow"], code(put)) == (405, "GET, HEAD, OPTIONS", "method_not_allowed")
        assert client.head("/v1/transcribe").status_code == 405


def test_the_last_use_of_a_key_is_remembered(server):
    with server.new_client() as client:
        [key] = client.get("/v1/keys").json()["data"]
        assert key["last_used_at"] is not None


def test_a_full_disk_keeps_no_reader_out(server, monkeypatch):
    async def full(*_: object) -> None:
        raise DiskFull("no space left")

    monkeypatch.setattr(type(server.storage.accounts), "touch", full)
    with server.new_client() as client:
        assert client.get("/v1/jobs").status_code == 200
