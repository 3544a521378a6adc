"""Tests of following.py: a reader gets the log once and in order, and partials only at their places."""

import asyncio
import random

import pytest

from server.jobs.housekeeping import Eraser
from server.metrics import Metrics
from server.model.accounts import SigningKeys
from server.model.events import Event
from server.records.records import Links, Records
from server.streams.feed import Partials, Rendered, ShownPartial, json_with_type, partial_body
from server.streams.following import Following
from tests.server.storing import LEASE_S, WORD, completion, submit

QUIET_S = 30.0


def follow(storage, partials: Partials, closing: asyncio.Event | None = None) -> Following:
    links = Links("http://x", SigningKeys({"1": b"secret"}, "1"))
    live = None  # no full record is shown here
    records = Records(storage, links, live)  # type: ignore[arg-type]
    return Following(storage, partials, records, Eraser(storage, Metrics()), Metrics(), closing or asyncio.Event())


@pytest.mark.parametrize("seed", range(8))
async def test_every_reader_sees_every_event_once_and_a_partial_only_behind_its_event(sqlite, seed):
    chance = random.Random(seed)
    partials = Partials()
    view = follow(sqlite, partials)
    job_id = await submit(sqlite, live=True)
    lease = await sqlite.jobs.claim_live(job_id, "w", lease_s=LEASE_S)

    async def reader(after: int, delay_s: float) -> list[Event | ShownPartial]:
        seen: list[Event | ShownPartial] = []
        async for one in view.follow(job_id, after=after, quiet_s=QUIET_S):
            assert one is not None
            seen.append(one)
            if chance.random() < 0.3:
                await asyncio.sleep(delay_s * chance.random())
        return seen

    async def writer() -> None:
        last = await sqlite.timelines.last(job_id)
        for number in range(60):
            for _ in range(chance.randrange(3)):
                partials.show(job_id, b'{"n":%d}' % number, after=last)
            if chance.random() < 0.5:
                last = await sqlite.jobs.append(lease, [WORD] * chance.randrange(1, 4))
                if chance.random() < 0.5:
                    partials.clear(job_id)
                else:
                    partials.move(job_id, after=last)
            await asyncio.sleep(0.002 * chance.random())
        partials.clear(job_id)
        assert await sqlite.jobs.finish(lease, completion())

    readers = [asyncio.create_task(reader(after, delay)) for after, delay in ((0, 0), (0, 0.05), (1, 0.005))]
    await writer()
    for after, task in zip((0, 0, 1), readers, strict=True):
        at, shown = after, 0
        for one in await task:
            if isinstance(one, Event):
                assert one.seq == at + 1
                at = one.seq
            else:
                assert one.after == at
                assert one.number > shown
                shown = one.number
        assert at == await sqlite.timelines.last(job_id)


async def test_the_newest_partial_reaches_who_joins_late(sqlite):
    partials = Partials()
    job_id = await submit(sqlite, live=True)
    for number in range(3):
        partials.show(job_id, b'{"n":%d}' % number, after=1)
    view = follow(sqlite, partials).follow(job_id, after=0, quiet_s=QUIET_S)
    assert isinstance(await anext(view), Event)
    partial = await anext(view)
    assert isinstance(partial, ShownPartial)
    assert partial.body == b'{"n":2}'
    await view.aclose()


async def test_a_quiet_job_gives_a_sign_of_life_and_a_closing_server_ends_the_view(sqlite):
    closing = asyncio.Event()
    job_id = await submit(sqlite, live=True)
    view = follow(sqlite, Partials(), closing).follow(job_id, after=1, quiet_s=0.01)
    assert await anext(view) is None
    closing.set()
    assert [one async for one in view] == []


async def test_bodies_say_where_they_belong(sqlite):
    view = follow(sqlite, Partials())
    word = await view.render(Event("job_1", 7, 0, "word", b'{"word":"and"}'))
    bare = await view.render(Event("job_1", 8, 0, "tick", b"{}"))
    assert word.body == b'{"job_id":"job_1","seq":7,"word":"and"}'
    assert word.form(json_with_type) == b'{"type":"word","job_id":"job_1","seq":7,"word":"and"}'
    assert bare.body == b'{"job_id":"job_1","seq":8}'
    partial = ShownPartial(1, 7, b'{"text":"a"}')
    assert json_with_type(Rendered(partial, partial_body("job_1", partial))) == (
        b'{"type":"partial","job_id":"job_1","text":"a"}'
    )
