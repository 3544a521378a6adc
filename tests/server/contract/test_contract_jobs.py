"""Black-box tests of sources, limits, jobs, events and idempotency on real servers."""

import re
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import httpx
import openapi_spec_validator
import pytest

from tests.server.contracts import SMALL, post, problem, sandbox
from tests.server.receiving import ReceivedRequest, Receiver, receiver
from tests.server.running import CLIP, Server, run_server, until_over


@pytest.fixture(scope="module")
def pro(small_server: Server) -> httpx.Client:
    return small_server.client(small_server.new_key("pro"))


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as started:
        yield started


# --- sources -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield a server with default settings, which calls public addresses only."""
    folder = tmp_path_factory.mktemp("strict")
    with run_server(folder, ENGINE="scripted", EGRESS_ALLOW_CIDRS="", ALLOW_HTTP_SOURCES="0") as started:
        yield started


def test_addresses_that_lead_inside_are_refused(strict: Server) -> None:
    client = strict.client(strict.new_key("pro"))
    for url in (
        "http://169.254.169.254/", "https://127.0.0.1/", "https://[::ffff:10.0.0.1]/", "https://[64:ff9b::7f00:1]/",
        "file:///etc/passwd", "https://u:p@example.org/", "https://localhost/",
    ):  # fmt: skip
        problem(client.post("/v1/transcribe", json={"url": url}), 422, "url_not_allowed")
        problem(post(client, webhook_url=url), 422, "url_not_allowed")


def test_an_address_is_fetched_and_its_faults_are_named(
    small_server: Server, pro: httpx.Client, hook: Receiver
) -> None:
    def host(got: ReceivedRequest) -> tuple[int, dict[str, str], bytes]:
        if got.path == "/inside":
            return 302, {"Location": "http://10.0.0.1:1/"}, b""
        if got.path == "/missing":
            return 404, {}, b""
        if got.path == "/moved":
            return 302, {"Location": "/a.flac"}, b""
        if got.path == "/large":
            return 200, {}, bytes(3 << 20)
        return 200, {}, SMALL.read_bytes()

    hook.answer = host
    by_json = pro.post("/v1/transcribe", json={"url": hook.url + "/a.flac"}).json()
    by_form = pro.post("/v1/transcribe", data={"url": hook.url + "/moved"}).json()
    by_part = pro.post("/v1/transcribe", files={"audio_url": (None, hook.url + "/a.flac")}).json()
    assert by_json["status"] == by_form["status"] == by_part["status"] == "completed"
    assert by_json["text"] == by_form["text"] == by_part["text"]
    assert by_json["source"]["filename"] == "a.flac"
    faults = {"/inside": "source_not_allowed", "/missing": "source_http_error"}
    for path, code in faults.items():
        record = pro.post("/v1/transcribe", json={"url": hook.url + path}).json()
        assert (record["status"], record["error"]["code"]) == ("failed", code)
    free = small_server.client(small_server.new_key("free"))
    record = free.post("/v1/transcribe", json={"url": hook.url + "/large"}).json()
    assert record["error"]["code"] == "source_too_large"
    used = {row["name"]: row["used"] for row in free.get("/v1/usage").json()["usage"]}
    assert used["transcriptions"] == 0


# --- limits ------------------------------------------------------------------------------------------------------


