"""Tests of the audio of jobs in the hands of workers: fetched from an address, and deleted at the end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from server.accounts.keys import open_account
from server.jobs.probing import keep_known_recordings, voices_key
from server.model.jobs import JobFilter
from server.model.orders import Source
from tests.server.serving import wav
from tests.server.working import MOST_S


@asynccontextmanager
async def serve_file(data: bytes) -> AsyncIterator[str]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(data) + data)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1") as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/talks/one%20two.wav?x=1"


async def test_audio_by_address_is_fetched_looked_at_and_deleted_when_done(harness, gate):
    async with serve_file(wav(4.0)) as url:
        job_id = await harness.submit("gate", source=Source(type="url", url=url), audio_s=None)
        async with harness.run_workers():
            await asyncio.wait_for(gate.reached.wait(), MOST_S)
            job = await harness.until(job_id, lambda job: job.progress > 0)
            assert (job.source.filename, job.source.format, job.source.bytes) == ("one two.wav", "wav", len(wav(4.0)))
            assert (job.duration_s, job.progress) == (4.0, 0.25)
            assert await harness.storage.blobs.size(f"{job_id}/source/1") == len(wav(4.0))
            gate.open.set()
            await harness.wait_for_end(job_id)
            await harness.audio_gone(job_id)
            assert await harness.storage.blobs.size(f"{job_id}/source/1") is None


async def test_audio_by_address_that_is_longer_than_the_plan_takes_is_not_transcribed(harness):
    async with serve_file(wav(3.0)) as url:
        account, _ = await open_account(
            harness.storage.accounts,
            plan="free",
            environment="production",
            name=None,
            limits={"audio_minutes_per_file": 0},
        )
        job_id = await harness.submit(source=Source(type="url", url=url), account=account.id)
        async with harness.run_workers():
            job = await harness.wait_for_end(job_id)
        assert (job.error.code, harness.batch.options) == ("audio_too_long", [])


async def test_audio_of_jobs_that_ended_elsewhere_is_deleted_too(harness):
    job_id = await harness.submit()
    await harness.storage.jobs.cancel(job_id)
    async with harness.run_workers(count=0):
        await harness.audio_gone(job_id)
    rows = await harness.storage.jobs.find(JobFilter(account="acct_1", environment="production"), limit=10)
    assert [row.id for row in rows] == [job_id]


async def test_recordings_of_known_people_are_deleted_where_the_audio_never_came(harness):
    async with serve_file(b"<html>sorry</html>" * 100) as url:
        failed, canceled = [await harness.submit(source=Source(type="url", url=url)) for _ in range(2)]
        for job_id in (failed, canceled):
            await keep_known_recordings(job_id, {"Ann": wav()}, harness.storage.blobs)
        await harness.storage.jobs.cancel(canceled)
        async with harness.run_workers():
            assert (await harness.wait_for_end(failed)).error is not None
            await harness.audio_gone(failed)
        for job_id in (failed, canceled):
            assert await harness.storage.blobs.size(f"{voices_key(job_id)}/known") is None
