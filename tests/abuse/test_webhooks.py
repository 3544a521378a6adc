"""Webhooks: a receiver that does not answer, or answers nonsense, holds up nobody else's."""

import httpx

from tests.abuse.hosts import silent_host
from tests.server.receiving import receiver
from tests.server.serving import wav
from tests.waiting import until

NEVER = {"Retry-After": "Fri, 01 Jan 99999999999999999999 00:00:00 GMT"}


def submit_with_webhook(client: httpx.Client, url: str) -> str:
    """The id of a job whose end is told to *url*."""
    answer = client.post(
        "/v1/transcribe", files={"file": wav()}, data={"webhook_url": url}, headers={"Prefer": "respond-async"}
    )
    return str(answer.raise_for_status().json()["job_id"])


def attempts(client: httpx.Client, job: str) -> list[object]:
    return [
        attempt
        for delivery in client.get(f"/v1/jobs/{job}/deliveries").json()["data"]
        for attempt in delivery["attempts"]
    ]


def test_receivers_that_never_answer_hold_up_nobody_elses_webhooks(ring):
    with silent_host() as port:
        clients = [ring.stranger().new_client(sandbox=True) for _ in range(4)]
        jobs = [
            (client, submit_with_webhook(client, f"http://127.0.3.{host + 1}:{port}/"))
            for number, client in enumerate(clients)
            for host in range(16 * number, 16 * number + 20)
        ]
        until(lambda: is_over(*jobs[-1]))
        ring.innocent.is_unharmed()
        for client, job in jobs:
            client.delete(f"/v1/jobs/{job}")


def test_a_receiver_that_asks_for_another_age_gets_no_endless_webhook(ring):
    client = ring.stranger().new_client(sandbox=True)
    with receiver() as hook:
        hook.answer = lambda _got: (503, NEVER, b"")
        job = submit_with_webhook(client, hook.url)
        hook.wait_for(1)
        until(lambda: attempts(client, job), max_s=5)
        assert client.post("/v1/webhooks/test", json={"url": hook.url}).status_code == 200


def is_over(client: httpx.Client, job: str) -> bool:
    return bool(client.get(f"/v1/jobs/{job}").json()["status"] == "completed")
