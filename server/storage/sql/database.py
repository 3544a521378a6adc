"""The interface of a database that runs the statements of this folder. Each backend implements it.

The statements use what SQLite and PostgreSQL have in common, with two exceptions that a backend translates:
- Parameters are `?` or `:name`, as in SQLite.
- Rows that must not change before the commit are read `FOR UPDATE`. SQLite's backend removes these words, because it
  has one writer at a time.
"""

import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import AbstractContextManager
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

from server.model.events import Event
from server.storage.sql.rows import SqlRow
from server.storage.waiting import Watch

T = TypeVar("T")
P = ParamSpec("P")
Parameters: TypeAlias = Sequence[Any] | dict[str, Any]


class Transaction(Protocol):
    """The argument of a function that read() or write() runs."""

    @property
    def now(self) -> int:
        """The store's time (ms since 1970 UTC), the same throughout the transaction."""

    def run(self, sql: str, parameters: Parameters = ()) -> int:
        """Execute a statement without FOR UPDATE; returns the number of changed rows."""

    def run_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None: ...

    def one(self, sql: str, parameters: Parameters = ()) -> SqlRow | None:
        """The first row, if any."""

    def all(self, sql: str, parameters: Parameters = ()) -> Sequence[SqlRow]: ...

    def announce(self, topic: str, events: Sequence[Event] = ()) -> None:
        """Wake everything that watches *topic*, in any process, once this is committed.

        Watches of this process get *events*, the new ones of the log of that name, and need not read them back.
        """

    def forget_passed(self) -> None:
        """Delete old rows of the backend's own tables."""


class Database(Protocol):
    """An open database, SQLite or PostgreSQL."""

    @property
    def leads(self) -> bool:
        """See Storage.leads."""

    async def write(self, function: Callable[[Transaction], T]) -> T:
        """Run *function* in a transaction. Its changes are durable when this returns; none are left if it raises.

        *function* may run again, if its transaction could not be committed. Raises what *function* raises, DiskFull,
        StorageBusy, StorageError.
        """

    async def write_together(self, function: Callable[[Transaction], T]) -> T:
        """Run *function* as write() does. It may lock only rows of one job, so that many can share one commit."""

    async def read(self, function: Callable[[Transaction], T]) -> T:
        """Run *function* on all committed data. It cannot write."""

    async def look_up(self, function: Callable[[Transaction], T]) -> T:
        """Run *function* as read() does, on the event loop if the database is in this process.

        So it may only read a few small rows by their keys. Each of its statements sees what was committed before it.
        """

    async def scrub(self) -> bool:
        """See Upkeep.scrub()."""

    def watch(self, topic: str) -> AbstractContextManager[Watch]:
        """A Watch that is woken when *topic* is announced, while the block lasts.

        Read the database inside the block, then wait for the Watch. So no announcement between the two is missed.
        """

    async def close(self) -> None:
        """Commit every write so far, then close threads, connections and files."""


class SqlStore:
    """A store over a database."""

    def __init__(self, database: Database) -> None:
        self.database = database


def read_method(
    function: Callable[Concatenate[Transaction, P], T],
) -> Callable[Concatenate[SqlStore, P], Coroutine[Any, Any, T]]:
    """A method of a store that runs *function* with Database.read()."""

    def read(store: SqlStore, /, *values: P.args, **named: P.kwargs) -> Coroutine[Any, Any, T]:
        return store.database.read(lambda tx: function(tx, *values, **named))

    return read


def lookup_method(
    function: Callable[Concatenate[Transaction, P], T],
) -> Callable[Concatenate[SqlStore, P], Coroutine[Any, Any, T]]:
    """A method of a store that runs *function* with Database.look_up()."""

    def look_up(store: SqlStore, /, *values: P.args, **named: P.kwargs) -> Coroutine[Any, Any, T]:
        return store.database.look_up(lambda tx: function(tx, *values, **named))

    return look_up


def write_method(
    function: Callable[Concatenate[Transaction, P], T], *, together: bool = False
) -> Callable[Concatenate[SqlStore, P], Coroutine[Any, Any, T]]:
    """A method of a store that runs *function* with Database.write(), or with write_together()."""

    def write(store: SqlStore, /, *values: P.args, **named: P.kwargs) -> Coroutine[Any, Any, T]:
        run = store.database.write_together if together else store.database.write
        return run(lambda tx: function(tx, *values, **named))

    return write


async def wait_for_due(
    database: Database, topic: str, wait_s: float, claim: Callable[[], Awaitable[tuple[T, float | None]]]
) -> T:
    """Call *claim* until it finds something or *wait_s* seconds have passed. Returns what it found last.

    *topic*: announced when there may be more to find, which calls *claim* again.
    *claim*: returns what it found and the seconds after which to call it again. None: only the topic counts.
    """
    ends = time.monotonic() + wait_s
    with database.watch(topic) as watch:
        while True:
            found, due_in_s = await claim()
            left = ends - time.monotonic()
            if found or left <= 0:
                return found
            await watch.wait(left if due_in_s is None else min(left, due_in_s))


def marks(values: Collection[object]) -> str:
    """The question marks of an IN list for *values*, which must not be empty."""
    return ", ".join("?" * len(values))


def select_number(tx: Transaction, sql: str, parameters: Parameters = ()) -> int:
    """The number that *sql* selects under the name n."""
    (row,) = tx.all(sql, parameters)
    return int(row["n"])


def insert(tx: Transaction, table: str, **values: object) -> None:
    """Insert a row. *values* are named like the columns."""
    tx.run(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks(values)})", tuple(values.values()))  # noqa: S608  names of ours
