"""Erases results that nobody keeps, records erasures, deletes old data, and wipes the files."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from server.model.accounts import SIGNUP_PLAN
from server.model.jobs import ErasedPart, Erasure, ErasureReason, Job
from server.storage.sql.database import Database, SqlStore, Transaction, marks, select_number, write_method
from server.storage.sql.listing import forget_words
from server.storage.sql.rows import job_of, order_of, text_of
from server.storage.sql.submission import KEY_KEPT_MS
from server.storage.sql.timeline import erase_words

DAY_MS = 24 * 60 * 60 * 1000

USAGE_KEPT_MS = 62 * DAY_MS
"""What an ended job used."""
COUNTERS_KEPT_MS = USAGE_KEPT_MS
"""Counted allowances, after their window, for the operator's questions."""
ADDRESSES_KEPT_MS = 30 * DAY_MS
"""The failures of webhook addresses and which are disabled. The time begins with the last change."""
KEYS_KEPT_MS = 30 * DAY_MS
"""Keys that were revoked or have expired."""
UNTRIED_ACCOUNTS_KEPT_MS = 30 * DAY_MS
"""Accounts with the plan SIGNUP_PLAN, without own limits and jobs, none of whose keys was ever used."""
IDLE_ACCOUNTS_KEPT_MS = 365 * DAY_MS
"""Such accounts whose keys were used. The time begins with the last use."""
ERASURES_KEPT_MS = 730 * DAY_MS
AT_ONCE = 500  # accounts forgotten in one transaction

FORGOTTEN_ACCOUNTS = """
    SELECT id FROM accounts WHERE created_at <= ?
        AND NOT EXISTS (SELECT 1 FROM jobs WHERE account = accounts.id)
        AND NOT EXISTS (
            SELECT 1 FROM keys WHERE account = accounts.id AND (
                accounts.plan != ? OR accounts.limits != '{}'
                OR CASE WHEN last_used_at IS NULL THEN created_at > ? ELSE last_used_at > ? END
            )
        )
"""
"""Selects accounts without jobs: those from open signup if no key was used lately, others if they have no key."""


ERASABLE = """
    SELECT * FROM jobs WHERE kept = 0 AND erased_at IS NULL AND finished_at IS NOT NULL
        AND (answered_at IS NOT NULL OR state != 'completed')
        AND NOT EXISTS (SELECT 1 FROM deliveries WHERE job = jobs.id AND state = 'pending')
"""


def note_erasure(tx: Transaction, job_id: str, what: ErasedPart, why: ErasureReason) -> None:
    """Record that a part of the job is erased, in the transaction that erases it."""
    tx.run("INSERT INTO erasures (job, at, what, why) VALUES (?, ?, ?, ?)", (job_id, tx.now, what, why))


def note_answered(tx: Transaction, job_id: str) -> None:
    """Note that the client has all results of a job whose order keeps none."""
    noted = tx.run(
        "UPDATE jobs SET answered_at = ? WHERE id = ? AND kept = 0 AND finished_at IS NOT NULL AND answered_at IS NULL",
        (tx.now, job_id),
    )
    if noted:
        tx.announce(job_id)


def list_to_erase(tx: Transaction, *, limit: int) -> list[Job]:
    """Ended jobs whose order keeps no results, and whose results may be erased now.

    The client has the results, or the job did not complete and has none. No webhook of the job is pending.
    """
    return [job_of(row) for row in tx.all(f"{ERASABLE} LIMIT ?", (limit,))]


def erase_outputs(tx: Transaction, job_id: str) -> str | None:
    """Erase the results of a job that list_to_erase() would list, and record the erasure, in one commit.

    Text, words, prompt and artifacts are deleted; the record, its metadata and its deliveries stay. Returns the blob
    prefix to delete; None if list_to_erase() would not list the job.
    """
    row = tx.one(f"{ERASABLE} AND id = ? FOR UPDATE", (job_id,))
    if row is None:
        return None
    tx.run(
        "UPDATE jobs SET text = NULL, speakers = NULL, options = ?, erased_at = ? WHERE id = ?",
        (text_of(replace(order_of(row["options"]), prompt="", keywords=(), known_speakers=())), tx.now, job_id),
    )
    tx.run("DELETE FROM artifacts WHERE job = ?", (job_id,))
    erase_words(tx, job_id)
    forget_words(tx, job_id)
    note_erasure(tx, job_id, ErasedPart.OUTPUTS, ErasureReason.NOT_KEPT)
    tx.announce(job_id)
    return job_id


