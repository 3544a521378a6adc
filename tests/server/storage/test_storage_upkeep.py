"""The record of erasures, and what a storage forgets with time."""

import pytest

from server.accounts.keys import issue_key, open_account
from server.clock import now_ms
from server.model.deliveries import Attempt
from server.model.jobs import ErasedPart, Erasure, ErasureReason
from server.storage.sql.upkeep import (
    ADDRESSES_KEPT_MS,
    DAY_MS,
    ERASURES_KEPT_MS,
    IDLE_ACCOUNTS_KEPT_MS,
    KEYS_KEPT_MS,
    UNTRIED_ACCOUNTS_KEPT_MS,
    USAGE_KEPT_MS,
)
from tests.server.storing import HOOK, claim, completion, submit


async def test_an_erasure_is_written_down_and_outlives_the_job(storage, clock):
    first, second = await submit(storage), await submit(storage)
    await storage.jobs.delete(first)
    clock.advance(s=1)
    await storage.jobs.delete(second, why=ErasureReason.EXPIRED)
    assert await storage.jobs.delete(second) is None
    told = [
        Erasure(job_id=second, at=clock.now, what=ErasedPart.JOB, why=ErasureReason.EXPIRED),
        Erasure(job_id=first, at=clock.now - 1000, what=ErasedPart.JOB, why=ErasureReason.REQUESTED),
    ]
    assert await storage.upkeep.erasures(limit=10) == told
    assert await storage.upkeep.erasures(limit=1) == told[:1]
    assert await storage.upkeep.erasures(job_id=first, limit=10) == told[1:]
    clock.advance(ms=ERASURES_KEPT_MS)
    await storage.upkeep.forget_old()
    assert await storage.upkeep.erasures(limit=10) == []


async def test_an_address_is_forgotten_a_month_after_its_last_attempt(storage, clock):
    job_id = await submit(storage, hook=True)
    await storage.jobs.finish(await claim(storage), completion())
    await storage.outbox.disable("acct_1", HOOK, reason="answered 410")
    [row] = await storage.outbox.of_job(job_id)
    clock.advance(ms=DAY_MS)
    late = Attempt(n=1, at=clock.now, status_code=500, duration_ms=1, error="no", next_attempt_at=None)
    await storage.outbox.record(row.id, late, state="failed")
    clock.advance(ms=ADDRESSES_KEPT_MS - 1)
    await storage.upkeep.forget_old()
    assert await storage.outbox.is_disabled("acct_1", HOOK)
    clock.advance(ms=1)
    await storage.upkeep.forget_old()
    assert not await storage.outbox.is_disabled("acct_1", HOOK)


async def test_the_use_of_a_job_is_forgotten_two_months_after_its_end(storage, clock):
    await submit(storage)
    await storage.jobs.finish(await claim(storage), completion())
    await storage.upkeep.forget_old()
    clock.advance(ms=USAGE_KEPT_MS - 1)
    assert await storage.upkeep.forget_old() == 0
    clock.advance(ms=1)
    assert await storage.upkeep.forget_old() == 1


async def test_fairness_is_forgotten_once_the_queue_has_passed_it(storage):
    """What an account still has to wait for is kept: it would otherwise overtake."""
    await submit(storage, account="acct_greedy", audio_s=3600.0)
    assert await storage.upkeep.forget_old() == 0
    greedy = await submit(storage, account="acct_greedy", audio_s=1.0)
    await submit(storage, account="acct_other", audio_s=10.0)
    assert (await claim(storage)).job.account == "acct_other"
    assert await storage.upkeep.forget_old() == 1
    assert (await claim(storage)).job.account == "acct_greedy"
    assert await storage.upkeep.forget_old() == 0
    assert (await claim(storage)).job.id == greedy


async def test_keys_are_forgotten_a_month_after_their_end(storage, clock):
    clock.now = now_ms()
    account, first = await open_account(storage.accounts, plan="pro", environment="production", name=None)
    keys = [first.key, *(issue_key(account.id, environment="production", name=None).key for _ in range(3))]
    for key in keys[1:]:
        await storage.accounts.add_key(key)
    await storage.accounts.revoke(account.id, keys[0].id, at=clock.now)
    await storage.accounts.revoke(account.id, keys[1].id, at=clock.now + 1)
    new = issue_key(account.id, environment="production", name=None)
    await storage.accounts.rotate(account.id, keys[2].id, new=new.key, old_expires_at=clock.now)
    clock.advance(ms=KEYS_KEPT_MS)
    await storage.upkeep.forget_old()
    left = {key.id for key in await storage.accounts.keys(account.id)}
    assert left == {keys[1].id, keys[3].id, new.key.id}


@pytest.mark.parametrize(
    ("made", "used", "kept_ms"),
    [
        ({"plan": "free"}, False, UNTRIED_ACCOUNTS_KEPT_MS),
        ({"plan": "free"}, True, IDLE_ACCOUNTS_KEPT_MS),
        ({"plan": "free", "limits": {"active_jobs": 9}}, False, None),
        ({"plan": "pro"}, False, None),
    ],
)
async def test_an_account_is_forgotten_when_no_stranger_uses_it(storage, clock, made, used, kept_ms):
    clock.now = now_ms()
    account, issued = await open_account(storage.accounts, environment="production", name=None, **made)
    began = max(account.created_at, issued.key.created_at)
    if used:
        await storage.accounts.touch(issued.key.id, began)
    clock.now = began + (kept_ms or 10 * IDLE_ACCOUNTS_KEPT_MS) - 1
    await storage.upkeep.forget_old()
    assert await storage.accounts.account(account.id) is not None
    job_id = await submit(storage, account=account.id)
    clock.now += 1
    await storage.upkeep.forget_old()
    assert await storage.accounts.account(account.id) is not None  # it has a job
    await storage.jobs.delete(job_id)
    await storage.upkeep.forget_old()
    assert (await storage.accounts.account(account.id) is None) is (kept_ms is not None)
    assert (await storage.accounts.keys(account.id) == []) is (kept_ms is not None)


async def test_an_account_without_keys_is_forgotten_whatever_its_plan(storage, clock):
    clock.now = now_ms()
    account, issued = await open_account(storage.accounts, plan="pro", environment="production", name=None)
    await storage.accounts.revoke(account.id, issued.key.id, at=clock.now)
    clock.advance(ms=KEYS_KEPT_MS - 1)
    await storage.upkeep.forget_old()
    assert await storage.accounts.account(account.id) is not None
    clock.advance(s=60)
    await storage.upkeep.forget_old()
    assert await storage.accounts.account(account.id) is None
