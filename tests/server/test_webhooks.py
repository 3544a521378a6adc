"""Tests of deliveries on real storage and sockets: one attempt, what its answer means, and the order of many."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import orjson
import pytest
from jsonschema import Draft202012Validator
from standardwebhooks import Webhook

from server.accounts.issuing import issue_webhook_secret, open_account
from server.clock import now_ms
from server.egress.guard import Egress
from server.egress.names import Names
from server.http.schemas import SCHEMAS
from server.jobs.erasing import Eraser
from server.metrics import Metrics
from server.model.accounts import Account, SigningKeys, WebhookSecret
from server.model.deliveries import AddressHealth, Attempt, Crowding, Delivery
from server.model.jobs import Job, LiveProgress
from server.model.orders import Order
from server.records.links import Links
from server.records.records import Records
from server.storage.ports import Storage
from server.webhooks import seats as seats_module
from server.webhooks.courier import Courier, Reply, signing_secrets
from server.webhooks.deliveries import FAILING_MS, MAX_FAILURES, Deliveries
from server.webhooks.seats import KEPT, MAX_PER_ACCOUNT_AND_ADDRESS, MAX_PER_HOST, Crowded, SendingSeats
from tests.server.naming import name_server
from tests.server.peers import Asked, Peer, answer, holding, peer, saying, silence
from tests.server.serving import LIMITS
from tests.server.storing import ManualClock, claim, completed, failed, in_a_loop, stored, submit

MOST_S = 30
RULES = LIMITS.webhooks
EVENTS = ("job.completed", "job.failed")


class NobodyLive:
    """The desk of a server without live sessions."""

    async def progress(self, job: Job) -> LiveProgress:
        raise AssertionError(f"{job.id} is not live")


@dataclass
class Office:
    """Everything for the deliveries of one account."""

    storage: Storage
    account: Account
    clock: ManualClock
    metrics: Metrics
    deliveries: Callable[..., Deliveries]

    async def ended(self, url: str, outcome: Any = None, **order: Any) -> str:
        """Make a finished job whose client wants a webhook at *url*."""
        self.clock.advance(ms=1)  # so that they are due in this order
        members = {"webhook_url": url, "webhook_events": EVENTS, **order}
        job_id = await submit(self.storage, account=self.account.id, order=Order(**members))
        await self.storage.jobs.finish(await claim(self.storage), outcome or completed())
        return job_id

    async def delivery(self, job_id: str) -> Delivery:
        [delivery] = await self.storage.outbox.of_job(job_id)
        return delivery

    async def tried(self, job_id: str, attempts: int = 1) -> Delivery:
        """Wait until the delivery has so many attempts, and return it."""
        async with asyncio.timeout(MOST_S):
            while len((delivery := await self.delivery(job_id)).attempts) < attempts:  # noqa: ASYNC110  no event tells of it
                await asyncio.sleep(0.01)
        return delivery


@asynccontextmanager
async def office(
    folder: Path, clock: ManualClock | None = None, names: Names | None = None, **rules: Any
) -> AsyncIterator[Office]:
    """*rules* replace those of limits.toml."""
    settled = replace(RULES, **rules)
    clock = clock or ManualClock(now_ms())
    async with stored(folder, clock) as storage:
        account, _ = await open_account(storage.accounts, plan="pro", environment="production", name=None)
        egress = Egress(allowed=(ip_network("127.0.0.0/8"),), allow_http=True, names=names)
        seats = SendingSeats()
        metrics = Metrics()
        links = Links("https://speech.example", SigningKeys({"1": b"k" * 32}, "1"))

        def deliveries(**options: Any) -> Deliveries:
            return Deliveries(
                storage=storage,
                records=Records(storage.jobs, storage.blobs, links, NobodyLive()),
                eraser=Eraser(storage),
                courier=Courier(egress, settled, seats),
                seats=seats,
                metrics=metrics,
                rules=settled,
                poll_s=0.05,
                **options,
            )

        yield Office(storage, account, clock, metrics, deliveries)
        await egress.close()


@asynccontextmanager
async def delivering(it: Office) -> AsyncIterator[Deliveries]:
    loop = it.deliveries()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(loop.run())
        try:
            yield loop
        finally:
            loop.stop()


async def received(target: Peer, count: int = 1) -> list[Asked]:
    async with asyncio.timeout(MOST_S):
        while len(target.asked) < count:  # noqa: ASYNC110  no event tells of it
            await asyncio.sleep(0.01)
    return target.asked


def verified(secret: str, asked: Asked) -> Any:
    """Return the body, after the library of Standard Webhooks has accepted the signature."""
    return Webhook(secret).verify(asked.body, dict(asked.headers))


# --- one attempt -------------------------------------------------------------------------------------------------


@in_a_loop
async def test_the_receivers_library_takes_what_is_sent(tmp_path):
    async with office(tmp_path) as it, peer(saying(answer(200))) as target, delivering(it):
        job_id = await it.ended(f"{target.url}/hook?who=me", metadata={"order": "17"})
        [asked] = await received(target)
        body = verified(it.account.webhook_secret.current, asked)
        assert (asked.method, asked.target) == ("POST", "/hook?who=me")
        assert asked.headers["content-type"] == "application/json"
        assert asked.headers["user-agent"] == "scribewire/1"
        assert (body["type"], body["data"]["job_id"], body["data"]["metadata"]) == (
            "job.completed", job_id, {"order": "17"},
        )  # fmt: skip
        assert "words" not in body["data"]
        Draft202012Validator({"$ref": "#/components/schemas/Notice", "components": {"schemas": SCHEMAS}}).validate(body)
        delivery = await it.tried(job_id)
        assert (delivery.state, delivery.attempts[0].status_code, delivery.attempts[0].error) == (
            "delivered",
            200,
            None,
        )
        assert delivery.webhook_id == asked.headers["webhook-id"]


@in_a_loop
async def test_a_long_text_stays_out_of_the_body(tmp_path):
    async with office(tmp_path) as it, peer(saying(answer(200))) as target, delivering(it):
        await it.ended(target.url, replace(completed(), text="word " * 100_000), metadata={"k": "v" * 500})
        [asked] = await received(target)
        assert len(asked.body) < 20_000
        assert "text" not in orjson.loads(asked.body)["data"]


@in_a_loop
async def test_only_the_events_that_were_chosen_are_sent(tmp_path):
    async with office(tmp_path) as it, peer(saying(answer(200))) as target, delivering(it):
        unwanted = await it.ended(target.url, webhook_events=("job.failed",))
        wanted = await it.ended(target.url, failed(), webhook_events=("job.failed",))
        [asked] = await received(target)
        body = orjson.loads(asked.body)
        assert (body["type"], body["data"]["job_id"], body["data"]["error"]["code"]) == (
            "job.failed", wanted, "invalid_audio",
        )  # fmt: skip
        assert await it.storage.outbox.of_job(unwanted) == []


@in_a_loop
async def test_during_a_rotation_old_and_new_secret_both_verify(tmp_path):
    async with office(tmp_path) as it, peer(saying(answer(200))) as target, delivering(it):
        old, fresh = it.account.webhook_secret, issue_webhook_secret()
        rotated = replace(fresh, previous=old.current, previous_expires_at=now_ms() + 60_000)
        await it.storage.accounts.rotate_webhook_secret(it.account.id, rotated)
        await it.ended(target.url)
        [asked] = await received(target)
        assert len(asked.headers["webhook-signature"].split(" ")) == 2
        assert verified(old.current, asked) == verified(fresh.current, asked)


def test_a_previous_secret_no_longer_signs_once_its_overlap_is_over():
    def account(expires_at: int | None) -> Account:
        secret = WebhookSecret(current="new", created_at=0, previous="old", previous_expires_at=expires_at)
        return Account(id="a", plan="free", created_at=0, webhook_secret=secret)

    assert signing_secrets(account(now_ms() + 60_000)) == ["new", "old"]
    assert signing_secrets(account(now_ms() - 1)) == ["new"]
    assert signing_secrets(account(None)) == ["new"]


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
def test_a_reply_is_success_retry_or_the_end(tmp_path, reply, status, error, state):
    async def main() -> None:
        async with office(tmp_path) as it, peer(saying(reply)) as target, delivering(it):
            delivery = await it.tried(await it.ended(target.url))
            [attempt] = delivery.attempts
            assert (delivery.state, attempt.status_code) == (state, status)
            assert (attempt.error or "").startswith(error or "")
            assert (attempt.error is None) == (error is None)
            assert [asked.target for asked in target.asked] == ["/"]  # a redirect is not followed

    asyncio.run(main())


@in_a_loop
async def test_a_receiver_that_does_not_answer_in_time_is_a_failure(tmp_path):
    async with office(tmp_path, timeout_s=0.1) as it, peer(silence) as target, delivering(it):
        delivery = await it.tried(await it.ended(target.url))
        assert (delivery.state, delivery.attempts[0].error) == ("pending", "timeout")
        assert delivery.attempts[0].duration_ms >= 100


@in_a_loop
async def test_no_more_of_a_reply_is_read_than_is_useful(tmp_path):
    async def endless(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"2710\r\n" + bytes(10_000) + b"\r\n")
            await writer.drain()

    async with office(tmp_path) as it, peer(endless) as target, delivering(it):
        assert (await it.tried(await it.ended(target.url))).state == "delivered"


@in_a_loop
async def test_an_address_that_may_not_be_called_is_not_called_at_delivery_either(tmp_path):
    async with office(tmp_path) as it, delivering(it):
        delivery = await it.tried(await it.ended("http://10.0.0.1/hook"))
        assert (delivery.state, delivery.attempts[0].status_code) == ("pending", None)
        assert "not allowed" in (delivery.attempts[0].error or "")


# --- the schedule --------------------------------------------------------------------------------------------------


@in_a_loop
async def test_a_failed_delivery_is_tried_again_later_with_its_id_and_a_new_signature(tmp_path):
    clock = ManualClock(now_ms())
    async with office(tmp_path, clock) as it, peer(saying(answer(500), answer(200))) as target, delivering(it):
        job_id = await it.ended(target.url)
        first = await it.tried(job_id)
        wait_ms = (first.next_at or 0) - first.attempts[0].at
        assert 4_000 <= wait_ms <= 6_000
        assert first.attempts[0].next_attempt_at == first.next_at
        clock.now = first.next_at or 0
        second = await it.tried(job_id, 2)
        assert (second.state, [attempt.n for attempt in second.attempts]) == ("delivered", [1, 2])
        assert len({asked.headers["webhook-id"] for asked in target.asked}) == 1


@pytest.mark.parametrize(("status", "heeded"), [(429, True), (503, True), (500, False)])
def test_retry_after_is_heeded_where_it_means_something(tmp_path, status, heeded):
    async def main() -> None:
        async with office(tmp_path) as it, peer(saying(answer(status, Retry_After="3600"))) as target, delivering(it):
            delivery = await it.tried(await it.ended(target.url))
            wait_ms = (delivery.next_at or 0) - delivery.attempts[0].at
            assert (wait_ms >= 3_600_000) is heeded

    asyncio.run(main())


@pytest.mark.parametrize("status", [429, 503])
def test_a_retry_after_beyond_all_time_is_an_attempt_like_any_other(tmp_path, status):
    wish = answer(status, Retry_After="Fri, 01 Jan 99999999999999999999 00:00:00 GMT")

    async def main() -> None:
        async with office(tmp_path) as it, peer(saying(wish)) as target, delivering(it):
            delivery = await it.tried(await it.ended(target.url))
            assert (delivery.state, delivery.attempts[0].error) == ("pending", f"status {status}")
            assert 4_000 <= (delivery.next_at or 0) - delivery.attempts[0].at <= 6_000

    asyncio.run(main())


@in_a_loop
async def test_whatever_goes_wrong_while_sending_is_a_failed_attempt(tmp_path):
    """The account's secret cannot be read, so nothing can be signed."""
    async with office(tmp_path) as it, peer(saying(answer(200))) as target, delivering(it):
        await it.storage.accounts.rotate_webhook_secret(it.account.id, WebhookSecret(current="whsec_%", created_at=0))
        delivery = await it.tried(await it.ended(target.url))
        assert (delivery.state, delivery.attempts[0].error) == ("pending", "the server failed to send it")
        assert delivery.next_at is not None
        assert target.asked == []


