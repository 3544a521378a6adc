"""Removes all bytes of deleted rows from the database's files.

SQLite itself overwrites a deleted row in its place (secure_delete). Copies are left in the log, which is truncated, and
in the gaps of pages, which are overwritten. A page of a search tree has a gap between its list of cells and the cells.
If SQLite moves a row to another page, a copy may stay in the gap of the first page, and outlive the row. SQLite never
reads a gap. The format is fixed: https://www.sqlite.org/fileformat2.html, section 1.6.
"""

import os
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

PAGES_READ = 1024  # at once
LEAVES, INTERIORS = (10, 13), (2, 5)  # the first byte of a page of a search tree
MAX_PAGES = 2 << 24  # in larger files the first byte of another kind of page may look like that of a search tree


class Scrubber:
    """Scrubs one database file. Its methods block. Only the database's writing thread may call those that write.

    *connect* opens a connection that waits only briefly for others. Each use opens one and closes it, so that no cache
    of pages stays.
    """

    def __init__(self, path: Path, connect: Callable[[], Any]) -> None:
        self._log = path.with_name(f"{path.name}-wal")
        self._connect = connect
        # Kept open: closing a descriptor of an open database file would drop SQLite's locks on it (POSIX).
        self._file = path.open("r+b", buffering=0)
        with closing(connect()) as connection:
            (self._page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
            (self._mapped,) = connection.execute("PRAGMA auto_vacuum").fetchone()  # with maps that look like trees

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
        found: list[int] = []
        for first in range(1, MAX_PAGES, PAGES_READ):
            data = self._read(first, PAGES_READ)
            for number, at in enumerate(range(0, len(data) - self._page_bytes + 1, self._page_bytes), first):
                unused = self._gap(data, at, number)
                if data.count(0, unused.start, unused.stop) != len(unused):
                    found.append(number)
            if len(data) < PAGES_READ * self._page_bytes:
                break
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
        for number in numbers:
            unused = self._gap(self._read(number, 1), 0, number)
            os.pwrite(self._file.fileno(), bytes(len(unused)), (number - 1) * self._page_bytes + unused.start)
        os.fsync(self._file.fileno())

    def _read(self, first: int, count: int) -> bytes:
        return os.pread(self._file.fileno(), count * self._page_bytes, (first - 1) * self._page_bytes)

    def _gap(self, data: bytes, at: int, number: int) -> range:
        """Where in *data* page *number*, which begins at *at*, has its gap. Empty unless it is of a search tree."""
        start = at + (100 if number == 1 else 0)  # the file's own header
        kind, cells, content = struct.unpack_from(">BxxHH", data, start)
        begin = start + (12 if kind in INTERIORS else 8) + 2 * cells
        end = at + (content or 65536)
        is_tree = kind in (*LEAVES, *INTERIORS) and not self._mapped
        return range(begin, end) if is_tree and begin <= end <= at + self._page_bytes else range(0)
