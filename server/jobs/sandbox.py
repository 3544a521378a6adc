"""The sandbox's scenarios: outcomes that a client can order, to try its own handling of them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from pipeline.errors import PipelineError
from pipeline.words import Chunk
from server.errors import Problem

SLOW_S = 20.0
"""Longer than the keep-alive of event streams, shorter than the usual 30 s of a long poll: both can be tried."""


class OrderedFailure(PipelineError):
    """The scenario `fail`."""

    code = "engine_error"


class Canceled(Exception):
    """The scenario `canceled`: the job ends as if a cancel had arrived."""


def refuse_at_the_door(scenario: str | None) -> None:
    """Raises the Problem that the scenario orders, if it is one of those that no job survives to see."""
    if scenario == "quota_exceeded":
        raise Problem("quota_exceeded", "ordered by sandbox_scenario", headers={"Retry-After": "3600"})
    if scenario == "rate_limited":
        raise Problem("rate_limited", "ordered by sandbox_scenario", headers={"Retry-After": "1"})


async def rehearsed(scenario: str | None, chunks: AsyncGenerator[Chunk]) -> AsyncGenerator[Chunk]:
    """*chunks* as the scenario wants them; without a scenario unchanged."""
    if scenario == "fail":
        raise OrderedFailure("ordered by sandbox_scenario")
    if scenario == "canceled":
        raise Canceled
    if scenario == "slow":
        await asyncio.sleep(SLOW_S)
    async with aclosing(chunks):
        async for chunk in chunks:
            yield replace(chunk, segments=()) if scenario == "empty" else chunk
