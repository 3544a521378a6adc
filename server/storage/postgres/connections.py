"""Connections to PostgreSQL and their transactions: parses the URL, sets timeouts, translates errors into ours.

No message contains the URL, because there is a password in it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeAlias

import psycopg
from psycopg import Cursor, errors
from psycopg.adapt import Buffer
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import DictRow, dict_row
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import StrDumperUnknown, TextLoader

from server.model.errors import DiskFull, StorageAway, StorageBusy, StorageError
from server.model.events import Event
from server.storage.sql.database import Parameters
from server.storage.sql.rows import SqlRow
from server.storage.waiting import Announced, announce

Connection: TypeAlias = psycopg.Connection[DictRow]

STATEMENT_MS = 15_000  # one statement; half a file's lease
LOCK_MS = 5_000  # waiting for a row that another transaction has
IDLE_IN_TRANSACTION_MS = 10_000  # then a stopped process loses its locks

PARAMETERS: Mapping[str, Any] = {
    "connect_timeout": 3,  # seconds, for each address
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # ms until a silent network ends a connection
    "client_encoding": "utf8",
}
"""Parameters of libpq. Those in the URL take precedence."""

LOST = ("08", "53300", "57P", "25P03")
"""Prefixes of error codes that end a connection: it broke, there are too many, the database stops, it was idle."""

REFUSAL = re.compile(r'FATAL: +((?:database|role) "[^"]*" does not exist|\w+ authentication failed for user "[^"]*")')
"""What no later attempt changes. libpq gives a refused connection no code."""
NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now"
COMMITS_KEPT_MS = 60 * 60 * 1000  # nobody looks for a commit for longer than some seconds
NODES_KEPT_MS = 10 * 60 * 1000
RATES_KEPT_MS = 2 * 60 * 1000
WORDS = re.compile(r"'[^']*'|\?|(?<!:):(\w+)|%")

ESCAPE, NUL = "\x01", "\x00"


def parameters(url: str, *, name: str) -> str:
    """The connection string for *url*. *name* is shown in PostgreSQL's list of connections. Raises StorageError."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error:  # its message repeats the URL
        raise StorageError(
            "the URL of the database cannot be read; it is postgresql://user:password@host/name"
        ) from None
    return make_conninfo("", **{**PARAMETERS, "application_name": f"scribewire {name}"[:63], **given})


def connect(conninfo: str) -> Connection:
    """Open a connection outside any pool. Raises StorageAway, StorageError."""
    with translating():
        connection = psycopg.connect(conninfo, autocommit=True, row_factory=dict_row)
        configure(connection)
    return connection


def configure(connection: Connection) -> None:
    """Set a new connection's time limits and the conversion of values."""
    connection.adapters.register_dumper(int, Int8Dumper)  # one type for all, so that statements are planned once
    connection.adapters.register_dumper(str, _EscapingDumper)
    connection.adapters.register_loader("text", _EscapingLoader)
    connection.execute(
        f"SET statement_timeout = {STATEMENT_MS}; SET lock_timeout = {LOCK_MS};"
        f" SET idle_in_transaction_session_timeout = {IDLE_IN_TRANSACTION_MS}",
        prepare=False,
    )


class _EscapingDumper(StrDumperUnknown):
    """Escapes NUL, which PostgreSQL refuses in text. _EscapingLoader restores it."""

    def dump(self, obj: str) -> Buffer | None:
        if NUL in obj or ESCAPE in obj:
            obj = obj.replace(ESCAPE, ESCAPE + "1").replace(NUL, ESCAPE + "0")
        return super().dump(obj)


class _EscapingLoader(TextLoader):
    def load(self, data: Buffer) -> str | bytes:
        text = super().load(data)
        if isinstance(text, str) and ESCAPE in text:
            return text.replace(ESCAPE + "0", NUL).replace(ESCAPE + "1", ESCAPE)
        return text


@contextmanager
def translating() -> Iterator[None]:
    """Translate PostgreSQL's errors in the block into StorageAway, DiskFull, StorageBusy or StorageError."""
    try:
        yield
    except psycopg.Error as error:
        raise translate_error(error) from error


