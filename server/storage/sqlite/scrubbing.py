"""Removes all bytes of deleted rows from the database's files: truncates the log and overwrites gaps in pages.

SQLite itself overwrites a deleted row in its place (secure_delete). slack.py explains what it leaves in gaps.
"""

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

from server.storage.sqlite.slack import HEADER_BYTES, MAX_PAGES, Layout, find_used_gaps, gap, layout

READ_BYTES = 4 * 1024 * 1024


class Connection(Protocol):
    """The methods of a database connection that are used here."""

    def execute(self, sql: str, /) -> Any: ...
    def close(self) -> None: ...


class Scrubber:
    """Scrubs one database file. Its methods block. Only the database's writing thread may call those that write.

    *connect* opens a connection that waits only briefly for others. Each use opens one and closes it, so that no cache
    of pages stays.
    """

    def __init__(self, path: Path, connect: Callable[[], Connection]) -> None:
        self._log = path.with_name(f"{path.name}-wal")
        self._connect = connect
        # Kept open: closing a descriptor of an open database file would drop SQLite's locks on it (POSIX).
        self._file = path.open("r+b", buffering=0)

    def close(self) -> None:
        """Close the file. Call it after the last connection was closed."""
        self._file.close()

    def truncate_log(self) -> bool:
        """Write the log into the database and empty it. Returns False if another connection is reading from it."""
        with closing(self._connect()) as connection:
            (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return not busy

    def find_used_gaps(self) -> list[int]:
        """The numbers of pages with data in their gaps. It may miss some that others write at the same time."""
        shape = self._layout()
        found: list[int] = []
        at = 0
        while at < MAX_PAGES * shape.page_bytes and (data := os.pread(self._file.fileno(), READ_BYTES, at)):
            found += find_used_gaps(data, shape, first_page=at // shape.page_bytes + 1)
            at += READ_BYTES
        return found

    def overwrite_gaps(self, numbers: list[int]) -> bool:
        """Overwrite the gaps of these pages. Returns False if other processes prevented it.

        The log must be empty, so that the file has the newest state of each page. The write lock keeps it empty
        meanwhile. A small change is committed at the end, so that every connection reads its pages anew and none writes
        an old gap back from its cache.
        """
        if not self.truncate_log():
            return False
        with closing(self._connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            if self._log.exists() and self._log.stat().st_size:
                connection.execute("ROLLBACK")
                return False
            self._fill_with_zeros(numbers)
            connection.execute("INSERT OR REPLACE INTO changes (topic, at) VALUES ('scrubbed', 0)")
            connection.execute("COMMIT")
            return True

    def _fill_with_zeros(self, numbers: list[int]) -> None:
        shape = self._layout()
        for number in numbers:
            at = (number - 1) * shape.page_bytes
            unused = gap(os.pread(self._file.fileno(), shape.page_bytes, at), shape, number=number)
            os.pwrite(self._file.fileno(), bytes(len(unused)), at + unused.start)
        os.fsync(self._file.fileno())

    def _layout(self) -> Layout:
        return layout(os.pread(self._file.fileno(), HEADER_BYTES, 0))