def test_a_free_account_has_five_transcriptions_a_month_and_not_one_more(small_server: Server) -> None:
    client = small_server.client(small_server.new_key("free"))
    answers: list[httpx.Response] = []
    began = datetime.now(UTC)
    threads = [threading.Thread(target=lambda: answers.append(post(client))) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer.status_code for answer in answers) == [200] * 5 + [429] * 5
    refused = post(client)
    body = problem(refused, 429, "quota_exceeded")
    month = datetime(began.year + began.month // 12, began.month % 12 + 1, 1, tzinfo=UTC)
    max_s, least_s = ((month - moment).total_seconds() for moment in (began, datetime.now(UTC)))
    assert least_s <= int(refused.headers["retry-after"]) <= max_s + 1
    assert refused.headers["x-should-retry"] == "false"
    assert body["resets_at"] == month.strftime("%Y-%m-%dT00:00:00.000Z")


def test_request_31_of_a_minute_is_refused(small_server: Server) -> None:
    client = small_server.client(small_server.new_key("free"))
    answers = [client.get("/v1/usage") for _ in range(31)]
    assert [answer.status_code for answer in answers] == [200] * 30 + [429]
    problem(answers[-1], 429, "rate_limited")
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
    remaining = [int(re.search(r'"minute";r=(\d+)', answer.headers["ratelimit"])[1]) for answer in answers[:30]]  # type: ignore[index]  # any JSON
    assert remaining == list(range(29, -1, -1))
    assert all(int(answer.headers["x-ratelimit-reset"]) > time.time() for answer in answers)
    assert '"minute";q=30;w=60' in answers[0].headers["ratelimit-policy"]


def test_keyless_estimates_are_three_a_day_and_an_error_costs_none(tmp_path_factory: pytest.TempPathFactory) -> None:
    with run_server(tmp_path_factory.mktemp("estimates"), ENGINE="scripted") as server:

        def ask(body: object, **headers: str) -> httpx.Response:
            return httpx.post(server.base + "/v1/estimate/free", json=body, headers=headers)

        good = {"prompt": "Hello, world!", "models": ["gpt-5-mini"]}
        assert ask(good, Authorization="Bearer bogus").status_code == 200
        problem(ask({"models": []}), 422, "invalid_parameter")
        assert ask({"prompt": 5}).json()["errors"][0]["pointer"] == "/prompt"
        problem(ask({"prompt": "x", "models": ["nope"]}), 422, "unknown_models")
        assert ask(good).json()["usage"]["remaining"] == 1
        assert ask({"prompt": "x", "models": ["gpt-5-mini", "nope"]}).json()["unknown_models"] == ["nope"]
        refused = ask(good, **{"X-Forwarded-For": "203.0.113.9"})
        assert problem(refused, 429, "quota_exceeded")["resets_at"].endswith("T00:00:00.000Z")  # type: ignore[attr-defined]  # any JSON
        text = httpx.post(server.base + "/v1/estimate/free", content=b"x", headers={"Content-Type": "text/plain"})
        problem(text, 415, "unsupported_media_type")


def test_a_keyed_estimate_counts_against_the_plan(pro: httpx.Client, small_server: Server) -> None:
    problem(httpx.post(small_server.base + "/v1/estimate", json={"prompt": "x"}), 401, "missing_credentials")

    def used() -> int:
        return next(row["used"] for row in pro.get("/v1/usage").json()["usage"] if row["name"] == "estimates")

    before = used()
    one = pro.post("/v1/estimate", json={"prompt": "Hello", "models": ["gpt-5-mini"]}).json()
    two = pro.post("/v1/estimate", json={"prompt": "Hello", "models": ["gpt-5-mini"], "agent_turns": 2}).json()
    assert used() == before + 2
    [single], [double] = one["models"], two["models"]
    assert single["multiplied_usd"] == single["cost_usd"]
    from decimal import Decimal  # noqa: PLC0415  only this test needs it

    assert Decimal(double["multiplied_usd"]["expected"]) == 2 * Decimal(single["multiplied_usd"]["expected"])
    listed = pro.get("/v1/estimate/models").json()["data"]
    assert len(listed) >= 24
    assert len({row["cluster"] for row in listed}) == 6


def test_a_transcript_can_be_priced(pro: httpx.Client) -> None:
    job_id = post(pro).json()["job_id"]
    answer = pro.get(f"/v1/jobs/{job_id}/estimate", params={"models": "gpt-5-mini,claude-haiku-5-5", "agent_turns": 2})
    assert answer.status_code == 200
    assert len(answer.json()["ranking"]) == 2


# --- jobs --------------------------------------------------------------------------------------------------------


def test_other_accounts_jobs_do_not_exist(small_server: Server, pro: httpx.Client) -> None:
    job_id = post(pro).json()["job_id"]
    other = small_server.client(small_server.new_key("pro"))
    path = f"/v1/jobs/{job_id}"
    for answer in (
        other.get(path), other.get(path + "/outputs/json"), other.get(path + "/events"), other.post(path + "/cancel"),
        other.delete(path), other.get(path + "/deliveries"),
    ):  # fmt: skip
        problem(answer, 404, "job_not_found")


def test_pages_have_no_repeat_and_no_gap_while_jobs_come(small_server: Server) -> None:
    client = small_server.client(small_server.new_key("pro"))
    made = [post(client).json()["job_id"] for _ in range(5)]
    page = client.get("/v1/jobs", params={"limit": 2, "status": "completed"})
    post(client)
    seen = [row["job_id"] for row in page.json()["data"]]
    while page.json()["has_more"]:
        link = re.search(r'<([^>]+)>; rel="next"', page.headers["link"])
        assert link is not None
        page = client.get(link[1])
        seen += [row["job_id"] for row in page.json()["data"]]
    assert seen == made[::-1]
    assert all("text" not in row and "words" not in row for row in page.json()["data"])
    problem(client.get("/v1/jobs", params={"cursor": "nonsense"}), 400, "invalid_cursor")
    problem(client.get("/v1/jobs", params={"status": "gone"}), 422, "invalid_parameter")


def test_a_slow_job_can_be_waited_for_followed_canceled_and_deleted(small_server: Server) -> None:
    client = sandbox(small_server)
    began = time.monotonic()
    answer = client.post(
        "/v1/transcribe",
        files={"file": SMALL.read_bytes()},
        data={"sandbox_scenario": "slow"},
        headers={"Prefer": "wait=1"},
    )
    assert answer.status_code == 202
    assert time.monotonic() - began > 0.9
    job_id = answer.json()["job_id"]
    with client.stream("GET", f"/v1/jobs/{job_id}/events", headers={"Accept-Encoding": "gzip"}) as events:
        assert "content-encoding" not in events.headers
        lines = events.iter_lines()
        assert next(lines) == "retry: 3000"
        assert any(line.startswith(": keep-alive") for line in lines)
    waited = client.get(f"/v1/jobs/{job_id}", params={"wait": 30}).json()
    assert waited["status"] == "completed"
    problem(client.post(f"/v1/jobs/{job_id}/cancel"), 409, "job_not_cancelable")
    second = post(client, sandbox_scenario="slow", wait="0").json()["job_id"]
    problem(client.delete(f"/v1/jobs/{second}"), 409, "job_active")
    assert client.post(f"/v1/jobs/{second}/cancel").status_code in (200, 202)
    assert until_over(client, second)["status"] == "canceled"
    assert client.post(f"/v1/jobs/{second}/cancel").status_code == 200
    third = post(client, sandbox_scenario="slow", wait="0").json()["job_id"]
    assert client.delete(f"/v1/jobs/{third}", params={"force": "true"}).status_code == 204
    problem(client.get(f"/v1/jobs/{third}"), 404, "job_not_found")


def test_a_deleted_jobs_links_are_dead(pro: httpx.Client) -> None:
    record = post(pro).json()
    assert pro.delete(f"/v1/jobs/{record['job_id']}").status_code == 204
    problem(httpx.get(record["formats"]["json"]), 404, "job_not_found")


def test_events_replay_exactly_and_end(pro: httpx.Client, small_server: Server) -> None:
    job_id = post(pro, word_timestamps="true").json()["job_id"]
    path = f"/v1/jobs/{job_id}/events"
    text = pro.get(path).text
    ids = [int(number) for number in re.findall(r"^id: (\d+)$", text, re.MULTILINE)]
    names = re.findall(r"^event: (.+)$", text, re.MULTILINE)
    assert ids == list(range(1, len(ids) + 1))
    assert "word" in names
    assert names[-1] == "job.completed"
    later = pro.get(path, headers={"Last-Event-ID": "3"}).text
    assert re.findall(r"^id: (\d+)$", later, re.MULTILINE)[0] == "4"
    assert pro.get(path, headers={"Last-Event-ID": str(ids[-1])}).status_code == 204
    problem(pro.get(path, headers={"Last-Event-ID": "x"}), 400, "invalid_last_event_id")
    problem(httpx.get(small_server.base + path), 401, "missing_credentials")
    token = pro.post("/v1/tokens", json={"job_id": job_id}).json()["token"]
    assert httpx.get(small_server.base + path, params={"token": token}).status_code == 200
    other = post(pro).json()["job_id"]
    wrong = httpx.get(f"{small_server.base}/v1/jobs/{other}/events", params={"token": token})
    problem(wrong, 403, "insufficient_scope")
    key = pro.headers["authorization"].split()[1]
    problem(httpx.get(small_server.base + path, params={"token": key}), 401, "invalid_token")
    short = pro.post("/v1/tokens", json={"job_id": job_id, "ttl_seconds": 1}).json()["token"]
    time.sleep(2)
    problem(httpx.get(small_server.base + path, params={"token": short}), 401, "invalid_token")


def test_each_scenario_of_the_sandbox_has_its_outcome(small_server: Server) -> None:
    client = sandbox(small_server)
    assert post(client, sandbox_scenario="fail").json()["status"] == "failed"
    assert post(client, sandbox_scenario="empty").json()["text"] == ""
    assert post(client, sandbox_scenario="canceled").json()["status"] == "canceled"
    problem(post(client, sandbox_scenario="quota_exceeded"), 429, "quota_exceeded")
    problem(post(client, sandbox_scenario="rate_limited"), 429, "rate_limited")
    first, second = (httpx.get(post(client).json()["formats"]["json"]).json() for _ in range(2))
    varying = {"job_id", "created_at"}
    assert {n: v for n, v in first.items() if n not in varying} == {n: v for n, v in second.items() if n not in varying}
    assert first["text"]
    assert all(post(client).status_code == 200 for _ in range(10))


# --- idempotency and transport -------------------------------------------------------------------------------------


def test_a_repeat_with_its_idempotency_key_is_the_same_job(small_server: Server) -> None:
    client = small_server.client(small_server.new_key("free"))

    def send(key: str, data: bytes) -> httpx.Response:
        return client.post("/v1/transcribe", files={"file": data}, headers={"Idempotency-Key": key})

    first, again = send("one", SMALL.read_bytes()), send("one", SMALL.read_bytes())
    assert first.json()["job_id"] == again.json()["job_id"]
    assert again.headers["idempotent-replayed"] == "true"
    problem(send("one", CLIP.read_bytes()), 422, "idempotency_key_reused")
    answers: list[httpx.Response] = []
    threads = [threading.Thread(target=lambda: answers.append(send("two", SMALL.read_bytes()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {answer.status_code for answer in answers} <= {200, 409}
    assert len({answer.json()["job_id"] for answer in answers if answer.status_code == 200}) == 1
    used = {row["name"]: row["used"] for row in client.get("/v1/usage").json()["usage"]}
    assert used["transcriptions"] == 2


def test_browsers_of_other_origins_may_call_and_may_read_errors(small_server: Server) -> None:
    preflight = httpx.options(
        small_server.base + "/v1/transcribe",
        headers={
            "Origin": "https://x.test",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,idempotency-key,last-event-id",
        },
    )
    assert preflight.is_success
    allowed = preflight.headers["access-control-allow-headers"].lower()
    assert all(name in allowed for name in ("authorization", "idempotency-key", "last-event-id"))
    for path in ("/v1/usage", "/nothing"):
        answer = httpx.get(small_server.base + path, headers={"Origin": "https://x.test"})
        assert answer.headers["access-control-allow-origin"] == "*"


def test_paths_and_methods_are_answered_as_written(small_server: Server, pro: httpx.Client) -> None:
    problem(httpx.get(small_server.base + "/v1/nothing"), 404, "not_found")
    wrong = httpx.put(small_server.base + "/v1/jobs")
    problem(wrong, 405, "method_not_allowed")
    assert "GET" in wrong.headers["allow"]
    problem(pro.get("/v1/jobs/"), 404, "not_found")
    head = pro.head(f"/v1/jobs/{post(pro).json()['job_id']}")
    assert (head.status_code, head.content) == (200, b"")
    options = httpx.options(small_server.base + "/v1/jobs")
    assert options.status_code == 204
    assert "GET" in options.headers["allow"]


def test_request_ids_are_echoed_where_they_are_sound(small_server: Server) -> None:
    assert httpx.get(small_server.base + "/healthz", headers={"X-Request-Id": "abc"}).headers["x-request-id"] == "abc"
    answer = httpx.get(small_server.base + "/nothing", headers={"X-Request-Id": "a b"})
    assert answer.headers["x-request-id"].startswith("req_")
    assert answer.json()["request_id"] == answer.headers["x-request-id"]


def test_the_description_is_valid_and_open(small_server: Server) -> None:
    document = httpx.get(small_server.base + "/openapi.json").json()
    openapi_spec_validator.validate(document)
    assert document["openapi"].startswith("3.1")
    assert set(document["webhooks"]) == {"job.completed", "job.failed"}
    for path in (
        "/v1/transcribe", "/v1/jobs", "/v1/jobs/{job_id}", "/v1/jobs/{job_id}/events", "/v1/keys", "/v1/usage",
        "/v1/estimate", "/v1/estimate/free", "/v1/formats", "/v1/tokens",
    ):  # fmt: skip
        assert path in document["paths"]
    assert httpx.get(small_server.base + "/healthz").json()["status"] == "ok"
    assert httpx.get(small_server.base + "/readyz").json()["status"] == "ready"
    assert len(httpx.get(small_server.base + "/v1/formats").json()["data"]) >= 30


def test_no_log_line_holds_a_key_a_token_a_signature_or_a_prompt(small_server: Server, pro: httpx.Client) -> None:
    record = post(pro).json()
    httpx.get(record["formats"]["json"])
    pro.post("/v1/estimate", json={"prompt": "a prompt that nobody logs"})
    token = pro.post("/v1/tokens", json={"job_id": record["job_id"]}).json()["token"]
    httpx.get(f"{small_server.base}/v1/jobs/{record['job_id']}/events", params={"token": token})
    log = "\n".join(small_server.log)
    key = pro.headers["authorization"].split()[1]
    assert not any(secret in log for secret in (key, token, "token=", "sig=", "a prompt that nobody logs"))