@in_a_loop
async def test_after_the_last_attempt_a_delivery_is_failed(tmp_path):
    clock = ManualClock(now_ms())
    async with office(tmp_path, clock, delays_s=(1.0,)) as it, peer(saying(answer(500))) as target, delivering(it):
        job_id = await it.ended(target.url)
        clock.now = (await it.tried(job_id)).next_at or 0
        delivery = await it.tried(job_id, 2)
        assert (delivery.state, delivery.next_at, delivery.attempts[-1].next_attempt_at) == ("failed", None, None)


@in_a_loop
async def test_an_address_is_given_up_after_so_many_exhausted_deliveries_in_a_row(tmp_path):
    async with office(tmp_path, delays_s=(), exhausted_before_disable=3) as it, peer(saying(answer(500))) as target:
        async with delivering(it):
            for _ in range(2):
                await it.tried(await it.ended(target.url))
            assert not await it.storage.outbox.disabled(it.account.id, target.url)
            await it.tried(await it.ended(target.url))
            async with asyncio.timeout(MOST_S):
                while not await it.storage.outbox.disabled(it.account.id, target.url):  # noqa: ASYNC110  no event tells of it
                    await asyncio.sleep(0.01)
            later = await it.delivery(await it.ended(target.url))
        assert (later.state, later.attempts) == ("disabled", ())
        assert len(target.asked) == 3


