"""Tests of deliveries on real storage and sockets: one attempt, what its answer means, and the schedule of others."""

import asyncio

import pytest
from jsonschema import Draft202012Validator

from server.clock import now_ms
from server.http.openapi import SCHEMAS
from server.model.accounts import Account, WebhookSecret
from server.webhooks.sender import signing_secrets
from tests.server.peers import ParsedRequest, answer, answer_in_turn, peer, silence
from tests.server.storing import ManualClock
from tests.server.webhook_deliveries import deliver, office, verify, wait_for_requests

# --- one attempt -------------------------------------------------------------------------------------------------


async def test_the_receivers_library_takes_what_is_sent(tmp_path):
    async with office(tmp_path) as it, peer(answer_in_turn(answer(200))) as target, deliver(it):
        job_id = await it.end_job(f"{target.url}/hook?who=me", metadata={"order": "17"})
        [asked] = await wait_for_requests(target)
        body = verify(it.account.webhook_secret.current, asked)
        assert (asked.method, asked.target) == ("POST", "/hook?who=me")
        assert asked.headers["content-type"] == "application/json"
        assert asked.headers["user-agent"] == "scribewire/1"
        assert (body["type"], body["data"]["job_id"], body["data"]["metadata"]) == (
            "job.completed", job_id, {"order": "17"},
        )  # fmt: skip
        assert "words" not in body["data"]
        Draft202012Validator({"$ref": "#/components/schemas/Notice", "components": {"schemas": SCHEMAS}}).validate(body)
        delivery = await it.wait_for_attempts(job_id)
        assert (delivery.state, delivery.attempts[0].status_code, delivery.attempts[0].error) == (
            "delivered",
            200,
            None,
        )
        assert delivery.webhook_id == asked.headers["webhook-id"]


def test_a_previous_secret_no_longer_signs_once_its_overlap_is_over():
    def account(expires_at: int | None) -> Account:
        secret = WebhookSecret(current="new", created_at=0, previous="old", previous_expires_at=expires_at)
        sandbox = WebhookSecret(current="sandbox", created_at=0)
        return Account(id="a", plan="free", created_at=0, webhook_secret=secret, sandbox_webhook_secret=sandbox)

    assert signing_secrets(account(now_ms() + 60_000), "production") == ["new", "old"]
    assert signing_secrets(account(now_ms() - 1), "production") == ["new"]
    assert signing_secrets(account(None), "production") == ["new"]
    assert signing_secrets(account(now_ms() + 60_000), "sandbox") == ["sandbox"]


# --- what an answer means ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "status", "error", "state"),
    [
        (answer(204), 204, None, "delivered"),
        (answer(500), 500, "status 500", "pending"),
        (answer(404), 404, "status 404", "pending"),
        (answer(302, Location="/elsewhere"), 302, "status 302", "pending"),
        (answer(410), 410, "status 410", "disabled"),
        (b"nonsense\r\n\r\n", None, "unreachable", "pending"),
    ],
)
async def test_a_reply_is_success_retry_or_the_end(tmp_path, reply, status, error, state):
    async with office(tmp_path) as it, peer(answer_in_turn(reply)) as target, deliver(it):
        delivery = await it.wait_for_attempts(await it.end_job(target.url))
        [attempt] = delivery.attempts
        assert (delivery.state, attempt.status_code) == (state, status)
        assert (attempt.error or "").startswith(error or "")
        assert (attempt.error is None) == (error is None)
        assert [asked.target for asked in target.asked] == ["/"]  # a redirect is not followed


async def test_a_receiver_that_does_not_answer_in_time_is_a_failure(tmp_path):
    async with office(tmp_path, timeout_s=0.1) as it, peer(silence) as target, deliver(it):
        delivery = await it.wait_for_attempts(await it.end_job(target.url))
        assert (delivery.state, delivery.attempts[0].error) == ("pending", "timeout")
        assert delivery.attempts[0].duration_ms >= 99  # a timer may be a clock tick early


async def test_no_more_of_a_reply_is_read_than_is_useful(tmp_path):
    async def endless(_asked: ParsedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"2710\r\n" + bytes(10_000) + b"\r\n")
            await writer.drain()

    async with office(tmp_path) as it, peer(endless) as target, deliver(it):
        assert (await it.wait_for_attempts(await it.end_job(target.url))).state == "delivered"


