"""Webhooks: a receiver that does not answer, or answers nonsense, holds up nobody else's."""

import httpx

from tests.abuse.hosts import silent_host
from tests.server.serving import wav
from tests.waiting import until


def submit_with_webhook(client: httpx.Client, url: str) -> str:
    """The id of a job whose end is told to *url*."""
    answer = client.post(
        "/v1/transcribe", files={"file": wav()}, data={"webhook_url": url}, headers={"Prefer": "respond-async"}
    )
    return str(answer.raise_for_status().json()["job_id"])


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


def is_over(client: httpx.Client, job: str) -> bool:
    return bool(client.get(f"/v1/jobs/{job}").json()["status"] == "completed")
