"""Finds a page of one account's jobs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from server.model.jobs import Job, JobFilter
from server.storage.sql.database import Transaction, marks
from server.storage.sql.rows import JOB_COLUMNS, SqlRow, job_of

SEARCHED_AT_ONCE = 200  # rows that a search for text holds in memory


def find(tx: Transaction, which: JobFilter, limit: int) -> list[Job]:
    """At most *limit* jobs behind the cursor which.after. Jobs made after the first page shift no page."""
    if which.text is None:
        return [job_of(row) for row in _page(tx, which, limit, columns=JOB_COLUMNS)]
    folded, found = which.text.casefold(), list[str]()
    while len(found) < limit:  # the databases do not agree on upper case, so the text is compared here
        page = _page(tx, which, SEARCHED_AT_ONCE, columns="id, created_at, text")
        hits = [row["id"] for row in page if row["text"] is not None and folded in row["text"].casefold()]
        found += hits[: limit - len(found)]
        if len(page) < SEARCHED_AT_ONCE:
            break
        which = replace(which, after=(page[-1]["created_at"], page[-1]["id"]))
    rows = [tx.one(f"SELECT {JOB_COLUMNS} FROM jobs WHERE id = ?", (job_id,)) for job_id in found]  # noqa: S608  a constant
    return [job_of(row) for row in rows if row is not None]


def _page(tx: Transaction, which: JobFilter, limit: int, *, columns: str) -> Sequence[SqlRow]:
    """At most *limit* rows behind the cursor. The text is not compared here."""
    conditions, values = _conditions(which)
    direction = "DESC" if which.descending else "ASC"
    return tx.all(
        f"SELECT {columns} FROM jobs WHERE {' AND '.join(conditions)}"  # noqa: S608  made of constants
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
    if which.after is not None:
        add(f"(created_at, id) {'<' if which.descending else '>'} (?, ?)", *which.after)
    return conditions, values
