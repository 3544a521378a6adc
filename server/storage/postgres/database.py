"""PostgreSQL with a pool of connections, each used by one thread at a time.

A write is a transaction of its own. Writes that lock only one job (write_together) share commits: those that come while
a commit is on its way to the disk are committed together afterwards.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeAlias, TypeVar

import psycopg
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool, PoolTimeout

from server.model.errors import OutcomeUnknown, StorageAway, StorageError
from server.storage.postgres import connections
from server.storage.postgres.commits import CHANNEL, NotificationListener, commit, payload, was_committed
from server.storage.postgres.connections import (
    NOW,
    Connection,
    PostgresTransaction,
    is_lost,
    is_outdated,
    is_worth_a_retry,
    translate_error,
)
from server.storage.scratch import start_vital
from server.storage.waiting import Watch, Watches

Clock: TypeAlias = Callable[[], int]
T = TypeVar("T")

MAX_IN_ONE_COMMIT = 100
READERS, WRITERS = 4, 6
CONNECT_S = 2.0  # how long a thread waits for a connection
RECONNECT_S = 1.0  # longest pause between two attempts; the pool's own pauses would grow to a minute
TRIES = 4  # of a transaction that was in conflict with another transaction, or lost its connection
DOUBT_S = 30.0  # how long the outcome of a commit is looked up before its caller gets OutcomeUnknown
ANSWER_S = 35.0  # longest wait for an answer: a broken network may give none


class _Write(Generic[T]):
    """A function that waits for its transaction, and the future for its result."""

    __slots__ = ("_result", "function", "future")

    def __init__(self, function: Callable[[PostgresTransaction], T]) -> None:
        self.function = function
        self.future: Future[T] = Future()

    def attempt(self, transaction: PostgresTransaction) -> None:
        self._result = self.function(transaction)

    def settle(self) -> None:
        self.future.set_result(self._result)

    def fail(self, error: BaseException) -> None:
        self.future.set_exception(translate_error(error))


class PostgresDatabase:
    """The Database. Its tables must have been migrated."""

    def __init__(self, conninfo: str, *, name: str, clock: Clock | None = None, notify: bool = True) -> None:
        """*clock* stands in for the database's own clock, for tests. Raises StorageAway."""
        self.boot = secrets.token_hex(8)
        self._clock = clock
        self._notify = notify
        self._closing = False
        self._watches = Watches()
        self._listener = NotificationListener(conninfo, self._watches, boot=self.boot, name=name, notify=notify)
        self._pool = _open_pool(conninfo)
        self._readers = ThreadPoolExecutor(READERS, "database-read")
        self._writers = ThreadPoolExecutor(WRITERS, "database-write")
        self._gathered: SimpleQueue[_Write[Any] | None] = SimpleQueue()  # bounded: each caller waits for one
        self._gatherer = start_vital(self._commit_together, name="database-log")

    @property
    def answers(self) -> bool:
        """Whether the database answered within the last seconds."""
        return self._listener.answers

    @property
    def leads(self) -> bool:
        return self._listener.leads

    async def write(self, function: Callable[[PostgresTransaction], T]) -> T:
        """Write as Database.write() describes. Raises StorageAway and OutcomeUnknown as well."""
        self._check()
        write = _Write(function)
        self._writers.submit(self._commit_alone, write)
        return await _wait_for_answer(write.future, OutcomeUnknown)

    async def write_together(self, function: Callable[[PostgresTransaction], T]) -> T:
        self._check()
        write = _Write(function)
        self._gathered.put(write)
        return await _wait_for_answer(write.future, OutcomeUnknown)

    async def read(self, function: Callable[[PostgresTransaction], T]) -> T:
        """Run *function*. Each of its statements sees everything that was committed before the statement."""
        self._check()
        return await _wait_for_answer(self._readers.submit(self._read, function), StorageAway)

    look_up = read

    async def scrub(self) -> bool:
        """PostgreSQL overwrites deleted rows in its own time (autovacuum), so there is nothing to do here."""
        return True

    def listen(self, handle: Callable[[str], None]) -> None:
        """Call *handle*, in a thread, with each message that another process sends to all."""
        self._listener.relayed.append(handle)

    def watch(self, topic: str) -> AbstractContextManager[Watch]:
        return self._watches.watch(topic)

    async def close(self) -> None:
        self._closing = True
        await asyncio.to_thread(self._join_threads)

    def _join_threads(self) -> None:
        self._gathered.put(None)
        self._gatherer.join()
        self._writers.shutdown()
        self._readers.shutdown()
        self._listener.stop()
        with suppress(psycopg.Error), self._pool.connection() as connection:
            connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, self.boot))  # wakes the listener
        self._listener.join()
        self._pool.close()

    def _check(self) -> None:
        if self._closing:
            raise StorageError("the database is closed")
        if not self.answers:
            raise StorageAway("the database does not answer; try again")

    # --- in threads ---

    def _read(self, function: Callable[[PostgresTransaction], T]) -> T:
        for left in reversed(range(TRIES)):
            try:
                with self._pool.connection() as connection:
                    return function(PostgresTransaction(connection, None if self._clock is None else self._clock()))
            except psycopg.Error as error:
                self._renew_connections(error)
                if not left or not is_worth_a_retry(error):
                    raise translate_error(error) from error
        raise AssertionError

    def _commit_together(self) -> None:
        while True:
            batch, more = self._next_batch()
            if batch:
                self._commit(batch)
            if not more:
                return

    def _commit_alone(self, write: _Write[Any]) -> None:
        if write.future.set_running_or_notify_cancel():
            self._commit([write])

    def _next_batch(self) -> tuple[list[_Write[Any]], bool]:
        """The waiting writes, without those whose caller gave up, and whether more may follow."""
        batch: list[_Write[Any]] = []
        item = self._gathered.get()
        try:
            while item is not None:
                if item.future.set_running_or_notify_cancel():
                    batch.append(item)
                if len(batch) == MAX_IN_ONE_COMMIT:
                    break
                item = self._gathered.get_nowait()
        except Empty:
            return batch, True
        return batch, item is not None

    def _commit(self, batch: Sequence[_Write[Any]]) -> None:
        """Run the batch in one transaction and give each write its result. If that fails, commit each write alone."""
        try:
            self._commit_surely(batch)
        except Exception as error:  # noqa: BLE001  the callers' to judge; the thread has to go on
            if len(batch) == 1 or isinstance(translate_error(error), StorageAway):
                for write in batch:
                    write.fail(error)
                return
            for write in batch:
                self._commit([write])
            return
        for write in batch:
            write.settle()

    def _commit_surely(self, batch: Sequence[_Write[Any]]) -> None:
        """Commit the batch. Try again after a conflict with another transaction, or if nothing was committed."""
        for left in reversed(range(TRIES)):
            mark = secrets.token_hex(16)
            try:
                connection = self._pool.getconn()
                try:
                    done = self._run(connection, batch, mark)
                finally:
                    self._pool.putconn(connection)
            except psycopg.Error as error:
                self._renew_connections(error)
                if not left or not is_worth_a_retry(error):
                    raise
                continue
            if done or self._look_up(mark):
                return
        raise StorageAway("the database does not answer; try again")

    def _run(self, connection: Connection, batch: Sequence[_Write[Any]], mark: str) -> bool:
        """Run the batch in one transaction. Returns False if the outcome of its commit is unknown."""
        transaction = self._begin(connection)
        try:
            for write in batch:
                write.attempt(transaction)
        except BaseException:
            with suppress(psycopg.Error):  # of a lost connection, which undid the transaction
                connection.rollback()
            raise
        if not transaction.wrote:
            connection.rollback()
            return True
        announced = transaction.announced
        notification = payload(self.boot, announced) if self._notify and announced else None
        try:
            commit(connection, mark=mark, now=transaction.now, notification=notification)
        except psycopg.Error:
            return False
        self._watches.wake(announced)
        return True

    def _begin(self, connection: Connection) -> PostgresTransaction:
        if self._clock is not None:
            connection.execute("BEGIN", prepare=False)
            return PostgresTransaction(connection, self._clock())
        cursor = connection.cursor()
        cursor.execute(f"BEGIN; {NOW}".encode(), prepare=False)
        cursor.nextset()
        (row,) = cursor
        return PostgresTransaction(connection, int(row["now"]))

    def _look_up(self, mark: str) -> bool:
        """Whether the transaction with *mark* was committed. Raises OutcomeUnknown if the database stays away."""
        until = time.monotonic() + DOUBT_S
        while True:
            try:
                with self._pool.connection() as connection:
                    committed = was_committed(connection, mark, PostgresTransaction(connection, None).now)
                if committed:
                    self._watches.wake_all()
            except psycopg.Error as error:
                self._renew_connections(error)
                if time.monotonic() >= until:
                    raise OutcomeUnknown("the database went away during a commit; look before you try again") from error
                time.sleep(0.1)
            else:
                return committed

    def _renew_connections(self, error: Exception) -> None:
        """Replace all connections if their plans are outdated; after a lost one, replace those that are broken."""
        if is_outdated(error):
            self._pool.drain()
        elif not isinstance(error, PoolTimeout) and is_lost(error):
            self._pool.check()


def _open_pool(conninfo: str) -> "ConnectionPool[Connection]":
    return ConnectionPool(
        conninfo,
        kwargs={"autocommit": True, "row_factory": dict_row},
        configure=connections.configure,
        min_size=2,
        max_size=READERS + WRITERS + 1,
        timeout=CONNECT_S,
        reconnect_timeout=RECONNECT_S,
        open=True,
    )


async def _wait_for_answer(future: "Future[T]", silent: type[StorageAway]) -> T:
    """The result of *future*. Raises *silent* if there is none in time."""
    try:
        async with asyncio.timeout(ANSWER_S):
            return await asyncio.wrap_future(future)
    except TimeoutError:
        raise silent("the database does not answer; try again") from None
