"""The BlobStore: files below one folder. A file appears under its name complete and durable, or not at all."""

import asyncio
import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from server.model.errors import BlobExists, DiskFull, NoSuchBlob
from server.storage.ports import Sink
from server.storage.sqlite.folder import PRIVATE_FILE, PRIVATE_FOLDER, sync_folder

PIECE_BYTES = 256 * 1024  # what a read holds in memory
MAX_VECTOR = 512  # parts in one system call; the least that systems allow is more
THREADS = 8  # waiting for disks, not computing
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
KEY = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}(/[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}){0,3}")

T = TypeVar("T")


class FileBlobs:
    """Blobs in *folder*/blobs. Unfinished ones are in *folder*/incoming."""

    def __init__(self, folder: Path, *, reserve_bytes: int = 0) -> None:
        self._reserve_bytes = reserve_bytes
        self._blobs = folder / "blobs"
        self._incoming = folder / "incoming"
        for place in (self._blobs, self._incoming):
            place.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        self._threads = ThreadPoolExecutor(THREADS, "storage-files")
        self._sweep_incoming()

    @property
    def scratch(self) -> Path:
        return self._incoming

    @asynccontextmanager
    async def create(self, key: str, *, leave_reserve: bool = False) -> AsyncIterator[Sink]:
        path = self._path(key)
        half = _HalfWritten(self._incoming, free_bytes=self._reserve_bytes if leave_reserve else 0)
        try:
            await self._run(half.open)
            yield _FileSink(half, self._run)
            await self._run(half.publish, path, self._blobs)
        finally:
            await self._run(half.discard)

    async def size(self, key: str) -> int | None:
        path = self._path(key)

        def size() -> int | None:
            return path.stat().st_size if path.is_file() else None

        return await self._run(size)

    async def read(self, key: str, start: int = 0, stop: int | None = None) -> AsyncGenerator[bytes]:
        file = _Opened(self._path(key))
        try:
            await self._run(file.open)
            at = start
            while stop is None or at < stop:
                wanted = PIECE_BYTES if stop is None else min(PIECE_BYTES, stop - at)
                piece = await self._run(file.read, wanted, at)
                if not piece:
                    return
                at += len(piece)
                yield piece
        finally:
            await self._run(file.close)

    @contextmanager
    def local(self, key: str) -> Iterator[Path]:
        path = self._path(key)
        if not path.is_file():
            raise NoSuchBlob(key)
        yield path

    async def delete(self, prefix: str) -> None:
        await self._run(_delete, self._path(prefix))

    async def prefixes(self) -> list[tuple[str, int]]:
        def prefixes() -> list[tuple[str, int]]:
            with os.scandir(self._blobs) as entries:
                return sorted((entry.name, entry.stat().st_mtime_ns // 1_000_000) for entry in entries)

        return await self._run(prefixes)

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)

    async def _run(self, function: Callable[..., T], *arguments: object) -> T:
        """Run *function* outside the event loop, to its end even if cancelled. A full disk raises DiskFull."""
        running = asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await _outlast(running)
            raise
        except OSError as error:
            if error.errno in NO_ROOM:
                raise DiskFull("no room left on the disk of the data folder") from error
            raise

    def _path(self, key: str) -> Path:
        if not KEY.fullmatch(key):
            raise ValueError(f"not a blob's key: {key!r}")
        return self._blobs / key

    def _sweep_incoming(self) -> None:
        """Delete what processes now dead were writing: nobody holds its lock."""
        for path in self._incoming.iterdir():
            with suppress(FileNotFoundError, BlockingIOError):
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
                finally:
                    os.close(descriptor)


async def _outlast(running: "asyncio.Future[T]") -> None:
    """Wait until a thread is done, however often the waiting is cancelled; anyio cancels at every await.

    The thread may use a descriptor that the caller is about to close. Its number may then stand for another file.
    """
    while not running.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([running])
    if not running.cancelled():
        running.exception()  # nobody else will ask for it


class _HalfWritten:
    """A file with a random name, locked while it is being written. Its methods block.

    It raises DiskFull rather than leave less than *free_bytes* of the disk free.
    """

    def __init__(self, folder: Path, *, free_bytes: int) -> None:
        self._folder = folder
        self._free_bytes = free_bytes
        self._path: Path | None = None
        self._descriptor = -1

    def open(self) -> None:
        while self._path is None:
            path = self._folder / secrets.token_hex(16)
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            if os.fstat(self._descriptor).st_nlink:  # otherwise a sweep was faster than the lock
                self._path = path
            else:
                os.close(self._descriptor)
        self._check_room(0)

    def write(self, *parts: bytes | memoryview) -> None:
        self._check_room(sum(map(len, parts)))
        for first in range(0, len(parts), MAX_VECTOR):
            together = parts[first : first + MAX_VECTOR]
            written = os.writev(self._descriptor, together)
            if written < sum(map(len, together)):  # the disk is nearly full, or a signal came
                left = memoryview(b"".join(together))[written:]
                while left:
                    left = left[os.write(self._descriptor, left) :]

    def _check_room(self, more_bytes: int) -> None:
        if self._free_bytes:
            disk = os.fstatvfs(self._descriptor)
            if disk.f_bavail * disk.f_frsize - more_bytes < self._free_bytes:
                raise DiskFull("the last free space of the data folder's disk is kept for the database")

    def publish(self, path: Path, top: Path) -> None:
        """The bytes and every name on the way to them from *top* survive a power cut."""
        assert self._path is not None
        os.fsync(self._descriptor)
        path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        try:
            os.link(self._path, path)
        except FileExistsError:
            raise BlobExists(f"{path.relative_to(top)} is already stored") from None
        try:
            _sync_names(path.parent, top)
        except OSError:
            path.unlink()
            raise

    def discard(self) -> None:
        if self._path is not None:
            self._path.unlink()
            os.close(self._descriptor)
            self._path = None


def _sync_names(folder: Path, top: Path) -> None:
    while folder != top:
        sync_folder(folder)
        folder = folder.parent
    sync_folder(top)


class _FileSink:
    def __init__(self, half: _HalfWritten, run: Callable[..., Awaitable[None]]) -> None:
        self._half = half
        self._run = run

    async def write(self, *parts: bytes | memoryview) -> None:
        await self._run(self._half.write, *parts)


class _Opened:
    """A blob's file for reading. It is closed by close() even if nobody waited for open(). Its methods block."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def open(self) -> None:
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise NoSuchBlob(self._path.name) from None
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            raise NoSuchBlob(self._path.name)

    def read(self, size: int, at: int) -> bytes:
        return os.pread(self._descriptor, size, at)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


def _delete(path: Path) -> None:
    """Delete a file or a folder, also while others delete from the folder, still write into it or make it anew."""
    while path.exists():
        try:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EISDIR):
                raise
