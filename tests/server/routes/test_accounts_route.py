"""Tests of keys, usage, tokens and webhook secrets over HTTP."""

import itertools

import httpx
import pytest

from server.clock import now_ms, parse_iso
from tests.server.running import until_over
from tests.server.serving import serve, wav

ADDRESSES = itertools.count(1)
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("served"), TRUSTED_PROXIES="127.0.0.0/8") as it:
        yield it


@pytest.fixture
def client(server):
    with server.new_client("free", requests_per_minute=1000) as client:
        yield client


@pytest.fixture
def stranger(server):
    """Return a client without a key, at an address of its own."""
    with server.client() as stranger:
        stranger.headers["X-Forwarded-For"] = f"2001:db8:{next(ADDRESSES):x}::1"
        yield stranger


def code(response: httpx.Response) -> str:
    return str(response.json()["code"])


# --- making keys -----------------------------------------------------------------------------------------------------


def test_anybody_gets_a_free_key_without_giving_anything(stranger, server):
    response = stranger.post("/v1/keys", json={})
    made = response.json()
    assert response.status_code == 201
    assert made["key"].startswith("sw_live_")
    assert made["key"].startswith(made["prefix"])
    assert (made["plan"], made["environment"], made["name"]) == ("free", "production", None)
    assert made["webhook_secret"].startswith("whsec_")
    assert response.headers["cache-control"] == "no-store"
    with server.client(made["key"]) as client:
        assert client.get("/v1/usage").json()["plan"] == "free"


def test_a_key_made_at_the_sandbox_is_a_sandbox_key(server, stranger):
    made = stranger.post("/sandbox/v1/keys", json={"name": "ci"}).json()
    assert (made["environment"], made["name"], made["key"][:8]) == ("sandbox", "ci", "sw_test_")
    with server.client(made["key"], sandbox=True) as client:
        assert client.get("/v1/jobs").status_code == 200


def test_with_a_key_the_new_one_joins_its_account(server, client):
    made = client.post("/v1/keys", json={"name": "second"}).json()
    assert "webhook_secret" not in made
    client.post("/v1/transcribe", files={"file": ("a.wav", wav())})
    with server.client(made["key"]) as other:
        assert other.get("/v1/usage").json()["usage"][0]["used"] == 1  # allowances are the account's, not the key's
        assert [key["name"] for key in other.get("/v1/keys").json()["data"]] == [None, "second"]


def test_a_listed_key_shows_no_secret(client):
    made = client.post("/v1/keys", json={}).json()
    listed = client.get("/v1/keys")
    assert made["key"] not in listed.text
    assert listed.json()["data"][-1] | {"last_used_at": None} == {
        "key_id": made["key_id"],
        "prefix": made["prefix"],
        "last4": made["key"][-4:],
        "name": None,
        "environment": "production",
        "retention": None,
        "created_at": made["created_at"],
        "last_used_at": None,
        "expires_at": None,
        "revoked_at": None,
    }


@pytest.mark.parametrize(
    ("body", "status", "fault"),
    [
        (b"{", 400, "invalid_json"),
        (b"[]", 400, "invalid_json"),
        (b'{"name": 7}', 422, "invalid_parameter"),
        (b'{"name": "' + b"x" * 101 + b'"}', 422, "invalid_parameter"),
        (b'{"environment": "moon"}', 422, "invalid_parameter"),
        (b'{"environment": []}', 422, "invalid_parameter"),
        (b" " * 10_001, 413, "payload_too_large"),
    ],
)
def test_a_bad_request_for_a_key_is_refused_and_counts_no_sign_up(stranger, body, status, fault):
    response = stranger.post("/v1/keys", content=body, headers=JSON)
    assert (response.status_code, code(response)) == (status, fault)
    assert [stranger.post("/v1/keys", json={}).status_code for _ in range(10)] == [201] * 10


def test_a_bad_key_is_told_before_a_bad_body(stranger):
    response = stranger.post("/v1/keys", content=b"{", headers={**JSON, "Authorization": "Bearer sw_live_nonsense"})
    assert (response.status_code, code(response)) == (401, "invalid_key")


