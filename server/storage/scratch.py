"""Files on this machine's own disk that are being written, and threads for what blocks. Both backends use it."""

import asyncio
import errno
import fcntl
import os
import re
import secrets
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from server.logs import log
from server.model.errors import DiskFailed, DiskFull

SOFTWARE = 70  # exit status for an error of the program, from sysexits.h
PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
PIECE_BYTES = 256 * 1024  # what a read of a blob holds in memory
MAX_VECTOR = 512  # parts in one system call; the least that systems allow is more
DISK_FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
KEY = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}(/[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}){0,3}")

T = TypeVar("T")


def sync_folder(folder: Path) -> None:
    """Make the names in *folder* survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_key(key: str) -> str:
    """Return *key*. Raises ValueError if it does not consist of plain names."""
    if not KEY.fullmatch(key):
        raise ValueError(f"not a blob's key: {key!r}")
    return key


async def run_in(threads: ThreadPoolExecutor, function: Callable[..., T], *arguments: object) -> T:
    """Run *function* in one of *threads*, to its end even if cancelled.

    Raises DiskFull, and DiskFailed for every other error of the operating system, which is logged.
    """
    running = asyncio.get_running_loop().run_in_executor(threads, function, *arguments)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await _wait_uncancelled(running)
        raise
    except OSError as error:
        if error.errno in DISK_FULL_ERRORS:
            raise DiskFull("no space left on the disk of the data folder") from error
        log.error("a file of the data folder failed", extra={"error": str(error)})
        raise DiskFailed("the disk of the data folder fails; try again") from error


async def _wait_uncancelled(running: "asyncio.Future[T]") -> None:
    """Wait until *running* is done, however often the wait is cancelled; anyio cancels at every await.

    Its thread may use a file descriptor that the caller closes next. Closed too early, the number of the descriptor
    could already mean another file.
    """
    while not running.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([running])
    if not running.cancelled():
        running.exception()  # nobody else will ask for it


@dataclass(frozen=True, slots=True)
class Sink:
    """A blob that is being written: *write_parts* blocks; *run* calls it on a thread."""

    write_parts: Callable[..., None]
    run: Callable[..., Awaitable[None]]

    async def write(self, *parts: bytes | memoryview) -> None:
        """Append the *parts* in their order. Raises DiskFull."""
        await self.run(self.write_parts, *parts)


class HalfWritten:
    """A file with a random name, locked while it is being written. Its methods block.

    A write that would leave less than *free_bytes* of the disk free raises DiskFull.
    """

    def __init__(self, folder: Path, *, free_bytes: int = 0) -> None:
        self._folder = folder
        self._free_bytes = free_bytes
        self._path: Path | None = None
        self._descriptor = -1

    @property
    def path(self) -> Path:
        """The path of the file, between open() and discard()."""
        assert self._path is not None
        return self._path

    def open(self) -> None:
        while self._path is None:
            path = self._folder / secrets.token_hex(16)
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE)
            self._path = path
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            if not os.fstat(self._descriptor).st_nlink:  # a sweep was faster than the lock
                self._path = None
                self._close()
        self._check_free_space(0)

    def write(self, *parts: bytes | memoryview) -> None:
        self._check_free_space(sum(map(len, parts)))
        for first in range(0, len(parts), MAX_VECTOR):
            together = parts[first : first + MAX_VECTOR]
            written = os.writev(self._descriptor, together)
            if written < sum(map(len, together)):  # the disk is nearly full, or a signal came
                left = memoryview(b"".join(together))[written:]
                while left:
                    left = left[os.write(self._descriptor, left) :]

    def _check_free_space(self, more_bytes: int) -> None:
        if self._free_bytes:
            disk = os.fstatvfs(self._descriptor)
            if disk.f_bavail * disk.f_frsize - more_bytes < self._free_bytes:
                raise DiskFull("the last free space of the data folder's disk is kept for the database")

    def sync(self) -> None:
        """Make the bytes survive a power cut."""
        os.fsync(self._descriptor)

    def discard(self) -> None:
        """Close the file and delete its name, if it has one. sweep() deletes what is left after an error."""
        path, self._path = self._path, None
        try:
            if path is not None:
                path.unlink()
        finally:
            self._close()

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def sweep(folder: Path) -> None:
    """Delete the unfinished files of dead processes in *folder*. They are the files that nobody has locked."""
    for path in folder.iterdir():
        with suppress(FileNotFoundError, BlockingIOError):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(descriptor)


def start_vital(work: Callable[[], None], *, name: str) -> threading.Thread:
    """Start a thread that does *work*, and end the process if *work* raises.

    Otherwise callers would wait for ever for a thread that is gone. Uncommitted work is undone, as when the process is
    killed. The thread is a daemon, so a program can end without closing the storage.
    """

    def run() -> None:
        try:
            work()
        except BaseException:  # noqa: BLE001  whatever it is, nobody else sees it
            log.critical("a thread that nothing works without has failed; this process ends", exc_info=True)
            os._exit(SOFTWARE)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
