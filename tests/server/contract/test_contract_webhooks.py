"""Black-box tests of webhooks on real servers."""

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import standardwebhooks

from tests.server.contracts import post, sandbox
from tests.server.receiving import ReceivedRequest, Receiver, receiver
from tests.server.running import Server
from tests.server.serving import until


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as started:
        yield started


def account(server: Server) -> tuple[httpx.Client, str]:
    made = json.loads(server.cli("keys", "create", "--plan", "pro", "--name", "hooks"))
    return server.client(made["key"]), made["webhook_secret"]


def test_a_webhook_comes_once_signed_and_small(small_server: Server, hook: Receiver) -> None:
    client, secret = account(small_server)
    answer = post(client, webhook_url=hook.url + "/hook", word_timestamps="true", metadata='{"order":"7"}')
    assert answer.status_code == 202
    [got] = hook.wait_for(1)
    body = standardwebhooks.Webhook(secret).verify(got.body.decode(), got.headers)
    assert body["type"] == "job.completed"
    assert body["data"]["job_id"] == answer.json()["job_id"]
    assert body["data"]["metadata"] == {"order": "7"}
    assert "words" not in body["data"]
    assert len(got.body) < 20_000
    assert httpx.get(body["data"]["formats"]["json"]).status_code == 200


def delivery_of(
    client: httpx.Client, job_id: str, *, state: str | None = None, attempts: int = 0
) -> dict[str, Any] | None:
    """Wait until the job's only delivery is in *state* after so many attempts, and return it."""
    [delivery] = client.get(f"/v1/jobs/{job_id}/deliveries").json()["data"]
    there = state in (None, delivery["state"]) and len(delivery["attempts"]) >= attempts
    return delivery if there else None


def test_a_failed_delivery_is_tried_again_with_the_same_id(small_server: Server, hook: Receiver) -> None:
    client, _ = account(small_server)
    statuses = iter([500, 200])
    hook.answer = lambda _got: (next(statuses), {}, b"")
    job_id = post(client, webhook_url=hook.url).json()["job_id"]
    first, second = hook.wait_for(2)
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.headers["webhook-timestamp"] <= second.headers["webhook-timestamp"]
    delivery = until(lambda: delivery_of(client, job_id, state="delivered"))
    assert [attempt["status_code"] for attempt in delivery["attempts"]] == [500, 200]


def test_redirects_are_failures_and_410_ends_it(small_server: Server, hook: Receiver) -> None:
    client, _ = account(small_server)
    hook.answer = lambda got: (302, {"Location": "/elsewhere"}, b"") if got.path == "/moved" else (410, {}, b"")
    moved = post(client, webhook_url=hook.url + "/moved").json()["job_id"]
    gone = post(client, webhook_url=hook.url + "/gone").json()["job_id"]
    hook.wait_for(2)
    delivery = until(lambda: delivery_of(client, moved, attempts=1))
    assert delivery["attempts"][0]["status_code"] == 302
    until(lambda: delivery_of(client, gone, state="disabled"))
    assert "/elsewhere" not in [got.path for got in hook.got]
    again = post(client, webhook_url=hook.url + "/gone", wait="10").json()
    assert {"code": "webhook_disabled", "param": "webhook_url"} in again["warnings"]
    assert [got.path for got in hook.got].count("/gone") == 1
    assert client.post("/v1/webhooks/enable", json={"url": hook.url + "/gone"}).status_code == 200
    assert "webhook_disabled" not in str(post(client, webhook_url=hook.url + "/gone", wait="10").json()["warnings"])


def test_a_receiver_that_sleeps_is_timed_out_and_the_job_is_well(small_server: Server, hook: Receiver) -> None:
    client, _ = account(small_server)

    def sleepy(_got: ReceivedRequest) -> tuple[int, dict[str, str], bytes]:
        time.sleep(3)
        return 200, {}, b""

    hook.answer = sleepy
    record = post(client, webhook_url=hook.url, wait="10").json()
    assert record["status"] == "completed"
    delivery = until(lambda: delivery_of(client, record["job_id"], attempts=1))
    assert delivery["attempts"][0]["error"] == "timeout"


def test_only_the_chosen_events_are_sent(small_server: Server, hook: Receiver) -> None:
    client = sandbox(small_server)
    post(client, webhook_url=hook.url, webhook_events="job.failed", wait="10")
    post(client, webhook_url=hook.url, webhook_events="job.failed", wait="10", sandbox_scenario="fail")
    [got] = hook.wait_for(1)
    assert json.loads(got.body)["type"] == "job.failed"


def test_a_rotated_secret_signs_beside_the_old_one_and_redelivery_keeps_the_id(
    small_server: Server, hook: Receiver
) -> None:
    client, old = account(small_server)
    new = client.post("/v1/webhook-secret/rotate", json={"overlap_seconds": 3600}).json()["webhook_secret"]
    job_id = post(client, webhook_url=hook.url).json()["job_id"]
    [got] = hook.wait_for(1)
    assert len(got.headers["webhook-signature"].split()) == 2
    for secret in (old, new):
        standardwebhooks.Webhook(secret).verify(got.body.decode(), got.headers)
    [delivery] = client.get(f"/v1/jobs/{job_id}/deliveries").json()["data"]
    assert client.post(f"/v1/jobs/{job_id}/deliveries/{delivery['delivery_id']}/redeliver").status_code == 202
    assert len({got.headers["webhook-id"] for got in hook.wait_for(2)}) == 1
    assert client.post("/v1/webhooks/test", json={"url": hook.url}).json()["delivered"] is True
    assert json.loads(hook.got[-1].body)["test"] is True
