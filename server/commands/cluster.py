"""scribewire migrate: makes or updates a cluster's tables. scribewire move: fills them from one machine's installation.

What is moved is a stopped installation: into the database and the bucket. A row or file that is there already stays, so
an interrupted move is simply repeated. At the end all are compared.
"""

import argparse
import asyncio
import hashlib
import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack, closing
from typing import Any

from server.clock import now_ms
from server.commands.opening import cluster_libraries, update_tables
from server.config import PREFIX, Config, ConfigError
from server.model.errors import StorageError
from server.storage.ports import BlobStore
from server.storage.sqlite.open import FILE_NAME, claim_folder, open_storage

TABLES = ["accounts", "keys", "channels", "jobs", "metadata", "timeline", "artifacts", "idempotency", "fairness",
          "usage", "counters", "deliveries", "attempts", "addresses", "erasures"]  # fmt: skip  # parents first
ROWS_AT_ONCE = 500


def add(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "migrate", help="make or update the tables in the database of a cluster"
    )
    parser.set_defaults(run=migrate)
    _add_move(commands)


def _add_move(commands: Any) -> None:
    parser = commands.add_parser("move", help="copy a stopped installation into a database and a bucket (a cluster)")
    parser.add_argument("--to-database", required=True, metavar="URL", help="postgresql://user@host/name")
    parser.add_argument("--to-blobs", required=True, metavar="URL", help="s3://bucket/prefix")
    parser.set_defaults(run=move)


def migrate(_given: argparse.Namespace, config: Config) -> int:
    if config.database_url is None:
        raise ConfigError(f"{PREFIX}DATABASE_URL must be set; the embedded database is updated when it is opened")
    steps = update_tables(config.database_url)
    print(f"steps taken: {', '.join(map(str, steps))}" if steps else "the tables are up to date")
    return 0


def move(given: argparse.Namespace, config: Config) -> int:
    """Copy everything and compare the copies. Raises StorageError."""
    update_tables(given.to_database)
    asyncio.run(_move(given, config))
    print("Every row and every file is equal. Start the nodes, and this server no more: both would send webhooks.")
    return 0


async def _move(given: argparse.Namespace, config: Config) -> None:
    with cluster_libraries():
        import psycopg  # noqa: PLC0415  few have it

        from server.storage.s3.open import open_bucket  # noqa: PLC0415  few have it
    async with AsyncExitStack() as opened:
        opened.enter_context(claim_folder(config.data_dir))
        source = open_storage(config.data_dir, clock=now_ms)  # it brings the tables up to date
        opened.push_async_callback(source.close)
        bucket = open_bucket(given.to_blobs, source.blobs.scratch, env=os.environ)
        opened.push_async_callback(bucket.close)
        await asyncio.to_thread(bucket.check)
        ours = opened.enter_context(closing(sqlite3.connect(config.data_dir / FILE_NAME)))
        theirs: Any = opened.enter_context(psycopg.connect(given.to_database, autocommit=True))
        if theirs.execute("SELECT 1 FROM nodes WHERE seen_at > %s", (now_ms() - 60_000,)).fetchone():
            raise StorageError("a node works in that database, or did within the last minute: stop all nodes first")
        if {*theirs.execute("SELECT id FROM accounts")} - {*ours.execute("SELECT id FROM accounts")}:
            raise StorageError("that database has accounts of another installation: choose one that is empty")
        for table in TABLES:
            print(f"{table:12} {_copy(ours, theirs, table):>10,} rows", flush=True)
        keys = source.signing_keys
        theirs.execute("DELETE FROM secrets")
        for age, kid in enumerate(sorted(keys.secrets, key=lambda kid: (kid == keys.current, kid)), 1):
            theirs.execute("INSERT INTO secrets VALUES (%s, %s, %s)", (kid, keys.secrets[kid], age))
        theirs.execute("SELECT setval(pg_get_serial_sequence('erasures', 'number'), max(number)) FROM erasures")
        folder = config.data_dir / "blobs"
        files = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
        for key in files:
            await _copy_file(key, source.blobs, bucket)
        print(f"{'files':12} {len(files):>10,}", flush=True)


def _copy(ours: sqlite3.Connection, theirs: Any, table: str) -> int:
    """Copy the rows that are missing, and return how many there are. Raises StorageError if any differ afterwards."""
    names = ", ".join(f'"{row[1]}"' for row in ours.execute(f"PRAGMA table_info({table})"))
    select = f"SELECT {names} FROM {table}"  # noqa: S608  names of ours, as below
    number = "OVERRIDING SYSTEM VALUE" if table == "erasures" else ""
    values = ", ".join(["%s"] * len(names.split(", ")))
    insert = f"INSERT INTO {table} ({names}) {number} VALUES ({values}) ON CONFLICT DO NOTHING"  # noqa: S608
    found = ours.execute(select)
    while rows := found.fetchmany(ROWS_AT_ONCE):
        with theirs.transaction(), theirs.cursor() as cursor:
            cursor.executemany(insert, rows)
    count, there = _content(ours.execute(select)), _content(theirs.execute(select))
    if count != there:
        raise StorageError(f"{table}: {count[0]} rows here, {there[0]} there, or other values: begin with an empty one")
    return count[0]


def _content(rows: Iterable[Sequence[object]]) -> tuple[int, int]:
    """The number of rows, and a digest of their values that does not depend on their order."""
    digests = [int.from_bytes(hashlib.sha256(repr(tuple(row)).encode()).digest()) for row in rows]
    return len(digests), sum(digests)


async def _copy_file(key: str, source: BlobStore, target: BlobStore) -> None:
    if await target.size(key) is None:
        async with target.create(key) as sink:
            async for piece in source.read(key):
                await sink.write(piece)
    here, there = hashlib.sha256(), hashlib.sha256()
    for digest, pieces in ((here, source.read(key)), (there, target.read(key))):
        async for piece in pieces:
            digest.update(piece)
    if here.digest() != there.digest():
        raise StorageError(f"{key} is stored there with other bytes: choose a prefix that is empty")
