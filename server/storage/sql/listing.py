"""Finds a page of one account's jobs, also by the words of their transcripts.

The words of finished transcripts are one row a word and job, in both databases alike: deleting a job deletes its rows,
and no copy is left in an index of the database's own that could not be overwritten.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import orjson

from server.model.jobs import Job, JobFilter
from server.storage.sql.database import Transaction, marks
from server.storage.sql.rows import JOB_COLUMNS, SqlRow, job_of

SEARCHED_AT_ONCE = 200  # rows that a search for names holds in memory


def find(tx: Transaction, which: JobFilter, limit: int) -> list[Job]:
    """At most *limit* jobs after the cursor which.after. Jobs made after the first page shift no page."""
    if which.query is None and which.name is None:
        return [job_of(row) for row in _page(tx, which, limit, columns=JOB_COLUMNS)]
    size = limit if which.name is None else SEARCHED_AT_ONCE
    found: list[str] = []
    while len(found) < limit:
        page = _page(tx, which, size, columns="id, created_at, source, text")
        found += [row["id"] for row in page if _has(row, which)][: limit - len(found)]
        if len(page) < size:
            break
        which = replace(which, after=(page[-1]["created_at"], page[-1]["id"]))
    rows = [tx.one(f"SELECT {JOB_COLUMNS} FROM jobs WHERE id = ?", (job_id,)) for job_id in found]  # noqa: S608  a constant
    return [job_of(row) for row in rows if row is not None]


def _has(row: SqlRow, which: JobFilter) -> bool:
    """Whether the row's job has the phrases and the name. The databases do not agree on case, so this compares it."""
    if which.query is not None and not which.query.fits(row["text"] or ""):
        return False
    source = orjson.loads(row["source"])
    return which.name is None or which.name.casefold() in (source.get("filename") or source.get("url") or "").casefold()


def _page(tx: Transaction, which: JobFilter, limit: int, *, columns: str) -> Sequence[SqlRow]:
    """At most *limit* rows after the cursor, which have the words of the query, but perhaps not one after the other."""
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
    for condition, value in (
        ("created_at > ?", which.created_after),
        ("created_at < ?", which.created_before),
        ("source_type = ?", which.source),
        ("language = ?", which.language),
    ):
        if value is not None:
            add(condition, value)
    for key, value in which.metadata.items():  # not by JSON functions: a path cannot name every key
        add("EXISTS (SELECT 1 FROM metadata WHERE job = jobs.id AND key = ? AND value = ?)", key, value)
    if which.query is not None:
        has_word = "EXISTS (SELECT 1 FROM terms WHERE account = ? AND environment = ? AND term = ? AND job = jobs.id)"
        for term in sorted(which.query.terms(), key=len, reverse=True):  # long words are rare: they are looked up first
            add(has_word, which.account, which.environment, term)
    if which.after is not None:
        add(f"(created_at, id) {'<' if which.descending else '>'} (?, ?)", *which.after)
    return conditions, values


def index_words(tx: Transaction, *, account: str, environment: str, job_id: str, terms: Iterable[str]) -> None:
    """Let the job be found by *terms*, and by no others."""
    wanted = set(terms)
    known = {str(row["term"]) for row in tx.all("SELECT term FROM terms WHERE job = ?", (job_id,))}

    def rows(some: set[str]) -> list[tuple[str, ...]]:
        return [(account, environment, term, job_id) for term in sorted(some)]

    where = "account = ? AND environment = ? AND term = ? AND job = ?"
    tx.run_many(f"DELETE FROM terms WHERE {where}", rows(known - wanted))  # noqa: S608  a constant
    tx.run_many("INSERT INTO terms (account, environment, term, job) VALUES (?, ?, ?, ?)", rows(wanted - known))


def forget_words(tx: Transaction, job_id: str) -> None:
    """Let the job no longer be found."""
    tx.run("DELETE FROM terms WHERE job = ?", (job_id,))
