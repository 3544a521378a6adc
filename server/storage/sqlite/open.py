"""Opens the SQLite storage of a data folder."""

from pathlib import Path

from server.storage.sql.jobs import MAX_QUEUED, JobStore
from server.storage.sql.storage import Storage
from server.storage.sqlite.database import Clock, SqliteDatabase
from server.storage.sqlite.files import FileBlobs
from server.storage.sqlite.folder import make_private, one_opener, signing_keys

FILE_NAME = "scribewire.db"


def open_storage(folder: Path, *, clock: Clock, max_queued: int = MAX_QUEUED, reserve_bytes: int = 0) -> Storage:
    """Open the storage in *folder*, or create it. Any number of processes may have it open.

    It blocks. Raises StorageError if the folder's content cannot be used.

    *max_queued*: the most files that may wait.
    *reserve_bytes*: of the disk, kept free. Incoming audio that would leave less is refused (DiskFull).
    """
    make_private(folder)
    with one_opener(folder):
        keys = signing_keys(folder)
        files = FileBlobs(folder, reserve_bytes=reserve_bytes)
        database = SqliteDatabase(folder / FILE_NAME, clock)
    return Storage(database, files, keys, jobs=JobStore(database, max_queued=max_queued))
