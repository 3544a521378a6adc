"""Who gets a worker, and who must not: places for other accounts, for production, and for files that are there."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from pipeline.batch import BatchOptions
from pipeline.words import Chunk
from server.jobs.workers import MAX_DOWNLOADS_PER_ACCOUNT
from server.model.jobs import State
from server.model.orders import Source
from tests.server.peers import Peer, answer_in_turn, peer, silence
from tests.server.peers import answer as http_answer
from tests.server.serving import chunk, wav
from tests.server.working import MOST_S, PATIENT, BlobsOfDeletedJob, WorkerHarness
from tests.waiting import eventually

SHORT_S = 1.0  # in which everything that may begin has begun


class Rooms:
    """A script that keeps every job inside until it is opened, and knows whose jobs are inside."""

    def __init__(self) -> None:
        self.inside: Counter[str] = Counter()
        self.open = asyncio.Event()
        self._moved = asyncio.Condition()

    async def script(self, _path: Path, options: BatchOptions, _done: object) -> AsyncGenerator[Chunk]:
        async with self._moved:
            self.inside[str(options.tenant)] += 1
            self._moved.notify_all()
        await self.open.wait()
        yield chunk(0, "so")

    async def have(self, **expected: int) -> None:
        """Wait until exactly these are inside; then nobody else may follow for a while."""
        async with asyncio.timeout(MOST_S), self._moved:
            await self._moved.wait_for(lambda: all(self.inside[who] >= count for who, count in expected.items()))
        await asyncio.sleep(SHORT_S)
        assert self.inside == expected


@pytest.fixture
def inside(harness: WorkerHarness) -> Rooms:
    harness.batch.scripts["stay"] = (made := Rooms()).script
    return made


async def test_one_account_gets_half_of_the_workers_and_the_next_one_begins_at_once(harness, inside):
    async with harness.run_workers(count=4):
        jobs = [await harness.submit("stay", account="many") for _ in range(4)]
        await inside.have(many=2)
        jobs += [await harness.submit("stay", account="few")]
        await inside.have(many=2, few=1)
        inside.open.set()
        assert {(await harness.wait_for_end(job_id)).state for job_id in jobs} == {State.COMPLETED}


async def test_a_single_worker_serves_one_account_too_and_a_free_place_is_filled_at_once(harness):
    jobs = [await harness.submit() for _ in range(4)]
    began = time.monotonic()
    async with harness.run_workers(count=1):
        assert [(await harness.wait_for_end(job_id)).attempt for job_id in jobs] == [1] * 4
    assert time.monotonic() - began < PATIENT.claim_s


async def test_an_account_at_its_bound_goes_on_as_soon_as_a_job_of_its_own_ends(harness):
    began = time.monotonic()
    async with harness.run_workers(count=2):
        for job_id in [await harness.submit() for _ in range(4)]:
            await harness.wait_for_end(job_id)
    assert time.monotonic() - began < PATIENT.claim_s


async def test_the_sandbox_gets_what_production_leaves_over_and_never_everything(harness, inside):
    for number in range(4):
        await harness.submit("stay", account=f"trying_{number}", environment="sandbox", seconds=1.0)
    await harness.submit("stay", account="real", seconds=60.0)
    async with harness.run_workers(count=4):
        await inside.have(real=1, trying_0=1, trying_1=1)
        await harness.submit("stay", account="late")
        await inside.have(real=1, late=1, trying_0=1, trying_1=1)
        inside.open.set()


async def test_with_a_single_worker_the_sandbox_comes_after_production(harness):
    rehearsed = await harness.submit(account="trying", environment="sandbox", seconds=1.0)
    real = await harness.submit(account="real", seconds=60.0)
    async with harness.run_workers(count=1):
        assert {(await harness.wait_for_end(job_id)).state for job_id in (rehearsed, real)} == {State.COMPLETED}
    assert [options.tenant for options in harness.batch.options] == ["real", "trying"]


# --- downloads -----------------------------------------------------------------------------------------------------


def from_address(source: Peer) -> dict[str, Any]:
    return {"source": Source(type="url", url=source.url + "/talk.wav"), "audio_s": None}


async def wait_for_requests(source: Peer, count: int) -> None:
    """Wait until *count* requests have come; then no more may follow for a while."""
    await eventually(lambda: len(source.asked) >= count, max_s=MOST_S)
    await asyncio.sleep(SHORT_S)
    assert len(source.asked) == count


async def test_downloads_that_hang_keep_no_worker_from_a_file(harness):
    async with peer(silence) as mute, harness.run_workers(count=1):
        hanging = [await harness.submit(account=f"evil_{number}", **from_address(mute)) for number in range(5)]
        await wait_for_requests(mute, 5)
        assert (await harness.wait_for_end(await harness.submit())).state is State.COMPLETED
        jobs = [await harness.storage.jobs.get(job_id) for job_id in hanging]
        assert {job.state for job in jobs if job} == {State.PROCESSING}


async def test_one_accounts_downloads_leave_places_for_those_of_others(harness):
    async with (
        peer(silence) as mute,
        peer(answer_in_turn(http_answer(200, wav()))) as source,
        harness.run_workers(count=1),
    ):
        for _ in range(MAX_DOWNLOADS_PER_ACCOUNT + 2):
            await harness.submit(account="evil", **from_address(mute))
        await wait_for_requests(mute, MAX_DOWNLOADS_PER_ACCOUNT)
        assert (await harness.wait_for_end(await harness.submit(**from_address(source)))).state is State.COMPLETED


async def test_a_download_is_told_as_a_turn_of_its_own_and_is_no_attempt(harness):
    async with peer(answer_in_turn(http_answer(200, wav(4.0)))) as source, harness.run_workers():
        job = await harness.wait_for_end(await harness.submit(**from_address(source)))
        assert (job.attempt, job.epoch, job.duration_s, job.source.format) == (1, 2, 1.0, "wav")
        told = [body["status"] for kind, body in await harness.events(job.id) if kind == "job.status"]
        assert told == ["queued", "processing", "queued", "processing"]


async def test_a_shutdown_does_not_wait_for_a_download_and_hands_the_job_back_uncounted(harness):
    async with peer(silence) as mute:
        began = time.monotonic()
        async with harness.run_workers() as workers:
            job_id = await harness.submit(**from_address(mute))
            await wait_for_requests(mute, 1)
            workers.closing.set()
        assert time.monotonic() - began < PATIENT.handback_s
        job = await harness.storage.jobs.get(job_id)
        assert (job.state, job.attempt) == (State.QUEUED, 0)


async def test_audio_by_address_that_cannot_be_used_is_deleted_at_once(harness):
    async with peer(answer_in_turn(http_answer(200, b"<html>sorry</html>" * 100))) as page:
        async with harness.run_workers():
            job = await harness.wait_for_end(await harness.submit(**from_address(page)))
        assert job.error.code == "unsupported_audio_format"
        assert await harness.storage.blobs.size(f"{job.id}/source/1") is None


# --- jobs that are deleted meanwhile -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["an output", "a download"])
async def test_nothing_is_left_of_a_job_that_was_deleted_while_a_blob_of_it_was_published(harness, kind):
    async with peer(answer_in_turn(http_answer(200, wav()))) as source:
        job_id = await harness.submit(**(from_address(source) if kind == "a download" else {}))
        async with harness.run_workers(blobs=BlobsOfDeletedJob(harness.storage)):
            await eventually(lambda: harness.metric("scribewire_leases_lost_total") != 0, max_s=MOST_S)
        assert await harness.storage.jobs.get(job_id) is None
        assert await harness.storage.blobs.prefixes() == []
