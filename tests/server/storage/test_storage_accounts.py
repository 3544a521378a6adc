"""Tests of stored accounts, keys and counted allowances."""

import asyncio
import base64
from dataclasses import replace

import pytest

from server.model.accounts import Account, ApiKey, Count, WebhookSecret
from server.model.bounds import MAX_ENDED_KEYS
from server.model.errors import StorageError
from server.storage.sql.accounts import _for_sandbox
from tests.server.storing import HOUR, NOON, RESET, quota

ACCOUNT = Account(
    id="acct_1",
    plan="free",
    created_at=NOON,
    webhook_secret=WebhookSecret(current="whsec_a", created_at=NOON),
    sandbox_webhook_secret=WebhookSecret(current="whsec_s", created_at=NOON),
)
KEY = ApiKey(
    id="key_1",
    account="acct_1",
    environment="production",
    name="laptop",
    hash=b"\x01" * 32,
    prefix="sw_live_9fK2",
    last4="abcd",
    created_at=NOON,
)


async def test_a_key_is_found_by_its_hash_with_its_account(storage):
    await storage.accounts.create_account(ACCOUNT, KEY)
    assert await storage.accounts.by_hash(KEY.hash) == (KEY, ACCOUNT)
    assert await storage.accounts.by_hash(b"\x02" * 32) is None
    assert await storage.accounts.account("acct_1") == ACCOUNT
    assert await storage.accounts.account("acct_2") is None
    assert await storage.accounts.accounts() == [ACCOUNT]


async def test_an_account_is_made_with_its_key_or_not_at_all(storage):
    await storage.accounts.create_account(ACCOUNT, KEY)
    with pytest.raises(StorageError, match=r"(?i)unique"):
        await storage.accounts.create_account(replace(ACCOUNT, id="acct_2"), replace(KEY, id="key_2", account="acct_2"))
    assert await storage.accounts.account("acct_2") is None


async def test_a_revoked_key_stays_revoked_from_its_first_time(storage):
    await storage.accounts.create_account(ACCOUNT, KEY)
    await storage.accounts.add_key(replace(KEY, id="key_2", hash=b"\x02" * 32))
    assert not await storage.accounts.revoke("acct_2", "key_1", at=NOON)  # another account's key
    assert await storage.accounts.revoke("acct_1", "key_1", at=NOON + 1)
    assert not await storage.accounts.revoke("acct_1", "key_1", at=NOON + 2)
    assert [key.revoked_at for key in await storage.accounts.keys("acct_1")] == [NOON + 1, None]
    found = await storage.accounts.by_hash(KEY.hash)
    assert found[0].revoked_at == NOON + 1


async def test_only_the_newest_keys_that_ended_are_remembered(backend, tmp_path):
    async with backend.storage_in(tmp_path) as storage:
        await storage.accounts.create_account(ACCOUNT, KEY)
        for number in range(MAX_ENDED_KEYS + 2):
            key = replace(KEY, id=f"old_{number:03}", hash=b"%032d" % number, created_at=NOON + number)
            await storage.accounts.add_key(key)
            assert await storage.accounts.revoke("acct_1", key.id, at=NOON + number)
        await storage.accounts.add_key(replace(KEY, id="key_2", hash=b"\x02" * 32, created_at=NOON + HOUR))
        kept = [key.id for key in await storage.accounts.keys("acct_1")]
    assert kept == ["key_1", *(f"old_{number:03}" for number in range(2, MAX_ENDED_KEYS + 2)), "key_2"]


async def test_a_rotated_key_works_until_its_overlap_ends(storage, clock):
    new = replace(KEY, id="key_2", hash=b"\x02" * 32)
    await storage.accounts.create_account(ACCOUNT, KEY)
    assert await storage.accounts.rotate("acct_1", "key_1", new=new, old_expires_at=NOON + HOUR)
    assert [key.expires_at for key in await storage.accounts.keys("acct_1")] == [NOON + HOUR, None]
    later = replace(KEY, id="key_3", hash=b"\x03" * 32)
    assert await storage.accounts.rotate("acct_1", "key_1", new=later, old_expires_at=NOON + 2 * HOUR)
    keys = await storage.accounts.keys("acct_1")
    assert keys[0].expires_at == NOON + HOUR  # a second rotation does not prolong it
    clock.advance(ms=HOUR)
    dead = replace(KEY, id="key_4", hash=b"\x04" * 32)
    assert not await storage.accounts.rotate("acct_1", "key_1", new=dead, old_expires_at=NOON + 2 * HOUR)
    assert not await storage.accounts.rotate("acct_2", "key_2", new=dead, old_expires_at=NOON + 2 * HOUR)
    assert len(await storage.accounts.keys("acct_1")) == 3


async def test_the_last_use_is_known_to_the_minute(storage):
    await storage.accounts.create_account(ACCOUNT, KEY)
    for at in (NOON, NOON + 59_999, NOON + 60_000, NOON + 60_001):
        await storage.accounts.touch("key_1", at)
    assert [key.last_used_at for key in await storage.accounts.keys("acct_1")] == [NOON + 60_000]


