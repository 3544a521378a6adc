"""A page of one account's jobs."""

from typing import Any

from server.model.jobs import Job, JobFilter
from server.storage.sqlite.database import Transaction
from server.storage.sqlite.rows import job_of


def find(tx: Transaction, which: JobFilter, limit: int) -> list[Job]:
    """At most *limit* jobs after the cursor. Jobs made meanwhile do not shift them."""
    conditions = ["account = ?", "environment = ?"]
    values: list[Any] = [which.account, which.environment]

    def add(condition: str, *more: object) -> None:
        conditions.append(condition)
        values.extend(more)

    if which.states:
        add(f"state IN ({', '.join('?' * len(which.states))})", *which.states)
    if which.created_after is not None:
        add("created_at > ?", which.created_after)
    if which.created_before is not None:
        add("created_at < ?", which.created_before)
    if which.source is not None:
        add("json_extract(source, '$.type') = ?", which.source)
    if which.language is not None:
        add("language = ?", which.language)
    for key, value in which.metadata.items():  # not by JSON functions: a path cannot name every key
        add("EXISTS (SELECT 1 FROM metadata WHERE job = jobs.id AND key = ? AND value = ?)", key, value)
    if which.text is not None:  # not LIKE: it knows only ASCII's upper case
        add("instr(casefold(text), ?) > 0", which.text.casefold())
    if which.after is not None:
        add(f"(created_at, id) {'<' if which.descending else '>'} (?, ?)", *which.after)
    direction = "DESC" if which.descending else "ASC"
    rows = tx.all(
        f"SELECT * FROM jobs WHERE {' AND '.join(conditions)}"  # noqa: S608  made of the constants above
        f" ORDER BY created_at {direction}, id {direction} LIMIT ?",
        [*values, limit],
    )
    return [job_of(row) for row in rows]
