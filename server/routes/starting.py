"""Accepting live sessions: what our own API and the dialects of other services have in common."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from server.accounts.issuing import fresh_id
from server.http.caller import Caller
from server.jobs.orders import with_retention
from server.jobs.voices import voices_key
from server.live.desk import Desk
from server.model.errors import OutcomeUnknown
from server.model.ids import Prefix
from server.model.jobs import IdempotencyKey, Submitted
from server.model.orders import Order, Source
from server.routes.accepting import MIN_AUDIO_S, Accepting, new_job, with_fingerprint
from server.routes.voices import KnownVoices
from server.storage.ports import JobStore


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveStarts:
    """Makes the jobs of live sessions."""

    jobs: JobStore
    desk: Desk
    accepting: Accepting
    voices: KnownVoices

    async def submit(
        self,
        caller: Caller,
        order: Order,
        warnings: Sequence[Mapping[str, str]] = (),
        *,
        key: IdempotencyKey | None = None,
        known_speakers: Mapping[str, bytes] | None = None,
    ) -> Submitted:
        """Make a job for a live session with this *order*, or find the one that *key* has made before.

        *known_speakers* has a recording of each person, by name.
        Raises Refused (queue_full, shutting_down, url_not_allowed, invalid_parameter), LimitReached.
        """
        self.desk.admit(caller.environment, sessions=order.counted_sessions)
        _, api_key, plan = caller.require_account()
        order = with_retention(order, api_key.retention)
        job_id = fresh_id(Prefix.JOB)
        new = new_job(
            job_id,
            caller,
            order,
            Source(type="live"),
            counted_s=MIN_AUDIO_S * order.counted_sessions,
            audio_s=None,
            blob=voices_key(job_id) if order.diarize else None,  # what is stored there is deleted at the end
            max_active=plan.live_sessions,
            warnings=await self.accepting.warnings(caller, order, warnings),
        )
        async with self._keeping(job_id, caller, known_speakers or {}) as kept:
            submitted = await self.jobs.submit(new, idempotency=with_fingerprint(key, order))
            kept.append(not submitted.replayed)
        return submitted

    @asynccontextmanager
    async def _keeping(self, job_id: str, caller: Caller, recordings: Mapping[str, bytes]) -> AsyncIterator[list[bool]]:
        """Store the recordings, and delete them after the block if it has made no job. Raises Refused."""
        made: list[bool] = []
        try:
            await self.voices.keep(job_id, caller, recordings)
            yield made
        except (OutcomeUnknown, asyncio.CancelledError):
            made.append(True)  # the job may exist all the same; what belongs to none is swept up
            raise
        finally:
            if recordings and made != [True]:
                await self.voices.blobs.delete(voices_key(job_id))
