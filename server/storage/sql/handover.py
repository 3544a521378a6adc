"""Results that are not kept: notes that the client has them, and erases them."""

from dataclasses import replace

from server.model.jobs import ErasedPart, ErasureReason, Job
from server.storage.sql.archive import forget
from server.storage.sql.database import Transaction
from server.storage.sql.rows import job_of, order_of, text_of
from server.storage.sql.timeline import erase_words
from server.storage.sql.upkeep import note_erasure

ERASABLE = """
    SELECT * FROM jobs WHERE kept = 0 AND erased_at IS NULL AND finished_at IS NOT NULL
        AND (answered_at IS NOT NULL OR state != 'completed')
        AND NOT EXISTS (SELECT 1 FROM deliveries WHERE job = jobs.id AND state = 'pending')
"""


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

    Text, words, prompt and artifacts are deleted; the record, its metadata and its
    deliveries stay. Returns the blob prefix to delete; None if list_to_erase() would not list the job.
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
    forget(tx, job_id)
    note_erasure(tx, job_id, ErasedPart.OUTPUTS, ErasureReason.NOT_KEPT)
    tx.announce(job_id)
    return job_id
