"""Receives the bodies of requests that make a job of a file or an address."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from starlette.requests import Request

from server.accounts.issuing import fresh_id
from server.http.caller import Caller
from server.http.codes import UNDECODABLE
from server.http.problems import Problem
from server.jobs.acceptance import Acceptance
from server.jobs.known_speakers import REFERENCES
from server.jobs.orders import ParsedRequest
from server.model.ids import Prefix
from server.model.jobs import IdempotencyKey, Received, Submitted
from server.requests.parts import RouteParts
from server.requests.request import ACCEPTING_CODES, idempotency_key_of, misplaced_members

FILE_CODES = (*ACCEPTING_CODES, "invalid_multipart", "audio_too_long", "missing_input", "empty_file", *UNDECODABLE)
"""Error codes of every operation that makes a job from a file."""


@dataclass(frozen=True, slots=True)
class UploadBody:
    """A body that has arrived. Its members are still to be parsed."""

    received: Received
    acceptance: Acceptance
    caller: Caller
    key: IdempotencyKey | None
    warnings: tuple[Mapping[str, str], ...] = ()

    async def accept(self, parsed: ParsedRequest) -> Submitted:
        """Make the job. Raises what Acceptance.accept() raises."""
        parsed = replace(parsed, warnings=(*parsed.warnings, *self.warnings))
        return await self.acceptance.accept(self.caller.customer, parsed, self.received, self.key)


@asynccontextmanager
async def receive_upload(
    parts: RouteParts, request: Request, caller: Caller, *, raw: bool = False
) -> AsyncIterator[UploadBody]:
    """Receive the body. While the block lasts, the caller has one of its places and its Idempotency-Key is reserved.

    With *raw* the body is the audio itself, unless it is JSON. A stored file is deleted after the block, unless it
    became a job's. Raises what Acceptance.open_upload() and Uploads.read_body() raise.
    """
    if parts.closing.is_set():
        raise Problem("shutting_down", "the server is restarting", headers={"Retry-After": "5"})
    warnings = () if raw else misplaced_members(request)
    customer, key = caller.customer, idempotency_key_of(request, caller)
    async with (
        parts.acceptance.open_upload(customer, key),
        parts.uploads.read_body(
            request,
            job_id=fresh_id(Prefix.JOB),
            most=customer.plan.upload_bytes,
            hashed=raw or key is not None,
            raw=raw,
            large=frozenset({REFERENCES.name}),
        ) as received,
    ):
        yield UploadBody(received, parts.acceptance, caller, key, warnings)