@in_a_loop
async def test_one_success_starts_the_count_of_exhausted_deliveries_anew(tmp_path):
    replies = saying(answer(500), answer(200), answer(500), answer(500))
    async with office(tmp_path, delays_s=(), exhausted_before_disable=2) as it, peer(replies) as target:
        async with delivering(it):
            states = [(await it.tried(await it.ended(target.url))).state for _ in range(3)]
        assert states == ["failed", "delivered", "failed"]
        assert not await it.storage.outbox.disabled(it.account.id, target.url)


@in_a_loop
async def test_410_disables_the_address_at_once_and_redelivery_can_still_succeed(tmp_path):
    async with office(tmp_path) as it, peer(saying(answer(410), answer(200))) as target, delivering(it):
        job_id = await it.ended(target.url)
        gone = await it.tried(job_id)
        assert (gone.state, gone.next_at) == ("disabled", None)
        assert await it.storage.outbox.disabled(it.account.id, target.url)
        await it.storage.outbox.redeliver(job_id, gone.id)
        again = await it.tried(job_id, 2)
        assert (again.state, again.webhook_id) == ("delivered", gone.webhook_id)


@in_a_loop
async def test_an_address_that_fails_all_the_time_is_given_up_within_the_hour(tmp_path):
    """But not for an outage of some minutes, however many deliveries fail in it."""
    async with office(tmp_path) as it:
        loop = it.deliveries()
        at = now_ms()
        for failures, since_ms, given_up in (
            (MAX_FAILURES, FAILING_MS - 1, False),
            (MAX_FAILURES - 1, FAILING_MS, False),
            (MAX_FAILURES, FAILING_MS, True),
        ):
            health = AddressHealth(failures=failures, failing_since=at - since_ms)
            assert (loop._hopeless(health, at) is not None) is given_up


