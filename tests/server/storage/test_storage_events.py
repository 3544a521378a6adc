"""Tests of stored timelines: ids without gaps, replay from any id, and following without gaps or repeats."""

import asyncio
from collections.abc import Sequence

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.audio import RATE
from pipeline.timeline import DecidedUpTo, StateChange, StoredWord, Words, unpack
from server.model.events import Event
from server.storage import waiting
from server.storage.waiting import Watch
from tests.server.storing import LEASE_S, WORD, checkpoint, claim, completion, part, storage_in, submit, word


async def test_sequence_numbers_are_dense_from_one(storage):
    job_id = await submit(storage)
    lease = await claim(storage)
    assert [await storage.jobs.append(lease, [WORD] * count) for count in (0, 1, 3)] == [2, 3, 6]
    await checkpoint(storage, lease)
    events = await storage.timelines.read(job_id, after=0, limit=100)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert await storage.timelines.last(job_id) == len(events)
    assert await storage.timelines.read(job_id, after=2, limit=1) == events[2:3]


async def test_an_unknown_stream_is_empty(storage):
    assert await storage.timelines.last("job_none") == 0
    assert await storage.timelines.read("job_none", after=0, limit=10) == []
    assert await storage.timelines.entries("job_none") == []
    assert [event async for event in storage.timelines.tail("job_none", after=0)] == []


async def test_a_tail_ends_after_the_terminal_event(storage):
    job_id = await submit(storage)
    await storage.jobs.finish(await claim(storage), completion())
    assert [event.seq async for event in storage.timelines.tail(job_id, after=0)] == [1, 2, 3]
    assert [event.seq async for event in storage.timelines.tail(job_id, after=2)] == [3]
    assert [event.seq async for event in storage.timelines.tail(job_id, after=3)] == []


async def test_a_tail_ends_when_its_job_is_deleted(storage):
    job_id = await submit(storage)
    async with asyncio.TaskGroup() as tasks:

        async def follow() -> list[int]:
            return [event.seq async for event in storage.timelines.tail(job_id, after=0)]

        following = tasks.create_task(follow())
        await asyncio.sleep(0.01)
        await storage.jobs.delete(job_id)
        assert await following in ([1], [1, 2], [])


async def test_a_follower_in_the_process_that_commits_reads_nothing_back(storage, monkeypatch):
    job_id = await submit(storage)
    lease = await claim(storage)
    tail = storage.timelines.tail(job_id, after=0)
    seen = [(await anext(tail)).seq, (await anext(tail)).seq]
    monkeypatch.setattr(storage.timelines.database, "read", None)  # any reading fails from here on
    for _ in range(3):
        await storage.jobs.append(lease, [WORD] * 2)
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
    monkeypatch.setattr(waiting, "Watch", SwappingWatch)
    async with storage_in(tmp_path) as storage:
        job_id = await submit(storage)
        lease = await claim(storage)
        tail = storage.timelines.tail(job_id, after=0)
        seen = [await anext(tail), await anext(tail)]
        for number in range(9):
            await storage.jobs.append(lease, [word(number)])
        await storage.jobs.finish(lease, completion())
        seen += [event async for event in tail]
        assert [orjson.loads(event.body)["index"] for event in seen[2:-1]] == [*range(9)]


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
            return [event.seq async for event in storage.timelines.tail(job_id, after=after)]

        following = []
        for number, size in enumerate(batches):
            for _, after in (join for join in joins if join[0] % len(batches) == number):
                last = await storage.timelines.last(job_id)
                following.append((min(after, last), tasks.create_task(follow(min(after, last)))))
            await storage.jobs.append(lease, [WORD] * size)
        await storage.jobs.finish(lease, completion())
        last = await storage.timelines.last(job_id)
        for after, task in following:
            assert await task == list(range(after + 1, last + 1))


async def test_many_logs_at_once_keep_each_streams_order(storage):
    leases = []
    for _ in range(5):
        live = await storage.jobs.claim_live(await submit(storage, live=True), "w", lease_s=LEASE_S)
        leases.append(live)
    await asyncio.gather(*(storage.jobs.append(lease, [word(number)]) for number in range(40) for lease in leases))
    for lease in leases:
        events = await storage.timelines.read(lease.job.id, after=2, limit=100)
        assert [orjson.loads(event.body)["index"] for event in events] == [*range(40)]


async def test_a_reader_may_come_back_with_an_id_inside_of_an_entry(storage):
    job_id = await submit(storage)
    lease = await claim(storage)
    three = Words(0, 0, tuple(StoredWord(text, at, at + 1, 0.9) for at, text in enumerate("abc")))
    hidden = Words(3, 1, three.words, shown=False)
    assert await storage.jobs.append(lease, [three, hidden, DecidedUpTo(RATE)]) == 5
    assert await storage.jobs.append(lease, [word(6)]) == 6
    everything = await storage.timelines.read(job_id, after=0, limit=100)
    assert [event.seq for event in everything] == [1, 2, 3, 4, 5, 6]
    for after in range(7):
        for limit in range(1, 4):
            found, at = [], after
            while page := await storage.timelines.read(job_id, after=at, limit=limit):
                assert len(page) <= limit
                found, at = [*found, *page], page[-1].seq
            assert found == everything[after:]


async def test_every_entry_comes_back_in_the_order_in_which_it_was_appended(storage):
    job_id = await submit(storage)
    lease = await claim(storage)
    entries = [entry for index in range(60) for entry in part(index)]
    for at in range(0, len(entries), 7):
        await storage.jobs.append(lease, entries[at : at + 7])
    stored = [unpack(body) for body in await storage.timelines.entries(job_id)]
    assert stored[2:] == entries
    assert [type(entry) for entry in stored[:2]] == [StateChange, StateChange]
