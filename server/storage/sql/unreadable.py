"""Sets jobs aside whose rows cannot be read, because one damaged row must not stop the work on all others."""

from collections.abc import Callable, Iterable
from typing import Any

from server.logs import log
from server.model.jobs import Cause, JobError
from server.model.orders import LiveOptions, Order, Source
from server.storage.sql.database import Transaction
from server.storage.sql.endings import fail
from server.storage.sql.rows import LIVE, READERS, SqlRow, job_of, quotas_of, text_of

BROKEN = (ValueError, KeyError, TypeError, AttributeError)
"""What the readers of rows.py raise for values that they cannot read."""

_READERS = {**READERS, "quotas": quotas_of}


def is_readable(row: SqlRow) -> bool:
    """Whether all values of a row of the job table can be read."""
    return not _broken_columns(row)


def set_aside(tx: Transaction, rows: Iterable[SqlRow]) -> list[SqlRow]:
    """Return the *rows* that can be read, and fail the jobs of all others: queued or processing, and locked here.

    What cannot be read of such a job is lost, its webhook too. Its log line names the columns.
    """
    readable: list[SqlRow] = []
    for row in rows:
        if broken := _broken_columns(row):
            log.error("job cannot be read", extra={"job": row["id"], "columns": ", ".join(broken)})
            message = f"the stored job cannot be read: {', '.join(broken)}"
            mended = _mend(tx, row, broken)
            fail(tx, mended, Cause.UNREADABLE, JobError(code="internal", message=message, retryable=False))
        else:
            readable.append(row)
    return readable


def _broken_columns(row: SqlRow) -> list[str]:
    try:
        job_of(row)
        quotas_of(row["quotas"])
    except BROKEN:
        return [name for name, read in _READERS.items() if row[name] is not None and not _can_read(read, row[name])]
    return []


def _can_read(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except BROKEN:
        return False
    return True


def _mend(tx: Transaction, row: SqlRow, broken: Iterable[str]) -> SqlRow:
    """Return the row, in which the *broken* columns have the values of a job without wishes."""
    live = row["class"] == LIVE
    plain: dict[str, Any] = {
        "options": text_of(Order(live=LiveOptions() if live else None)),
        "source": text_of(Source(type="live" if live else "upload")),
        "warnings": "[]",
        "quotas": "[]",
    }
    for column in broken:
        tx.run(f"UPDATE jobs SET {column} = ? WHERE id = ?", (plain.get(column), row["id"]))  # noqa: S608  one of READERS
    mended = tx.one("SELECT * FROM jobs WHERE id = ?", (row["id"],))
    assert mended is not None
    return mended
