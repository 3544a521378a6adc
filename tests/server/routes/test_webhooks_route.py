"""Tests of webhooks over HTTP: deliveries, redelivery, disabled addresses, and a test delivery."""

import contextlib
from collections.abc import Iterator

import httpx
import pytest
from standardwebhooks import Webhook

from tests.server.receiving import Receiver, receiver
from tests.server.serving import serve, wav
from tests.waiting import until


@contextlib.contextmanager
def receive_webhooks(*statuses: int) -> Iterator[Receiver]:
    """Yield a receiver that answers with one of *statuses* after the other, and then with the last one."""
    left = list(statuses)
    with receiver() as started:
        started.answer = lambda _got: (left.pop(0) if len(left) > 1 else left[0], {}, b"")
        yield started


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("served")) as it:
        yield it


def make_job(client: httpx.Client, url: str) -> str:
    """Make a finished job whose webhook goes to *url*."""
    data = {"webhook_url": url, "wait": "5"}
    return str(client.post("/v1/transcribe", files={"file": ("a.wav", wav())}, data=data).json()["job_id"])


def delivery(client: httpx.Client, job_id: str, *, attempts: int = 1) -> dict:
    """Wait until the job's only delivery has so many attempts, and return it."""

    def look() -> dict | None:
        [shown] = client.get(f"/v1/jobs/{job_id}/deliveries").json()["data"]
        return shown if len(shown["attempts"]) >= attempts else None

    return until(look)


def test_a_delivery_is_logged_with_every_attempt(client):
    with receive_webhooks(200) as receiver:
        shown = delivery(client, make_job(client, receiver.url))
    assert (shown["event"], shown["state"], shown["url"]) == ("job.completed", "delivered", receiver.url)
    [attempt] = shown["attempts"]
    assert (attempt["n"], attempt["status_code"], attempt["error"], attempt["next_attempt_at"]) == (1, 200, None, None)
    [got] = receiver.got
    assert got.headers["webhook-id"] == shown["webhook_id"]


def test_a_job_without_a_webhook_has_no_deliveries(client):
    job_id = client.post("/v1/transcribe", files={"file": ("a.wav", wav())}).json()["job_id"]
    assert client.get(f"/v1/jobs/{job_id}/deliveries").json()["data"] == []


def test_a_delivery_of_another_job_cannot_be_redelivered(client):
    with receive_webhooks(200) as receiver:
        job_id, other = make_job(client, receiver.url), make_job(client, receiver.url)
        theirs = delivery(client, other)["delivery_id"]
    for delivery_id in (theirs, "dlv_nothing"):
        response = client.post(f"/v1/jobs/{job_id}/deliveries/{delivery_id}/redeliver")
        assert (response.status_code, response.json()["code"]) == (404, "delivery_not_found")


def test_an_address_that_says_gone_is_given_up_until_it_is_enabled(client):
    with receive_webhooks(410, 200) as receiver:
        assert delivery(client, make_job(client, receiver.url))["state"] == "disabled"
        response = client.post(
            "/v1/transcribe", files={"file": ("a.wav", wav())}, data={"webhook_url": receiver.url, "wait": "5"}
        )
        assert {"code": "webhook_disabled", "param": "webhook_url"} in response.json()["warnings"]
        [skipped] = client.get(f"/v1/jobs/{response.json()['job_id']}/deliveries").json()["data"]
        assert (skipped["state"], skipped["attempts"]) == ("disabled", [])
        assert client.post("/v1/webhooks/enable", json={"url": receiver.url}).json() == {"url": receiver.url}
        assert delivery(client, make_job(client, receiver.url))["state"] == "delivered"
    assert len(receiver.got) == 2


def test_a_test_is_sent_now_signed_and_marked(client):
    secret = client.post("/v1/webhook-secret/rotate", json={"overlap_seconds": 0}).json()["webhook_secret"]
    with receive_webhooks(200) as receiver:
        response = client.post("/v1/webhooks/test", json={"url": receiver.url})
    [got] = receiver.got
    assert response.json()["webhook_id"] == got.headers["webhook-id"]
    assert (response.json()["delivered"], response.json()["status_code"]) == (True, 200)
    message = Webhook(secret).verify(got.body, got.headers)
    assert (message["type"], message["test"]) == ("job.completed", True)


def test_a_test_that_fails_tells_why(client):
    with receive_webhooks(503) as receiver:
        failed = client.post("/v1/webhooks/test", json={"url": receiver.url}).json()
    assert (failed["delivered"], failed["status_code"], failed["error"]) == (False, 503, "status 503")
    gone = client.post("/v1/webhooks/test", json={"url": receiver.url}).json()
    assert (gone["delivered"], gone["status_code"]) == (False, None)


@pytest.mark.parametrize("path", ["/v1/webhooks/test", "/v1/webhooks/enable"])
@pytest.mark.parametrize("url", [None, 7, "", "x" * 2049])
def test_what_is_no_url_is_refused(client, path, url):
    response = client.post(path, json={"url": url})
    assert (response.status_code, response.json()["errors"][0]["param"]) == (422, "url")


def test_a_test_is_not_sent_where_webhooks_may_not_go(client):
    for url in ("https://10.0.0.1/", "file:///etc/passwd", "https://u:p@x.test/"):
        response = client.post("/v1/webhooks/test", json={"url": url})
        assert (response.status_code, response.json()["code"]) == (422, "url_not_allowed")
