"""SQLite with one thread that writes and a few that read.

A commit costs an fsync, so all writes that wait at one moment share one commit. Each write has a savepoint of its own,
so one that fails does not undo the others. Single rows are looked up on the event loop, because a thread's turn costs
ten times as much. Several processes may open the folder. A waiting task wakes at once after a
commit of this process, and within POLL_S after one of another process.
"""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeAlias, TypeVar

from server.model.errors import StorageError
from server.storage.scratch import start_vital
from server.storage.sqlite.connections import (
    SqliteTransaction,
    connect,
    connect_to_read,
    create_private,
    migrate,
    translate,
)
from server.storage.sqlite.scrubbing import Scrubber
from server.storage.waiting import Announced, Watch, Watches, call_all

Clock: TypeAlias = Callable[[], int]
"""Returns milliseconds since 1970 UTC."""

T = TypeVar("T")

BEAT_S = 0.04  # from the beginning of one commit to the next, if only writes of single jobs wait: they go together
MAX_IN_ONE_COMMIT = 256  # when so many share a commit, others wait for the next one
POLL_S = 0.15  # other processes' commits are seen this late at most
READERS = 4  # so that a search over many transcripts does not delay looking up a key
SCRUB_BUSY_S = 0.2  # how long scrubbing waits for readers, and all writers with it


class _Write(Generic[T]):
    """A function that waits for the writing thread, and the future of its caller for its result."""

    __slots__ = ("_failure", "_function", "_result", "announced", "future")

    def __init__(self, function: Callable[[SqliteTransaction], T]) -> None:
        self._function = function
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._failure: Exception | None = None
        self.announced: Announced = {}

    def attempt(self, connection: sqlite3.Connection, clock: Clock) -> None:
        """Run the function in a savepoint and keep its result or error for settle().

        Raises the error only if it undid the whole transaction.
        """
        connection.execute("SAVEPOINT one")
        transaction = SqliteTransaction(connection, clock())
        try:
            result = self._function(transaction)
        except Exception as error:
            if not connection.in_transaction:  # a full disk may have undone everything, not only this
                raise
            connection.execute("ROLLBACK TO one")
            self.fail(error)
        else:
            self._failure, self._result = None, result
            self.announced = transaction.announced
        connection.execute("RELEASE one")

    def fail(self, error: Exception) -> None:
        """Keep *error* for settle() in place of a result."""
        self._failure, self.announced = error, {}

    def settle(self) -> None:
        """Pass on the result or the error, in the event loop."""
        if self.future.done():
            return  # its caller was canceled
        if self._failure is None:
            self.future.set_result(self._result)
        else:
            self.future.set_exception(translate(self._failure))


class _Chore:
    """A function that the writing thread runs between two commits, and the future for its result."""

    __slots__ = ("_function", "future")

    def __init__(self, function: Callable[[], bool]) -> None:
        self._function = function
        self.future: Future[bool] = Future()

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self._function())
        except Exception as error:  # noqa: BLE001  the caller's to judge; this thread has to go on
            self.future.set_exception(translate(error))


