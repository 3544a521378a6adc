"""The contract of blobs: files and a bucket keep it alike."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.clock import now_ms
from server.model.errors import BlobExists, NoSuchBlob
from server.storage.ports import BlobStore
from server.storage.s3.blobs import PART_BYTES
from server.storage.s3.open import open_bucket
from server.storage.scratch import PIECE_BYTES
from server.storage.sqlite.blobs import FileBlobs
from tests.server.blob_stores import put, read
from tests.server.buckets import BucketService

LARGE = PART_BYTES + 100_000  # so that a bucket gets it in parts


@pytest.fixture(params=["files", "bucket"])
def blobs(
    request: pytest.FixtureRequest, tmp_path: Path, bucket: BucketService, monkeypatch: pytest.MonkeyPatch
) -> Iterator[BlobStore]:
    """Yield an empty blob store of each kind."""
    if request.param == "files":
        store: FileBlobs = FileBlobs(tmp_path)
    else:
        for name, value in bucket.env.items():
            monkeypatch.setenv(name, value)
        store = open_bucket(bucket.prefix(), tmp_path / "scratch", env=bucket.env)
    yield store
    asyncio.run(store.close())


async def test_what_was_written_is_read_back_in_bounded_pieces(blobs):
    data = os.urandom(3 * PIECE_BYTES + 17)
    await put(blobs, "job_1/source", data)
    pieces = [piece async for piece in blobs.read("job_1/source")]
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) <= PIECE_BYTES
    assert await blobs.size("job_1/source") == len(data)


async def test_a_large_blob_is_read_back(blobs):
    data = os.urandom(LARGE)
    await put(blobs, "job_1/source", data)
    assert await read(blobs, "job_1/source") == data
    assert await read(blobs, "job_1/source", LARGE - 7) == data[-7:]


async def test_an_empty_blob_is_one(blobs):
    await put(blobs, "job_1/source", b"")
    assert await blobs.size("job_1/source") == 0
    assert await read(blobs, "job_1/source") == b""


async def test_a_local_file_has_the_bytes_a_name_without_meaning_and_an_end(blobs):
    data = os.urandom(PIECE_BYTES + 17)
    await put(blobs, "job_1/source", data)
    async with blobs.local("job_1/source") as path:
        assert path.read_bytes() == data
    assert list(blobs.scratch.iterdir()) == []


def test_a_range_is_what_a_slice_is(blobs):
    data = os.urandom(1000)
    with asyncio.Runner() as loop:
        loop.run(put(blobs, "job_1/x", data))

        @settings(max_examples=60)
        @given(start=st.integers(0, 1200), stop=st.none() | st.integers(0, 1200))
        def any_range(start: int, stop: int | None) -> None:
            assert loop.run(read(blobs, "job_1/x", start, stop)) == data[start:stop]

        any_range()


@pytest.mark.parametrize("size", [4, LARGE])
async def test_a_block_that_raises_leaves_nothing(blobs, size):
    async def upload() -> None:
        async with blobs.create("job_1/source") as sink:
            await sink.write(bytes(size))
            raise RuntimeError("client gone")

    with pytest.raises(RuntimeError, match="client gone"):
        await upload()
    assert await blobs.size("job_1/source") is None
    assert list(blobs.scratch.iterdir()) == []


@pytest.mark.parametrize("size", [4, LARGE])
async def test_a_blob_is_not_there_before_its_block_ends(blobs, size):
    async with blobs.create("job_1/source") as sink:
        await sink.write(bytes(size))
        assert await blobs.size("job_1/source") is None
    assert await blobs.size("job_1/source") == size


async def test_a_canceled_upload_leaves_nothing(blobs):
    for turns in range(12):  # at any moment of the call

        async def upload() -> None:
            async with blobs.create("job_1/source") as sink:
                await sink.write(b"x" * 1000)
                await asyncio.sleep(60)

        task = asyncio.create_task(upload())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await blobs.size("job_1/source") is None
    assert list(blobs.scratch.iterdir()) == []


@pytest.mark.parametrize("size", [5, LARGE])
async def test_a_blob_never_changes(blobs, size):
    await put(blobs, "job_1/1.srt", b"first")
    with pytest.raises(BlobExists):
        await put(blobs, "job_1/1.srt", bytes(size))
    assert await read(blobs, "job_1/1.srt") == b"first"


async def test_of_two_that_write_one_small_blob_at_once_one_succeeds(blobs):
    results = await asyncio.gather(*(put(blobs, "job_1/1.srt", b"%d" % n) for n in range(8)), return_exceptions=True)
    assert sum(isinstance(result, BlobExists) for result in results) == 7
    assert await read(blobs, "job_1/1.srt") == b"%d" % results.index(None)


async def test_deleting_a_prefix_takes_what_is_below_it_and_nothing_beside_it(blobs):
    for key in ("job_1/source", "job_1/2/srt", "job_12/source"):
        await put(blobs, key, b"x")
    await blobs.delete("job_1/source")
    assert await blobs.size("job_1/source") is None
    assert await blobs.size("job_1/2/srt") == 1
    await blobs.delete("job_1")
    await blobs.delete("job_1")
    assert [name for name, _ in await blobs.prefixes()] == ["job_12"]
    assert await blobs.size("job_1/2/srt") is None


async def test_prefixes_come_with_the_instant_of_their_last_change(blobs):
    assert await blobs.prefixes() == []
    for key in ("job_1/source", "job_2/a/b"):
        await put(blobs, key, b"x")
    found = await blobs.prefixes()
    assert [name for name, _ in found] == ["job_1", "job_2"]
    assert all(abs(changed - now_ms()) < 60_000 for _, changed in found)


async def test_a_blob_deleted_while_it_is_read_is_read_to_its_end(blobs):
    data = os.urandom(2 * PIECE_BYTES)
    await put(blobs, "job_1/source", data)
    reading = blobs.read("job_1/source")
    first = await anext(reading)
    await blobs.delete("job_1")
    assert first + b"".join([piece async for piece in reading]) == data


@pytest.mark.parametrize("key", ["job_none/source", "job_1", "job_1/source/deeper"])
async def test_a_missing_blob_is_told_as_such(blobs, key):
    await put(blobs, "job_1/source", b"x")
    assert await blobs.size(key) is None
    with pytest.raises(NoSuchBlob):
        await read(blobs, key)
    with pytest.raises(NoSuchBlob):
        await read(blobs, key, 5, 5)
    with pytest.raises(NoSuchBlob):
        async with blobs.local(key):
            pass
    assert list(blobs.scratch.iterdir()) == []


@pytest.mark.parametrize(
    "key",
    [
        *("", "/", "/etc/passwd", "..", "../x", "job_1/../x", "job_1/./x", "job_1//x", "job_1/", "job_1/.x"),
        *("a\0b", "a\n", "a b", "ü", "x" * 300, "a/b/c/d/e", "job_1\\x"),
    ],
)
async def test_a_key_that_is_not_plain_names_is_refused(blobs, key):
    with pytest.raises(ValueError, match="not a blob's key"):
        await put(blobs, key, b"x")
    with pytest.raises(ValueError, match="not a blob's key"):
        await blobs.delete(key)
