"""Tests of the outbox: a message exists when its job has ended, is sent by one sender, and keeps its id."""

import asyncio
from dataclasses import replace

import pytest

from server.model import deliveries
from server.model.deliveries import Attempt, Crowding, Delivery
from server.model.errors import QueueFull
from server.model.orders import Order
from server.storage.sql.outbox import PAGE
from server.storage.sql.storage import Storage
from tests.server.storing import HOOK, NOON, claim, completion, failure, submit

BUSY_S = 30.0


def attempt(n: int = 1, *, next_attempt_at: int | None = None) -> Attempt:
    return Attempt(n=n, at=NOON, status_code=500, duration_ms=12, error="status 500", next_attempt_at=next_attempt_at)


async def end_job(storage: Storage, **members: object) -> str:
    job_id = await submit(storage, hook=True, **members)
    await storage.jobs.finish(await claim(storage), completion())
    return job_id


async def end_job_for(storage: Storage, url: str) -> str:
    """A completed job whose message goes to *url*."""
    job_id = await submit(storage, order=Order(webhook_url=url, webhook_events=("job.completed",)))
    await storage.jobs.finish(await claim(storage), completion())
    return job_id


async def due(storage: Storage) -> list[Delivery]:
    return await storage.outbox.claim_due(limit=10, busy_s=BUSY_S)


@pytest.mark.parametrize(
    ("events", "outcome", "sent"),
    [
        (("job.completed", "job.failed"), completion(), ["job.completed"]),
        (("job.completed", "job.failed"), failure(), ["job.failed"]),
        (("job.failed",), completion(), []),
        (("job.completed",), failure(), []),
    ],
)
async def test_only_the_chosen_events_are_sent(storage, events, outcome, sent):
    job_id = await submit(storage, order=Order(webhook_url=HOOK, webhook_events=events))
    await storage.jobs.finish(await claim(storage), outcome)
    assert [row.event for row in await storage.outbox.of_job(job_id)] == sent


async def test_a_due_message_goes_to_one_sender_until_its_time_is_over(storage, clock):
    job_id = await end_job(storage)
    (first,) = await due(storage)
    assert (first.job_id, first.url, first.state, first.attempts) == (job_id, HOOK, "pending", ())
    assert first.webhook_id.startswith("msg_")
    assert await due(storage) == []
    clock.advance(s=BUSY_S)  # the sender died
    (again,) = await due(storage)
    assert again.webhook_id == first.webhook_id


async def test_messages_come_due_oldest_first_and_no_more_than_asked_for(storage, clock):
    made = []
    for _ in range(3):
        made.append(await end_job(storage))
        clock.advance(ms=1)
    assert [row.job_id for row in await storage.outbox.claim_due(limit=2, busy_s=BUSY_S)] == made[:2]
    assert await storage.outbox.backlog() == 3


async def test_a_failed_attempt_comes_due_again_when_it_says(storage, clock):
    await end_job(storage)
    (row,) = await due(storage)
    await storage.outbox.record(row.id, attempt(next_attempt_at=NOON + 5000), state="pending")
    assert [one.next_at for one in await storage.outbox.of_job(row.job_id)] == [NOON + 5000]
    clock.advance(ms=4999)
    assert await due(storage) == []
    clock.advance(ms=1)
    (again,) = await due(storage)
    assert (again.webhook_id, again.tried) == (row.webhook_id, 1)
    assert again.attempts == (attempt(next_attempt_at=NOON + 5000),)


@pytest.mark.parametrize("state", ["delivered", "failed"])
async def test_a_message_that_is_over_never_comes_due(storage, state):
    job_id = await end_job(storage)
    (row,) = await due(storage)
    await storage.outbox.record(row.id, attempt(), state=state)
    assert [(row.state, row.next_at) for row in await storage.outbox.of_job(job_id)] == [(state, None)]
    assert await storage.outbox.backlog() == 0


async def test_a_late_failure_does_not_undo_a_delivery_and_both_are_logged(storage):
    job_id = await end_job(storage)
    (row,) = await due(storage)
    await storage.outbox.record(row.id, attempt(1), state="delivered")
    await storage.outbox.record(row.id, attempt(1, next_attempt_at=NOON + 1), state="pending")
    (row,) = await storage.outbox.of_job(job_id)
    assert (row.state, row.next_at, [made.n for made in row.attempts]) == ("delivered", None, [1, 2])


async def test_an_attempt_of_a_deleted_job_is_forgotten_with_it(storage):
    job_id = await end_job(storage)
    (row,) = await due(storage)
    await storage.jobs.delete(job_id)
    await storage.outbox.record(row.id, attempt(), state="delivered")
    assert await storage.outbox.of_job(job_id) == []


async def test_a_redelivery_has_the_same_id_and_a_fresh_schedule(storage):
    job_id = await end_job(storage)
    (row,) = await due(storage)
    await storage.outbox.record(row.id, attempt(), state="failed")
    again = await storage.outbox.redeliver(job_id, row.id)
    assert (again.webhook_id, again.state, again.tried, len(again.attempts)) == (row.webhook_id, "pending", 0, 1)
    assert [row.id for row in await due(storage)] == [row.id]
    assert await storage.outbox.redeliver("job_other", row.id) is None
    assert await storage.outbox.redeliver(job_id, "dlv_none") is None