def is_lost(error: BaseException) -> bool:
    """Whether *error* means that the connection is lost or the database away, so that another connection may work."""
    if not isinstance(error, psycopg.OperationalError):
        return False
    return error.sqlstate is None or error.sqlstate.startswith(LOST)


def is_outdated(error: BaseException) -> bool:
    """Whether *error* means that a newer node added a column after this connection planned its statements."""
    return isinstance(error, errors.FeatureNotSupported)


def is_worth_a_retry(error: BaseException) -> bool:
    """Whether the same transaction may succeed when it is run again at once, on another connection."""
    in_the_way = errors.SerializationFailure | errors.DeadlockDetected
    return is_lost(error) or is_outdated(error) or isinstance(error, in_the_way)


def translate_error(error: BaseException) -> BaseException:
    """Translate an error of PostgreSQL into one of the server. Any other error is returned as it is."""
    if not isinstance(error, psycopg.Error):
        return error
    failure: StorageError
    if is_lost(error) and (refusal := REFUSAL.search(str(error))):
        failure = StorageError(
            f"The database refuses the connection: {refusal[1]}. Create it, or correct SCRIBEWIRE_DATABASE_URL."
        )
    elif is_lost(error):
        failure = StorageAway("the database does not answer; try again")
    elif isinstance(error, errors.DiskFull):
        failure = DiskFull("no space left on the disk of the database")
    elif isinstance(error, errors.LockNotAvailable | errors.QueryCanceled) or is_worth_a_retry(error):
        failure = StorageBusy("the database is busy; try again")
    else:
        failure = StorageError(f"database: {error.diag.message_primary or type(error).__name__}")
    failure.__cause__ = error
    return failure


class PostgresTransaction:
    """The Transaction of this database, which translates the shared statements.

    It asks the database for *now* when that is first needed.
    """

    __slots__ = ("_cursor", "_now", "announced", "wrote")

    def __init__(self, connection: Connection, now: int | None) -> None:
        self._cursor: Cursor[DictRow] = connection.cursor()
        self._now = now
        self.announced: Announced = {}
        self.wrote = False

    @property
    def now(self) -> int:
        if self._now is None:
            (row,) = self._cursor.execute(NOW)
            self._now = int(row["now"])
        return self._now

    def run(self, sql: str, parameters: Parameters = ()) -> int:
        self.wrote = True
        return self._cursor.execute(_in_postgres(sql), parameters).rowcount

    def run_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        self.wrote = True
        if len(rows) == 1:
            self._cursor.execute(_in_postgres(sql), rows[0])
        elif rows:
            self._cursor.executemany(_in_postgres(sql), rows)

    def one(self, sql: str, parameters: Parameters = ()) -> SqlRow | None:
        return self._execute(sql, parameters).fetchone()

    def all(self, sql: str, parameters: Parameters = ()) -> list[DictRow]:
        return self._execute(sql, parameters).fetchall()

    def announce(self, topic: str, events: Sequence[Event] = ()) -> None:
        announce(self.announced, topic, events)

    def forget_passed(self) -> None:
        """Delete marks of commits whose outcome is known, ended processes, and clients without recent requests."""
        self.run("DELETE FROM commits WHERE at < ?", (self.now - COMMITS_KEPT_MS,))
        self.run("DELETE FROM nodes WHERE seen_at < ?", (self.now - NODES_KEPT_MS,))
        self.run("DELETE FROM rates WHERE at < ?", (self.now - RATES_KEPT_MS,))

    def _execute(self, sql: str, parameters: Parameters) -> Cursor[DictRow]:
        self.wrote = self.wrote or not sql.lstrip().startswith(("SELECT", "WITH"))
        return self._cursor.execute(_in_postgres(sql), parameters)


@lru_cache(maxsize=1024)
def _in_postgres(sql: str) -> Any:
    """Translate the parameters of a statement for psycopg."""
    return WORDS.sub(_word, sql)


def _word(found: "re.Match[str]") -> str:
    word = found.group()
    if word == "?":
        return "%s"
    return f"%({found.group(1)})s" if found.group(1) else word.replace("%", "%%")