def test_an_address_signs_up_ten_times_a_day(server, stranger):
    statuses = [stranger.post("/v1/keys", json={}).status_code for _ in range(11)]
    assert statuses == [201] * 10 + [429]
    refused = stranger.post("/v1/keys", json={})
    assert (code(refused), refused.json()["window"]) == ("quota_exceeded", "signups")
    assert parse_iso(refused.json()["resets_at"]) % 86_400_000 == 0
    assert refused.headers["x-ratelimit-resource"] == "signups"
    look = "SELECT subject FROM counters WHERE name = 'signups'"
    rows = server.wait(server.storage.database.read(lambda tx: [row["subject"] for row in tx.all(look)]))
    assert rows
    assert not any("2001:db8" in subject for subject in rows)  # addresses are not kept


@pytest.mark.parametrize("mode", ["off", "token"])
def test_the_operator_decides_who_may_sign_up(tmp_path, mode):
    with serve(tmp_path, SIGNUP=mode, SIGNUP_TOKEN="let-me-in") as it, it.client() as stranger:
        closed = stranger.post("/v1/keys", json={})
        assert (closed.status_code, code(closed)) == (403, "signup_closed")
        by_token = stranger.post("/v1/keys", json={}, headers={"Authorization": "Bearer let-me-in"})
        assert by_token.status_code == (201 if mode == "token" else 403)
        guess = stranger.post("/v1/keys", json={}, headers={"Authorization": "Bearer let-me-out"})
        assert (guess.status_code, code(guess)) == (401, "invalid_key")
        with it.new_client() as owner:
            assert owner.post("/v1/keys", json={}).status_code == 201  # with a key another one can be made


# --- ending keys -----------------------------------------------------------------------------------------------------


def test_a_rotated_key_works_until_its_overlap_is_over(server, client):
    old = client.post("/v1/keys", json={"name": "ci"}).json()
    new = client.post(f"/v1/keys/{old['key_id']}/rotate", json={"overlap_seconds": 3600})
    assert (new.status_code, new.json()["name"], new.json()["environment"]) == (201, "ci", "production")
    for key in (old["key"], new.json()["key"]):
        with server.client(key) as either:
            assert either.get("/v1/jobs").status_code == 200
    shown = {key["key_id"]: key for key in client.get("/v1/keys").json()["data"]}
    assert 3_590_000 < parse_iso(shown[old["key_id"]]["expires_at"]) - now_ms() <= 3_600_000


@pytest.mark.parametrize("overlap", [-1, 604_801, 1.5, "60", True, None])
def test_an_overlap_out_of_bounds_is_refused(client, overlap):
    key_id = client.get("/v1/keys").json()["data"][0]["key_id"]
    response = client.post(f"/v1/keys/{key_id}/rotate", json={"overlap_seconds": overlap})
    assert (response.status_code, response.json()["errors"][0]["param"]) == (422, "overlap_seconds")


def test_keys_of_others_do_not_exist(server, client):
    with server.new_client() as other:
        theirs = other.get("/v1/keys").json()["data"][0]["key_id"]
        for answer in (client.delete(f"/v1/keys/{theirs}"), client.post(f"/v1/keys/{theirs}/rotate", json={})):
            assert (answer.status_code, code(answer)) == (404, "key_not_found")
        assert other.get("/v1/jobs").status_code == 200


def test_a_revoked_key_cannot_be_revoked_or_rotated_again(client):
    made = client.post("/v1/keys", json={}).json()
    assert client.delete(f"/v1/keys/{made['key_id']}").status_code == 204
    assert client.delete(f"/v1/keys/{made['key_id']}").status_code == 404
    assert client.post(f"/v1/keys/{made['key_id']}/rotate", json={}).status_code == 404


# --- what a sandbox key may do to the account -------------------------------------------------------------------------


@pytest.fixture
def tester(server, client):
    """The sandbox key of an account that has a production key, too."""
    made = client.post("/v1/keys", json={"environment": "sandbox"}).json()
    with server.client(made["key"], sandbox=True) as tester:
        yield tester


def test_a_sandbox_key_makes_no_production_key(tester):
    response = tester.post("/v1/keys", json={"environment": "production"})
    assert (response.status_code, code(response)) == (403, "environment_mismatch")
    assert tester.post("/v1/keys", json={}).json()["key"].startswith("sw_test_")


def test_a_sandbox_key_neither_sees_nor_ends_production_keys(tester, client):
    assert {key["environment"] for key in tester.get("/v1/keys").json()["data"]} == {"sandbox"}
    production = client.get("/v1/keys").json()["data"][0]["key_id"]
    for answer in (tester.delete(f"/v1/keys/{production}"), tester.post(f"/v1/keys/{production}/rotate", json={})):
        assert (answer.status_code, code(answer)) == (404, "key_not_found")
    assert client.get("/v1/jobs").status_code == 200


