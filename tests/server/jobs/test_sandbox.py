"""Tests of the sandbox's scenarios: chosen outcomes that look like real ones."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline.batch import BatchOptions
from pipeline.words import Chunk
from server.accounts.limits import month_of
from server.clock import now_ms
from server.http.problems import problem_of
from server.jobs.attempts import SLOW_S, RehearsedAttempt, delay_of, raise_ordered_limit
from server.model import bounds
from server.model.errors import QuotaExceeded, RateLimited
from server.model.orders import Order
from tests.server.serving import chunk

SPOKEN = [chunk(0, "so", "my"), chunk(1, "fellow")]


class Recording:
    """Yields two chunks, and records whether it was closed."""

    closed = False

    async def chunks(self) -> AsyncGenerator[Chunk]:
        try:
            for made in SPOKEN:
                yield made
        finally:
            self.closed = True


def attempt(scenario: str | None, recording: Recording) -> RehearsedAttempt:
    """An attempt at a job with this scenario, whose audio is *recording*."""
    made = object.__new__(RehearsedAttempt)
    made._job = SimpleNamespace(order=Order(scenario=scenario))  # type: ignore[assignment]  # nothing else is asked
    made._batch = SimpleNamespace(transcribe=lambda *_, **__: recording.chunks())  # type: ignore[assignment]
    return made


async def play(scenario: str | None) -> list[Chunk]:
    return [made async for made in attempt(scenario, Recording()).parts(Path(), BatchOptions(tenant="t"), ())]


async def test_empty_is_a_recording_in_which_nobody_speaks():
    silent = await play("empty")
    assert [made.segments for made in silent] == [(), ()]
    assert [(made.start, made.end) for made in silent] == [(made.start, made.end) for made in SPOKEN]


async def test_slow_waits_in_the_queue_and_keeps_no_worker_busy():
    assert delay_of("slow") == SLOW_S
    assert {delay_of(scenario) for scenario in (None, *bounds.SCENARIOS) if scenario != "slow"} == {0.0}
    async with asyncio.timeout(SLOW_S / 2):
        assert await play("slow") == SPOKEN


async def test_who_leaves_early_closes_the_recording():
    recording = Recording()
    playing = attempt("slow", recording).parts(Path(), BatchOptions(tenant="t"), ())
    await anext(playing)
    await playing.aclose()
    assert recording.closed


def test_ordered_refusals_are_those_of_real_limits():
    with pytest.raises(QuotaExceeded) as quota:
        raise_ordered_limit("quota_exceeded")
    assert quota.value.resets_at == month_of(now_ms()).resets_at
    problem = problem_of(quota.value)
    assert problem.headers["x-should-retry"] == "false"
    with pytest.raises(RateLimited) as rate:
        raise_ordered_limit("rate_limited")
    problem = problem_of(rate.value)
    assert (problem.code, problem.headers["Retry-After"]) == ("rate_limited", "1")
    assert problem.members["window"] == "minute"
