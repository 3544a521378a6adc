"""The sandbox's scenarios: outcomes that a client can ask for, to test how it handles them."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from pipeline.batch import BatchOptions
from pipeline.errors import PipelineError
from pipeline.words import Chunk
from server.accounts.limits import month_of
from server.clock import now_ms
from server.jobs.running import TranscriptionAttempt
from server.model.errors import QuotaExceeded, RateLimited

SLOW_S = 20.0
"""How long a job of the scenario `slow` waits in the queue. It is longer than the keep-alive interval of event streams
and shorter than the usual 30 s of a long poll, so that both can be tried."""


class OrderedFailure(PipelineError):
    """The scenario `fail`."""

    code = "engine_error"


class Canceled(Exception):
    """The scenario `canceled`: the job ends as if a cancel had arrived."""


def raise_ordered_limit(scenario: str | None) -> None:
    """Raise QuotaExceeded or RateLimited if the scenario asks for it."""
    now = now_ms()
    if scenario == "quota_exceeded":
        raise QuotaExceeded("transcriptions", limit=5, used=5, resets_at=month_of(now).resets_at)
    if scenario == "rate_limited":
        raise RateLimited("minute", limit=30, used=30, resets_at=now + 1000)


def delay_of(scenario: str | None) -> float:
    """The seconds for which the scenario keeps a job in the queue."""
    return SLOW_S if scenario == "slow" else 0.0


class RehearsedAttempt(TranscriptionAttempt):
    """An attempt that ends as the job's scenario wants it."""

    async def parts(self, path: Path, options: BatchOptions, done: Sequence[Chunk]) -> AsyncGenerator[Chunk]:
        """Transcribe the file, without words in the scenario `empty`. Raises OrderedFailure, Canceled."""
        scenario = self._job.order.scenario
        if scenario == "fail":
            raise OrderedFailure("ordered by sandbox_scenario")
        if scenario == "canceled":
            raise Canceled
        async with aclosing(super().parts(path, options, done)) as made:
            async for part in made:
                silent = replace(part, segments=(), turns=None if part.turns is None else ())
                yield silent if scenario == "empty" else part
