"""Finds a page of one account's jobs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from server.model.jobs import Job, JobFilter
from server.storage.sql import archive
from server.storage.sql.database import Transaction, marks
from server.storage.sql.rows import JOB_COLUMNS, SqlRow, job_of


def find(tx: Transaction, which: JobFilter, limit: int) -> list[Job]:
    """At most *limit* jobs after the cursor which.after. Jobs made after the first page shift no page."""
    found: list[Job] = []
    while len(found) < limit:
        page = [job_of(row) for row in _page(tx, which, limit)]
        found += page if which.query is None else [job for job in page if which.query.fits(job.text or "")]
        if len(page) < limit or which.query is None:
            break
        which = replace(which, after=(page[-1].created_at, page[-1].id))
    return found[:limit]


def _page(tx: Transaction, which: JobFilter, limit: int) -> Sequence[SqlRow]:
    """At most *limit* rows after the cursor, which have the words of the query, but perhaps not one after the other."""
    conditions, values = _conditions(which)
    direction = "DESC" if which.descending else "ASC"
    return tx.all(
        f"SELECT {JOB_COLUMNS} FROM jobs WHERE {' AND '.join(conditions)}"  # noqa: S608  made of constants
        f" ORDER BY created_at {direction}, id {direction} LIMIT ?",
        [*values, limit],
    )


def _conditions(which: JobFilter) -> tuple[list[str], list[Any]]:
    conditions = ["account = ?", "environment = ?"]
    values: list[Any] = [which.account, which.environment]

    def add(condition: str, *more: object) -> None:
        conditions.append(condition)
        values.extend(more)

    if which.states:
        add(f"state IN ({marks(which.states)})", *which.states)
    if which.created_after is not None:
        add("created_at > ?", which.created_after)
    if which.created_before is not None:
        add("created_at < ?", which.created_before)
    if which.source is not None:
        add("source_type = ?", which.source)
    if which.language is not None:
        add("language = ?", which.language)
    for key, value in which.metadata.items():  # not by JSON functions: a path cannot name every key
        add("EXISTS (SELECT 1 FROM metadata WHERE job = jobs.id AND key = ? AND value = ?)", key, value)
    if which.query is not None:
        more, wanted = archive.conditions_for(which.account, which.environment, which.query.terms())
        conditions += more
        values += wanted
    if which.after is not None:
        add(f"(created_at, id) {'<' if which.descending else '>'} (?, ?)", *which.after)
    return conditions, values
