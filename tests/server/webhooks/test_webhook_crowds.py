"""Tests of many deliveries at once, on real storage and sockets: who waits for whom, and what a stop waits for."""

import asyncio
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from ipaddress import ip_address

import pytest

from server.accounts.issuing import open_account
from server.model.deliveries import Crowding, Delivery
from server.webhooks import delivery_slots
from server.webhooks.delivery_slots import KEPT, MAX_PER_ACCOUNT_AND_ADDRESS, MAX_PER_HOST, Crowded, DeliverySlots
from server.webhooks.sender import Reply
from tests.server.name_server import name_server
from tests.server.peers import ParsedRequest, answer, answer_in_turn, hold_until, peer
from tests.server.storing import in_a_loop
from tests.server.webhook_deliveries import MOST_S, Office, deliver, office, wait_for_requests


@in_a_loop
async def test_a_dead_host_holds_up_nobody_and_meets_no_crowd(tmp_path):
    go = asyncio.Event()
    async with office(tmp_path) as it, peer(hold_until(go)) as dead, peer(answer_in_turn(answer(200))) as alive:
        for _ in range(10):
            await it.end_job(dead.url)
        waiting = [await it.end_job(alive.url) for _ in range(10)]
        async with deliver(it):
            await wait_for_requests(alive, 10)
            assert dead.most_connections == MAX_PER_HOST  # its first four are still waited for
            assert len(dead.asked) == MAX_PER_HOST
            go.set()
        assert {(await it.delivery(job_id)).state for job_id in waiting} == {"delivered"}


@in_a_loop
async def test_many_dead_hosts_of_one_account_hold_up_no_other_account(tmp_path, monkeypatch):
    """There is one place more than one account may take, and five hosts of it would take more."""
    monkeypatch.setattr(delivery_slots, "MAX_AT_ONCE", delivery_slots.MAX_PER_ACCOUNT + 1)
    monkeypatch.setattr(delivery_slots, "KEPT", 1)
    go = asyncio.Event()
    async with AsyncExitStack() as stack:
        it = await stack.enter_async_context(office(tmp_path))
        dead = [await stack.enter_async_context(peer(hold_until(go), f"127.0.0.{place}")) for place in range(2, 7)]
        alive = await stack.enter_async_context(peer(answer_in_turn(answer(200))))
        for host in dead * delivery_slots.MAX_PER_HOST:
            await it.end_job(host.url)
        other, _ = await open_account(it.storage.accounts, plan="pro", environment="production", name=None)
        await replace(it, account=other).end_job(alive.url)
        async with deliver(it):
            await wait_for_requests(alive)
            async with asyncio.timeout(MOST_S):
                while sum(len(host.asked) for host in dead) < delivery_slots.MAX_PER_ACCOUNT:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)  # for what should not come
            assert sum(len(host.asked) for host in dead) == delivery_slots.MAX_PER_ACCOUNT
            go.set()


@in_a_loop
async def test_accounts_with_a_silent_receiver_each_keep_nobody_waiting(tmp_path):
    """Five of them have older backlogs for more hosts than there are slots. Another account's message goes at once."""
    go = asyncio.Event()
    async with AsyncExitStack() as stack:
        it = await stack.enter_async_context(office(tmp_path))
        silent = [await stack.enter_async_context(peer(hold_until(go), f"127.0.0.{place}")) for place in range(2, 22)]
        alive = await stack.enter_async_context(peer(answer_in_turn(answer(200))))
        for number in range(5):
            account, _ = await open_account(it.storage.accounts, plan="free", environment="production", name=None)
            for host in silent[4 * number : 4 * number + 4] * MAX_PER_HOST:
                await replace(it, account=account).end_job(host.url)
        async with deliver(it):
            async with asyncio.timeout(MOST_S):
                while sum(len(host.asked) for host in silent) < delivery_slots.MAX_AT_ONCE - KEPT:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            delivery = await it.wait_for_attempts(await it.end_job(alive.url))
            assert delivery.state == "delivered"
            assert sum(len(host.asked) for host in silent) == delivery_slots.MAX_AT_ONCE - KEPT
            go.set()


@in_a_loop
async def test_a_receiver_with_many_names_counts_by_its_address(tmp_path):
    go = asyncio.Event()
    names = {f"n{number}_test": ["127.0.0.2"] for number in range(12)}
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(name_server(**names))
        it = await stack.enter_async_context(office(tmp_path, names=server.resolver()))
        silent = await stack.enter_async_context(peer(hold_until(go), "127.0.0.2"))
        port = silent.url.rpartition(":")[2]
        jobs = [await it.end_job(f"http://n{number}.test:{port}/") for number in range(12)]
        other, _ = await open_account(it.storage.accounts, plan="pro", environment="production", name=None)
        async with deliver(it):
            await wait_for_requests(silent, MAX_PER_ACCOUNT_AND_ADDRESS)
            await replace(it, account=other).end_job(silent.url)  # shares the receiver
            await wait_for_requests(silent, MAX_PER_ACCOUNT_AND_ADDRESS + 1)
            await asyncio.sleep(0.2)  # for what should not come
            assert len(silent.asked) == MAX_PER_ACCOUNT_AND_ADDRESS + 1
            go.set()
        rows = [await it.delivery(job_id) for job_id in jobs]
        assert sum(row.state == "delivered" for row in rows) == MAX_PER_ACCOUNT_AND_ADDRESS
        assert {row.attempts for row in rows if row.state == "pending"} == {()}  # put off, not failed