async def test_a_plan_with_its_own_numbers_and_without_them(storage):
    await storage.accounts.create_account(ACCOUNT, KEY)
    own = {"requests_per_minute": 3000, "audio_hours": None}
    assert await storage.accounts.set_plan("acct_1", "enterprise", own)
    assert await storage.accounts.account("acct_1") == replace(ACCOUNT, plan="enterprise", limits=own)
    assert await storage.accounts.set_plan("acct_1", "pro", None)
    assert await storage.accounts.account("acct_1") == replace(ACCOUNT, plan="pro")
    assert not await storage.accounts.set_plan("acct_2", "pro", None)


def test_an_account_without_a_secret_for_the_sandbox_has_one_that_does_not_tell_the_other():
    made = _for_sandbox(WebhookSecret(current="whsec_a", created_at=NOON))
    assert made == _for_sandbox(WebhookSecret(current="whsec_a", created_at=NOON))
    assert made.current != _for_sandbox(WebhookSecret(current="whsec_b", created_at=NOON)).current
    assert len(base64.b64decode(made.current.removeprefix("whsec_"))) == 32


async def test_a_webhook_secret_keeps_its_predecessor(storage):
    new = WebhookSecret(current="whsec_b", created_at=NOON + 1, previous="whsec_a", previous_expires_at=NOON + HOUR)
    await storage.accounts.create_account(ACCOUNT, KEY)
    assert await storage.accounts.rotate_webhook_secret("acct_1", "production", new)
    assert await storage.accounts.account("acct_1") == replace(ACCOUNT, webhook_secret=new)
    assert await storage.accounts.rotate_webhook_secret("acct_1", "sandbox", new)
    both = replace(ACCOUNT, webhook_secret=new, sandbox_webhook_secret=new)
    assert await storage.accounts.account("acct_1") == both
    assert not await storage.accounts.rotate_webhook_secret("acct_2", "sandbox", new)


async def test_an_allowance_is_taken_whole_or_not_at_all(storage):
    counts = await asyncio.gather(*(storage.counters.spend("addr", quota("free", limit=3)) for _ in range(5)))
    assert sorted(count.used for count in counts if count.allowed) == [1, 2, 3]
    assert [count for count in counts if not count.allowed] == [Count(False, 3, 3, RESET)] * 2
    big = await storage.counters.spend("addr", quota("seconds", limit=10, amount=11))
    assert (big.allowed, big.used) == (False, 0)
    assert (await storage.counters.spend("addr", quota("seconds", limit=10, amount=10))).allowed


async def test_an_unlimited_allowance_is_still_counted(storage):
    for used in (1, 2):
        assert await storage.counters.spend("a", quota(limit=None)) == Count(True, used, None, RESET)


async def test_what_is_given_back_can_be_taken_again_but_never_more(storage):
    await storage.counters.spend("a", quota(limit=1))
    assert not (await storage.counters.spend("a", quota(limit=1))).allowed
    for _ in range(3):
        await storage.counters.give_back("a", quota(limit=1))
    assert (await storage.counters.spend("a", quota(limit=1))).allowed
    assert not (await storage.counters.spend("a", quota(limit=1))).allowed


async def test_windows_names_and_subjects_are_counted_apart(storage):
    await storage.counters.spend("a", quota("x"))
    await storage.counters.spend("a", replace(quota("x"), window="2026-12"))
    await storage.counters.spend("b", quota("x", amount=3))
    windows = [("x", "2026-11"), ("x", "2026-12"), ("y", "2026-11")]
    assert await storage.counters.amounts_used("a", windows) == [1, 1, 0]
    assert await storage.counters.amounts_used("b", windows) == [3, 0, 0]


async def test_old_windows_are_forgotten(storage, clock):
    await storage.counters.spend("a", quota())
    clock.now = RESET + 62 * 24 * HOUR + 1
    await storage.upkeep.forget_passed()
    assert await storage.counters.amounts_used("a", [("transcriptions", "2026-11")]) == [0]


async def test_a_key_is_as_any_process_last_left_it(storage, backend, tmp_path):
    async with backend.storage_in(tmp_path) as other:
        await storage.accounts.create_account(ACCOUNT, KEY)
        changes = (
            lambda: other.accounts.set_plan("acct_1", "pro", None),
            lambda: other.accounts.rotate_webhook_secret(
                "acct_1", "production", WebhookSecret(current="whsec_b", created_at=NOON)
            ),
            lambda: other.accounts.rotate("acct_1", "key_1", new=replace(KEY, id="key_2", hash=b"2"), old_expires_at=1),
            lambda: other.accounts.revoke("acct_1", "key_1", at=NOON + 1),
        )
        for change in changes:
            before = await storage.accounts.by_hash(KEY.hash)
            assert await change()
            assert await storage.accounts.by_hash(KEY.hash) != before
