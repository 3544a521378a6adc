"""Tests of many deliveries at once, on real storage and sockets: who waits for whom, and what a stop waits for."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

from server.accounts.keys import open_account
from server.webhooks import sender
from server.webhooks.sender import MAX_PER_ACCOUNT, MAX_PER_HOST
from tests.server.peers import ParsedRequest, answer, answer_in_turn, hold_until, peer
from tests.server.webhook_deliveries import MOST_S, deliver, office, wait_for_requests
from tests.waiting import eventually


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


async def test_many_dead_hosts_of_one_account_hold_up_no_other_account(tmp_path):
    go = asyncio.Event()
    async with AsyncExitStack() as stack:
        it = await stack.enter_async_context(office(tmp_path))
        dead = [await stack.enter_async_context(peer(hold_until(go), f"127.0.0.{place}")) for place in range(2, 7)]
        alive = await stack.enter_async_context(peer(answer_in_turn(answer(200))))
        for host in dead * MAX_PER_HOST:
            await it.end_job(host.url)
        other, _ = await open_account(it.storage.accounts, plan="pro", environment="production", name=None)
        await replace(it, account=other).end_job(alive.url)
        async with deliver(it):
            await wait_for_requests(alive)
            await eventually(lambda: sum(len(host.asked) for host in dead) >= MAX_PER_ACCOUNT, max_s=MOST_S)
            for _ in range(2):  # the deliveries go on, and the account gets no more
                await it.wait_for_attempts(await replace(it, account=other).end_job(alive.url))
            assert sum(len(host.asked) for host in dead) == MAX_PER_ACCOUNT
            go.set()


async def test_a_full_house_goes_on_as_soon_as_one_has_left(tmp_path, monkeypatch):
    monkeypatch.setattr(sender, "MAX_AT_ONCE", 2)
    async with office(tmp_path) as it, peer(answer_in_turn(answer(200))) as target:
        jobs = [await it.end_job(target.url) for _ in range(7)]
        async with deliver(it):
            await wait_for_requests(target, 7)
            for job_id in jobs:
                await it.wait_for_attempts(job_id)
        assert target.most_connections <= 2


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


async def test_a_delivery_whose_job_was_deleted_on_the_way_troubles_nobody(tmp_path):
    async with office(tmp_path) as it, peer(answer_in_turn(answer(200))) as target:
        gone = await it.end_job(target.url)
        [claimed] = await it.storage.outbox.claim_due(limit=1, busy_s=30)
        await it.storage.jobs.delete(gone)
        loop = it.deliveries()
        loop.sender.slots.claim(claimed.account, claimed.host)
        await loop._deliver(claimed)
        assert target.asked == []
        async with deliver(it):
            assert (await it.wait_for_attempts(await it.end_job(target.url))).state == "delivered"


async def test_attempts_are_counted_by_how_they_ended(tmp_path):
    async with office(tmp_path) as it, peer(answer_in_turn(answer(500), answer(200))) as target, deliver(it):
        for _ in range(2):
            await it.wait_for_attempts(await it.end_job(target.url))
        value = it.metrics.registry.get_sample_value
        await eventually(lambda: value("scribewire_webhook_attempts_total", {"outcome": "ok"}) == 1, max_s=MOST_S)
        assert value("scribewire_webhook_attempts_total", {"outcome": "failed"}) == 1
