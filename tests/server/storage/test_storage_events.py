"""Tests of the event log: ids without gaps, replay from any id, and following without gaps or repeats."""

import asyncio
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from server.model.events import Event, NewEvent
from server.storage import watching
from server.storage.watching import Watch
from tests.server.storing import LEASE_S, WORD, checkpoint, claim, completion, storage_in, submit


async def test_sequence_numbers_are_dense_from_one(storage):
    job_id = await submit(storage)
    lease = await claim(storage)
    assert [await storage.jobs.log(lease, [WORD] * count) for count in (0, 1, 3)] == [2, 3, 6]
    await checkpoint(storage, lease)
    events = await storage.events.read(job_id, after=0, limit=100)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert await storage.events.last(job_id) == len(events)
    assert await storage.events.read(job_id, after=2, limit=3) == events[2:5]
    assert await storage.events.read_all(job_id) == events


async def test_an_unknown_stream_is_empty(storage):
    assert await storage.events.last("job_none") == 0
    assert await storage.events.read("job_none", after=0, limit=10) == []
    assert await storage.events.read_all("job_none") == []
    assert [event async for event in storage.events.tail("job_none", after=0)] == []


async def test_a_tail_ends_after_the_terminal_event(storage):
    job_id = await submit(storage)
    await storage.jobs.finish(await claim(storage), completion())
    assert [event.seq async for event in storage.events.tail(job_id, after=0)] == [1, 2, 3]
    assert [event.seq async for event in storage.events.tail(job_id, after=2)] == [3]
    assert [event.seq async for event in storage.events.tail(job_id, after=3)] == []


async def test_a_tail_ends_when_its_job_is_deleted(storage):
    job_id = await submit(storage)
    async with asyncio.TaskGroup() as tasks:

        async def follow() -> list[int]:
            return [event.seq async for event in storage.events.tail(job_id, after=0)]

        following = tasks.create_task(follow())
        await asyncio.sleep(0.01)
        await storage.jobs.delete(job_id)
        assert await following in ([1], [1, 2], [])


async def test_a_follower_in_the_process_that_commits_reads_nothing_back(storage, monkeypatch):
    job_id = await submit(storage)
    lease = await claim(storage)
    tail = storage.events.tail(job_id, after=0)
    seen = [(await anext(tail)).seq, (await anext(tail)).seq]
    monkeypatch.setattr(storage.events.database, "read", None)  # any reading fails from here on
    for _ in range(3):
        await storage.jobs.log(lease, [WORD] * 2)
    await checkpoint(storage, lease)
    await storage.jobs.finish(lease, completion())
    seen += [event.seq async for event in tail]
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) == 2 + 3 * 2 + 2 + 1


class SwappingWatch(Watch):
    """Gets each announcement after the next one, as threads may make them."""

    def __init__(self) -> None:
        super().__init__()
        self._held: list[Sequence[Event] | None] = []

    def wake(self, events: Sequence[Event] | None = None) -> None:
        self._held.append(events)
        if len(self._held) == 2:
            for one in reversed(self._held):
                super().wake(one)
            self._held.clear()


async def test_announcements_in_another_order_do_not_change_the_order_of_events(tmp_path, monkeypatch):
    monkeypatch.setattr(watching, "Watch", SwappingWatch)
    async with storage_in(tmp_path) as storage:
        job_id = await submit(storage)
        lease = await claim(storage)
        tail = storage.events.tail(job_id, after=0)
        seen = [(await anext(tail)).body, (await anext(tail)).body]
        for number in range(9):
            await storage.jobs.log(lease, [NewEvent("word", b"%d" % number)])
        await storage.jobs.finish(lease, completion())
        seen += [event.body async for event in tail]
        assert seen[2:-1] == [b"%d" % number for number in range(9)]


@settings(max_examples=15)
@given(
    batches=st.lists(st.integers(0, 4), min_size=1, max_size=12),
    joins=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 30)), min_size=1, max_size=4),
)
async def test_whoever_follows_from_wherever_gets_exactly_the_log(backend, tmp_path_factory, batches, joins):
    """*joins* has the batch before which each subscriber comes, and the last id that it has."""
    async with backend.storage_in(tmp_path_factory.mktemp("tail")) as storage, asyncio.TaskGroup() as tasks:
        job_id = await submit(storage)
        lease = await claim(storage)

        async def follow(after: int) -> list[int]:
            return [event.seq async for event in storage.events.tail(job_id, after=after)]

        following = []
        for number, size in enumerate(batches):
            for _, after in (join for join in joins if join[0] % len(batches) == number):
                last = await storage.events.last(job_id)
                following.append((min(after, last), tasks.create_task(follow(min(after, last)))))
            await storage.jobs.log(lease, [WORD] * size)
        await storage.jobs.finish(lease, completion())
        last = await storage.events.last(job_id)
        for after, task in following:
            assert await task == list(range(after + 1, last + 1))


async def test_many_logs_at_once_keep_each_streams_order(storage):
    leases = []
    for _ in range(5):
        live = await storage.jobs.claim_live(await submit(storage, live=True), "w", lease_s=LEASE_S)
        leases.append(live)
    await asyncio.gather(
        *(storage.jobs.log(lease, [NewEvent("word", b"%d" % number)]) for number in range(40) for lease in leases)
    )
    for lease in leases:
        events = await storage.events.read(lease.job.id, after=2, limit=100)
        assert [event.body for event in events] == [b"%d" % number for number in range(40)]
