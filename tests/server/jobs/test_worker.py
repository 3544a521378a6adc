"""Jobs in the hands of workers: done, lost, resumed, stopped. Real storage; a recogniser that says what it is told."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import orjson

from pipeline.errors import EngineFailed, UndecodableAudio
from pipeline.timeline import entries_of
from pipeline.words import Chunk
from server.accounts.keys import open_account
from server.model.errors import DiskFailed, DiskFull
from server.model.events import render
from server.model.jobs import Lease, State
from server.model.orders import Order
from server.storage.sql.storage import Storage
from tests.server.serving import chunk
from tests.server.storing import parts_done, quota
from tests.server.working import MOST_S, PATIENT, WorkerHarness, speak

# --- done --------------------------------------------------------------------------------------------------------


async def test_a_job_is_transcribed_written_and_told_in_order(harness):
    harness.batch.scripts["speak"] = speak
    order = Order(output_formats=("json", "srt"), word_timestamps=True)
    job_id = await harness.submit("speak", order=order, seconds=4.0)
    async with harness.run_workers():
        job = await harness.wait_for_end(job_id)
        await harness.audio_gone(job_id)
    assert (job.state, job.text, job.language, job.duration_s) == (
        State.COMPLETED,
        "so my fellow americans ask not",
        "en",
        4.0,
    )
    assert (await harness.output(job_id, "srt")).startswith(b"1\n00:00:00,000 --> ")
    assert len(orjson.loads(await harness.output(job_id, "json"))["words"]) == 6
    told = await harness.events(job_id)
    assert [kind for kind, _ in told if kind != "job.progress"] == [
        "job.status", "job.status", "word", "word", "segment", "word", "word", "segment", "word", "word",
        "segment", "job.completed",
    ]  # fmt: skip
    progress = [body["progress"] for kind, body in told if kind == "job.progress"]
    assert progress == sorted(progress)
    assert progress[0] == 0.25
    assert progress[-1] < 1.0
    assert harness.metric("scribewire_jobs_ended_total", state="completed", error="") == 1
    assert harness.metric("scribewire_audio_seconds_total", environment="production") == 4.0


async def test_the_decoder_is_told_the_plans_longest_file(harness):
    account, _ = await open_account(harness.storage.accounts, plan="pro", environment="production", name=None)
    job_id = await harness.submit(account=account.id, order=Order(language="de"))
    async with harness.run_workers():
        await harness.wait_for_end(job_id)
    [options] = harness.batch.options
    assert (options.longest_s, options.language, options.tenant) == (4 * 3600, "de", account.id)


def events_of(
    part: Chunk, *, words: int = 0, segments: int = 0, shown: bool = True
) -> list[tuple[str, dict[str, Any]]]:
    entries = entries_of(part, words=words, segments=segments, shown=shown)
    return [(event.type, orjson.loads(event.body)) for entry in entries for event in render(entry)]


def test_words_and_segments_are_numbered_on_over_parts():
    told = events_of(chunk(1, "fellow"), words=2, segments=1)
    assert [kind for kind, _ in told] == ["word", "segment"]
    assert (told[0][1]["index"], told[0][1]["segment"], told[1][1]["id"]) == (2, 1, 1)


def test_who_joins_words_is_told_where_no_space_belongs():
    made = chunk(0, "你", "好")
    unspaced = replace(made.segments[0], words=tuple(replace(word, spaced=False) for word in made.segments[0].words))
    told = [body for _, body in events_of(replace(made, segments=(unspaced,)))]
    assert [body.get("spaced") for body in told[:2]] == [False, False]
    assert "spaced" not in events_of(chunk(0, "so"))[0][1]


def test_without_word_timestamps_only_segments_are_told():
    assert [kind for kind, _ in events_of(chunk(0, "so", "my"), shown=False)] == ["segment"]


async def test_a_job_resumed_after_a_crash_ends_like_one_that_never_crashed(harness, gate):
    order = Order(output_formats=("srt", "txt"), word_timestamps=True)
    broken = await harness.submit("gate", order=order, seconds=4.0)
    async with harness.run_dying_workers():
        await asyncio.wait_for(gate.reached.wait(), MOST_S)
    assert await parts_done(harness.storage, broken) == 1
    gate.open.set()
    harness.clock.advance(s=31)
    whole = await harness.submit("speak", order=order, seconds=4.0)
    async with harness.run_workers():
        after, plain = await harness.wait_for_end(broken), await harness.wait_for_end(whole)
    assert gate.resumed_behind == [0, 1]
    assert (after.attempt, plain.attempt) == (2, 1)
    assert (after.text, after.duration_s, after.language) == (plain.text, plain.duration_s, plain.language)
    for name in order.output_formats:
        assert await harness.output(broken, name) == await harness.output(whole, name)
    spoken = [[told for told in await harness.events(job) if told[0] in ("word", "segment")] for job in (broken, whole)]
    assert spoken[0] == spoken[1]


async def take_over(it: WorkerHarness) -> Lease:
    """Let another worker claim the job after the lease of the first has ended."""
    it.clock.advance(s=31)
    assert await it.storage.jobs.reap(limit=10) == 1
    return await it.storage.jobs.claim("other", environments=["production"], lease_s=30.0)


async def test_a_worker_that_lost_its_lease_stops_and_writes_nothing(harness, gate):
    job_id = await harness.submit("gate")
    async with harness.run_workers(replace(PATIENT, handback_s=60.0), every_s=60.0) as workers:
        await asyncio.wait_for(gate.reached.wait(), MOST_S)
        workers.closing.set()  # it has one job and will not claim another
        lease = await take_over(harness)
        before = await harness.events(job_id)
        await asyncio.wait_for(gate.left.wait(), MOST_S)
    assert await harness.events(job_id) == before
    assert await parts_done(harness.storage, job_id) == 1
    job = await harness.storage.jobs.get(job_id)
    assert (job.state, job.epoch) == (State.PROCESSING, lease.epoch)
    assert await harness.storage.blobs.size(f"{job_id}/source") is not None
    assert harness.metric("scribewire_leases_lost_total") == 1


async def test_a_worker_whose_own_clock_says_the_lease_is_over_writes_nothing(harness, gate):
    job_id = await harness.submit("gate")
    async with harness.run_workers(replace(PATIENT, lease_s=0.2, renew_s=60.0), every_s=60.0) as workers:
        await asyncio.wait_for(gate.reached.wait(), MOST_S)
        workers.closing.set()
        await asyncio.sleep(0.25)
        gate.open.set()  # the store's clock stands still, so it would accept the chunk
        await asyncio.wait_for(gate.left.wait(), MOST_S)
    assert await parts_done(harness.storage, job_id) == 1


async def test_a_lease_is_renewed_while_a_chunk_takes_long(harness, gate):
    job_id = await harness.submit("gate")
    async with harness.run_workers(replace(PATIENT, lease_s=0.3, renew_s=0.1)):
        await asyncio.wait_for(gate.reached.wait(), MOST_S)
        await asyncio.sleep(0.5)
        gate.open.set()
        assert (await harness.wait_for_end(job_id)).attempt == 1


async def test_an_engine_that_hangs_loses_its_job_to_the_next_attempt(harness, gate):
    job_id = await harness.submit("gate")
    async with harness.run_workers(replace(PATIENT, renew_s=0.05, stall_s=0.1)):
        await asyncio.wait_for(gate.left.wait(), MOST_S)
        gate.open.set()
        harness.clock.advance(s=31)
        job = await harness.wait_for_end(job_id)
    assert (job.state, job.attempt, gate.resumed_behind) == (State.COMPLETED, 2, [0, 1])


# --- stopped from outside ------------------------------------------------------------------------------------------


async def test_a_cancel_is_seen_without_waiting_for_chunk_or_renewal(harness, gate):
    job_id = await harness.submit("gate", quotas=(quota(),))
    async with harness.run_workers():
        await asyncio.wait_for(gate.reached.wait(), MOST_S)
        asked = await harness.storage.jobs.cancel(job_id)
        assert asked.state is State.PROCESSING
        assert (await harness.wait_for_end(job_id)).state is State.CANCELED
    assert gate.left.is_set()
    assert [kind for kind, _ in await harness.events(job_id)][-1] == "job.canceled"
    assert await harness.storage.counters.amounts_used("acct_1", [("transcriptions", "2026-11")]) == [1]


async def test_deleting_a_job_in_work_ends_the_work_and_leaves_nothing(harness, gate):
    job_id = await harness.submit("gate")
    async with harness.run_workers():
        await asyncio.wait_for(gate.reached.wait(), MOST_S)
        prefix = await harness.storage.jobs.delete(job_id)
        assert prefix is not None
        await harness.storage.blobs.delete(prefix)
        await asyncio.wait_for(gate.left.wait(), MOST_S)
        assert (await harness.wait_for_end(await harness.submit())).state is State.COMPLETED
    assert await harness.storage.jobs.get(job_id) is None
    assert job_id not in dict(await harness.storage.blobs.prefixes())


async def test_a_shutdown_finishes_the_chunk_and_hands_the_job_back_uncounted(harness, gate):
    job_id = await harness.submit("gate")
    async with harness.run_workers() as workers:
        await asyncio.wait_for(gate.reached.wait(), MOST_S)
        workers.closing.set()
        await asyncio.sleep(0)
        gate.open.set()
        job = await harness.until(job_id, lambda job: job.state is State.QUEUED)
    assert job.attempt == 0
    assert await parts_done(harness.storage, job_id) == 2


async def test_a_shutdown_does_not_wait_for_ever_for_a_chunk(harness, gate):
    job_id = await harness.submit("gate")
    async with harness.run_workers(replace(PATIENT, handback_s=0.05)) as workers:
        await asyncio.wait_for(gate.reached.wait(), MOST_S)
        workers.closing.set()
        job = await harness.until(job_id, lambda job: job.state is State.QUEUED)
    assert (job.attempt, gate.left.is_set()) == (0, True)
    assert await parts_done(harness.storage, job_id) == 1


# --- errors --------------------------------------------------------------------------------------------------------


def script_that_raises(error: Exception) -> Any:
    async def script(*_: object) -> AsyncGenerator[Chunk]:
        raise error
        yield

    return script


async def test_an_error_worth_another_attempt_hands_the_job_back_for_a_while(harness):
    harness.batch.scripts["fail"] = script_that_raises(EngineFailed("the process died"))
    job_id = await harness.submit("fail")
    async with harness.run_workers(replace(PATIENT, retry_s=60.0)):
        job = await harness.until(job_id, lambda job: job.state is State.QUEUED and job.started_at is not None)
    assert job.attempt == 1
    assert await harness.storage.jobs.claim("w", environments=["production"], lease_s=30.0) is None
    harness.clock.advance(s=60)
    assert await harness.storage.jobs.claim("w", environments=["production"], lease_s=30.0) is not None


async def test_after_the_last_attempt_the_job_fails_with_its_error_and_returns_its_quota(harness):
    harness.batch.scripts["fail"] = script_that_raises(EngineFailed("the process died"))
    job_id = await harness.submit("fail", quotas=(quota(),))
    async with harness.run_workers(replace(PATIENT, retry_s=0.0)):
        job = await harness.wait_for_end(job_id)
        await harness.audio_gone(job_id)
    assert (job.attempt, job.error.code, job.error.message) == (4, "engine_error", "the process died")
    assert await harness.storage.counters.amounts_used("acct_1", [("transcriptions", "2026-11")]) == [0]
    assert harness.metric("scribewire_jobs_ended_total", state="failed", error="engine_error") == 1


async def test_a_file_that_no_attempt_could_read_fails_at_once(harness):
    harness.batch.scripts["fail"] = script_that_raises(UndecodableAudio("no audio"))
    job_id = await harness.submit("fail", quotas=(quota(),))
    async with harness.run_workers():
        job = await harness.wait_for_end(job_id)
    assert (job.attempt, job.error.code, job.error.retryable) == (1, "unsupported_audio_format", False)
    assert await harness.storage.counters.amounts_used("acct_1", [("transcriptions", "2026-11")]) == [1]


async def test_what_nobody_foresaw_is_told_as_internal_and_spares_the_other_jobs(harness):
    harness.batch.scripts["fail"] = script_that_raises(ZeroDivisionError("in /secret/path"))
    bad, good = await harness.submit("fail"), await harness.submit()
    async with harness.run_workers(replace(PATIENT, retry_s=0.0)):
        failed, done = await harness.wait_for_end(bad), await harness.wait_for_end(good)
    assert (failed.error.code, done.state) == ("internal", State.COMPLETED)
    assert "secret" not in failed.error.message


class FullDisk:
    """A blob store on a disk that is full, or fails."""

    def __init__(self, storage: Storage, error: Exception | None = None) -> None:
        self._blobs = storage.blobs
        self._error = error or DiskFull("no space left")
        self.tried = asyncio.Event()

    @asynccontextmanager
    async def create(self, _key: str) -> AsyncIterator[None]:
        self.tried.set()
        raise self._error
        yield

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blobs, name)


async def test_a_full_disk_costs_no_attempt_and_the_job_is_done_once_there_is_room(harness):
    job_id, full = await harness.submit(), FullDisk(harness.storage)
    async with harness.run_workers(blobs=full):
        await asyncio.wait_for(full.tried.wait(), MOST_S)
        job = await harness.until(job_id, lambda job: job.state is State.QUEUED)
    assert job.attempt == 0
    harness.clock.advance(s=31)
    async with harness.run_workers():
        assert (await harness.wait_for_end(job_id)).state is State.COMPLETED


async def test_a_disk_that_fails_costs_attempts_because_it_may_be_the_jobs_own_file(harness):
    job_id = await harness.submit()
    async with harness.run_workers(replace(PATIENT, retry_s=0.0), blobs=FullDisk(harness.storage, DiskFailed("EIO"))):
        job = await harness.wait_for_end(job_id)
    assert (job.state, job.error.code, job.error.retryable) == (State.FAILED, "internal", True)


class NoRoomToRenew:
    """A job store whose full disk does not take the new end of a lease."""

    def __init__(self, storage: Storage) -> None:
        self._jobs = storage.jobs

    async def renew(self, *_: object, **__: object) -> None:
        raise DiskFull("no space left")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._jobs, name)


async def test_a_lease_that_cannot_be_written_longer_is_handed_back_uncounted(harness, gate):
    job_id = await harness.submit("gate")
    async with harness.run_workers(replace(PATIENT, renew_s=0.05), jobs=NoRoomToRenew(harness.storage)):
        await asyncio.wait_for(gate.left.wait(), MOST_S)
        job = await harness.until(job_id, lambda job: job.state is State.QUEUED)
    assert job.attempt == 0
