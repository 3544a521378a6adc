"""Tests of stored channels: names that an account has once in each environment, and the session that each shows."""

from dataclasses import replace

import pytest

from server.model.accounts import Channel
from server.model.bounds import MAX_CHANNELS
from server.model.errors import TooManyChannels
from server.storage.sql.storage import Storage
from tests.server.storage.test_storage_accounts import ACCOUNT, KEY
from tests.server.storing import NOON

STAGE = Channel(id="chn_1", account="acct_1", environment="production", name="stage", created_at=NOON)


async def owner(storage: Storage) -> None:
    await storage.accounts.create_account(ACCOUNT, KEY)


async def test_a_name_is_given_once_in_each_environment(storage):
    await owner(storage)
    assert await storage.channels.add(STAGE) == STAGE
    assert await storage.channels.add(replace(STAGE, id="chn_2")) == STAGE
    other = replace(STAGE, id="chn_3", environment="sandbox")
    assert await storage.channels.add(other) == other
    assert await storage.channels.all("acct_1", "production") == [STAGE]
    assert await storage.channels.find_named("acct_1", "sandbox", "stage") == other
    assert await storage.channels.find_named("acct_2", "production", "stage") is None
    assert await storage.channels.get("chn_1") == STAGE
    assert await storage.channels.get("chn_9") is None


async def test_the_newest_session_is_shown_whatever_the_order(storage):
    await owner(storage)
    await storage.channels.add(STAGE)
    for job in ("job_2", "job_3", "job_1"):
        await storage.channels.show("chn_1", job)
    await storage.channels.show("chn_9", "job_4")
    assert await storage.channels.get("chn_1") == replace(STAGE, job="job_3")


async def test_only_its_owner_deletes_a_channel_and_its_id_never_comes_back(storage):
    await owner(storage)
    await storage.channels.add(STAGE)
    assert not await storage.channels.delete("acct_2", "production", "chn_1")
    assert not await storage.channels.delete("acct_1", "sandbox", "chn_1")
    assert await storage.channels.delete("acct_1", "production", "chn_1")
    assert not await storage.channels.delete("acct_1", "production", "chn_1")
    assert await storage.channels.get("chn_1") is None
    assert (await storage.channels.add(replace(STAGE, id="chn_2"))).id == "chn_2"


async def test_an_account_has_a_bounded_number_of_channels(storage):
    await owner(storage)
    for number in range(MAX_CHANNELS):
        await storage.channels.add(replace(STAGE, id=f"chn_{number}", name=f"stage {number}"))
    with pytest.raises(TooManyChannels):
        await storage.channels.add(replace(STAGE, id="chn_more", name="one more"))
    assert (await storage.channels.add(replace(STAGE, id="chn_again", name="stage 7"))).id == "chn_7"
    assert (await storage.channels.add(replace(STAGE, id="chn_test", environment="sandbox"))).id == "chn_test"