def test_each_environment_has_a_webhook_secret_of_its_own(server, tester, client):
    before = client.get("/v1/webhook-secret").json()
    assert tester.post("/v1/webhook-secret/rotate", json={"overlap_seconds": 0}).status_code == 201
    assert client.get("/v1/webhook-secret").json() == before
    first = httpx.post(f"{server.base}/v1/keys", json={"environment": "sandbox"}).json()
    with server.client(first["key"], sandbox=True) as other:
        rotated = other.post("/v1/webhook-secret/rotate", json={"overlap_seconds": 60}).json()
    account = server.wait(server.storage.accounts.account(first["account_id"]))
    assert account.sandbox_webhook_secret.current == rotated["webhook_secret"]
    assert account.sandbox_webhook_secret.previous == first["webhook_secret"]
    assert account.webhook_secret.current not in (first["webhook_secret"], rotated["webhook_secret"])


def test_a_production_key_may_end_sandbox_keys(tester, client):
    own = tester.get("/v1/keys").json()["data"][0]["key_id"]
    assert client.delete(f"/v1/keys/{own}").status_code == 204
    assert tester.get("/v1/jobs").status_code == 401


# --- how many keys ----------------------------------------------------------------------------------------------------


def test_an_account_has_at_most_twenty_keys_that_work(client):
    me = {"X-Forwarded-For": f"2001:db8:{next(ADDRESSES):x}::1"}
    made = [client.post("/v1/keys", json={}, headers=me) for _ in range(20)]
    assert [response.status_code for response in made] == [201] * 19 + [429]
    refused = made[-1]
    assert (code(refused), refused.json()["window"], refused.json()["limit"]) == ("quota_exceeded", "keys", 20)
    old = made[0].json()["key_id"]
    overlapping = client.post(f"/v1/keys/{old}/rotate", json={"overlap_seconds": 60})
    assert (overlapping.status_code, code(overlapping)) == (429, "quota_exceeded")
    assert client.post(f"/v1/keys/{old}/rotate", json={"overlap_seconds": 0}).status_code == 201
    assert client.delete(f"/v1/keys/{made[1].json()['key_id']}").status_code == 204
    assert client.post("/v1/keys", json={}, headers=me).status_code == 201


# --- usage -----------------------------------------------------------------------------------------------------------


def test_usage_tells_limits_and_what_is_left(client):
    client.post("/v1/transcribe", files={"file": ("a.wav", wav(2.5))})
    shown = client.get("/v1/usage").json()
    assert shown["limits"]["audio_minutes_per_file"] == 30
    rows = {row["name"]: row for row in shown["usage"]}
    assert (rows["transcriptions"]["used"], rows["transcriptions"]["remaining"]) == (1, 4)
    assert (rows["audio_seconds"]["limit"], rows["audio_seconds"]["remaining"]) == (None, None)
    assert rows["audio_seconds"]["used"] == 1  # the decoded length counts, not the stated one
    assert parse_iso(rows["estimates"]["resets_at"]) % 86_400_000 == 0


def test_overrides_of_an_account_are_its_limits(server):
    with server.new_client("free", transcriptions_per_month=None) as client:
        assert client.get("/v1/usage").json()["usage"][0]["limit"] is None
        assert '"transcriptions"' not in client.get("/v1/usage").headers["ratelimit"]


# --- tokens ----------------------------------------------------------------------------------------------------------


def test_a_token_is_for_a_job_of_ones_own(server, client):
    job_id = client.post("/v1/transcribe", files={"file": ("a.wav", wav())}).json()["job_id"]
    made = client.post("/v1/tokens", json={"job_id": job_id})
    assert made.status_code == 201
    assert made.json()["token"].startswith("st_")
    assert 590_000 < parse_iso(made.json()["expires_at"]) - now_ms() <= 600_000
    with server.new_client() as other:
        refused = other.post("/v1/tokens", json={"job_id": job_id})
        assert (refused.status_code, code(refused)) == (404, "job_not_found")


