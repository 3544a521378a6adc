"""Accepting live sessions: what our own API and the dialects of other services have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from server.accounts.issuing import fresh_id
from server.http.caller import Caller
from server.jobs.orders import with_retention
from server.live.desk import Desk
from server.model.ids import Prefix
from server.model.jobs import IdempotencyKey, Submitted
from server.model.orders import Order, Source
from server.routes.accepting import MIN_AUDIO_S, Accepting, new_job, with_fingerprint
from server.storage.ports import JobStore


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveStarts:
    """Makes the jobs of live sessions."""

    jobs: JobStore
    desk: Desk
    accepting: Accepting

    async def submit(
        self,
        caller: Caller,
        order: Order,
        warnings: Sequence[Mapping[str, str]] = (),
        *,
        key: IdempotencyKey | None = None,
    ) -> Submitted:
        """Make a job for a live session with this *order*, or find the one that *key* has made before.

        Raises Refused (queue_full, shutting_down, url_not_allowed, invalid_parameter), LimitReached.
        """
        self.desk.admit(caller.environment, sessions=order.counted_sessions)
        _, api_key, plan = caller.require_account()
        order = with_retention(order, api_key.retention)
        new = new_job(
            fresh_id(Prefix.JOB),
            caller,
            order,
            Source(type="live"),
            counted_s=MIN_AUDIO_S * order.counted_sessions,
            audio_s=None,
            blob=None,
            max_active=plan.live_sessions,
            warnings=await self.accepting.warnings(caller, order, warnings),
        )
        return await self.jobs.submit(new, idempotency=with_fingerprint(key, order))
