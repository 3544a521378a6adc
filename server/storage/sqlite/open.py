"""Opens the SQLite storage of a data folder, claims the folder for one server, and reads its signing secrets.

Locks end with their process.
"""

import base64
import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson

from server.model.accounts import SigningKeys
from server.model.errors import FolderInUse, StorageError
from server.storage.scratch import PRIVATE_FILE, PRIVATE_FOLDER, sync_folder
from server.storage.sql.jobs import MAX_QUEUED, JobStore
from server.storage.sql.storage import Storage
from server.storage.sqlite.blobs import FileBlobs
from server.storage.sqlite.database import Clock, SqliteDatabase

SECRET_BYTES = 32
FILE_NAME = "scribewire.db"


def open_storage(folder: Path, *, clock: Clock, max_queued: int = MAX_QUEUED, reserve_bytes: int = 0) -> Storage:
    """Open the storage in *folder*, or create it. Any number of processes may have it open.

    It blocks. Raises StorageError if the folder's content cannot be used.

    *max_queued*: the most files that may wait.
    *reserve_bytes*: of the disk, kept free. Incoming audio that would leave less is refused (DiskFull).
    """
    make_private(folder)
    with _one_opener(folder):
        keys = signing_keys(folder)
        files = FileBlobs(folder, reserve_bytes=reserve_bytes)
        database = SqliteDatabase(folder / FILE_NAME, clock)
    return Storage(database, files, keys, jobs=JobStore(database, max_queued=max_queued))


@contextmanager
def claim_folder(folder: Path) -> Iterator[None]:
    """Claim *folder* for this server, until the end of the block or of the process.

    Workers and the command line may still open it. Raises FolderInUse, or StorageError if nothing can be written there.
    """
    lock = _open_lock(folder)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 20, 0).decode("ascii", "replace").strip() or "unknown"
            message = f"another server (process {holder}) already uses {folder}; stop it or choose another DATA_DIR"
            raise FolderInUse(message) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(lock)  # the kernel drops the lock with its last descriptor


def _open_lock(folder: Path) -> int:
    try:
        make_private(folder)
        return os.open(folder / "server.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    except OSError as error:
        problem = f"DATA_DIR {folder} cannot be used: {error.strerror}; it must be a folder that this user may write to"
        raise StorageError(problem) from None


@contextmanager
def _one_opener(folder: Path) -> Iterator[None]:
    """Admit one process at a time to the block, so that tables and secrets are created once."""
    lock = os.open(folder / "opening.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def make_private(folder: Path) -> None:
    """Create *folder* durably, readable by its owner only. An existing folder keeps its mode."""
    if not folder.is_dir():
        folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        sync_folder(folder.parent)


def signing_keys(folder: Path) -> SigningKeys:
    """The signing keys of *folder*, created on first use, inside _one_opener(). Raises StorageError if damaged."""
    path = folder / "secrets.json"
    if not path.exists():
        _write_first_secret(path)
    try:
        stored = orjson.loads(path.read_bytes())
        by_kid = {kid: base64.b64decode(text, validate=True) for kid, text in stored["secrets"].items()}
        current = stored["current"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StorageError(f"{path} cannot be used ({type(error).__name__}): restore it from a backup") from None
    if current not in by_kid or any(len(secret) < SECRET_BYTES for secret in by_kid.values()):
        raise StorageError(f"{path} must name a current secret, and each must have {SECRET_BYTES} bytes")
    return SigningKeys(by_kid, current)


def _write_first_secret(path: Path) -> None:
    kid, secret = "1", base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()
    half_written = path.with_suffix(".new")
    descriptor = os.open(half_written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        os.write(descriptor, orjson.dumps({"current": kid, "secrets": {kid: secret}}))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    half_written.rename(path)
    sync_folder(path.parent)