def test_a_link_lasts_for_the_session_and_as_long_after_it_as_chosen(server, client):
    job_id = client.post("/v1/live", json={}).json()["job_id"]

    def make(after_s: int) -> dict[str, object]:
        answer = client.post("/v1/tokens", json={"job_id": job_id, "after_end_seconds": after_s})
        assert answer.status_code == 201
        return answer.json()

    def events(token: object) -> int:
        return httpx.head(f"{server.base}/v1/jobs/{job_id}/events", params={"token": token}).status_code

    day, none = make(86_400), make(0)
    assert (day["expires_at"], day["reachable"]) == (None, False)
    assert day["page_url"] == f"{server.base}/live/{job_id}#token={day['token']}"
    assert (events(day["token"]), events(none["token"])) == (200, 200)
    client.post(f"/v1/jobs/{job_id}/cancel")
    ended = until_over(client, job_id)["finished_at"]
    assert (events(day["token"]), events(none["token"])) == (200, 401)
    assert parse_iso(make(86_400)["expires_at"]) - parse_iso(ended) == 86_400_000


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "job_id"),
        ({"job_id": 7}, "job_id"),
        ({"job_id": "job_1", "scope": "admin"}, "scope"),
        ({"job_id": "job_1", "scope": []}, "scope"),
        ({"job_id": "job_1", "ttl_seconds": 0}, "ttl_seconds"),
        ({"job_id": "job_1", "ttl_seconds": 2_592_001}, "ttl_seconds"),
        ({"job_id": "job_1", "scope": "ingest", "ttl_seconds": 3601}, "ttl_seconds"),
        ({"job_id": "job_1", "after_end_seconds": -1}, "after_end_seconds"),
        ({"job_id": "job_1", "scope": "ingest", "after_end_seconds": 60}, "after_end_seconds"),
        ({"job_id": "job_1", "ttl_seconds": 60, "after_end_seconds": 60}, "after_end_seconds"),
    ],
)
def test_a_bad_request_for_a_token_names_the_member(client, body, param):
    response = client.post("/v1/tokens", json=body)
    assert (response.status_code, response.json()["errors"][0]["param"]) == (422, param)


# --- webhook secrets -------------------------------------------------------------------------------------------------


def test_the_webhook_secret_is_shown_when_it_is_made_and_never_again(client):
    before = client.get("/v1/webhook-secret").json()
    assert before["previous_expires_at"] is None
    rotated = client.post("/v1/webhook-secret/rotate", json={"overlap_seconds": 60})
    assert (rotated.status_code, rotated.json()["webhook_secret"][:6]) == (201, "whsec_")
    after = client.get("/v1/webhook-secret")
    assert rotated.json()["webhook_secret"] not in after.text
    assert after.json()["previous_expires_at"] == rotated.json()["previous_expires_at"]
    assert 50_000 < parse_iso(after.json()["previous_expires_at"]) - now_ms() <= 60_000


def test_without_a_word_both_secrets_sign_for_a_day(client):
    rotated = client.post("/v1/webhook-secret/rotate").json()
    assert 86_390_000 < parse_iso(rotated["previous_expires_at"]) - now_ms() <= 86_400_000


def test_a_repeated_request_for_a_key_is_answered_with_the_same_one(server):
    again = {"Idempotency-Key": "laptop-1"}
    with server.new_client() as owner, server.new_client() as other:
        first = owner.post("/v1/keys", json={"name": "laptop"}, headers=again)
        second = owner.post("/v1/keys", json={"name": "laptop"}, headers=again)
        assert (first.status_code, second.status_code, second.json()) == (201, 201, first.json())
        assert second.headers["idempotent-replayed"] == "true"
        assert "idempotent-replayed" not in first.headers
        assert len(owner.get("/v1/keys").json()["data"]) == 2
        assert other.post("/v1/keys", json={"name": "laptop"}, headers=again).json()["key"] != first.json()["key"]
        renamed = owner.post("/v1/keys", json={"name": "phone"}, headers=again)
        assert (renamed.status_code, renamed.json()["code"]) == (422, "idempotency_key_reused")
        owner.delete(f"/v1/keys/{first.json()['key_id']}")
        assert owner.post("/v1/keys", json={"name": "laptop"}, headers=again).status_code == 422
    with server.client() as nobody:
        signed_up = [nobody.post("/v1/keys", json={}, headers=again).json()["key"] for _ in range(2)]
    assert len(set(signed_up)) == 2  # a stranger may send the same Idempotency-Key