async def test_an_address_that_may_not_be_called_is_not_called_at_delivery_either(tmp_path):
    async with office(tmp_path) as it, deliver(it):
        delivery = await it.wait_for_attempts(await it.end_job("http://10.0.0.1/hook"))
        assert (delivery.state, delivery.attempts[0].status_code) == ("pending", None)
        assert "not allowed" in (delivery.attempts[0].error or "")


# --- the schedule --------------------------------------------------------------------------------------------------


async def test_a_failed_delivery_is_tried_again_later_with_its_id_and_a_new_signature(tmp_path):
    clock = ManualClock(now_ms())
    async with office(tmp_path, clock) as it, peer(answer_in_turn(answer(500), answer(200))) as target, deliver(it):
        job_id = await it.end_job(target.url)
        first = await it.wait_for_attempts(job_id)
        wait_ms = (first.next_at or 0) - first.attempts[0].at
        assert 4_000 <= wait_ms <= 6_000
        assert first.attempts[0].next_attempt_at == first.next_at
        clock.now = first.next_at or 0
        second = await it.wait_for_attempts(job_id, 2)
        assert (second.state, [attempt.n for attempt in second.attempts]) == ("delivered", [1, 2])
        assert len({asked.headers["webhook-id"] for asked in target.asked}) == 1


@pytest.mark.parametrize(("status", "heeded"), [(429, True), (503, True), (500, False)])
async def test_retry_after_is_heeded_where_it_means_something(tmp_path, status, heeded):
    async with office(tmp_path) as it, peer(answer_in_turn(answer(status, Retry_After="3600"))) as target, deliver(it):
        delivery = await it.wait_for_attempts(await it.end_job(target.url))
        wait_ms = (delivery.next_at or 0) - delivery.attempts[0].at
        assert (wait_ms >= 3_600_000) is heeded


@pytest.mark.parametrize("status", [429, 503])
async def test_a_retry_after_beyond_all_time_is_an_attempt_like_any_other(tmp_path, status):
    wish = answer(status, Retry_After="Fri, 01 Jan 99999999999999999999 00:00:00 GMT")

    async with office(tmp_path) as it, peer(answer_in_turn(wish)) as target, deliver(it):
        delivery = await it.wait_for_attempts(await it.end_job(target.url))
        assert (delivery.state, delivery.attempts[0].error) == ("pending", f"status {status}")
        assert 4_000 <= (delivery.next_at or 0) - delivery.attempts[0].at <= 6_000


async def test_whatever_goes_wrong_while_sending_is_a_failed_attempt(tmp_path):
    """The account's secret cannot be read, so nothing can be signed."""
    async with office(tmp_path) as it, peer(answer_in_turn(answer(200))) as target, deliver(it):
        await it.storage.accounts.rotate_webhook_secret(
            it.account.id, "production", WebhookSecret(current="whsec_%", created_at=0)
        )
        delivery = await it.wait_for_attempts(await it.end_job(target.url))
        assert (delivery.state, delivery.attempts[0].error) == ("pending", "the server failed to send it")
        assert delivery.next_at is not None
        assert target.asked == []


async def test_after_the_last_attempt_a_delivery_is_failed(tmp_path):
    clock = ManualClock(now_ms())
    async with office(tmp_path, clock, delays_s=(1.0,)) as it, peer(answer_in_turn(answer(500))) as target, deliver(it):
        job_id = await it.end_job(target.url)
        clock.now = (await it.wait_for_attempts(job_id)).next_at or 0
        delivery = await it.wait_for_attempts(job_id, 2)
        assert (delivery.state, delivery.next_at, delivery.attempts[-1].next_attempt_at) == ("failed", None, None)


async def test_an_address_is_given_up_after_so_many_exhausted_deliveries_in_a_row(tmp_path):
    async with (
        office(tmp_path, delays_s=(), exhausted_before_disable=3) as it,
        peer(answer_in_turn(answer(500))) as target,
    ):
        async with deliver(it):
            for _ in range(2):
                await it.wait_for_attempts(await it.end_job(target.url))
            assert not await it.storage.outbox.is_disabled(it.account.id, target.url)
            await it.wait_for_attempts(await it.end_job(target.url))
            await it.wait_until_disabled(target.url)
            later = await it.delivery(await it.end_job(target.url))
        assert (later.state, later.attempts) == ("disabled", ())
        assert len(target.asked) == 3
