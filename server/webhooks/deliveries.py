"""Sending deliveries that are due: signed, limited in time, retried on a schedule, and few at once per host."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

import orjson

from server.accounts.limits import WebhookRules
from server.clock import now_ms
from server.logs import log
from server.metrics import Metrics
from server.model.deliveries import Attempt, Crowding, Delivery
from server.records.records import Records
from server.storage.ports import Storage
from server.waiting import set_within
from server.webhooks.backoff import delay_after
from server.webhooks.courier import GONE, Courier, Reply, signing_secrets

MAX_AT_ONCE = 64
MAX_PER_HOST = 4  # so that a dead host does not delay the others,
MAX_PER_ACCOUNT = 16  # nor a customer with a hundred of them
MARGIN_S = 15.0  # a claimed delivery stays reserved for this much longer than an attempt may take


@dataclass(slots=True, kw_only=True)
class Deliveries:
    """The loop over the outbox."""

    storage: Storage
    records: Records
    courier: Courier
    metrics: Metrics
    rules: WebhookRules
    poll_s: float = 1.0
    _hosts: Counter[str] = field(init=False, default_factory=Counter)
    _accounts: Counter[str] = field(init=False, default_factory=Counter)
    _arrived: asyncio.Event = field(init=False, default_factory=asyncio.Event)  # a delivery is no longer on its way
    _stopping: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        """Send what comes due until stop(). What is on its way then is finished or times out."""
        async with asyncio.TaskGroup() as tasks:
            while not self._stopping.is_set():
                for delivery in await self._claim_due():
                    self._hosts[delivery.host] += 1
                    self._accounts[delivery.account] += 1
                    tasks.create_task(self._deliver(delivery), name=f"webhook {delivery.id}")

    async def _claim_due(self) -> list[Delivery]:
        """The deliveries to send now, possibly none after waiting for a moment."""
        room = MAX_AT_ONCE - self._hosts.total()
        if room == 0:
            self._arrived.clear()
            await self._arrived.wait()
            return []
        crowding = Crowding(
            per_host=MAX_PER_HOST, per_account=MAX_PER_ACCOUNT, hosts=self._hosts, accounts=self._accounts
        )
        try:
            return await self.storage.outbox.claim_due(
                limit=room, busy_s=self.rules.timeout_s + MARGIN_S, wait_s=self.poll_s, crowding=crowding
            )
        except Exception:  # noqa: BLE001  the next round may succeed
            log.exception("outbox failed")
            await set_within(self._stopping, self.poll_s)
            return []

    async def _deliver(self, delivery: Delivery) -> None:
        try:
            reply = await self._attempt(delivery)
            if reply is not None:
                await self._record(delivery, reply)
        except Exception:  # noqa: BLE001  stays claimed for a while, then comes due again
            log.exception("delivery failed", extra={"delivery": delivery.id})

    async def _attempt(self, delivery: Delivery) -> Reply | None:
        """Send the delivery. Its host and account have room again before the result is recorded."""
        try:
            return await self._send(delivery)
        finally:
            for counter, name in ((self._hosts, delivery.host), (self._accounts, delivery.account)):
                counter[name] -= 1
                if not counter[name]:
                    del counter[name]
            self._arrived.set()

    async def _send(self, delivery: Delivery) -> Reply | None:
        """The receiver's reply; None if the job was deleted meanwhile."""
        job = await self.storage.jobs.get(delivery.job_id)
        account = await self.storage.accounts.account(delivery.account)
        if job is None or account is None:
            return None
        body = orjson.dumps(self.records.notice(job))
        return await self.courier.bring(
            delivery.url, body, webhook_id=delivery.webhook_id, secrets=signing_secrets(account)
        )

    async def _record(self, delivery: Delivery, reply: Reply) -> None:
        number = len(delivery.attempts) + 1
        delay_s = None
        if reply.error is not None and reply.status_code != GONE:
            delay_s = delay_after(
                delivery.tried + 1,
                schedule_s=self.rules.delays_s,
                roll=random.random(),  # noqa: S311  jitter
                retry_after_s=reply.retry_after_s,
            )
        at = now_ms()
        attempt = Attempt(
            n=number,
            at=at,
            status_code=reply.status_code,
            duration_ms=reply.duration_ms,
            error=reply.error,
            next_attempt_at=None if delay_s is None else at + round(delay_s * 1000),
        )
        state = "delivered" if reply.error is None else "pending" if delay_s is not None else "failed"
        if reply.status_code == GONE:
            state = "disabled"
            await self.storage.outbox.disable(delivery.account, delivery.url, reason="answered 410")
        await self.storage.outbox.record(delivery.id, attempt, state=state)
        self.metrics.webhook_attempts.labels("ok" if reply.error is None else "failed").inc()
        if state in ("delivered", "failed"):
            await self._count(delivery, ok=state == "delivered")

    async def _count(self, delivery: Delivery, *, ok: bool) -> None:
        """Disable an address after ten deliveries in a row that ran out of attempts."""
        count = await self.storage.outbox.exhausted(delivery.account, delivery.url, ok=ok)
        if count >= self.rules.exhausted_before_disable:
            await self.storage.outbox.disable(delivery.account, delivery.url, reason=f"{count} deliveries ran out")
