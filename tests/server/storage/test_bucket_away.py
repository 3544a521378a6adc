"""A server whose audio and results are in a bucket, while the bucket is away: nothing that was acknowledged is lost."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest

from server.clock import now_ms
from server.storage.s3 import open as opening
from server.storage.s3.open import open_bucket
from server.storage.sql.storage import Storage
from server.storage.sqlite.open import open_storage
from tests.server.buckets import BucketService
from tests.server.serving import AppServer, chunk, serve, wav
from tests.server.talking import HASTY, Caller, silence
from tests.waiting import until

SHORT_LEASES = replace(HASTY, lease_s=4.0, renew_s=1.0)


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory, bucket: BucketService) -> Iterator[AppServer]:
    """Yield a server in this process, with its blobs in a bucket."""
    folder = tmp_path_factory.mktemp("remote")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in bucket.env.items():
            patch.setenv(name, value)
        patch.setitem(opening.RETRIES, "max_retries", 1)
        blobs = open_bucket(bucket.prefix(), folder / "scratch", env=bucket.env)

        def stores() -> Storage:
            storage = open_storage(folder / "data", clock=now_ms)
            storage.blobs = blobs
            return storage

        with serve(folder, live=SHORT_LEASES, storage=stores) as started:
            yield started


def transcribe(client: httpx.Client, wait_s: float = 20, **fields: str) -> httpx.Response:
    return client.post("/v1/transcribe", files={"file": wav()}, data=fields, headers={"Prefer": f"wait={wait_s:g}"})


def test_a_file_goes_through_the_bucket_and_its_audio_is_deleted(remote):
    with remote.new_client() as client:
        record = transcribe(client, output_formats="txt,json").json()
        assert record["status"] == "completed"
        assert "so my fellow" in client.get(record["formats"]["txt"]).text
        part = client.get(record["formats"]["json"], headers={"Range": "bytes=0-9"})
        assert (part.status_code, part.content) == (206, client.get(record["formats"]["json"]).content[:10])
        blobs, source = remote.storage.blobs, f"{record['job_id']}/source"
        until(lambda: remote.wait(blobs.size(source)) is None)
        assert list(blobs.scratch.iterdir()) == []


def test_without_the_bucket_uploads_and_downloads_are_asked_to_come_again(remote, bucket):
    with remote.new_client() as client:
        record = transcribe(client, output_formats="txt").json()
        with bucket.fail_with("away"):
            for answer in (transcribe(client), client.get(record["formats"]["txt"])):
                assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
                assert int(answer.headers["Retry-After"]) > 0
            assert client.get(f"/v1/jobs/{record['job_id']}").json()["status"] == "completed"
        assert transcribe(client).json()["status"] == "completed"
        assert client.get(record["formats"]["txt"]).is_success


def test_an_accepted_file_is_finished_once_the_bucket_is_back(remote, bucket, monkeypatch):
    monkeypatch.setattr("server.jobs.workers.BLOBS_AWAY_DELAY_S", 0.2)
    with remote.new_client() as client:
        reached, going_on = asyncio.Event(), asyncio.Event()

        async def halt(_path, _options, done):
            reached.set()
            await going_on.wait()
            if not done:
                yield chunk(0, "so")

        remote.batch.scripts["halt"] = halt
        record = transcribe(client, wait_s=0, prompt="halt", output_formats="txt").json()
        remote.wait(reached.wait())
        with bucket.fail_with("away"):
            remote.call(going_on.set)
            time.sleep(1.5)
            waiting = client.get(f"/v1/jobs/{record['job_id']}").json()
            assert waiting["status"] in ("queued", "processing")
        finished = until(
            lambda: (job := client.get(f"/v1/jobs/{record['job_id']}").json())["status"] == "completed" and job
        )
        assert client.get(finished["formats"]["txt"]).is_success


async def test_a_live_session_ends_once_the_bucket_is_back_with_its_recording(remote, bucket):
    me = Caller(remote, await asyncio.to_thread(remote.key))
    async with me.speaking(record=True, output_formats=["json", "srt"]) as (record, talk):
        await talk.send(silence(3))
        with bucket.fail_with("away"):
            await talk.say("close")
            await asyncio.sleep(6)  # longer than a lease, which is renewed meanwhile
            assert (await me.job(record["job_id"]))["status"] == "processing"
        assert await talk.to_the_end() == (1000, "")
    job = await me.job(record["job_id"])
    assert (job["status"], job["warnings"]) == ("completed", [])
    async with httpx.AsyncClient() as client:
        for address in (job["live"]["audio_url"], job["formats"]["srt"]):
            assert (await client.get(address)).content


def test_what_is_deleted_while_the_bucket_is_away_is_gone_soon_after(remote, bucket, monkeypatch):
    monkeypatch.setattr("server.jobs.housekeeping.TIDY_S", 0.2)
    with remote.new_client() as client:
        record = transcribe(client, output_formats="txt").json()
        with bucket.fail_with("away"):
            assert client.delete(f"/v1/jobs/{record['job_id']}").status_code == 204
        assert record["job_id"] in dict(remote.wait(remote.storage.blobs.prefixes()))
        until(lambda: record["job_id"] not in dict(remote.wait(remote.storage.blobs.prefixes())))
