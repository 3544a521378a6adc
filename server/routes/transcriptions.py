"""POST /v1/transcribe: audio in, a job out, and its result too if it is ready within the client's wait."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from starlette.requests import Request
from starlette.responses import Response

from pipeline.ingest.containers import Probe
from server.accounts.issuing import fresh_id
from server.clock import now_ms
from server.http.bodies import JSON, MEDIA_TYPES, MULTIPART, URLENCODED, Received, Uploads
from server.http.caller import Caller
from server.http.headers import WARNING, Preference, preference
from server.http.operation import Answer, Operation, Parameter, json_response
from server.http.problems import Problem
from server.http.schema_parts import ref
from server.jobs.erasing import Eraser
from server.jobs.orders import Asked, parse_order, with_retention
from server.jobs.probing import Prober
from server.jobs.sandbox import delay_of, refuse_at_the_door
from server.jobs.waiter import JobWaiter
from server.model.errors import OutcomeUnknown
from server.model.ids import Prefix
from server.model.jobs import NewJob, Submitted
from server.model.orders import Source
from server.records.links import Links
from server.records.records import Records
from server.routes.accepting import ACCEPTING_CODES, IDEMPOTENCY_KEY, Accepting, new_job, with_fingerprint
from server.routes.requests import JOB, JOB_POLL_S, handing_over, query_seconds, warned
from server.routes.voices import KnownVoices
from server.storage.ports import JobStore

FILE_CODES = (
    *ACCEPTING_CODES,
    "invalid_multipart",
    "audio_too_long",
    "unsupported_audio_format",
    "missing_input",
    "empty_file",
    "invalid_audio",
    "no_audio_stream",
    "decode_timeout",
)
"""Error codes of every operation that makes a job of a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitLimits:
    """How long requests may be held, in seconds."""

    default_s: int
    max_s: int


