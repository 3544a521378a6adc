"""Opens the storage that the settings name: one machine's folder, or the database and the bucket of a cluster."""

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from server.clock import now_ms
from server.config import PREFIX, Config, ConfigError
from server.logs import log
from server.model.errors import BlobsAway, StorageAway
from server.storage.sql.storage import Storage
from server.storage.sqlite.open import make_private
from server.storage.sqlite.open import open_storage as open_folder

T = TypeVar("T")

START_S = 20.0  # how long a start waits for a database or bucket, which may be starting too
AGAIN_S = 1.0
SCRATCH = "incoming"  # folder of a node for copies and recordings without a name


def node_name(config: Config) -> str:
    """The name of this process in its cluster: that of the settings, or a random one."""
    return config.node or f"{os.uname().nodename}-{secrets.token_hex(2)}"


def open_storage(config: Config, *, node: str, check_bucket: bool = False) -> Storage:
    """Open the storage, or create it. It blocks, in a cluster until the database answers.

    With *check_bucket*, the bucket must answer too, and let this process read and write. Raises StorageError,
    ConfigError.
    """
    if config.database_url is None or config.blobs is None:
        return open_folder(config.data_dir, clock=now_ms, reserve_bytes=config.disk_reserve_bytes)
    with cluster_libraries():
        from server.storage.postgres import open as postgres  # noqa: PLC0415  few have it
        from server.storage.s3.open import open_bucket  # noqa: PLC0415  few have it
    make_private(config.data_dir)
    url, blobs = config.database_url, open_bucket(config.blobs, config.data_dir / SCRATCH, env=os.environ)
    if check_bucket:
        _once_it_answers(blobs.check, "bucket")
    return _once_it_answers(
        lambda: postgres.open_storage(url, blobs, name=node, notify=config.database_notify), "database"
    )


def _once_it_answers(reach: Callable[[], T], what: str) -> T:
    """Call *reach* until it raises neither StorageAway nor BlobsAway, or START_S is over. *what* is for the log."""
    until = time.monotonic() + START_S
    while True:
        try:
            return reach()
        except (StorageAway, BlobsAway):
            if time.monotonic() >= until:
                raise
            log.warning("waiting for the %s", what)
            time.sleep(AGAIN_S)


def update_tables(url: str) -> list[int]:
    """Migrate the tables of a cluster's database. Returns the steps taken. Raises StorageError, ConfigError."""
    with cluster_libraries():
        from server.storage.postgres.open import update  # noqa: PLC0415  few have it
    return update(url)


@contextmanager
def cluster_libraries() -> Iterator[None]:
    """Import in the block what only a cluster needs. Raises ConfigError if that is not installed."""
    try:
        yield
    except ImportError:
        raise ConfigError(f"{PREFIX}DATABASE_URL needs more libraries: run scripts/setup cluster") from None