@in_a_loop
async def test_an_address_without_a_success_for_long_is_disabled_with_all_that_waits_for_it(tmp_path):
    async with office(tmp_path) as it, peer(saying(answer(500))) as target:
        jobs = [await it.ended(target.url) for _ in range(3)]
        [first, second] = await it.storage.outbox.claim_due(limit=2, busy_s=30)
        old = Attempt(
            n=1, at=now_ms() - FAILING_MS, status_code=500, duration_ms=1, error="status 500", next_attempt_at=now_ms()
        )
        for _ in range(MAX_FAILURES - 1):
            await it.storage.outbox.record(first.id, old, state="pending")
        assert not await it.storage.outbox.disabled(it.account.id, target.url)
        await it.deliveries()._record(second, Reply(500, 1, "status 500"))
        assert await it.storage.outbox.disabled(it.account.id, target.url)
        assert {(await it.delivery(job_id)).state for job_id in jobs} == {"disabled"}


# --- many ----------------------------------------------------------------------------------------------------------


@in_a_loop
async def test_a_dead_host_holds_up_nobody_and_meets_no_crowd(tmp_path):
    go = asyncio.Event()
    async with office(tmp_path) as it, peer(holding(go)) as dead, peer(saying(answer(200))) as alive:
        for _ in range(10):
            await it.ended(dead.url)
        waiting = [await it.ended(alive.url) for _ in range(10)]
        async with delivering(it):
            await received(alive, 10)
            assert dead.most_connections == MAX_PER_HOST  # its first four are still waited for
            assert len(dead.asked) == MAX_PER_HOST
            go.set()
        assert {(await it.delivery(job_id)).state for job_id in waiting} == {"delivered"}


