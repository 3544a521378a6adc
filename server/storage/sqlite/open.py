"""Opens the SQLite storage of a data folder."""

from dataclasses import dataclass, field
from pathlib import Path

from server.model.accounts import SigningKeys
from server.model.errors import StorageError
from server.storage.sql.jobs import MAX_QUEUED, SqlJobs
from server.storage.sql.storage import SqlStorage
from server.storage.sqlite.database import Clock, SqliteDatabase
from server.storage.sqlite.files import FileBlobs
from server.storage.sqlite.folder import make_private, one_opener, signing_keys

FILE_NAME = "scribewire.db"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """The content of a data folder, open to be copied elsewhere."""

    database: SqliteDatabase = field(repr=False)
    blobs: FileBlobs
    signing_keys: SigningKeys

    async def close(self) -> None:
        await self.database.close()
        await self.blobs.close()


def open_installation(folder: Path, *, clock: Clock) -> Installation:
    """Open *folder* to copy its content. It blocks. Raises StorageError if there is none, or it cannot be used."""
    if not (folder / FILE_NAME).is_file():
        raise StorageError(f"there is no installation in {folder}: set SCRIBEWIRE_DATA_DIR")
    with one_opener(folder):
        return Installation(
            database=SqliteDatabase(folder / FILE_NAME, clock),
            blobs=FileBlobs(folder),
            signing_keys=signing_keys(folder),
        )


def open_storage(folder: Path, *, clock: Clock, max_queued: int = MAX_QUEUED, reserve_bytes: int = 0) -> SqlStorage:
    """Open the storage in *folder*, or create it. It blocks. Any number of processes may have it open.

    Incoming audio that would leave less than *reserve_bytes* of the disk free is refused (DiskFull). Raises
    StorageError if the folder's content cannot be used.
    """
    make_private(folder)
    with one_opener(folder):
        keys = signing_keys(folder)
        files = FileBlobs(folder, reserve_bytes=reserve_bytes)
        database = SqliteDatabase(folder / FILE_NAME, clock)
    return SqlStorage(database, files, keys, jobs=SqlJobs(database, max_queued=max_queued))
