"""Sets jobs aside whose rows cannot be read, because one damaged row must not stop the work on all others."""

from collections.abc import Iterable

from server.logs import log
from server.model.jobs import Cause, JobError
from server.model.orders import LiveOptions, Order, Source
from server.storage.sql.database import Transaction
from server.storage.sql.endings import fail
from server.storage.sql.rows import LIVE, SqlRow, job_of, quotas_of, text_of


def why_unreadable(row: SqlRow) -> str | None:
    """Why a row of the job table cannot be read; None if it can."""
    try:
        job_of(row)
        quotas_of(row["quotas"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def set_aside(tx: Transaction, rows: Iterable[SqlRow]) -> list[SqlRow]:
    """Return the *rows* that can be read, and fail the jobs of all others: queued or processing, and locked here.

    What was ordered with such a job is lost, its webhook and its place in the allowance too.
    """
    readable: list[SqlRow] = []
    for row in rows:
        if (why := why_unreadable(row)) is None:
            readable.append(row)
            continue
        log.error("job cannot be read", extra={"job": row["id"], "error": why})
        live = row["class"] == LIVE
        tx.run(
            "UPDATE jobs SET options = ?, source = ?, source_type = ?, warnings = '[]', quotas = '[]', error = NULL,"
            " languages = NULL, speakers = NULL WHERE id = ?",
            (
                text_of(Order(live=LiveOptions() if live else None)),
                text_of(Source(type="live" if live else "upload")),
                "live" if live else "upload",
                row["id"],
            ),
        )
        (mended,) = tx.all("SELECT * FROM jobs WHERE id = ?", (row["id"],))
        error = JobError(code="internal", message="the stored job cannot be read", retryable=False)
        fail(tx, mended, Cause.UNREADABLE, error)
    return readable