@in_a_loop
async def test_many_dead_hosts_of_one_account_hold_up_no_other_account(tmp_path, monkeypatch):
    """There is one place more than one account may take, and five hosts of it would take more."""
    monkeypatch.setattr(seats_module, "MAX_AT_ONCE", seats_module.MAX_PER_ACCOUNT + 1)
    monkeypatch.setattr(seats_module, "KEPT", 1)
    go = asyncio.Event()
    async with AsyncExitStack() as stack:
        it = await stack.enter_async_context(office(tmp_path))
        dead = [await stack.enter_async_context(peer(holding(go), f"127.0.0.{place}")) for place in range(2, 7)]
        alive = await stack.enter_async_context(peer(saying(answer(200))))
        for host in dead * seats_module.MAX_PER_HOST:
            await it.ended(host.url)
        other, _ = await open_account(it.storage.accounts, plan="pro", environment="production", name=None)
        await replace(it, account=other).ended(alive.url)
        async with delivering(it):
            await received(alive)
            async with asyncio.timeout(MOST_S):
                while sum(len(host.asked) for host in dead) < seats_module.MAX_PER_ACCOUNT:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)  # for what should not come
            assert sum(len(host.asked) for host in dead) == seats_module.MAX_PER_ACCOUNT
            go.set()


@in_a_loop
async def test_accounts_with_a_silent_receiver_each_keep_nobody_waiting(tmp_path):
    """Five of them have older backlogs for more hosts than there are seats. Another account's message goes at once."""
    go = asyncio.Event()
    async with AsyncExitStack() as stack:
        it = await stack.enter_async_context(office(tmp_path))
        silent = [await stack.enter_async_context(peer(holding(go), f"127.0.0.{place}")) for place in range(2, 22)]
        alive = await stack.enter_async_context(peer(saying(answer(200))))
        for number in range(5):
            account, _ = await open_account(it.storage.accounts, plan="free", environment="production", name=None)
            for host in silent[4 * number : 4 * number + 4] * MAX_PER_HOST:
                await replace(it, account=account).ended(host.url)
        async with delivering(it):
            async with asyncio.timeout(MOST_S):
                while sum(len(host.asked) for host in silent) < seats_module.MAX_AT_ONCE - KEPT:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            delivery = await it.tried(await it.ended(alive.url))
            assert delivery.state == "delivered"
            assert sum(len(host.asked) for host in silent) == seats_module.MAX_AT_ONCE - KEPT
            go.set()


