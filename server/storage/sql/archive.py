"""The words of finished transcripts, by which an account finds them again.

One row a word and job, in both databases alike: deleting a job deletes its rows, and no copy is left in an index of the
database's own that could not be overwritten.
"""

from collections.abc import Iterable

from server.storage.sql.database import Transaction


def index(tx: Transaction, *, account: str, environment: str, job_id: str, terms: Iterable[str]) -> None:
    """Let the job be found by *terms*, and by no others."""
    wanted = set(terms)
    known = {str(row["term"]) for row in tx.all("SELECT term FROM terms WHERE job = ?", (job_id,))}

    def rows(some: set[str]) -> list[tuple[str, ...]]:
        return [(account, environment, term, job_id) for term in sorted(some)]

    where = "account = ? AND environment = ? AND term = ? AND job = ?"
    tx.run_many(f"DELETE FROM terms WHERE {where}", rows(known - wanted))  # noqa: S608  a constant
    tx.run_many("INSERT INTO terms (account, environment, term, job) VALUES (?, ?, ?, ?)", rows(wanted - known))


def forget(tx: Transaction, job_id: str) -> None:
    """Let the job no longer be found."""
    tx.run("DELETE FROM terms WHERE job = ?", (job_id,))


def conditions_for(account: str, environment: str, terms: Iterable[str]) -> tuple[list[str], list[object]]:
    """Return conditions on a row of jobs, and their parameters: it has all *terms*."""
    condition = "EXISTS (SELECT 1 FROM terms WHERE account = ? AND environment = ? AND term = ? AND job = jobs.id)"
    wanted = sorted(terms, key=len, reverse=True)  # long words are rare, and are looked up first
    return [condition] * len(wanted), [value for term in wanted for value in (account, environment, term)]
