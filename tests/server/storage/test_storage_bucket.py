"""Tests of what only a bucket can do to the server: be silent, refuse, lose an answer, or hold millions of names."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from server.model.errors import BlobExists, BlobsAway, StorageError
from server.storage.s3 import open as opening
from server.storage.s3.blobs import PART_BYTES, BucketBlobs, Listing
from server.storage.s3.open import open_bucket
from tests.processes import ROOT, output_of
from tests.server.blob_stores import put, read
from tests.server.buckets import BucketService

LARGE = PART_BYTES + 100_000

DIES_WRITING = """
import asyncio, os, sys
from pathlib import Path
from server.storage.s3.open import open_bucket

async def main():
    blobs = open_bucket(sys.argv[1], Path(sys.argv[2]), env=os.environ)
    async with blobs.create("job_1/source") as sink:
        await sink.write(bytes(20_000_000))
        async with blobs.local("job_2/source"):
            os.kill(os.getpid(), 9)

asyncio.run(main())
"""

FAILS_AND_ENDS = """
import asyncio, os, sys
from pathlib import Path
from server.model.errors import BlobsAway
from server.storage.s3.open import open_bucket

async def main():
    try:
        await open_bucket(sys.argv[1], Path(sys.argv[2]), env=os.environ).size("job_1/source")
    except BlobsAway as error:
        print(error)

asyncio.run(main())
"""


@pytest.fixture
def place(bucket: BucketService) -> str:
    """Return a place in the bucket that nobody has used yet."""
    return bucket.prefix()


@pytest.fixture(autouse=True)
def _hasty(bucket: BucketService, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every test find the bucket, and give up soon."""
    for name, value in bucket.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(opening.RETRIES, "max_retries", 1)


@pytest.fixture
def blobs(place: str, bucket: BucketService, tmp_path: Path) -> Iterator[BucketBlobs]:
    store = open_bucket(place, tmp_path / "scratch", env=bucket.env)
    yield store
    asyncio.run(store.close())


async def test_an_upload_that_is_given_up_leaves_no_parts(blobs, bucket, place):
    async def upload() -> None:
        async with blobs.create("job_1/source") as sink:
            for _ in range(3):
                await sink.write(bytes(PART_BYTES))
            assert bucket.count_unfinished_uploads(place) == 1
            raise RuntimeError("client gone")

    with pytest.raises(RuntimeError, match="client gone"):
        await upload()
    assert bucket.count_unfinished_uploads(place) == 0
    assert await blobs.prefixes() == []


async def test_an_upload_of_a_taken_name_leaves_no_parts(blobs, bucket, place):
    await put(blobs, "job_1/source", b"first")
    with pytest.raises(BlobExists):
        await put(blobs, "job_1/source", bytes(LARGE))
    assert bucket.count_unfinished_uploads(place) == 0


async def test_a_bucket_that_refuses_is_away_and_afterwards_everything_goes_on(blobs, bucket):
    await put(blobs, "job_1/source", b"before")
    with bucket.fail_with("away"):
        for asking in (
            put(blobs, "job_2/source", b"x"),
            put(blobs, "job_2/source", bytes(LARGE)),
            read(blobs, "job_1/source"),
            blobs.size("job_1/source"),
            blobs.delete("job_1"),
            blobs.prefixes(),
            asyncio.to_thread(blobs.check),
        ):
            with pytest.raises(BlobsAway) as told:
                await asking
            assert told.value.retry_after_s == 5
            assert "127.0.0.1" not in str(told.value), "clients are told this text"
    assert await read(blobs, "job_1/source") == b"before"
    await put(blobs, "job_2/source", b"x")
    await asyncio.to_thread(blobs.check)


async def test_a_bucket_that_is_away_while_an_upload_ends_leaves_no_blob(blobs, bucket):
    with ExitStack() as trouble:

        async def upload() -> None:
            async with blobs.create("job_1/source") as sink:
                await sink.write(bytes(LARGE))
                trouble.enter_context(bucket.fail_with("away"))

        with pytest.raises(BlobsAway):
            await upload()
    assert await blobs.size("job_1/source") is None


async def test_a_silent_bucket_is_away_within_a_bound(place, bucket, tmp_path, monkeypatch):
    monkeypatch.setitem(opening.CLIENT, "read_timeout", "500ms")
    hasty = open_bucket(place, tmp_path / "hasty", env=bucket.env)
    await put(hasty, "job_1/source", b"before")
    with bucket.stop_answering():
        began = time.monotonic()
        for asking in (put(hasty, "job_2/source", b"x"), read(hasty, "job_1/source")):
            with pytest.raises(BlobsAway):
                await asking
        assert time.monotonic() - began < 15
    assert await read(hasty, "job_1/source") == b"before"
    await hasty.close()


