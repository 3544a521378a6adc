"""Accepts jobs: checks the order, its audio and its customer, then makes the job in one commit.

An upload is received and accepted inside open_upload(). A live session has no audio yet, so accept() is enough for it.
"""

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import orjson

from pipeline.batch import Batch
from pipeline.errors import UnknownTrack, UnusableReference
from pipeline.recognition.stream_options import BALANCED
from server.accounts.keys import fresh_id
from server.accounts.limits import month_of
from server.clock import now_ms
from server.egress.guard import Egress
from server.egress.targets import TargetNotAllowed
from server.jobs.attempts import delay_of
from server.jobs.probing import Prober, keep_known_recordings, voices_key
from server.keyed_limits import KeyedTurns, NoTurn
from server.model.accounts import TRANSLATED_CHARACTERS, Customer, Quota
from server.model.errors import (
    ConcurrencyLimited,
    DiskFull,
    FieldError,
    OutcomeUnknown,
    Refused,
    StorageBusy,
    invalid_member,
)
from server.model.ids import Prefix
from server.model.jobs import UNANSWERED_KEPT_MS, IdempotencyKey, NewJob, Received, Submitted
from server.model.offers import Offer
from server.model.orders import Order, Source, without_defaults
from server.parsing.declared import REFERENCES, TRACK
from server.parsing.orders import ParsedRequest, with_latency, with_plan_targets, with_retention
from server.storage.sql.storage import Storage
from server.storage.waiting import patiently

MIN_AUDIO_S = 1.0  # of the month's audio must be left at the start; the true length is counted at the end
FREEING_S = 1.0  # longest time for which the answer to a failed request waits until its key is free again
ARRIVING_WAIT_S = 10.0  # for a place to send a body in, before the request is refused


