"""Deliveries of webhooks on real storage and sockets, for tests."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from standardwebhooks import Webhook

from server.accounts.keys import open_account
from server.clock import now_ms
from server.egress.guard import Egress
from server.jobs.housekeeping import Eraser
from server.metrics import Metrics
from server.model.accounts import Account, SigningKeys
from server.model.deliveries import Delivery
from server.model.jobs import Job, LiveProgress
from server.model.orders import Order
from server.records.records import Links, Records
from server.storage.sql.storage import Storage
from server.webhooks.deliveries import Deliveries
from server.webhooks.sender import DeliverySlots, WebhookSender
from tests.server.peers import ParsedRequest, Peer
from tests.server.serving import LIMITS
from tests.server.storing import ManualClock, claim, completion, storage_in, submit
from tests.waiting import eventually

MOST_S = 30
RULES = LIMITS.webhooks
EVENTS = ("job.completed", "job.failed")


class NobodyLive:
    """The session registry of a server without live sessions."""

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

    async def end_job(self, url: str, outcome: Any = None, **order: Any) -> str:
        """Make a finished job whose client wants a webhook at *url*."""
        self.clock.advance(ms=1)  # so that they are due in this order
        members = {"webhook_url": url, "webhook_events": EVENTS, **order}
        job_id = await submit(self.storage, account=self.account.id, order=Order(**members))
        await self.storage.jobs.finish(await claim(self.storage), outcome or completion())
        return job_id

    async def delivery(self, job_id: str) -> Delivery:
        [delivery] = await self.storage.outbox.of_job(job_id)
        return delivery

    async def wait_for_attempts(self, job_id: str, attempts: int = 1) -> Delivery:
        """Wait until the delivery has so many attempts, and return it."""

        async def look() -> Delivery | None:
            delivery = await self.delivery(job_id)
            return delivery if len(delivery.attempts) >= attempts else None

        return await eventually(look)

    async def wait_until_disabled(self, url: str) -> None:
        """Wait until the address is called no more, which is written after the attempt that was one too many."""
        await eventually(lambda: self.storage.outbox.is_disabled(self.account.id, url))


@asynccontextmanager
async def office(folder: Path, clock: ManualClock | None = None, **rules: Any) -> AsyncIterator[Office]:
    """*rules* replace those of limits.toml."""
    settled = replace(RULES, **rules)
    clock = clock or ManualClock(now_ms())
    async with storage_in(folder, clock) as storage:
        account, _ = await open_account(storage.accounts, plan="pro", environment="production", name=None)
        egress = Egress(allowed=(ip_network("127.0.0.0/8"),), allow_http=True)
        slots = DeliverySlots()
        metrics = Metrics()
        links = Links("https://speech.example", SigningKeys({"1": b"k" * 32}, "1"))

        def deliveries(**options: Any) -> Deliveries:
            return Deliveries(
                storage,
                Records(storage, links, NobodyLive()),
                WebhookSender(egress, settled, slots),
                Eraser(storage, Metrics()),
                metrics,
                asyncio.Event(),
                poll_s=0.05,
                **options,
            )

        yield Office(storage, account, clock, metrics, deliveries)
        await egress.close()


@asynccontextmanager
async def deliver(it: Office) -> AsyncIterator[Deliveries]:
    loop = it.deliveries()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(loop.run())
        try:
            yield loop
        finally:
            loop.closing.set()


async def wait_for_requests(target: Peer, count: int = 1) -> list[ParsedRequest]:
    await eventually(lambda: len(target.asked) >= count)
    return target.asked


def verify(secret: str, asked: ParsedRequest) -> Any:
    """Return the body, after the library of Standard Webhooks has accepted the signature."""
    return Webhook(secret).verify(asked.body, dict(asked.headers))
