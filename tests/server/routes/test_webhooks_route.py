"""Tests of webhooks over HTTP: deliveries, redelivery, disabled addresses, and a test delivery."""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from standardwebhooks import Webhook

from server.webhooks.delivery_slots import MAX_PER_HOST
from tests.server.receiving import receiver
from tests.server.serving import serve, wav


@dataclass
class Receiver:
    """A webhook receiver that answers with one of *statuses* after the other, and then with the last one."""

    statuses: list[int]
    url: str = ""
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    def take(self, headers: dict[str, str], body: bytes) -> int:
        self.got.append((headers, body))
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]


@contextlib.contextmanager
def receive_webhooks(*statuses: int) -> Iterator[Receiver]:
    receiver = Receiver(list(statuses))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            self.send_response(receiver.take(headers, self.rfile.read(int(headers["content-length"]))))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Do not log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_port}/hook"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield receiver
        server.shutdown()
        thread.join()


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
    while True:
        [shown] = client.get(f"/v1/jobs/{job_id}/deliveries").json()["data"]
        if len(shown["attempts"]) >= attempts:
            return shown
        time.sleep(0.02)


def test_a_delivery_is_logged_with_every_attempt(client):
    with receive_webhooks(200) as receiver:
        shown = delivery(client, make_job(client, receiver.url))
    assert (shown["event"], shown["state"], shown["url"]) == ("job.completed", "delivered", receiver.url)
    [attempt] = shown["attempts"]
    assert (attempt["n"], attempt["status_code"], attempt["error"], attempt["next_attempt_at"]) == (1, 200, None, None)
    [(headers, _)] = receiver.got
    assert headers["webhook-id"] == shown["webhook_id"]


def test_a_job_without_a_webhook_has_no_deliveries(client):
    job_id = client.post("/v1/transcribe", files={"file": ("a.wav", wav())}).json()["job_id"]
    assert client.get(f"/v1/jobs/{job_id}/deliveries").json()["data"] == []


def test_redelivery_is_another_attempt_with_the_same_id(client):
    with receive_webhooks(500, 200) as receiver:
        job_id = make_job(client, receiver.url)
        first = delivery(client, job_id)
        assert (first["state"], first["attempts"][0]["error"]) == ("pending", "status 500")
        assert first["attempts"][0]["next_attempt_at"] is not None
        response = client.post(f"/v1/jobs/{job_id}/deliveries/{first['delivery_id']}/redeliver")
        assert (response.status_code, response.json()["webhook_id"]) == (202, first["webhook_id"])
        second = delivery(client, job_id, attempts=2)
    assert (second["state"], [attempt["n"] for attempt in second["attempts"]]) == ("delivered", [1, 2])
    assert len({headers["webhook-id"] for headers, _ in receiver.got}) == 1


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
    [(headers, body)] = receiver.got
    assert response.json()["webhook_id"] == headers["webhook-id"]
    assert (response.json()["delivered"], response.json()["status_code"]) == (True, 200)
    message = Webhook(secret).verify(body, headers)
    assert (message["type"], message["test"]) == ("job.completed", True)


def test_a_test_that_fails_tells_why(client):
    with receive_webhooks(503) as receiver:
        failed = client.post("/v1/webhooks/test", json={"url": receiver.url}).json()
    assert (failed["delivered"], failed["status_code"], failed["error"]) == (False, 503, "status 503")
    gone = client.post("/v1/webhooks/test", json={"url": receiver.url}).json()
    assert (gone["delivered"], gone["status_code"]) == (False, None)


def test_a_test_takes_one_of_the_seats_that_deliveries_have(server, client):
    slots, account = server.service.parts.webhook_sender.slots, client.post("/v1/keys").json()["account_id"]
    with receive_webhooks(200) as hook:
        host = hook.url.split("/")[2]
        for _ in range(MAX_PER_HOST):
            server.call(lambda: slots.claim(account, host))
        refused = client.post("/v1/webhooks/test", json={"url": hook.url})
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_connections")
        assert hook.got == []
        server.call(lambda: slots.leave(account, host))
        assert client.post("/v1/webhooks/test", json={"url": hook.url}).json()["delivered"]
        for _ in range(MAX_PER_HOST - 1):
            server.call(lambda: slots.leave(account, host))


def test_a_receiver_that_asks_for_an_impossible_wait_is_told_of_like_any_other(client):
    with receiver() as there:
        there.answer = lambda _got: (429, {"Retry-After": "Fri, 01 Jan 99999999999999999999 00:00:00 GMT"}, b"")
        shown = client.post("/v1/webhooks/test", json={"url": there.url}).json()
    assert (shown["delivered"], shown["status_code"], shown["error"]) == (False, 429, "status 429")


@pytest.mark.parametrize("path", ["/v1/webhooks/test", "/v1/webhooks/enable"])
@pytest.mark.parametrize("url", [None, 7, "", "x" * 2049])
def test_what_is_no_url_is_refused(client, path, url):
    response = client.post(path, json={"url": url})
    assert (response.status_code, response.json()["errors"][0]["param"]) == (422, "url")


def test_a_test_is_not_sent_where_webhooks_may_not_go(client):
    for url in ("https://10.0.0.1/", "file:///etc/passwd", "https://u:p@x.test/"):
        response = client.post("/v1/webhooks/test", json={"url": url})
        assert (response.status_code, response.json()["code"]) == (422, "url_not_allowed")
