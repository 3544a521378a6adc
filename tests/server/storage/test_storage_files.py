"""Tests of the data folder: a blob is complete and durable under its name, or does not exist."""

import asyncio
import os
import signal
import stat
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import orjson
import pytest

from server.model.errors import DiskFailed, DiskFull, FolderInUse, StorageError
from server.storage.sqlite.blobs import FileBlobs
from server.storage.sqlite.open import claim_folder, make_private, signing_keys
from tests.processes import few_files
from tests.server.blob_stores import put, read
from tests.server.storing import storage_in

ROOT = Path(__file__).resolve().parents[3]


DIES_WRITING = """
import asyncio, os, sys
from pathlib import Path
from server.storage.sqlite.blobs import FileBlobs

async def main():
    async with FileBlobs(Path(sys.argv[1])).create("job_1/source") as sink:
        await sink.write(b"half")
        os.kill(os.getpid(), 9)

asyncio.run(main())
"""


HAS_NO_SPACE = """
import asyncio, resource, sys
from pathlib import Path
from server.storage.sqlite.blobs import FileBlobs
from server.model.errors import DiskFull

async def main():
    blobs = FileBlobs(Path(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    try:
        async with blobs.create("job_1/source") as sink:
            await sink.write(b"x" * 200_000)
    except DiskFull:
        sys.exit(0 if await blobs.size("job_1/source") is None else 2)
    sys.exit(1)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads which files are open from /proc")
async def test_a_blob_whose_file_cannot_be_opened_may_be_stored_again(sqlite):
    with few_files(os.getpid()), pytest.raises(DiskFailed):
        await put(sqlite.blobs, "job_1/source", b"audio")
    await put(sqlite.blobs, "job_1/source", b"audio")
    with few_files(os.getpid()), pytest.raises(DiskFailed):
        await read(sqlite.blobs, "job_1/source")
    assert await read(sqlite.blobs, "job_1/source") == b"audio"
    assert list(sqlite.blobs.scratch.iterdir()) == []


async def test_incoming_audio_leaves_the_reserve_and_outputs_may_use_it(tmp_path, monkeypatch):
    free = [1000]

    def fstatvfs(_descriptor: int) -> SimpleNamespace:
        return SimpleNamespace(f_bavail=free[0], f_frsize=1)

    monkeypatch.setattr(os, "fstatvfs", fstatvfs)
    async with storage_in(tmp_path, reserve_bytes=600) as storage:
        async with storage.blobs.create("job_1/source", leave_reserve=True) as sink:
            await sink.write(bytes(400))
            free[0] = 600
            with pytest.raises(DiskFull):
                await sink.write(b"x")
        with pytest.raises(DiskFull):
            await put(storage.blobs, "job_1/fetched", bytes(601), leave_reserve=True)
        free[0] = 599
        async with storage.blobs.create("job_1/output") as sink:
            await sink.write(b"x")
        with pytest.raises(DiskFull):  # before a byte came
            async with storage.blobs.create("job_2/source", leave_reserve=True):
                raise AssertionError("this should have been refused")


async def test_bytes_are_on_the_disk_before_their_name_and_the_name_before_the_answer(sqlite, tmp_path, monkeypatch):
    done: list[int] = []  # synced inodes; 0 when the name appeared
    fsync, link = os.fsync, os.link

    def note_fsync(descriptor: int) -> None:
        fsync(descriptor)
        done.append(os.fstat(descriptor).st_ino)

    def note_link(source: Path, target: Path) -> None:
        link(source, target)
        done.append(0)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "link", note_link)
    await put(sqlite.blobs, "job_1/2/srt", b"x")
    monkeypatch.undo()
    blobs = tmp_path / "data" / "blobs"
    file, *folders = (blobs / name for name in ("job_1/2/srt", "job_1/2", "job_1", ""))
    assert done == [file.stat().st_ino, 0, *(folder.stat().st_ino for folder in folders)]


async def test_what_a_dead_process_was_writing_is_gone_when_the_folder_is_opened(sqlite, tmp_path):
    data = tmp_path / "data"
    dying = await asyncio.create_subprocess_exec(sys.executable, "-c", DIES_WRITING, str(data), cwd=ROOT)
    assert await dying.wait() == -signal.SIGKILL
    async with sqlite.blobs.create("job_2/source") as sink:
        await sink.write(b"whole")
        assert len(list((data / "incoming").iterdir())) == 2
        async with storage_in(tmp_path):  # another process would see the same locks, because they belong to open files
            assert len(list((data / "incoming").iterdir())) == 1
    assert await read(sqlite.blobs, "job_2/source") == b"whole"


async def test_bytes_for_which_there_is_no_room_are_a_full_disk_and_leave_nothing(tmp_path):
    full = await asyncio.create_subprocess_exec(sys.executable, "-c", HAS_NO_SPACE, str(tmp_path), cwd=ROOT)
    assert await full.wait() == 0
    assert list((tmp_path / "incoming").iterdir()) == []


async def test_everything_in_the_folder_is_for_its_owner_only(sqlite, tmp_path):
    await put(sqlite.blobs, "job_1/source", b"x")
    data = tmp_path / "data"
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    names = {path.name for path in data.iterdir()}
    assert names >= {"scribewire.db", "scribewire.db-wal", "scribewire.db-shm", "secrets.json", "blobs"}
    assert {path.name for path in data.iterdir() if path.stat().st_mode & 0o077} == set()


async def test_the_signing_secret_is_made_once_and_kept(tmp_path):
    async with storage_in(tmp_path) as storage:
        first = storage.signing_keys
        assert len(first.secrets[first.current]) == 32
        assert first.secrets[first.current].hex() not in repr(storage)
    async with storage_in(tmp_path) as storage:
        assert storage.signing_keys == first
    async with storage_in(tmp_path / "other") as storage:
        assert storage.signing_keys != first


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{}", b"[]", b'{"current":"2","secrets":{}}', b'{"current":"1","secrets":{"1":"AAAA"}}'),
        *(b'{"current":"1","secrets":{"1":"?"}}', b'{"current":"1","secrets":{"1":7}}'),
        '{"current":"1","secrets":{"1":"ü"}}'.encode(),
    ],
)
def test_a_spoilt_secret_file_is_named_and_not_replaced(tmp_path, content):
    path = tmp_path / "secrets.json"
    path.write_bytes(content)
    with pytest.raises(StorageError, match=r"secrets\.json"):
        signing_keys(tmp_path)
    assert path.read_bytes() == content


def test_another_key_may_be_added_and_made_current(tmp_path):
    first = signing_keys(tmp_path)
    stored_secrets = orjson.loads((tmp_path / "secrets.json").read_bytes())
    stored_secrets["secrets"]["2"] = "A" * 43 + "="
    stored_secrets["current"] = "2"
    (tmp_path / "secrets.json").write_bytes(orjson.dumps(stored_secrets))
    both = signing_keys(tmp_path)
    assert (both.current, both.secrets["1"]) == ("2", first.secrets["1"])


def test_a_second_server_on_a_folder_is_refused_in_one_sentence(tmp_path):
    folder = tmp_path / "data"
    with claim_folder(folder):
        with pytest.raises(FolderInUse, match=f"process {os.getpid()}.*{folder}"), claim_folder(folder):
            pass
        asyncio.run(_open_beside(tmp_path))  # workers and the command line may
    with claim_folder(folder):
        pass


@pytest.mark.parametrize("folder", ["file", "file/data"])
def test_a_folder_that_cannot_be_written_is_refused_in_one_sentence(tmp_path, folder):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=f"DATA_DIR {tmp_path / folder} cannot be used: .*; it must be a folder"):
        claim_folder(tmp_path / folder).__enter__()


async def _open_beside(folder: Path) -> None:
    async with storage_in(folder) as storage:
        assert await storage.jobs.counts() == {"queued": 0, "processing": 0}


def test_an_existing_folder_keeps_its_mode(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir(mode=0o750)
    make_private(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750


async def test_a_file_stays_open_until_its_last_read_is_done_however_often_the_reader_is_cancelled(
    tmp_path, monkeypatch
):
    """anyio, under Starlette's streamed answers, cancels at every await and not once."""
    blobs = FileBlobs(tmp_path)
    async with blobs.create("job_1/output") as sink:
        await sink.write(b"words")
    begun, go_on, read = threading.Event(), threading.Event(), []
    pread = os.pread

    def slow(descriptor, size, at):
        begun.set()
        assert go_on.wait(20)
        read.append((descriptor, pread(descriptor, size, at)))
        return read[-1][1]

    monkeypatch.setattr(os, "pread", slow)
    reading = asyncio.create_task(anext(blobs.read("job_1/output")))
    await asyncio.to_thread(begun.wait, 20)
    for _ in range(5):
        reading.cancel()
        await asyncio.sleep(0.01)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await reading
    [(descriptor, content)] = read
    assert content == b"words"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    await blobs.close()


async def test_a_reader_that_leaves_while_its_file_is_opened_leaves_nothing_open(tmp_path, monkeypatch):
    blobs = FileBlobs(tmp_path)
    async with blobs.create("job_1/output") as sink:
        await sink.write(b"words")
    begun, go_on, opened = threading.Event(), threading.Event(), []
    real_open = os.open

    def slow(path, flags, *more):
        if Path(path).name == "output":
            begun.set()
            assert go_on.wait(20)
            opened.append(real_open(path, flags, *more))
            return opened[-1]
        return real_open(path, flags, *more)

    monkeypatch.setattr(os, "open", slow)
    reading = asyncio.create_task(anext(blobs.read("job_1/output")))
    await asyncio.to_thread(begun.wait, 20)
    reading.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await reading
    [descriptor] = opened
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    await blobs.close()
