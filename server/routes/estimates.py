"""The routes of /v1/estimate: what a prompt will cost.

Counting tokens takes time, and one of the routes needs no key. So tokens are counted on a thread of their own, and a
flood of estimates delays nothing else. The number of waiting estimates is bounded for each account or address, and in
all.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from estimator import EstimateRequest, Estimator, InvalidRequest, PromptTooLong, estimate_id, parse_query, parse_request
from server.accounts.limits import day_of
from server.clock import iso, now_ms
from server.http.bodies import JSON, body_of, parse_json
from server.http.client_addresses import anonymous_subject
from server.http.openapi import ref
from server.http.operation import Answer, Auth, Caller, Endpoint, Operation, Parameter, json_response
from server.http.problems import Problem
from server.keyed_limits import Tally
from server.model.accounts import Count, Quota
from server.model.errors import FieldError
from server.model.jobs import State
from server.requests.request import RouteGroup, own_job

MAX_BODY = 2_000_000
MAX_FREE_BODY = 256_000
MAX_WAITING = 32
MAX_WAITING_OF_ACCOUNT = 2
MAX_WAITING_OF_ADDRESS = 1
MAX_WAITING_FOR_CATALOGUE = 8  # requests of all clients together
PRICING_CODES = ("invalid_parameter", "unknown_models", "prompt_too_long", "quota_exceeded", "queue_full")


@dataclass(frozen=True, slots=True)
class _Asker:
    """The client for whom an estimate is counted, and its bounds."""

    subject: str
    per_day: int | None
    at_once: int


@dataclass(frozen=True, slots=True)
class Estimates(RouteGroup):
    """Handlers for estimates."""

    tag = "estimates"
    estimator: Estimator
    _thread: ThreadPoolExecutor = field(init=False, default_factory=lambda: ThreadPoolExecutor(1, "estimates"))
    _waiting: Tally[str] = field(init=False, default_factory=Tally)  # unfinished estimates, by client

    def operations(self) -> list[Operation]:
        body: dict[str, Any] = {
            "body_required": True,
            "bodies": {JSON: ref("EstimateRequest")},
            "body_examples": {JSON: {"prompt": "Summarise this meeting.", "models": ["gpt-6.2-sol"], "agent_turns": 5}},
            "media_types": (JSON,),
            "codes": (*PRICING_CODES, "concurrency_limited"),
            "answers": {200: Answer("The estimate", ref("Estimate"))},
        }
        return [
            Operation(
                Endpoint("POST", "/v1/estimate/free", self.free, "estimateFree"),
                auth=Auth.OPEN,
                max_body=MAX_FREE_BODY,
                summary="Price a prompt without a key",
                description="Counted by address and day. An Authorization header is ignored.",
                **body,
            ),
            Operation(
                Endpoint("POST", "/v1/estimate", self.estimate_for_account, "estimate"),
                max_body=MAX_BODY,
                summary="Price a prompt",
                description="Counted against the plan.",
                **body,
            ),
            Operation(
                Endpoint("GET", "/v1/estimate/models", self.models, "listEstimateModels"),
                auth=Auth.OPEN,
                summary="The models that are priced by default",
                answers={200: Answer("The catalogue", ref("EstimateModelList"))},
            ),
            Operation(
                Endpoint("GET", "/v1/jobs/{job_id}/estimate", self.of_job, "estimateTranscript"),
                summary="Price feeding a finished transcript to a model",
                description="Takes the members of an estimate request as query parameters; counted like one. "
                "`hosted_transcription` is what hosted services take for the same audio.",
                parameters=(
                    *(
                        Parameter(name, "query", {"type": "string"}, text)
                        for name, text in (
                            ("models", "Comma list of model ids"),
                            ("complexity", "low, medium or high"),
                            ("agent_turns", "1 to 200"),
                        )
                    ),
                ),
                answers={200: Answer("The estimate", ref("Estimate"))},
                codes=("output_not_found", "job_not_completed", *PRICING_CODES),
            ),
        ]

    async def free(self, request: Request, caller: Caller) -> Response:
        parsed = _parse(await body_of(request, most=MAX_FREE_BODY))
        day = day_of(now_ms())
        subject = anonymous_subject(self.parts.keys.secrets[self.parts.keys.current], caller.address, day=day.name)
        asker = _Asker(subject, self.parts.limits.keyless.estimates_per_day, MAX_WAITING_OF_ADDRESS)
        return await self._answer(parsed, asker)

    async def estimate_for_account(self, request: Request, caller: Caller) -> Response:
        most = MAX_BODY if caller.environment == "production" else MAX_FREE_BODY
        parsed = _parse(await body_of(request, most=most))
        return await self._answer(parsed, _account(caller))

    async def of_job(self, request: Request, caller: Caller) -> Response:
        job = await own_job(self.parts.jobs, caller, request.path_params["job_id"])
        if job.state is not State.COMPLETED:
            raise Problem("job_not_completed", f"the job is {job.state}")
        if not job.shows_results(now_ms()):
            raise Problem("output_not_found", "the text was handed over, and then erased")
        query = {name: value for name, value in request.query_params.items() if name != "prompt"}
        if job.duration_s:
            query.setdefault("audio_seconds", f"{job.duration_s:.3f}")
        with _refusals():
            parsed = parse_query(query, job.text or "")
        return await self._answer(parsed, _account(caller))

    async def models(self, _request: Request, _caller: Caller) -> Response:
        with self._place(_Asker("the catalogue", None, MAX_WAITING_FOR_CATALOGUE)):
            return json_response(await self._on_thread(lambda: self.estimator.models(now=datetime.now(UTC))))

    async def _answer(self, parsed: EstimateRequest, asker: _Asker) -> Response:
        now = datetime.now(UTC)
        name = estimate_id(now, secrets.token_bytes(10))
        with self._place(asker), _refusals():
            async with self._count(asker) as count:
                answer = await self._on_thread(lambda: self.estimator.estimate(parsed, now=now, estimate_id=name))
        remaining = None if count.limit is None else max(0, count.limit - count.used)
        return json_response({**answer, "usage": {"remaining": remaining, "resets_at": iso(count.resets_at)}})

    @asynccontextmanager
    async def _count(self, asker: _Asker) -> AsyncIterator[Count]:
        """Count one estimate for *asker* today. It is not counted if the block raises."""
        day = day_of(now_ms())
        quota = Quota(name="estimates", window=day.name, limit=asker.per_day, amount=1, resets_at=day.resets_at)
        count = await self.parts.storage.counters.spend(asker.subject, quota)
        count.check("estimates")
        try:
            yield count
        except BaseException:
            await self.parts.storage.counters.give_back(asker.subject, quota)
            raise

    @contextmanager
    def _place(self, asker: _Asker) -> Iterator[None]:
        """Count a waiting estimate while the block lasts. Raises Problem concurrency_limited, queue_full."""
        used, soon = self._waiting[asker.subject], {"Retry-After": "2"}
        if used >= asker.at_once:
            numbers = {"limit": asker.at_once, "used": used, "window": "estimates at once"}
            raise Problem(
                "concurrency_limited",
                f"{used} of {asker.at_once} estimates are at work; wait for one to end",
                headers=soon,
                members={**numbers, "violated_policies": ["estimates at once"]},
            )
        if self._waiting.total() >= MAX_WAITING:
            raise Problem("queue_full", "too many estimates at once", headers=soon)
        with self._waiting.adding(asker.subject):
            yield

    async def _on_thread(self, work: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _account(caller: Caller) -> _Asker:
    account, _, plan = caller.require_account()
    return _Asker(estimates_of(account.id, caller.environment), plan.estimates_per_day, MAX_WAITING_OF_ACCOUNT)


def estimates_of(account_id: str, environment: str) -> str:
    """The name under which an account's estimates are counted. Those in the sandbox are counted separately."""
    return account_id if environment == "production" else f"{account_id} in the sandbox"


def _parse(body: bytes) -> EstimateRequest:
    value = parse_json(body)
    with _refusals():
        return parse_request(value)


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn the estimator's errors in the block into Problems."""
    try:
        yield
    except InvalidRequest as error:
        errors = [FieldError(fault.param, fault.code, fault.message, fault.pointer) for fault in error.problems]
        raise Problem(error.code, str(error), errors=errors) from None
    except PromptTooLong as error:
        raise Problem(error.code, str(error), members={"limit": error.limit, "actual": error.actual}) from None
