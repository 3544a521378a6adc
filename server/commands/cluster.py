"""scribewire migrate and move: migrate a cluster's tables, and copy an installation of one machine into a cluster."""

import argparse
import asyncio
import os
from contextlib import AsyncExitStack
from typing import Any

from server.clock import now_ms
from server.commands.opening import cluster_libraries, update_tables
from server.config import PREFIX, Config, ConfigError
from server.model.errors import StorageError
from server.storage.moving import Checksum, copy_blobs
from server.storage.ports import BlobStore
from server.storage.sql.database import Database
from server.storage.sql.moving import TABLES, Table, columns_of, content_of, copy_table, has_others, last_lease_end
from server.storage.sqlite.folder import claim_folder
from server.storage.sqlite.open import Installation, open_installation


def add(commands: Any) -> None:
    migrating: argparse.ArgumentParser = commands.add_parser(
        "migrate", help="make or update the tables in the database of a cluster"
    )
    migrating.set_defaults(run=migrate)
    moving: argparse.ArgumentParser = commands.add_parser(
        "move", help="copy a stopped installation into a database and a bucket (the cluster form)"
    )
    moving.add_argument("--to-database", required=True, metavar="URL", help="postgresql://user@host/name")
    moving.add_argument("--to-blobs", required=True, metavar="URL", help="s3://bucket/prefix")
    moving.set_defaults(run=move)


def migrate(_given: argparse.Namespace, config: Config) -> int:
    if config.database_url is None:
        raise ConfigError(f"{PREFIX}DATABASE_URL must be set; the embedded database is updated when it is opened")
    steps = update_tables(config.database_url)
    print(f"steps taken: {', '.join(map(str, steps))}" if steps else "the tables are up to date")
    return 0


def move(given: argparse.Namespace, config: Config) -> int:
    asyncio.run(_move(given, config))
    return 0


async def _move(given: argparse.Namespace, config: Config) -> None:
    """Copy everything and compare the copies. It may be called again after an interruption. Raises StorageError."""
    with cluster_libraries():
        from server.storage.postgres.arriving import end_move, open_for_move  # noqa: PLC0415  few have it
        from server.storage.s3.open import open_bucket  # noqa: PLC0415  few have it
    async with AsyncExitStack() as opened:
        source = open_installation(config.data_dir, clock=now_ms)
        opened.push_async_callback(source.close)
        opened.enter_context(claim_folder(config.data_dir))
        await _refuse_if_busy(source.database)
        blobs = open_bucket(given.to_blobs, source.blobs.scratch, env=os.environ)
        opened.push_async_callback(blobs.close)
        await asyncio.to_thread(blobs.check)
        database = await asyncio.to_thread(open_for_move, given.to_database, source.signing_keys)
        opened.push_async_callback(database.close)
        await _move_rows(source.database, database)
        await end_move(database)
        await _move_blobs(source, blobs)
    print("Every count and every digest is equal. Start the nodes, and this server no more: both would send webhooks.")


async def _refuse_if_busy(database: Database) -> None:
    until = await last_lease_end(database)
    if until is not None:
        seconds = max(1, (until - now_ms()) // 1000 + 1)
        raise StorageError(f"a job is in work: stop the workers too, or wait for {seconds} s if they are stopped")


async def _move_rows(source: Database, target: Database) -> None:
    if await has_others(source, target):
        raise StorageError("that database holds accounts of another installation: choose one that is empty")
    for table in TABLES:
        await copy_table(source, target, table)
        print(f"{table.name:12} {await _compare(source, target, table):>10,} rows", flush=True)


async def _compare(source: Database, target: Database, table: Table) -> int:
    """The number of rows in both tables. Raises StorageError if any value differs."""
    columns = await columns_of(source, table)
    ours, theirs = await content_of(source, table, columns), await content_of(target, table, columns)
    if ours != theirs:
        raise StorageError(
            f"{table.name}: {ours.rows} rows here, {theirs.rows} there, or other values. The server ran since the move"
            " began, or that database was in use. Begin anew with an empty one."
        )
    return ours.rows


async def _move_blobs(source: Installation, target: BlobStore) -> None:
    count = size = 0

    def add_up(blob: Checksum) -> None:
        nonlocal count, size
        count += 1
        size += blob.bytes

    await copy_blobs(iter(await source.blobs.keys()), source.blobs, target, report=add_up)
    print(f"{'blobs':12} {count:>10,} with {size:,} bytes", flush=True)