async def test_nothing_is_sent_to_a_disabled_address_until_it_is_enabled(storage):
    before = await end_job(storage)
    sending = await end_job(storage)
    (_, on_its_way) = await due(storage)
    await storage.outbox.disable("acct_1", HOOK, reason="answered 410")
    assert await storage.outbox.is_disabled("acct_1", HOOK)
    assert not await storage.outbox.is_disabled("acct_2", HOOK)
    await storage.outbox.record(on_its_way.id, attempt(next_attempt_at=NOON), state="pending")
    after = await end_job(storage)
    for job_id in (before, sending, after):
        assert [row.state for row in await storage.outbox.of_job(job_id)] == ["disabled"]
    other = await end_job(storage, account="acct_2")
    assert [row.job_id for row in await due(storage)] == [other]
    await storage.outbox.enable("acct_1", HOOK)
    assert not await storage.outbox.is_disabled("acct_1", HOOK)
    assert [row.job_id for row in await due(storage)] == []
    assert [row.state for row in await storage.outbox.of_job(await end_job(storage))] == ["pending"]


async def test_deliveries_that_ran_out_are_counted_until_one_succeeds(storage):
    sent = [await end_job(storage) for _ in range(5)]
    rows = await due(storage)
    outcomes = [("pending", 0), ("failed", 1), ("pending", 0), ("failed", 2)]
    for row, (state, exhausted) in zip(rows, outcomes, strict=False):
        assert await storage.outbox.record(row.id, attempt(), state=state) == exhausted
    succeeded = replace(attempt(), status_code=200, error=None)
    assert await storage.outbox.record(rows[4].id, succeeded, state="delivered") == 0
    await storage.outbox.redeliver(sent[0], rows[0].id)
    assert await storage.outbox.record(rows[0].id, attempt(), state="failed") == 1
    assert await storage.outbox.record("dlv_none", attempt(), state="failed") == 0


async def test_an_account_with_as_many_on_their_way_as_it_may_have_is_passed_over(storage, clock):
    for account in ("acct_busy", "acct_busy", "acct_old", "acct_old", "acct_new"):
        await end_job(storage, account=account)
        clock.advance(ms=1)
    crowding = Crowding(per_host=99, per_account=2, accounts={"acct_busy": 1})
    rows = await storage.outbox.claim_due(limit=9, busy_s=BUSY_S, crowding=crowding)
    assert [row.account for row in rows] == ["acct_busy", "acct_old", "acct_old", "acct_new"]


async def test_a_long_line_to_a_full_host_holds_up_nobody_behind_it(storage, clock):
    """The line is longer than one look at the due messages."""
    for number in range(PAGE + 5):
        await end_job_for(storage, f"https://DEAD.example:8443/{number}")
    clock.advance(ms=1)
    last = await end_job_for(storage, "https://fine.example/")
    crowding = Crowding(per_host=3, per_account=99, hosts={"dead.example:8443": 1})
    rows = await storage.outbox.claim_due(limit=10, busy_s=BUSY_S, crowding=crowding)
    assert [row.host for row in rows] == ["dead.example:8443"] * 2
    crowding = replace(crowding, hosts={"dead.example:8443": 3})
    rows = await storage.outbox.claim_due(limit=10, busy_s=BUSY_S, crowding=crowding)
    assert [row.job_id for row in rows] == [last]


@pytest.mark.parametrize(
    ("bound", "urls", "reason"),
    [
        ("MAX_PENDING_PER_URL", [HOOK] * 3, "not sent: 2 deliveries to this address are waiting"),
        (
            "MAX_PENDING_PER_ACCOUNT",
            [HOOK, HOOK + "/2", HOOK + "/3"],
            "not sent: 2 deliveries of this account are waiting",
        ),
    ],
)
async def test_no_more_messages_wait_than_may(storage, bound, urls, reason, monkeypatch):
    monkeypatch.setattr(deliveries, bound, 2)
    jobs = [await end_job_for(storage, url) for url in urls]
    other = await end_job(storage, account="acct_2")
    rows = [row for job_id in [*jobs, other] for row in await storage.outbox.of_job(job_id)]
    assert [row.state for row in rows] == ["pending", "pending", "failed", "pending"]
    assert [made.error for made in rows[2].attempts] == [reason]
    with pytest.raises(QueueFull):
        await storage.outbox.redeliver(jobs[2], rows[2].id)
    await storage.outbox.record(rows[0].id, attempt(), state="failed")
    again = await storage.outbox.redeliver(jobs[2], rows[2].id)
    assert again.state == "pending"


async def test_a_waiting_sender_is_woken_by_a_job_that_ends(storage):
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(storage.outbox.claim_due(limit=10, busy_s=BUSY_S, wait_s=60.0))
        await asyncio.sleep(0)
        job_id = await end_job(storage)
        assert [row.job_id for row in await waiting] == [job_id]
