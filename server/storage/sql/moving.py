"""Copying every row of one database into another of the same tables, for `scribewire move`."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from server.storage.sql.database import Database, Transaction

ROWS_AT_ONCE = 500
BYTES_AT_ONCE = 4 * 1024 * 1024  # of values in one transaction; a row may be larger


@dataclass(frozen=True, slots=True)
class Table:
    """A table, and the columns that say which row is which."""

    name: str
    key: tuple[str, ...]


TABLES = (
    Table("accounts", ("id",)),
    Table("keys", ("id",)),
    Table("channels", ("id",)),
    Table("jobs", ("id",)),
    Table("metadata", ("job", "key")),
    Table("chunks", ("job", "idx")),
    Table("artifacts", ("job", "kind")),
    Table("events", ("stream", "seq")),
    Table("idempotency", ("account", "path", "key")),
    Table("fairness", ("account",)),
    Table("usage", ("job",)),
    Table("counters", ("subject", "name", "window")),
    Table("deliveries", ("id",)),
    Table("attempts", ("delivery", "n")),
    Table("addresses", ("account", "url")),
    Table("erasures", ("number",)),
)
"""Everything that an installation knows, in an order in which no row refers to one that comes later."""


@dataclass(frozen=True, slots=True)
class Content:
    """What a table holds: how many rows, and a number that differs if any value of any of them does."""

    rows: int
    digest: int


async def busy_until(database: Database) -> int | None:
    """When the last lease on a job ends (ms since 1970 UTC), if one holds now."""
    row = await database.read(
        lambda tx: tx.one(
            "SELECT max(lease_until) AS until FROM jobs WHERE state = 'processing' AND lease_until > ?", (tx.now,)
        )
    )
    return None if row is None else row["until"]


async def has_others(source: Database, target: Database) -> bool:
    """Whether *target* holds accounts that *source* does not have."""
    ours, theirs = [
        await database.read(lambda tx: {row["id"] for row in tx.all("SELECT id FROM accounts")})
        for database in (source, target)
    ]
    return not theirs <= ours


async def copy_table(source: Database, target: Database, table: Table) -> None:
    """Copy the rows of *table* that *target* does not have."""
    after: Sequence[object] | None = None
    while page := await source.read(_page_after(table, after)):
        columns = list(page[0])
        for part in _in_parts(page):
            await target.write(_storing_step(table, columns, part))
        after = [page[-1][name] for name in table.key]


async def content_of(database: Database, table: Table, columns: Sequence[str]) -> Content:
    """The content of *columns* of *table*. The order of rows does not matter."""
    rows, digest = 0, 0
    after: Sequence[object] | None = None
    while page := await database.read(_page_after(table, after, columns)):
        rows += len(page)
        digest += sum(_hash_rows(row, columns) for row in page)
        after = [page[-1][name] for name in table.key]
    return Content(rows, digest % 2**256)


async def columns_of(database: Database, table: Table) -> list[str]:
    """The columns of *table*; none if it is empty."""
    page = await database.read(lambda tx: tx.all(f'SELECT * FROM "{table.name}" LIMIT 1'))  # noqa: S608  ours
    return list(page[0].keys()) if page else []


def _page_after(
    table: Table, after: Sequence[object] | None, columns: Sequence[str] = ()
) -> Callable[[Transaction], list[dict[str, Any]]]:
    key = ", ".join(f'"{name}"' for name in table.key)
    chosen = ", ".join(f'"{name}"' for name in columns) or "*"
    beyond = "" if after is None else f"WHERE ({key}) > ({', '.join('?' * len(table.key))})"
    sql = f'SELECT {chosen} FROM "{table.name}" {beyond} ORDER BY {key} LIMIT {ROWS_AT_ONCE}'  # noqa: S608  ours
    return lambda tx: [dict(row) for row in tx.all(sql, tuple(after or ()))]


def _in_parts(page: Sequence[dict[str, Any]]) -> Iterator[list[list[Any]]]:
    """The values of *page*, as many rows at a time as one transaction should take."""
    part: list[list[Any]] = []
    size = 0
    for row in page:
        size += sum(len(value) for value in row.values() if isinstance(value, (bytes, str)))
        part.append(list(row.values()))
        if size >= BYTES_AT_ONCE:
            yield part
            part, size = [], 0
    if part:
        yield part


def _storing_step(table: Table, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Callable[[Transaction], None]:
    named = ", ".join(f'"{name}"' for name in columns)
    # "number" of the table `erasures` is otherwise given by the database.
    sql = (
        f'INSERT INTO "{table.name}" ({named}) OVERRIDING SYSTEM VALUE '  # noqa: S608  names of our own tables
        f"VALUES ({', '.join('?' * len(columns))}) ON CONFLICT DO NOTHING"
    )
    return lambda tx: tx.run_many(sql, rows)


def _hash_rows(row: dict[str, Any], columns: Sequence[str]) -> int:
    values = repr([row[name] for name in columns]).encode()
    return int.from_bytes(hashlib.sha256(values).digest(), "big")
