"""Sends webhook deliveries when they are due, and records the result of each attempt."""

import asyncio
import random
from dataclasses import dataclass, replace

from server.background import contain
from server.clock import now_ms
from server.jobs.housekeeping import Eraser
from server.logs import log
from server.metrics import Metrics
from server.model.deliveries import Attempt, Delivery
from server.model.errors import StorageError
from server.records.records import Records
from server.storage.sql.storage import Storage
from server.waiting import set_within
from server.webhooks.sender import GONE, Reply, WebhookSender, delay_after

MARGIN_S = 15.0  # a delivery is claimed for this much longer than an attempt may take


@dataclass(slots=True)
class Deliveries:
    """Sends the deliveries of the outbox. run() is a task of the server."""

    storage: Storage
    records: Records
    sender: WebhookSender
    eraser: Eraser
    metrics: Metrics
    closing: asyncio.Event
    poll_s: float = 1.0

    async def run(self) -> None:
        """Send due deliveries until *closing* is set, then wait for the attempts under way."""
        async with asyncio.TaskGroup() as tasks:
            while not self.closing.is_set():
                for delivery in await self._claim_due():
                    self.sender.slots.claim(delivery.account, delivery.host)
                    tasks.create_task(self._deliver(delivery), name=f"webhook {delivery.id}")

    async def _claim_due(self) -> list[Delivery]:
        """Claim the deliveries to send now. If none is due within *poll_s* seconds, return none."""
        await self.sender.slots.wait_for_free()
        try:
            return await self.storage.outbox.claim_due(
                limit=self.sender.slots.free,
                busy_s=self.sender.rules.timeout_s + MARGIN_S,
                wait_s=self.poll_s,
                crowding=self.sender.slots.crowding(),
            )
        except Exception:  # noqa: BLE001  the next round may succeed
            self.metrics.faults.labels("outbox").inc()
            log.exception("outbox failed")
            await set_within(self.closing, self.poll_s)
            return []

    async def _deliver(self, delivery: Delivery) -> None:
        """Make one attempt and free its slot. After a fault of ours the delivery is due again when its claim ends."""
        with contain("webhook", self.metrics, delivery=delivery.id):
            with self.eraser.holding(delivery.job_id):
                try:
                    reply = await self._send(delivery)
                finally:
                    self.sender.slots.leave(delivery.account, delivery.host)
                if reply is not None:
                    await self._record(delivery, reply)
            if reply is not None and reply.delivered_results:
                await self.eraser.note_answered(delivery.job_id)

    async def _send(self, delivery: Delivery) -> Reply | None:
        """The receiver's reply; None if the job was deleted meanwhile. Raises StorageError."""
        try:
            job = await self.storage.jobs.get(delivery.job_id)
            account = await self.storage.accounts.account(delivery.account)
            if job is None or account is None:
                return None
            announcement = await self.records.message(job, delivery.event)
        except StorageError:
            raise
        except Exception:  # noqa: BLE001  an attempt that is not recorded would be repeated for ever
            log.exception("a webhook could not be written", extra={"delivery": delivery.id})
            return Reply(None, 0, "the server failed to send it")
        reply = await self.sender.send(
            delivery.url,
            announcement.body,
            account=account,
            environment=delivery.environment,
            webhook_id=delivery.webhook_id,
        )
        return replace(reply, delivered_results=announcement.delivers_results and reply.error is None)

    async def _record(self, delivery: Delivery, reply: Reply) -> None:
        """Record the attempt, and disable the address after too many failures."""
        delay_s = None
        if reply.error is not None and reply.status_code != GONE:
            delay_s = delay_after(
                delivery.tried + 1,
                schedule_s=self.sender.rules.delays_s,
                roll=random.random(),  # noqa: S311  jitter
                retry_after_s=reply.retry_after_s,
            )
        at = now_ms()
        attempt = Attempt(
            n=len(delivery.attempts) + 1,
            at=at,
            status_code=reply.status_code,
            duration_ms=reply.duration_ms,
            error=reply.error,
            next_attempt_at=None if delay_s is None else at + round(delay_s * 1000),
        )
        state = "delivered" if reply.error is None else "pending" if delay_s is not None else "failed"
        if reply.status_code == GONE:
            state = "disabled"  # the address first, so that no client sees the attempt while the address is enabled
            await self.storage.outbox.disable(delivery.account, delivery.url, reason="answered 410")
        exhausted = await self.storage.outbox.record(delivery.id, attempt, state=state)
        self.metrics.webhook_attempts.labels("ok" if reply.error is None else "failed").inc()
        if exhausted >= self.sender.rules.exhausted_before_disable:
            await self.storage.outbox.disable(delivery.account, delivery.url, reason=f"{exhausted} deliveries ran out")