def test_a_full_address_still_has_a_place_for_an_account_that_has_none_there():
    slots, address = DeliverySlots(), ip_address("2001:db8::1")
    with ExitStack() as stack:
        for account in ("a", "b"):
            for number in range(MAX_PER_ACCOUNT_AND_ADDRESS):
                stack.enter_context(slots.at(account, address + number))  # all in one /64
        for account in ("a", "b"):
            with pytest.raises(Crowded):
                stack.enter_context(slots.at(account, address))
        stack.enter_context(slots.at("c", address))
        with pytest.raises(Crowded):
            stack.enter_context(slots.at("c", address))
    with slots.at("a", address):
        pass


@in_a_loop
async def test_who_waits_for_room_is_woken_when_an_attempt_is_recorded(tmp_path):
    """It then uses the counts of that moment, and not of the time when the wait began."""
    async with office(tmp_path) as it, peer(answer_in_turn(answer(200))) as target:
        hosts = {target.url.removeprefix("http://"): 4}
        jobs = [await it.end_job(target.url) for _ in range(2)]
        [first] = await it.storage.outbox.claim_due(limit=1, busy_s=30)
        crowding = Crowding(per_host=4, per_account=9, hosts=hosts)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(it.storage.outbox.claim_due(limit=1, busy_s=30, wait_s=60, crowding=crowding))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            hosts.clear()
            attempt = (await delivered_attempt(it, first)).attempts
            assert len(attempt) == 1
            async with asyncio.timeout(MOST_S):
                assert [delivery.job_id for delivery in await waiting] == jobs[1:]


async def delivered_attempt(it: Office, delivery: Delivery) -> Delivery:
    """*delivery* after an attempt that succeeded."""
    await it.deliveries()._record(delivery, Reply(200, 1, None))
    return await it.delivery(delivery.job_id)


@in_a_loop
async def test_a_full_house_goes_on_as_soon_as_one_has_left(tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delivery_slots, "MAX_AT_ONCE", 2)
        patch.setattr(delivery_slots, "KEPT", 0)
        async with office(tmp_path) as it, peer(answer_in_turn(answer(200))) as target:
            jobs = [await it.end_job(target.url) for _ in range(7)]
            async with deliver(it):
                await wait_for_requests(target, 7)
                for job_id in jobs:
                    await it.wait_for_attempts(job_id)
            assert target.most_connections <= 2


@in_a_loop
async def test_stopping_waits_for_what_is_on_its_way(tmp_path):
    arrived, go = asyncio.Event(), asyncio.Event()

    async def slow(_asked: ParsedRequest, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await go.wait()
        writer.write(answer(200))

    async with office(tmp_path) as it, peer(slow) as target:
        first = await it.end_job(target.url)
        async with deliver(it) as loop:
            await asyncio.wait_for(arrived.wait(), MOST_S)
            loop.closing.set()
            await asyncio.sleep(0.1)
            go.set()
        assert (await it.delivery(first)).state == "delivered"
        last = await it.end_job(target.url)
        assert (await it.delivery(last)).attempts == ()


@in_a_loop
async def test_a_delivery_whose_job_was_deleted_on_the_way_troubles_nobody(tmp_path):
    async with office(tmp_path) as it, peer(answer_in_turn(answer(200))) as target:
        gone = await it.end_job(target.url)
        [claimed] = await it.storage.outbox.claim_due(limit=1, busy_s=30)
        await it.storage.jobs.delete(gone)
        await it.deliveries()._deliver(claimed)
        assert target.asked == []
        async with deliver(it):
            assert (await it.wait_for_attempts(await it.end_job(target.url))).state == "delivered"


@in_a_loop
async def test_attempts_are_counted_by_how_they_ended(tmp_path):
    async with office(tmp_path) as it, peer(answer_in_turn(answer(500), answer(200))) as target, deliver(it):
        for _ in range(2):
            await it.wait_for_attempts(await it.end_job(target.url))
        value = it.metrics.registry.get_sample_value
        async with asyncio.timeout(MOST_S):
            while value("scribewire_webhook_attempts_total", {"outcome": "ok"}) != 1:  # noqa: ASYNC110  no event tells of it
                await asyncio.sleep(0.01)
        assert value("scribewire_webhook_attempts_total", {"outcome": "failed"}) == 1
