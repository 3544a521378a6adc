"""POST /v1/transcribe: makes a job of audio. The answer has the result if it is ready within the client's wait."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from server.http.bodies import JSON, MEDIA_TYPES, MULTIPART, URLENCODED, off_loop
from server.http.headers import WARNING, Preference, preference, warning_headers
from server.http.openapi import ref
from server.http.operation import Answer, Caller, Endpoint, Operation, Parameter, json_response
from server.http.problems import Problem
from server.jobs.attempts import raise_ordered_limit
from server.model.jobs import Job, Received, Submitted
from server.parsing.orders import ParsedRequest, parse_order
from server.requests.request import (
    FILE_CODES,
    IDEMPOTENCY_KEY,
    JOB,
    JOB_POLL_S,
    RouteGroup,
    answer_when_over,
    query_seconds,
    receive_upload,
)


@dataclass(frozen=True, slots=True)
class ChosenWait:
    """How long a request waits, and what its Preference-Applied header says."""

    seconds: int
    applied: str | None = None


class Transcriptions(RouteGroup):
    tag = "transcription"

    def operations(self) -> list[Operation]:
        return [
            Operation(
                Endpoint("POST", "/v1/transcribe", self.create, "transcribe"),
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
                        "wait", "query", {"type": "integer", "minimum": 0}, "Seconds to hold the answer; clamped"
                    ),
                    Parameter("Prefer", "header", {"type": "string"}, "`wait=N` or `respond-async` (RFC 7240)"),
                    IDEMPOTENCY_KEY,
                ),
                answers={
                    200: Answer(
                        "The job is over",
                        JOB,
                        headers=("Content-Location", "Preference-Applied", "Idempotent-Replayed", WARNING),
                    ),
                    202: Answer(
                        "The job goes on",
                        JOB,
                        headers=("Location", "Retry-After", "Preference-Applied", "Idempotent-Replayed", WARNING),
                    ),
                },
                codes=(*FILE_CODES, "ambiguous_input", "url_not_allowed"),
            )
        ]

    async def create(self, request: Request, caller: Caller) -> Response:
        wish = preference(request.headers.getlist("prefer"))
        async with receive_upload(self.parts, request, caller) as upload:
            parsed = await off_loop(upload.received.field_bytes, self._parse, upload.received, caller)
            wait = self._choose_wait(request, parsed, wish)
            submitted = await upload.accept(parsed)
        return await self._answer(request, submitted, wait)

    def _parse(self, received: Received, caller: Caller) -> ParsedRequest:
        parsed = parse_order(
            received.fields,
            offer=self.parts.acceptance.offers[caller.environment],
            sandbox=caller.environment == "sandbox",
            has_file=received.file is not None,
        )
        if received.file is not None and received.file.bytes == 0:
            raise Problem("empty_file", "the file has no bytes")
        raise_ordered_limit(parsed.order.scenario)
        return parsed

    def _choose_wait(self, request: Request, parsed: ParsedRequest, wish: Preference) -> ChosenWait:
        """The time to wait: from the parameter `wait`, else from Prefer, else a default.

        `Prefer: respond-async, wait=10` asks to wait for at most ten seconds (RFC 7240, 4.3).
        """
        max_s = self.parts.config.wait_max
        for wait_s in (query_seconds(request, "wait", most=max_s), parsed.wait_s, wish.wait_s):
            if wait_s is not None:
                held_s = min(wait_s, max_s)
                return ChosenWait(held_s, applied=f"wait={held_s}")
        if wish.respond_async:
            return ChosenWait(0, applied="respond-async")
        return ChosenWait(0 if parsed.order.webhook_url else min(self.parts.config.wait_default, max_s))

    async def _answer(self, request: Request, submitted: Submitted, wait: ChosenWait) -> Response:
        async def answer(job: Job, asked_at: int) -> Response:
            record = await self.parts.records.full(job, asked_at=asked_at)
            headers = warning_headers(job.warnings) | ({"Idempotent-Replayed": "true"} if submitted.replayed else {})
            if wait.applied is not None:
                headers["Preference-Applied"] = wait.applied
            place = self.parts.links.job_path(job)
            if job.terminal:
                return json_response(record, headers={**headers, "Content-Location": place})
            return json_response(record, 202, headers={**headers, "Location": place, "Retry-After": str(JOB_POLL_S)})

        return await answer_when_over(request, submitted.job, self.parts, answer, wait_s=wait.seconds)
