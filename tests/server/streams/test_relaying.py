"""Tests of relaying.py: the partials of a session, as the readers of another node have them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from server.storage.ports import Relay
from server.streams.feed import Partials
from server.streams.relaying import PartialRelay
from tests.server.postgres import shared_cluster
from tests.server.storing import open_at
from tests.waiting import eventually

JOB = "job_1"


@pytest.fixture
def url():
    return shared_cluster().new_database()


@asynccontextmanager
async def start_relay(folder: Path, url: str) -> AsyncIterator[tuple[Partials, Partials, Relay]]:
    """The partials of a node that hears and of one with readers, and the wire of the first, while both run."""
    hears, reads, closing = Partials(), Partials(), asyncio.Event()
    async with (
        open_at(folder / "hears", url) as one,
        open_at(folder / "reads", url) as other,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(PartialRelay(hears, one.relay).run(closing))
        tasks.create_task(PartialRelay(reads, other.relay).run(closing))
        with reads.watch(JOB, lambda: None):
            yield hears, reads, one.relay
        closing.set()


def newest_partials(partials: Partials) -> dict[int | None, tuple[bytes, int]]:
    return {partial.channel: (partial.body, partial.after) for partial in partials.newest(JOB)}


async def test_each_channel_has_its_partial_at_the_other_node_until_it_is_over(tmp_path, url):
    async with start_relay(tmp_path, url) as (hears, reads, _):
        hears.show(JOB, b"left", after=3, channel=0)
        hears.show(JOB, b"right", after=3, channel=1)
        await eventually(lambda: newest_partials(reads) == {0: (b"left", 3), 1: (b"right", 3)})
        hears.clear(JOB, channel=0)
        hears.move(JOB, after=4)
        await eventually(lambda: newest_partials(reads) == {1: (b"right", 4)})
        hears.clear(JOB, channel=1)
        await eventually(lambda: newest_partials(reads) == {})


async def test_a_node_of_an_older_program_is_understood(tmp_path, url):
    """It names no channel: it has one partial of a session, or none."""
    async with start_relay(tmp_path, url) as (_, reads, older):
        async with asyncio.timeout(20):
            while newest_partials(reads) != {None: (b"so my", 7)}:  # what is sent before the other node listens is lost
                await older.send(orjson.dumps({"job": JOB, "after": 7, "body": "so my"}))
                await asyncio.sleep(0.05)
        await older.send(orjson.dumps({"job": JOB}))
        await eventually(lambda: newest_partials(reads) == {})