@pytest.mark.parametrize("size", [5, LARGE])
async def test_a_write_whose_answer_was_lost_is_found_by_looking(blobs, bucket, size):
    data = os.urandom(size)
    with ExitStack() as trouble:
        async with blobs.create("job_1/source") as sink:
            await sink.write(data)
            trouble.enter_context(bucket.fail_with("lost"))
    assert await read(blobs, "job_1/source") == data


async def test_a_service_without_conditions_still_keeps_a_blob_that_is_there(blobs, bucket):
    with bucket.fail_with("unconditional"):
        await put(blobs, "job_1/1.srt", b"first")
        with pytest.raises(BlobExists):
            await put(blobs, "job_1/1.srt", b"second")
    assert await read(blobs, "job_1/1.srt") == b"first"


LIST, PUT, GET = "s3:ListBucket", "s3:PutObject", "s3:GetObject"


@pytest.mark.parametrize(
    ("name", "allowed", "says"),
    [
        ("nowhere", ["s3:*"], "does not exist"),
        ("scribewire", [PUT], r"let this server list names \(AccessDenied\)"),
        ("scribewire", [LIST], r"let this server write \(AccessDenied\)"),
        ("scribewire", [LIST, PUT], r"let this server read \(AccessDenied\)"),
        ("scribewire", [LIST, PUT, GET], r"let this server delete \(AccessDenied\)"),
    ],
)
def test_a_bucket_that_refuses_is_told_to_the_operator_in_one_sentence(bucket, tmp_path, name, allowed, says):
    with pytest.MonkeyPatch.context() as patch, bucket.check_keys(*allowed) as keys:
        for variable, value in keys.items():
            patch.setenv(variable, value)
        refusing = open_bucket(f"s3://{name}/here", tmp_path, env=bucket.env)
        with pytest.raises(StorageError, match=f"the bucket {name} .*{says}") as told:
            refusing.check()
    assert not isinstance(told.value, BlobsAway)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("wrong", "code"), [("AWS_ACCESS_KEY_ID", "InvalidAccessKeyId"), ("AWS_SECRET_ACCESS_KEY", "SignatureDoesNotMatch")]
)
def test_wrong_credentials_are_told_to_the_operator(bucket, tmp_path, monkeypatch, wrong, code):
    with bucket.check_keys("s3:*") as keys:
        for name, good in keys.items():
            monkeypatch.setenv(name, good)
        accepted = open_bucket(bucket.prefix(), tmp_path, env=bucket.env)
        accepted.check()
        assert asyncio.run(accepted.prefixes()) == [], "nothing is left of the check"
        monkeypatch.setenv(wrong, "wrong")
        with pytest.raises(StorageError, match=rf"not accept the credentials \({code}\)"):
            open_bucket(bucket.prefix(), tmp_path, env=bucket.env).check()


async def test_a_killed_process_leaves_nothing_that_can_be_seen(blobs, bucket, place, tmp_path):
    await put(blobs, "job_2/source", b"x")
    program = [sys.executable, "-c", DIES_WRITING, place, str(tmp_path / "scratch")]
    dying = await asyncio.create_subprocess_exec(*program, cwd=ROOT, env=os.environ | bucket.env)
    assert await dying.wait() == -signal.SIGKILL
    assert await blobs.size("job_1/source") is None
    assert bucket.count_unfinished_uploads(place) == 1, "the bucket's rule for unfinished uploads deletes it"
    assert len(list((tmp_path / "scratch").iterdir())) == 1
    await open_bucket(place, tmp_path / "scratch", env=bucket.env).close()
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_process_that_ends_after_an_error_ends_well(bucket, place, tmp_path):
    with bucket.fail_with("away"):
        for _ in range(3):
            told = output_of(FAILS_AND_ENDS, place, str(tmp_path / "scratch"), **bucket.env)
            assert told == "the store of audio and results cannot be reached; try again"


async def test_a_large_bucket_is_gone_through_in_parts(blobs):
    names = [f"job_{n}" for n in range(7)]
    for name in names:
        for key in ("source", "1.srt", "1.txt"):
            await put(blobs, f"{name}/{key}", b"x")
    listing, found = Listing(blobs._bucket, most=5, page=2), []
    rounds = [listing.go_on() for _ in range(8)]
    for part in rounds:
        assert len(part) <= 2
        found += [name for name, _ in part]
    assert sorted(set(found)) == names
    assert len(found) > len(names), "after the last name it begins again"


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        *((url, "") for url in ("scribewire", "file:///tmp", "s3://", "s3:///prefix", "s3://b?x=1", "s3://k:s@b/x")),
        ("s3://bucket/prefix", "http://8.8.8.8:9000"),
    ],
)
def test_a_place_that_cannot_be_used_is_refused_in_one_sentence(tmp_path, url, endpoint):
    with pytest.raises(StorageError, match="must be") as told:
        open_bucket(url, tmp_path, env={"AWS_ENDPOINT_URL": endpoint})
    assert "\n" not in str(told.value)