class SqliteDatabase:
    """The Database. Its constructor creates or migrates the file; one process at a time may call it."""

    leads = True  # only servers sweep, and one server has the folder

    def __init__(self, path: Path, clock: Clock) -> None:
        self._clock = clock
        self._waiting: list[_Write[Any]] = []  # on the event loop, for the next beat
        self._queue: SimpleQueue[list[_Write[Any]] | _Chore | None] = SimpleQueue()  # bounded: callers wait for it
        self._chores: list[_Chore] = []  # of the writing thread
        self._began = 0.0  # the last commit
        self._closing = False
        self._watches = Watches()
        self._local = threading.local()
        self._open(path)
        self._unclaimed = [*self._reading]  # no thread has used them yet
        self._readers = ThreadPoolExecutor(READERS, "storage-read")
        # A program can end without close(): uncommitted writes were never confirmed to anyone.
        self._writer = start_vital(self._write_forever, name="storage-write")

    def _open(self, path: Path) -> None:
        create_private(path)
        with ExitStack() as stack:
            try:
                self._writing = stack.enter_context(closing(connect(path)))
                migrate(self._writing, path, now=self._clock())
                # All at once, so that a process that can open no more files still looks up keys.
                self._reading = [stack.enter_context(closing(connect_to_read(path))) for _ in range(READERS)]
                self._lookups = stack.enter_context(closing(connect_to_read(path)))
                self._lookups.execute("PRAGMA busy_timeout = 0")
                (self._seen_version,) = self._writing.execute("PRAGMA data_version").fetchone()
                newest = self._writing.execute("SELECT coalesce(max(revision), 0) FROM changes")
                (self._seen_revision,) = newest.fetchone()
                self._scrubber = Scrubber(path, partial(connect, path, busy_s=SCRUB_BUSY_S))
            except sqlite3.Error as error:
                raise translate(error, f"{path}") from error
            stack.pop_all()

    async def write(self, function: Callable[[SqliteTransaction], T]) -> T:
        write = self._add_write(function)
        self._hand_over()
        return await write.future

    async def write_together(self, function: Callable[[SqliteTransaction], T]) -> T:
        write = self._add_write(function)
        loop = write.future.get_loop()
        if write is self._waiting[0] or self._waiting[-2].future.get_loop() is not loop:
            loop.call_later(max(0.0, self._began + BEAT_S - time.monotonic()), self._hand_over)
        return await write.future

    def _add_write(self, function: Callable[[SqliteTransaction], T]) -> _Write[T]:
        if self._closing:
            raise StorageError("the database is closed")
        self._waiting.append(write := _Write(function))
        return write

    def _hand_over(self) -> None:
        """Give the writing thread what waits: to wake it costs as much as a write."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._queue.put(waiting)

    async def read(self, function: Callable[[SqliteTransaction], T]) -> T:
        """Run *function* on one consistent view of everything committed so far. It cannot write."""
        if self._closing:
            raise StorageError("the database is closed")
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, function)

    async def look_up(self, function: Callable[[SqliteTransaction], T]) -> T:
        """Run *function* on the event loop, which costs a tenth of a thread's turn."""
        if self._closing:
            raise StorageError("the database is closed")
        try:
            return function(SqliteTransaction(self._lookups, self._clock()))
        except sqlite3.Error:  # perhaps another process works on the file as a whole; a thread can wait
            return await self.read(function)

    async def scrub(self) -> bool:
        """Overwrite all bytes of deleted rows in the database's files. Returns False if another process prevented it.

        Writes wait for some milliseconds. Raises StorageBusy, StorageError.
        """
        if not await self._run_chore(self._scrubber.truncate_log):
            return False
        found = await asyncio.to_thread(self._scrubber.find_used_gaps)
        return not found or await self._run_chore(partial(self._scrubber.overwrite_gaps, found))

    async def _run_chore(self, function: Callable[[], bool]) -> bool:
        if self._closing:
            raise StorageError("the database is closed")
        chore = _Chore(function)
        self._queue.put(chore)
        return await asyncio.wrap_future(chore.future)

    @contextmanager
    def watch(self, topic: str) -> Iterator[Watch]:
        first = not self._watches
        with self._watches.watch(topic) as watch:
            if first:
                self._queue.put(None)  # without watchers the writing thread sleeps until it is woken
            yield watch

    async def close(self) -> None:
        self._closing = True
        self._hand_over()
        self._queue.put(None)
        await asyncio.to_thread(self._join_threads)

    def _join_threads(self) -> None:
        self._writer.join()
        self._readers.shutdown()
        for connection in (*self._reading, self._lookups, self._writing):
            connection.close()
        self._scrubber.close()

    # --- the reading threads ---

    def _reader(self) -> sqlite3.Connection:
        """The connection of the calling thread."""
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._unclaimed.pop()
        return connection

    def _read(self, function: Callable[[SqliteTransaction], T]) -> T:
        try:
            connection = self._reader()
            connection.execute("BEGIN")
            try:
                return function(SqliteTransaction(connection, self._clock()))
            finally:
                connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise translate(error) from error

    # --- the writing thread ---

    def _write_forever(self) -> None:
        looked = 0.0
        while True:
            batch = self._next_batch()
            if batch:
                self._commit(batch)
            while self._chores:
                self._chores.pop().run()
            if not batch and self._closing and self._queue.empty():
                return
            if self._watches and time.monotonic() - looked >= POLL_S:
                looked = time.monotonic()
                self._wake_for_other_processes()

    def _next_batch(self) -> list[_Write[Any]]:
        """Take the waiting writes. If there are none, wait for one, but only POLL_S while a topic is watched."""
        batch: list[_Write[Any]] = []
        with suppress(Empty):
            item = self._queue.get(timeout=0 if self._closing else POLL_S if self._watches else None)
            while True:
                if isinstance(item, _Chore):
                    self._chores.append(item)
                elif item is not None:
                    batch += [write for write in item if not write.future.cancelled()]
                if len(batch) >= MAX_IN_ONE_COMMIT:
                    break
                item = self._queue.get_nowait()
        return batch

    def _commit(self, batch: Sequence[_Write[Any]]) -> None:
        connection, self._began = self._writing, time.monotonic()
        try:
            self._roll_back()  # if an earlier one failed
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            for write in batch:
                write.fail(error)
            self._settle_writes(batch)
            return
        try:
            for write in batch:
                write.attempt(connection, self._clock)
            connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001  the caller's to judge; this thread has to go on
            with suppress(sqlite3.Error):  # the next commit rolls back again, and fails if that is impossible
                self._roll_back()
            self._retry_alone(batch, error)
            return
        self._settle_writes(batch)

    def _settle_writes(self, batch: Sequence[_Write[Any]]) -> None:
        """Wake the callers of *batch* and the watches of what it announced."""
        settled = [(write.future.get_loop(), write.settle) for write in batch]
        call_all([*settled, *self._watches.wakes(*(write.announced for write in batch))])

    def _roll_back(self) -> None:
        if self._writing.in_transaction:
            self._writing.execute("ROLLBACK")

    def _retry_alone(self, batch: Sequence[_Write[Any]], error: Exception) -> None:
        """Commit each write alone: perhaps only the largest of them did not fit on the disk."""
        if len(batch) == 1:
            batch[0].fail(error)
            self._settle_writes(batch)
        else:
            for write in batch:
                self._commit([write])

    def _wake_for_other_processes(self) -> None:
        """Wake the watches of topics that other processes announced. Their commits change data_version here."""
        try:
            (version,) = self._writing.execute("PRAGMA data_version").fetchone()
            if version == self._seen_version:
                return
            rows = self._writing.execute(
                "SELECT revision, topic FROM changes WHERE revision > ? ORDER BY revision", (self._seen_revision,)
            ).fetchall()
        except sqlite3.Error:  # waiters will get the error themselves, with their next read
            self._watches.wake_all()
            return
        self._seen_version = version
        if rows:
            self._seen_revision, _ = rows[-1]
            self._watches.wake({topic: None for _, topic in rows})
