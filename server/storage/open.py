"""Open the embedded storage of a data folder."""

from dataclasses import dataclass, field
from pathlib import Path

from server.storage.accounts import SqliteAccounts
from server.storage.counters import SqliteCounter
from server.storage.database import Clock, Database
from server.storage.events import SqliteEvents
from server.storage.files import FileBlobs
from server.storage.folder import SigningSecrets, make_private, one_opener, signing_secrets
from server.storage.interfaces import AccountStore, BlobStore, Counter, EventLog, JobStore, Outbox
from server.storage.jobs import MOST_QUEUED, SqliteJobs
from server.storage.outbox import SqliteOutbox

FILE_NAME = "scribewire.db"


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Every store of one data folder, until close()."""

    jobs: JobStore
    events: EventLog
    accounts: AccountStore
    counters: Counter
    outbox: Outbox
    blobs: BlobStore
    secrets: SigningSecrets
    _database: Database = field(repr=False)
    _files: FileBlobs = field(repr=False)

    async def close(self) -> None:
        """What was handed over is on the disk; threads and files are closed. Nothing may be asked after it."""
        await self._database.close()
        await self._files.close()


def open_storage(folder: Path, *, clock: Clock, most_queued: int = MOST_QUEUED) -> Storage:
    """The storage in *folder*, made on first use. Any number of processes may have it open; it blocks for a moment.

    Raises StorageError when the folder's content cannot be used.
    """
    make_private(folder)
    with one_opener(folder):
        secrets = signing_secrets(folder)
        files = FileBlobs(folder)
        database = Database(folder / FILE_NAME, clock)
    return Storage(
        jobs=SqliteJobs(database, most_queued=most_queued),
        events=SqliteEvents(database),
        accounts=SqliteAccounts(database),
        counters=SqliteCounter(database),
        outbox=SqliteOutbox(database),
        blobs=files,
        secrets=secrets,
        _database=database,
        _files=files,
    )