@dataclass(frozen=True, slots=True)
class ChosenWait:
    """How long one request is held, and what its client is told about the wait it asked for."""

    seconds: int
    applied: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcriptions:
    """The handler for files and addresses; OpenAI's route makes its jobs with accept()."""

    uploads: Uploads
    voices: KnownVoices
    prober: Prober
    jobs: JobStore
    waiter: JobWaiter
    accepting: Accepting
    records: Records
    links: Links
    eraser: Eraser
    wait_limits: WaitLimits
    closing: asyncio.Event

    def operations(self) -> list[Operation]:
        return [
            Operation(
                method="POST",
                path="/v1/transcribe",
                handle=self.create,
                id="transcribe",
                tag="transcription",
                summary="Transcribe an audio file or an address",
                description="Holds the answer until the job is over or the wait is; the job goes on either way.",
                media_types=MEDIA_TYPES,
                body_required=True,
                bodies={
                    MULTIPART: ref("TranscriptionForm"),
                    JSON: ref("TranscriptionRequest"),
                    URLENCODED: ref("TranscriptionUrlForm"),
                },
                body_examples={JSON: {"url": "https://example.org/talk.mp3", "output_formats": ["json", "srt"]}},
                parameters=(
                    Parameter(
                        name="wait",
                        place="query",
                        schema={"type": "integer", "minimum": 0},
                        description="Seconds to hold the answer; clamped",
                    ),
                    Parameter(
                        name="Prefer",
                        place="header",
                        schema={"type": "string"},
                        description="`wait=N` or `respond-async` (RFC 7240)",
                    ),
                    IDEMPOTENCY_KEY,
                ),
                answers={
                    200: Answer(
                        description="The job is over",
                        schema=JOB,
                        headers=("Content-Location", "Preference-Applied", "Idempotent-Replayed", WARNING),
                    ),
                    202: Answer(
                        description="The job goes on",
                        schema=JOB,
                        headers=("Location", "Retry-After", "Preference-Applied", "Idempotent-Replayed", WARNING),
                    ),
                },
                codes=(*FILE_CODES, "invalid_json", "ambiguous_input", "url_not_allowed", "shutting_down"),
            )
        ]

    async def create(self, request: Request, caller: Caller) -> Response:
        wish = preference(request.headers.getlist("prefer"))
        asked, submitted = await self.accept(request, caller, lambda received: self._parse(received, caller))
        return await self._answer(request, submitted, self._choose_wait(request, asked, wish))

    async def accept(
        self, request: Request, caller: Caller, parse: Callable[[Received], Asked], *, raw: bool = False
    ) -> tuple[Asked, Submitted]:
        """Make a job of the request. Returns what it asks for, as *parse* reads its members, and the job.

        *raw*: the body is the audio itself, unless it is JSON.
        """
        if self.closing.is_set():
            raise Problem("shutting_down", "the server is restarting", headers={"Retry-After": "5"})
        _, _, plan = caller.require_account()
        key = self.accepting.key(request, caller)
        job_id = fresh_id(Prefix.JOB)
        async with self.accepting.reserved(key) as earlier, self.accepting.arriving(caller):
            if earlier is None:
                self.prober.admit(caller.account_id, plan)
                await self.accepting.check_room(caller)
            body = self.uploads.receive(
                request, prefix=job_id, most=plan.upload_bytes, hashed=raw or key is not None, raw=raw
            )
            async with body as received:
                asked = parse(received)
                asked = replace(asked, order=with_retention(asked.order, caller.require_account()[1].retention))
                query_seconds(request, "wait", most=self.wait_limits.max_s)
                new = await self._new_job(job_id, caller, asked, received)
                received.begun |= bool(asked.known_speakers)
                await self.voices.keep(job_id, caller, asked.known_speakers)
                content = received.file.sha256 if received.file else None
                fingerprinted = with_fingerprint(key, asked.order, asked.url, content)
                try:
                    submitted = await self.jobs.submit(new, idempotency=fingerprinted)
                except (OutcomeUnknown, asyncio.CancelledError):
                    received.keep = True  # the job may exist all the same; audio of one that does not is swept up
                    raise
                received.keep = not submitted.replayed
        return asked, submitted

    def _parse(self, received: Received, caller: Caller) -> Asked:
        asked = parse_order(
            received.fields,
            offer=self.accepting.offers[caller.environment],
            sandbox=caller.environment == "sandbox",
            has_file=received.file is not None,
        )
        if received.file is not None and received.file.bytes == 0:
            raise Problem("empty_file", "the file has no bytes")
        refuse_at_the_door(asked.order.scenario)
        return asked

    def _choose_wait(self, request: Request, asked: Asked, wish: Preference) -> ChosenWait:
        """The wait parameter, then Prefer, then a default that suits the request.

        `Prefer: respond-async, wait=10` is no contradiction: it asks to wait for ten seconds at most (RFC 7240, 4.3).
        """
        max_s = self.wait_limits.max_s
        for wait_s in (query_seconds(request, "wait", most=max_s), asked.wait_s, wish.wait_s):
            if wait_s is not None:
                held_s = min(wait_s, max_s)
                return ChosenWait(held_s, applied=f"wait={held_s}")
        if wish.respond_async:
            return ChosenWait(0, applied="respond-async")
        return ChosenWait(0 if asked.order.webhook_url else min(self.wait_limits.default_s, max_s))

    async def _new_job(self, job_id: str, caller: Caller, asked: Asked, received: Received) -> NewJob:
        _, _, plan = caller.require_account()
        warnings = await self.accepting.warnings(caller, asked.order, asked.warnings)
        source, probe = await self._source(asked, received, caller)
        audio_s = None if probe is None else probe.duration_s
        times = probe.channels if probe is not None and asked.order.separate else 1
        blob = received.file.blob if received.file else None
        return new_job(
            job_id,
            caller,
            asked.order,
            source,
            counted_s=None if audio_s is None else audio_s * times,
            audio_s=audio_s,
            blob=blob,
            warnings=warnings,
            delay_s=delay_of(asked.order.scenario),
            max_active=plan.active_jobs,
        )

    async def _source(self, asked: Asked, received: Received, caller: Caller) -> tuple[Source, Probe | None]:
        """Where the audio is, and what is known of a file. Audio that cannot be decoded is refused here."""
        if received.file is None:
            assert asked.url is not None
            await self.accepting.check_url(caller, "url", asked.url)
            return Source(type="url", url=asked.url), None
        account, _, plan = caller.require_account()
        probe = await self.prober.probe(received.file.blob, account=account.id, plan=plan)
        source = Source(type="upload", filename=received.file.filename, bytes=received.file.bytes, format=probe.format)
        return source, probe

    async def _answer(self, request: Request, submitted: Submitted, wait: ChosenWait) -> Response:
        await self.eraser.settle(submitted.job.id)
        asked_at = now_ms()
        with self.eraser.holding(submitted.job.id):
            job = await self.waiter.until_over(submitted.job, wait_s=wait.seconds)
            record = await self.records.full(job, asked_at=asked_at)
        headers = warned(job) | ({"Idempotent-Replayed": "true"} if submitted.replayed else {})
        if wait.applied is not None:
            headers["Preference-Applied"] = wait.applied
        place = self.links.job_path(job)
        if job.terminal:
            response = json_response(record, headers={**headers, "Content-Location": place})
            return await handing_over(response, request, job, eraser=self.eraser, asked_at=asked_at)
        headers |= {"Location": place, "Retry-After": str(JOB_POLL_S)}
        return json_response(record, 202, headers=headers)
