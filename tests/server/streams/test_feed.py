"""Tests of feed.py: many readers of a job share what is made once, and none of them waits for another."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass

from server.model.events import Event
from server.model.jobs import Lease
from server.storage.sql.timeline import Timelines
from server.streams.feed import KEPT, Partials, Rendered, RenderedBatch
from server.streams.following import Following
from tests.server.storing import LEASE_S, WORD, completion, submit, with_stores
from tests.server.streams.test_following import QUIET_S, follow


async def start_session(storage) -> Lease:
    """The lease of a new live session."""
    return await storage.jobs.claim_live(await submit(storage, live=True), "w", lease_s=LEASE_S)


async def say(storage, lease: Lease, words: int) -> None:
    logged = await storage.jobs.append(lease, [WORD] * words)
    assert logged


async def numbers(view: Following, job_id: str, *, after: int = 0) -> list[int]:
    """The numbers of all events that a reader gets."""
    return [one.seq async for one in view.follow(job_id, after=after, quiet_s=QUIET_S) if isinstance(one, Event)]


async def wait_until(tasks: list["asyncio.Task[None]"], holds) -> None:
    """Wait until *holds* is true. Raises what a task raises."""
    async with asyncio.timeout(20):
        while not holds():
            for task in tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.005)


async def wait_until_all_wait(view: Following, readers: list["asyncio.Task[None]"]) -> None:
    """Wait until every reader has everything and waits for more."""

    def all_wait() -> bool:
        feeds = view.feeds.values()
        return all(feed.started for feed in feeds) and sum(len(feed._waiting) for feed in feeds) == len(readers)

    await wait_until(readers, all_wait)


async def test_events_and_partials_are_made_once_for_all_readers(sqlite):
    partials, made = Partials(), Counter[int | None]()
    view, lease = follow(sqlite, partials), await start_session(sqlite)
    last = await sqlite.timelines.last(lease.job.id)
    sent: list[list[bytes]] = [[] for _ in range(50)]

    def make(item: Rendered) -> bytes:
        made[item.seq] += 1
        return item.body

    async def read(lines: list[bytes]) -> None:
        with view.open_reader(lease.job.id, after=last, quiet_s=QUIET_S) as reader:
            async for batch in reader:
                lines.append(batch.join_bytes(make))  # noqa: PERF401  they are looked at meanwhile

    readers = [asyncio.create_task(read(lines)) for lines in sent]
    await wait_until_all_wait(view, readers)
    await say(sqlite, lease, 3)
    partials.show(lease.job.id, b'{"text":"a"}', after=last + 3)
    await wait_until(readers, lambda: all(lines and b'"a"' in lines[-1] for lines in sent))
    assert made == {last + 1: 1, last + 2: 1, last + 3: 1, None: 1}
    assert all(lines[0] is sent[0][0] for lines in sent), "they share the bytes, too"
    assert len(sent[0]) <= 2, "events of one moment go out together"
    assert await sqlite.jobs.finish(lease, completion())
    await asyncio.gather(*readers)


async def test_a_reader_that_is_slow_delays_nobody_and_misses_nothing(sqlite):
    view, lease = follow(sqlite, Partials()), await start_session(sqlite)
    quick = [asyncio.create_task(numbers(view, lease.job.id)) for _ in range(5)]
    with view.open_reader(lease.job.id, after=0, quiet_s=QUIET_S) as slow:
        first = await anext(slow)
        for _ in range(KEPT):
            await say(sqlite, lease, 3)
        assert await sqlite.jobs.finish(lease, completion())
        everything = list(range(1, await sqlite.timelines.last(lease.job.id) + 1))
        async with asyncio.timeout(20):
            assert await asyncio.gather(*quick) == [everything] * 5
        seen = [item.seq for item in first.items]
        async for batch in slow:
            seen += [item.seq for item in batch.items]
    assert seen == everything


async def test_readers_that_come_and_go_miss_nothing_and_leave_nothing(sqlite):
    chance = random.Random(1)
    view, lease = follow(sqlite, Partials()), await start_session(sqlite)
    over = asyncio.Event()

    async def come_and_go() -> list[int]:
        seen: list[int] = []
        while not over.is_set():
            with view.open_reader(lease.job.id, after=len(seen), quiet_s=QUIET_S) as reader:
                try:
                    async with asyncio.timeout(0.02 * chance.random()):
                        async for batch in reader:
                            seen += [item.seq or 0 for item in batch.items] if batch else []
                except TimeoutError:
                    continue
        return seen

    staying = asyncio.create_task(numbers(view, lease.job.id))
    others = [asyncio.create_task(come_and_go()) for _ in range(100)]
    for _ in range(60):
        await say(sqlite, lease, chance.randrange(1, 4))
        await asyncio.sleep(0.01)
    assert await sqlite.jobs.finish(lease, completion())
    everything = list(range(1, await sqlite.timelines.last(lease.job.id) + 1))
    assert await staying == everything
    over.set()
    for seen in await asyncio.gather(*others):
        assert seen == everything[: len(seen)]
    assert not view.feeds, "nothing is followed that nobody reads"


async def test_every_quiet_reader_gets_its_own_signs_of_life(sqlite):
    quiet_s = 0.3
    view, lease = follow(sqlite, Partials()), await start_session(sqlite)
    last, loop = await sqlite.timelines.last(lease.job.id), asyncio.get_running_loop()

    async def pauses(wait_s: float) -> list[tuple[RenderedBatch | None, float]]:
        await asyncio.sleep(wait_s)
        seen, before = [], loop.time()
        with view.open_reader(lease.job.id, after=last, quiet_s=quiet_s) as reader:
            while len(seen) < 4:
                batch = await anext(reader)
                seen.append((batch, loop.time() - before))
                before = loop.time()
        return seen

    readers = [asyncio.create_task(pauses(0.002 * number)) for number in range(100)]
    await asyncio.sleep(quiet_s * 1.7)
    await say(sqlite, lease, 1)
    for seen in await asyncio.gather(*readers):
        assert [batch for batch, _ in seen].count(None) == 3
        for batch, pause_s in seen:
            assert batch is not None or quiet_s * 0.99 <= pause_s < quiet_s * 2.5


@dataclass
class CountingLog:
    """A log that counts how often it is read."""

    log: Timelines
    reads: int = 0

    async def read(self, stream: str, *, after: int, limit: int) -> list[Event]:
        self.reads += 1
        return await self.log.read(stream, after=after, limit=limit)

    async def last(self, stream: str) -> int:
        return await self.log.last(stream)

    def tail(self, stream: str, *, after: int) -> AsyncIterator[Event]:
        return self.log.tail(stream, after=after)


async def test_readers_that_join_together_share_one_reading_of_the_log(sqlite):
    log = CountingLog(sqlite.timelines)
    view, lease = follow(with_stores(sqlite, timelines=log), Partials()), await start_session(sqlite)
    await say(sqlite, lease, 10)
    readers = [asyncio.create_task(numbers(view, lease.job.id)) for _ in range(200)]
    await wait_until(readers, lambda: log.reads > 0)
    await wait_until_all_wait(view, readers)
    assert log.reads == 1
    for _ in range(3):
        await say(sqlite, lease, 1)
        readers.append(asyncio.create_task(numbers(view, lease.job.id)))
    assert await sqlite.jobs.finish(lease, completion())
    async with asyncio.timeout(20):
        for seen in await asyncio.gather(*readers):
            assert seen == list(range(1, await sqlite.timelines.last(lease.job.id) + 1))


class BreakingLog(CountingLog):
    """A log that cannot be read any more after its next event."""

    async def tail(self, stream: str, *, after: int) -> AsyncIterator[Event]:
        async for event in self.log.tail(stream, after=after):
            yield event
            raise OSError("the disk is gone")


async def test_readers_learn_that_the_log_cannot_be_read(sqlite):
    view = follow(with_stores(sqlite, timelines=BreakingLog(sqlite.timelines)), Partials())
    lease = await start_session(sqlite)
    readers = [asyncio.create_task(numbers(view, lease.job.id)) for _ in range(3)]
    await wait_until_all_wait(view, readers)
    await say(sqlite, lease, 1)
    async with asyncio.timeout(10):
        ended = await asyncio.gather(*readers, return_exceptions=True)
    assert [str(error) for error in ended] == ["the disk is gone"] * 3
