"""Tests of finding, watching, cancelling and deleting jobs."""

import asyncio
import threading
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.documents.archive import Query, terms_of
from server.model.jobs import JobFilter, State
from server.model.orders import Order, Source
from server.storage.sql.storage import Storage
from tests.server.storing import HOUR, LEASE_S, NOON, checkpoint, claim, completion, quota, submit

MINE = JobFilter(account="acct_1", environment="production")
WINDOW = [("transcriptions", "2026-11")]


async def ids(storage: Storage, limit: int = 100, **filters: object) -> list[str]:
    return [job.id for job in await storage.jobs.find(replace(MINE, **filters), limit=limit)]


async def test_pages_have_no_repeat_and_no_gap_while_jobs_are_made(storage, clock):
    made = []
    for number in range(5):
        made.append(await submit(storage, f"job_{number}"))
        clock.advance(ms=number == 2)  # some have equal times
    clock.advance(ms=1)
    await submit(storage, account="acct_2")
    await submit(storage, environment="sandbox")
    seen: list[str] = []
    after = None
    while page := await storage.jobs.find(replace(MINE, after=after), limit=2):
        assert len(page) <= 2
        seen += [job.id for job in page]
        after = (page[-1].created_at, page[-1].id)
        await submit(storage)  # newer ones come before the cursor
    assert seen == made[::-1]
    assert (await ids(storage, descending=False, created_before=NOON + 2)) == made


async def test_every_filter_leaves_what_it_names(storage, clock):
    await submit(storage, "job_a", order=Order(metadata={"team": "x", 'odd "key".': "1"}))
    await storage.jobs.finish(await claim(storage), replace(completion(), text="Über 100% sure_", language="de"))
    clock.advance(ms=10)
    await submit(storage, "job_b", order=Order(metadata={"team": "y"}), source=Source(type="url", url="https://x"))
    assert await ids(storage, states=frozenset({State.COMPLETED})) == ["job_a"]
    assert await ids(storage, states=frozenset({State.COMPLETED, State.QUEUED})) == ["job_b", "job_a"]
    assert await ids(storage, created_after=NOON) == ["job_b"]
    assert await ids(storage, created_before=NOON + 10) == ["job_a"]
    assert await ids(storage, source="url") == ["job_b"]
    assert await ids(storage, language="de") == ["job_a"]
    assert await ids(storage, metadata={"team": "y"}) == ["job_b"]
    assert await ids(storage, metadata={"team": "x", 'odd "key".': "1"}) == ["job_a"]
    assert await ids(storage, metadata={"team": "x", "other": "1"}) == []
    for query in ("ÜBER", "sure uber", '"100% sure_"'):
        assert await ids(storage, query=Query.of(query)) == ["job_a"]
    assert await ids(storage, query=Query.of('"sure 100"')) == []
    assert await ids(storage, name="HTTPS://x") == ["job_b"]
    assert await ids(storage, name="nowhere") == []


def test_a_job_is_found_by_any_words_of_its_text_and_by_any_metadata(backend, tmp_path):
    async def check(storage: Storage, text: str, phrase: str, key: str, value: str) -> None:
        first = await submit(storage, order=Order(metadata={key: value}))
        second = await submit(storage, order=Order(metadata={key + "x": value, "y" + key: value}))
        await storage.jobs.finish(await claim(storage), replace(completion(), text=text))
        assert await ids(storage, query=Query.of(f'"{phrase}"')) == [first]
        assert await ids(storage, metadata={key: value}) == [first]
        for job_id in (first, second):
            await storage.jobs.delete(job_id)

    with asyncio.Runner() as loop:
        storage = backend.new_storage(tmp_path)

        @settings(max_examples=100)
        @given(text=st.text(min_size=1).filter(terms_of), data=st.data(), key=st.text(), value=st.text())
        def any_text(text: str, data: st.DataObject, key: str, value: str) -> None:
            terms = terms_of(text)
            start = data.draw(st.integers(0, len(terms) - 1))
            phrase = " ".join(terms[start : data.draw(st.integers(start + 1, len(terms)))])
            loop.run(check(storage, text, phrase, key, value))

        try:
            any_text()
        finally:
            loop.run(storage.close())


