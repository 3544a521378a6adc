"""The steps to a new job that files and live sessions share: Idempotency-Key, warnings, checks of addresses."""

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakValueDictionary

import orjson
from starlette.requests import Request

from server.accounts.limits import month_of
from server.clock import now_ms
from server.egress.guard import Egress
from server.egress.targets import TargetNotAllowed
from server.http.caller import Caller
from server.http.headers import idempotency_key
from server.http.operation import Parameter
from server.model.accounts import Plan, Quota
from server.model.errors import ConcurrencyLimited, DiskFull, FieldError, Refused, StorageBusy
from server.model.jobs import UNANSWERED_KEPT_MS, IdempotencyKey, NewJob
from server.model.offers import Offer
from server.model.orders import Order, Source, without_defaults
from server.storage.patience import AGAIN_S
from server.storage.ports import JobStore, Outbox

IDEMPOTENCY_KEY = Parameter(
    name="Idempotency-Key",
    place="header",
    schema={"type": "string", "maxLength": 257},
    description="Makes repeats of this request answer with the same job, for 24 h",
)
ACCEPTING_CODES = (
    "invalid_parameter",
    "invalid_idempotency_key",
    "payload_too_large",
    "unsupported_media_type",
    "unsupported_encoding",
    "idempotency_key_reused",
    "idempotency_in_progress",
    "quota_exceeded",
    "concurrency_limited",
    "queue_full",
    "disk_full",
)
"""Error codes of every operation that makes a job."""
MIN_AUDIO_S = 1.0  # of the month's audio must be left at the start; the true length is counted at the end
FREEING_S = 1.0  # how long the answer to a request that failed waits until its key is free again
ARRIVING_WAIT_S = 10.0  # for a place to send a body in, before the request is refused


@dataclass(frozen=True, slots=True)
class Accepting:
    """What the two routes that make jobs share."""

    jobs: JobStore
    outbox: Outbox
    egress: Egress
    offers: Mapping[str, Offer]  # environment -> what it offers
    _places: WeakValueDictionary[tuple[str, str], asyncio.Semaphore] = field(
        init=False, default_factory=WeakValueDictionary
    )
    _freeing: set[asyncio.Task[None]] = field(init=False, default_factory=set)  # of keys whose request has failed

    def key(self, request: Request, caller: Caller) -> IdempotencyKey | None:
        """The request's Idempotency-Key, still without a fingerprint. Raises InvalidIdempotencyKey."""
        header = request.headers.get("idempotency-key")
        if header is None:
            return None
        path: str = request.scope["path"]
        return IdempotencyKey(
            account=caller.account_id, path=f"{caller.environment} {path}", key=idempotency_key(header)
        )

    @asynccontextmanager
    async def reserved(self, key: IdempotencyKey | None) -> AsyncIterator[str | None]:
        """Reserve the idempotency key while the block runs. It is free again if the block raises.

        The block gets the id of the job that an earlier request with this key has made, if there is one.
        """
        earlier = None if key is None else await self.jobs.begin(key)
        if key is None or earlier is not None:
            yield earlier
            return
        try:
            yield None
        except BaseException:
            freeing = asyncio.create_task(_free(self.jobs, key))
            self._freeing.add(freeing)
            freeing.add_done_callback(self._freeing.discard)
            await asyncio.wait({freeing}, timeout=FREEING_S)
            raise

    async def check_room(self, caller: Caller) -> None:
        """Raise what would refuse a file of *caller* whatever is in it, so that its body need not be read."""
        account, _, plan = caller.require_account()
        quotas = _quotas(plan, MIN_AUDIO_S) if caller.environment == "production" else ()
        await self.jobs.check_room(account.id, caller.environment, quotas=quotas, max_active=plan.active_jobs)

    @asynccontextmanager
    async def arriving(self, caller: Caller) -> AsyncIterator[None]:
        """Wait for a place in which a body of *caller* may arrive: it has as many as it may have unfinished jobs.

        Raises ConcurrencyLimited after ARRIVING_WAIT_S.
        """
        account, _, plan = caller.require_account()
        if plan.active_jobs is None:
            yield
            return
        places = self._places.setdefault((account.id, caller.environment), asyncio.Semaphore(max(1, plan.active_jobs)))
        try:
            async with asyncio.timeout(ARRIVING_WAIT_S):
                await places.acquire()
        except TimeoutError:
            raise ConcurrencyLimited("uploads", limit=plan.active_jobs, used=plan.active_jobs) from None
        try:
            yield
        finally:
            places.release()

    async def warnings(
        self, caller: Caller, order: Order, asked: Sequence[Mapping[str, str]]
    ) -> tuple[Mapping[str, str], ...]:
        """All warnings of a job with this *order*, those *asked* first. Raises Refused url_not_allowed."""
        found = [*asked, *self.offers[caller.environment].warnings]
        if order.webhook_url is not None:
            param = "webhook_url" if order.callback is None else "callback"
            await self.check_url(caller, param, order.webhook_url)
            if await self.outbox.disabled(caller.account_id, order.webhook_url):
                found.append({"code": "webhook_disabled", "param": "webhook_url"})
        return tuple(found)

    async def check_url(self, caller: Caller, param: str, url: str) -> None:
        """Raises Refused url_not_allowed if this server may not call *url*."""
        try:
            await self.egress.check(url, asker=caller.account_id)
        except TargetNotAllowed as error:
            fault = FieldError(param, "not_allowed", str(error))
            raise Refused(error.code, f"{param}: {error}", errors=[fault]) from None


async def _free(jobs: JobStore, key: IdempotencyKey) -> None:
    """Free a reserved key. Where the database is away it is tried until it is back: the client will come again."""
    while True:
        try:
            return await jobs.abandon(key)
        except (StorageBusy, DiskFull):
            await asyncio.sleep(AGAIN_S)


def with_fingerprint(key: IdempotencyKey | None, order: Order, *audio: str | None) -> IdempotencyKey | None:
    """The key with a fingerprint of the request: of its *order*, and of the address or the digest of its audio.

    A request that is repeated across an update of the server has the same one.
    """
    if key is None:
        return None
    said = orjson.dumps([without_defaults(order), *audio], option=orjson.OPT_SORT_KEYS)
    return replace(key, fingerprint=hashlib.sha256(said).hexdigest())


def new_job(
    job_id: str, caller: Caller, order: Order, source: Source, *, counted_s: float | None, **more: Any
) -> NewJob:
    """A job of *caller*; *counted_s* seconds of audio are taken from the account's month, but none in the sandbox."""
    account, _, plan = caller.require_account()
    return NewJob(
        id=job_id,
        account=account.id,
        environment=caller.environment,
        order=order,
        source=source,
        weight=plan.weight,
        retention_ms=plan.retention_ms if order.kept else min(plan.retention_ms, UNANSWERED_KEPT_MS),
        quotas=_quotas(plan, counted_s) if caller.environment == "production" else (),
        **more,
    )


def _quotas(plan: Plan, audio_s: float | None) -> tuple[Quota, ...]:
    month = month_of(now_ms())
    taken = (
        ("transcriptions", plan.transcriptions_per_month, 1),
        ("audio_seconds", plan.audio_seconds_per_month, math.ceil(audio_s or 0)),
    )
    return tuple(
        Quota(name=name, window=month.name, limit=limit, amount=amount, resets_at=month.resets_at)
        for name, limit, amount in taken
    )