@in_a_loop
async def test_a_receiver_with_many_names_counts_by_its_address(tmp_path):
    go = asyncio.Event()
    names = {f"n{number}_test": ["127.0.0.2"] for number in range(12)}
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(name_server(**names))
        it = await stack.enter_async_context(office(tmp_path, names=server.resolver()))
        silent = await stack.enter_async_context(peer(holding(go), "127.0.0.2"))
        port = silent.url.rpartition(":")[2]
        jobs = [await it.ended(f"http://n{number}.test:{port}/") for number in range(12)]
        other, _ = await open_account(it.storage.accounts, plan="pro", environment="production", name=None)
        async with delivering(it):
            await received(silent, MAX_PER_ACCOUNT_AND_ADDRESS)
            await replace(it, account=other).ended(silent.url)  # shares the receiver
            await received(silent, MAX_PER_ACCOUNT_AND_ADDRESS + 1)
            await asyncio.sleep(0.2)  # for what should not come
            assert len(silent.asked) == MAX_PER_ACCOUNT_AND_ADDRESS + 1
            go.set()
        rows = [await it.delivery(job_id) for job_id in jobs]
        assert sum(row.state == "delivered" for row in rows) == MAX_PER_ACCOUNT_AND_ADDRESS
        assert {row.attempts for row in rows if row.state == "pending"} == {()}  # put off, not failed


def test_a_full_address_still_has_a_place_for_an_account_that_has_none_there():
    seats, address = SendingSeats(), ip_address("2001:db8::1")
    with ExitStack() as stack:
        for account in ("a", "b"):
            for number in range(MAX_PER_ACCOUNT_AND_ADDRESS):
                stack.enter_context(seats.at(account, address + number))  # all in one /64
        for account in ("a", "b"):
            with pytest.raises(Crowded):
                stack.enter_context(seats.at(account, address))
        stack.enter_context(seats.at("c", address))
        with pytest.raises(Crowded):
            stack.enter_context(seats.at("c", address))
    with seats.at("a", address):
        pass


@in_a_loop
async def test_who_waits_for_room_is_woken_when_an_attempt_is_recorded(tmp_path):
    """It then uses the counts of that moment, and not of the time when the wait began."""
    async with office(tmp_path) as it, peer(saying(answer(200))) as target:
        hosts = {target.url.removeprefix("http://"): 4}
        jobs = [await it.ended(target.url) for _ in range(2)]
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
        patch.setattr(seats_module, "MAX_AT_ONCE", 2)
        patch.setattr(seats_module, "KEPT", 0)
        async with office(tmp_path) as it, peer(saying(answer(200))) as target:
            jobs = [await it.ended(target.url) for _ in range(7)]
            async with delivering(it):
                await received(target, 7)
                for job_id in jobs:
                    await it.tried(job_id)
            assert target.most_connections <= 2


@in_a_loop
async def test_stopping_waits_for_what_is_on_its_way(tmp_path):
    arrived, go = asyncio.Event(), asyncio.Event()

    async def slow(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await go.wait()
        writer.write(answer(200))

    async with office(tmp_path) as it, peer(slow) as target:
        first = await it.ended(target.url)
        async with delivering(it) as loop:
            await asyncio.wait_for(arrived.wait(), MOST_S)
            loop.stop()
            await asyncio.sleep(0.1)
            go.set()
        assert (await it.delivery(first)).state == "delivered"
        last = await it.ended(target.url)
        assert (await it.delivery(last)).attempts == ()


@in_a_loop
async def test_a_delivery_whose_job_was_deleted_on_the_way_troubles_nobody(tmp_path):
    async with office(tmp_path) as it, peer(saying(answer(200))) as target:
        gone = await it.ended(target.url)
        [claimed] = await it.storage.outbox.claim_due(limit=1, busy_s=30)
        await it.storage.jobs.delete(gone)
        await it.deliveries()._deliver(claimed)
        assert target.asked == []
        async with delivering(it):
            assert (await it.tried(await it.ended(target.url))).state == "delivered"


@in_a_loop
async def test_attempts_are_counted_by_how_they_ended(tmp_path):
    async with office(tmp_path) as it, peer(saying(answer(500), answer(200))) as target, delivering(it):
        for _ in range(2):
            await it.tried(await it.ended(target.url))
        value = it.metrics.registry.get_sample_value
        async with asyncio.timeout(MOST_S):
            while value("scribewire_webhook_attempts_total", {"outcome": "ok"}) != 1:  # noqa: ASYNC110  no event tells of it
                await asyncio.sleep(0.01)
        assert value("scribewire_webhook_attempts_total", {"outcome": "failed"}) == 1