async def test_a_watcher_sees_every_change_after_what_it_saw(storage):
    job_id = await submit(storage)
    seen = await storage.jobs.get(job_id)
    lease = await claim(storage)  # between looking and waiting
    processing = await storage.jobs.wait_for_change(seen, timeout_s=60)
    assert processing == lease.job
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(storage.jobs.wait_for_change(processing, timeout_s=60))
        await asyncio.sleep(0)
        await checkpoint(storage, lease, progress=0.25)
        changed = await waiting
        assert changed.progress == 0.25
    assert await storage.jobs.wait_for_change(changed, timeout_s=0.01) == changed


async def test_a_watcher_of_a_deleted_job_is_told_so(storage):
    job_id = await submit(storage)
    seen = await storage.jobs.get(job_id)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(storage.jobs.wait_for_change(seen, timeout_s=60))
        await asyncio.sleep(0)
        await storage.jobs.delete(job_id)
        assert await waiting is None


async def test_canceling_what_is_over_or_unknown_changes_nothing(storage):
    job_id = await submit(storage)
    await storage.jobs.finish(await claim(storage), completion())
    over = await storage.jobs.get(job_id)
    assert await storage.jobs.cancel(job_id) == over
    assert await storage.jobs.cancel("job_none") is None


async def test_a_live_session_cannot_get_its_quota_back_by_hanging_up_first(storage):
    job_id = await submit(storage, live=True, quotas=(quota(),))
    lease = await storage.jobs.claim_live(job_id, "w1", lease_s=LEASE_S)
    await storage.jobs.release(lease, delay_s=0, error=None, count=True)
    await storage.jobs.cancel(job_id)
    assert await storage.counters.amounts_used("acct_1", WINDOW) == [1]


async def test_deleting_a_finished_job_leaves_nothing_of_it_but_what_was_used(storage):
    job_id = await submit(storage, quotas=(quota(),), hook=True)
    lease = await claim(storage)
    await checkpoint(storage, lease)
    await storage.jobs.finish(lease, completion())
    assert await storage.jobs.delete(job_id) == job_id
    assert await storage.jobs.delete(job_id) is None
    assert await storage.jobs.get(job_id) is None
    assert await storage.timelines.entries(job_id) == []
    assert await storage.timelines.last(job_id) == 0
    assert await storage.outbox.backlog() == 0
    assert await storage.counters.amounts_used("acct_1", WINDOW) == [1]


async def test_the_audio_of_a_job_that_is_over_is_named_until_it_is_deleted(storage):
    done = await submit(storage, blob="job_1/source")
    await storage.jobs.finish(await claim(storage), completion())
    canceled = await submit(storage, blob="job_2/source")
    await storage.jobs.cancel(canceled)
    await submit(storage, blob="job_3/source")  # still needed
    assert sorted(await storage.jobs.list_with_audio(limit=10)) == sorted([done, canceled])
    assert len(await storage.jobs.list_with_audio(limit=1)) == 1
    await storage.jobs.note_audio_deleted([done])
    assert await storage.jobs.list_with_audio(limit=10) == [canceled]


async def test_a_job_expires_when_its_retention_is_over(storage, clock):
    job_id = await submit(storage)
    await submit(storage)  # unfinished jobs never expire
    await storage.jobs.finish(await claim(storage), completion())
    clock.advance(ms=HOUR - 1)
    assert await storage.jobs.list_expired(limit=10) == []
    clock.advance(ms=1)
    assert await storage.jobs.list_expired(limit=10) == [job_id]


async def test_searches_of_one_account_leave_readers_to_the_others(storage):
    released = threading.Event()

    class SlowText(str):
        """A name whose search lasts until it is released."""

        __slots__ = ()

        def casefold(self) -> str:
            released.wait()
            return super().casefold()

    job_id = await submit(storage)
    searches = [asyncio.create_task(ids(storage, name=SlowText("x"))) for _ in range(8)]
    await asyncio.sleep(0)
    try:
        await asyncio.wait_for(ids(storage), 5)
    finally:
        released.set()
    assert await asyncio.gather(*searches) == 8 * [[]]
    assert await ids(storage) == [job_id]
