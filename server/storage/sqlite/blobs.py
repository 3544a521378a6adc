"""The BlobStore as files. A file appears under its name complete and durable, or not at all."""

import asyncio
import errno
import os
import shutil
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from server.model.errors import BlobExists, NoSuchBlob
from server.storage.scratch import (
    PIECE_BYTES,
    PRIVATE_FOLDER,
    HalfWritten,
    Sink,
    check_key,
    run_in,
    sweep,
    sync_folder,
)

THREADS = 8  # waiting for disks, not computing

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
        sweep(self._incoming)

    @property
    def scratch(self) -> Path:
        return self._incoming

    @asynccontextmanager
    async def create(self, key: str, *, leave_reserve: bool = False) -> AsyncIterator[Sink]:
        path = self._path(key)
        half = HalfWritten(self._incoming, free_bytes=self._reserve_bytes if leave_reserve else 0)
        try:
            await self._run(half.open)
            yield Sink(half.write, self._run)
            await self._run(_publish, half, path, self._blobs)
        finally:
            await self._run(half.discard)

    async def size(self, key: str) -> int | None:
        path = self._path(key)

        def size() -> int | None:
            return path.stat().st_size if path.is_file() else None

        return await self._run(size)

    async def read(self, key: str, start: int = 0, stop: int | None = None) -> AsyncGenerator[bytes]:
        file = _BlobFile(self._path(key))
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

    @asynccontextmanager
    async def local(self, key: str) -> AsyncIterator[Path]:
        path = self._path(key)
        if not await self._run(path.is_file):
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
        return await run_in(self._threads, function, *arguments)

    def _path(self, key: str) -> Path:
        return self._blobs / check_key(key)


def _publish(half: HalfWritten, path: Path, top: Path) -> None:
    """Give the file the name *path*. Its bytes, and every folder from *top* down to it, survive a power cut."""
    half.sync()
    path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    try:
        os.link(half.path, path)
    except FileExistsError:
        raise BlobExists(f"{path.relative_to(top)} is already stored") from None
    try:
        _sync_names(path.parent, top)
    except OSError:
        path.unlink()
        raise


def _sync_names(folder: Path, top: Path) -> None:
    while folder != top:
        sync_folder(folder)
        folder = folder.parent
    sync_folder(top)


class _BlobFile:
    """A blob's file for reading. Its methods block. close() is also right if open() has failed."""

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
    """Delete a file or a folder, even while other threads delete it, write into it or make it anew."""
    while path.exists():
        try:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EISDIR):
                raise