@dataclass(frozen=True, slots=True, kw_only=True)
class _Audio:
    """The facts about a job's audio when the job is made."""

    source: Source
    blob: str | None = None
    length_s: float | None = None
    counted_s: float | None = None  # taken from the account's month now; the rest at the end


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Makes jobs. Every job is made here."""

    storage: Storage
    egress: Egress
    prober: Prober
    batches: Mapping[str, Batch]  # by environment; none on a node without a model
    offers: Mapping[str, Offer]  # by environment
    latency: str = BALANCED  # of live sessions whose order names none
    _places: KeyedTurns = field(init=False, default_factory=KeyedTurns)  # of accounts that send a body
    _freeing: set[asyncio.Task[None]] = field(init=False, default_factory=set)  # of keys whose request has failed

    @asynccontextmanager
    async def open_upload(self, customer: Customer, key: IdempotencyKey | None) -> AsyncIterator[None]:
        """Reserve the key and a place for a body while the block receives and accepts the body.

        It first checks everything that does not depend on the file, so that the server need not read a body to refuse
        it. Raises ConcurrencyLimited, QuotaExceeded, Refused rate_limited, and what JobStore.begin() raises.
        """
        async with self.reserve(key) as earlier, self._hold_place(customer):
            if earlier is None:
                self.prober.admit(customer.account, customer.plan)
                quotas = _quotas(customer, MIN_AUDIO_S)
                await self.storage.jobs.check_capacity(
                    customer.account, customer.environment, quotas=quotas, max_active=customer.plan.active_jobs
                )
            yield

    @asynccontextmanager
    async def reserve(self, key: IdempotencyKey | None) -> AsyncIterator[str | None]:
        """Reserve the idempotency key while the block runs. It is free again if the block raises.

        The block gets the id of the job that an earlier request with this key has made, if there is one.
        """
        earlier = None if key is None else await self.storage.jobs.begin(key)
        if key is None or earlier is not None:
            yield earlier
            return
        try:
            yield None
        except BaseException:
            freeing = asyncio.create_task(  # goes on while the database is away, because the client will try again
                patiently(lambda: self.storage.jobs.abandon(key), despite=(StorageBusy, DiskFull), repeatable=True)
            )
            self._freeing.add(freeing)
            freeing.add_done_callback(self._freeing.discard)
            await asyncio.wait({freeing}, timeout=FREEING_S)
            raise

    async def accept(
        self,
        customer: Customer,
        parsed: ParsedRequest,
        upload: Received | None = None,
        key: IdempotencyKey | None = None,
    ) -> Submitted:
        """Make the job of a request, or find the one that an earlier request with *key* made.

        Without *upload* it is a live job.

        Raises Refused (invalid_parameter, url_not_allowed), what Prober.probe() raises, and what JobStore.submit()
        raises: QuotaExceeded, ConcurrencyLimited and others.
        """
        order = with_retention(parsed.order, customer.retention)
        order = with_plan_targets(order, customer.plan.translation_targets)
        warnings = await self._warnings(customer, order, parsed.warnings)
        job_id = fresh_id(Prefix.JOB) if upload is None else upload.job_id
        if upload is None:
            audio, upload = _live_audio(job_id, order), Received(job_id)
        else:
            audio = await self._audio(customer, parsed, upload)
        plan = customer.plan
        new = NewJob(
            id=job_id,
            account=customer.account,
            environment=customer.environment,
            order=with_latency(order, self.latency),
            source=audio.source,
            blob=audio.blob,
            audio_s=audio.length_s,
            weight=plan.weight,
            retention_ms=plan.retention_ms if order.keeps_results else min(plan.retention_ms, UNANSWERED_KEPT_MS),
            quotas=_quotas(customer, audio.counted_s, translates=bool(order.translate_to)),
            delay_s=delay_of(order.scenario),
            max_active=plan.active_jobs if order.live is None else plan.live_sessions,
            warnings=warnings,
        )
        keyed = await _with_fingerprint(key, order, parsed, upload)
        try:
            await self._store_known_speakers(customer, parsed.known_speakers, upload)
            return await self._submit(new, upload, keyed)
        finally:
            if order.live is not None and upload.begun and not upload.keep:
                await self.storage.blobs.delete(voices_key(job_id))

    async def _submit(self, new: NewJob, upload: Received, key: IdempotencyKey | None) -> Submitted:
        """Make the job. Keep its stored file unless it is certain that no job was made from it."""
        try:
            submitted = await self.storage.jobs.submit(new, idempotency=key)
        except (OutcomeUnknown, asyncio.CancelledError):
            upload.keep = True  # the job may exist; if not, the sweeper deletes the audio
            raise
        upload.keep = not submitted.replayed
        return submitted

    @asynccontextmanager
    async def _hold_place(self, customer: Customer) -> AsyncIterator[None]:
        """Hold a place for a body while the block lasts. A customer has as many places as it may have jobs.

        Raises ConcurrencyLimited if none is free within ARRIVING_WAIT_S.
        """
        most = customer.plan.active_jobs
        if most is None:
            yield
            return
        name = (customer.account, customer.environment)
        try:
            async with self._places.turn(name, most=max(1, most), wait_s=ARRIVING_WAIT_S):
                yield
        except NoTurn:
            raise ConcurrencyLimited("uploads", limit=most, used=most) from None

    async def _audio(self, customer: Customer, parsed: ParsedRequest, upload: Received) -> _Audio:
        """Probe the audio of a file. An address is only checked, because its audio is downloaded later."""
        if upload.file is None:
            assert parsed.url is not None
            await self._check_url(customer, "url", parsed.url)
            return _Audio(source=Source(type="url", url=parsed.url))
        file = upload.file
        try:
            probe = await self.prober.probe(file.blob, parsed.order, account=customer.account, plan=customer.plan)
        except UnknownTrack as error:
            raise invalid_member(TRACK.name, "out_of_range", str(error)) from error
        times = probe.channels if parsed.order.separate else 1
        return _Audio(
            source=Source(type="upload", filename=file.filename, bytes=file.bytes, format=probe.format),
            blob=file.blob,
            length_s=probe.duration_s,
            counted_s=None if probe.duration_s is None else probe.duration_s * times,
        )

    async def _store_known_speakers(self, customer: Customer, people: Mapping[str, bytes], upload: Received) -> None:
        """Check that the voices in the recordings can be learned, and store these until the job has ended.

        Raises Refused invalid_parameter.
        """
        if not people:
            return
        batch = self.batches.get(customer.environment)
        if batch is None:
            missing = "this node does not listen; send the request to one with the role worker"
            raise invalid_member(REFERENCES.name, "not_offered", missing)
        try:
            await self.prober.learn_voices(batch, people, account=customer.account, plan=customer.plan)
        except UnusableReference as error:
            raise invalid_member(REFERENCES.name, "invalid_value", str(error)) from error
        upload.begun = True
        await keep_known_recordings(upload.job_id, people, self.storage.blobs)

    async def _warnings(
        self, customer: Customer, order: Order, of_request: Sequence[Mapping[str, str]]
    ) -> tuple[Mapping[str, str], ...]:
        """All warnings of a job with this *order*, those *of_request* first.

        Raises Refused url_not_allowed if its webhook may not be called.
        """
        found = [*of_request]
        if order.webhook_url is not None:
            param = "webhook_url" if order.callback is None else "callback"
            await self._check_url(customer, param, order.webhook_url)
            if await self.storage.outbox.is_disabled(customer.account, order.webhook_url):
                found.append({"code": "webhook_disabled", "param": "webhook_url"})
        return tuple(found)

    async def _check_url(self, customer: Customer, param: str, url: str) -> None:
        """Raises Refused url_not_allowed if this server may not call *url*."""
        try:
            await self.egress.check(url, asker=customer.account)
        except TargetNotAllowed as error:
            fault = FieldError(param, "not_allowed", str(error))
            raise Refused(error.code, f"{param}: {error}", errors=[fault]) from None


def _live_audio(job_id: str, order: Order) -> _Audio:
    return _Audio(
        source=Source(type="live"),
        blob=voices_key(job_id) if order.diarize else None,  # what is stored there is deleted at the end
        counted_s=MIN_AUDIO_S * order.counted_sessions,
    )


async def _with_fingerprint(
    key: IdempotencyKey | None, order: Order, parsed: ParsedRequest, upload: Received
) -> IdempotencyKey | None:
    """The key with a fingerprint of the order, of its audio's address or digest, and of the known speakers' recordings.

    The same request has the same fingerprint after an update of the server.
    """
    if key is None:
        return None
    audio = [] if order.live is not None else [parsed.url, None if upload.file is None else upload.file.sha256]
    recordings = [await asyncio.to_thread(_digest, data) for data in parsed.known_speakers.values()]
    content = orjson.dumps([without_defaults(order), *audio, *recordings], option=orjson.OPT_SORT_KEYS)
    return replace(key, fingerprint=_digest(content))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _quotas(customer: Customer, audio_s: float | None, *, translates: bool = False) -> tuple[Quota, ...]:
    """What one job takes from the allowances of the month; nothing in the sandbox.

    Characters are counted at the end, if it *translates*.
    """
    if customer.environment != "production":
        return ()
    month, plan = month_of(now_ms()), customer.plan
    amounts = (
        ("transcriptions", plan.transcriptions_per_month, 1),
        ("audio_seconds", plan.audio_seconds_per_month, math.ceil(audio_s or 0)),
        *(((TRANSLATED_CHARACTERS, None, 0),) if translates else ()),
    )
    return tuple(
        Quota(name=name, window=month.name, limit=limit, amount=amount, resets_at=month.resets_at)
        for name, limit, amount in amounts
    )