def _forget_passed(tx: Transaction) -> None:
    """Delete what is needed for a short time only: Idempotency-Keys, windows of allowances, marks of commits.

    It is cheap; call it every few seconds.
    """
    tx.forget_passed()
    tx.run("DELETE FROM idempotency WHERE created_at < ?", (tx.now - KEY_KEPT_MS,))
    tx.run("DELETE FROM counters WHERE resets_at < ?", (tx.now - COUNTERS_KEPT_MS,))


class Upkeep(SqlStore):
    """The record of erasures, and the deletion of what the storage need not keep any longer."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._scrubbed_to = -1  # the number of the last erasure whose traces are wiped

    async def erasures(self, *, job_id: str | None = None, limit: int) -> list[Erasure]:
        """The erasures of one job or of all, the newest first. They are kept for ERASURES_KEPT_MS."""
        condition, values = ("", []) if job_id is None else ("WHERE job = ?", [job_id])

        def find(tx: Transaction) -> list[Erasure]:
            rows = tx.all(f"SELECT * FROM erasures {condition} ORDER BY number DESC LIMIT ?", [*values, limit])  # noqa: S608  a constant
            return [
                Erasure(job_id=row["job"], at=row["at"], what=ErasedPart(row["what"]), why=ErasureReason(row["why"]))
                for row in rows
            ]

        return await self.database.read(find)

    async def scrub(self) -> bool:
        """Overwrite what was erased since the last call in the backend's own files, so that no byte of it is left.

        Returns False if that was not possible at the moment; call it again soon. It does not touch blobs.
        """
        last = await self.database.read(_last_erasure)
        if last != self._scrubbed_to:
            if not await self.database.scrub():
                return False
            self._scrubbed_to = last
        return True

    forget_passed = write_method(_forget_passed)

    async def forget_old(self) -> int:
        """Delete what is older than the times above allow, and return the number of rows.

        These are the usage of ended jobs, the health of webhook addresses, ended keys, unused accounts, the record of
        erasures, and virtual times that the queue has passed.
        """
        forgotten = await self.database.write(_forget_rows)
        while accounts := await self.database.read(_select_forgotten):
            forgotten += await self.database.write(partial(_forget_accounts, accounts=accounts))
        return forgotten


def _last_erasure(tx: Transaction) -> int:
    return select_number(tx, "SELECT coalesce(max(number), 0) AS n FROM erasures")


def _forget_rows(tx: Transaction) -> int:
    now = tx.now
    return (
        tx.run("DELETE FROM usage WHERE finished_at <= ?", (now - USAGE_KEPT_MS,))
        + tx.run("DELETE FROM addresses WHERE changed_at <= ?", (now - ADDRESSES_KEPT_MS,))
        + tx.run(
            "DELETE FROM keys WHERE revoked_at <= :before OR expires_at <= :before",
            {"before": now - KEYS_KEPT_MS},
        )
        + tx.run("DELETE FROM erasures WHERE at <= ?", (now - ERASURES_KEPT_MS,))
        # An account never starts before the time that the queue has reached, so an earlier time means nothing.
        + tx.run(
            "DELETE FROM fairness WHERE account != '' AND virtual_time <="
            " (SELECT virtual_time FROM fairness WHERE account = '')"
        )
    )


def _select_forgotten(tx: Transaction, among: Sequence[str] = ()) -> list[str]:
    """Select at most AT_ONCE accounts that may be deleted. With *among*: only accounts of it; their rows are locked."""
    ends = f" AND id IN ({marks(among)}) FOR UPDATE" if among else f" LIMIT {AT_ONCE}"
    untried = tx.now - UNTRIED_ACCOUNTS_KEPT_MS
    idle = tx.now - IDLE_ACCOUNTS_KEPT_MS
    rows = tx.all(FORGOTTEN_ACCOUNTS + ends, (untried, SIGNUP_PLAN, untried, idle, *among))
    return [row["id"] for row in rows]


def _forget_accounts(tx: Transaction, accounts: Sequence[str]) -> int:
    """Delete *accounts* with their keys, without those that have been used again."""
    still = _select_forgotten(tx, accounts)
    tx.run_many("DELETE FROM accounts WHERE id = ?", [(account,) for account in still])
    return len(still)
