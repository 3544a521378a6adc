"""How a lease or a wait in the queue ends: the job is over, or goes back into the queue. step() checks each change."""

import math
from dataclasses import replace

from pipeline.audio import seconds
from pipeline.documents.archive import index_terms
from pipeline.timeline import JobEnd, StateChange
from server.model.accounts import TRANSLATED_CHARACTERS
from server.model.jobs import Cause, ImpossibleStep, Job, JobError, Outcome, State, returns_quota, step
from server.storage.sql import archive, fairness
from server.storage.sql.counters import change
from server.storage.sql.database import Transaction
from server.storage.sql.outbox import enqueue
from server.storage.sql.rows import BATCH, LIVE, SqlRow, error_of, job_of, quotas_of, text_of
from server.storage.sql.timeline import append, end_of_words, has_words

MAX_ATTEMPTS = 4  # that get no further, so that a file that crashes workers does not stop all of them
QUEUE_TOPIC = "queue"
AT_ONCE = 0  # run_after of a job without a delay; the present time would delay it if the clock were set back


class Corrected(Exception):
    """Somebody corrected the transcript after the outcome was made of it: make it again."""


def end_job(tx: Transaction, row: SqlRow, cause: Cause, outcome: Outcome) -> Job:
    """End the job of *row* in this transaction, as JobStore.finish() describes. Returns the job afterwards.

    Raises ImpossibleStep unless *cause* leads from the row's state to the outcome's.
    """
    state = step(State(row["state"]), cause)
    if state is not outcome.state:
        raise ImpossibleStep(f"{cause} leads to {state}, not to {outcome.state}")
    if state is State.COMPLETED and outcome.revision != row["revision"]:
        raise Corrected
    duration_s = row["duration_s"] if outcome.duration_s is None else outcome.duration_s
    heard_s = duration_s if outcome.heard_s is None else outcome.heard_s
    wordless = state is State.COMPLETED and outcome.text == ""  # a recording without speech takes nothing
    returned = wordless or (outcome.return_quota and not has_words(tx, row["id"]))
    warnings = [*job_of(row).warnings]
    warnings += [warning for warning in outcome.warnings if warning not in warnings]
    tx.run(
        "UPDATE jobs SET state = :state, finished_at = :now, expires_at = :now + retention_ms, lease_id = NULL,"
        " owner = NULL, lease_until = NULL, stage = NULL, progress = CASE WHEN :whole THEN 1 ELSE progress END,"
        " duration_s = :duration_s, language = :language, language_probability = :language_probability,"
        " languages = :languages, engine = :engine, model = :model, text = :text, speakers = :speakers,"
        " error = :error, warnings = :warnings, blob = :blob"
        " WHERE id = :id",
        {
            "id": row["id"],
            "state": state,
            "now": tx.now,
            "whole": state is State.COMPLETED,
            "duration_s": duration_s,
            "language": outcome.language,
            "language_probability": outcome.language_probability,
            "languages": text_of(outcome.languages) if outcome.languages else None,
            "engine": outcome.engine,
            "model": outcome.model,
            "text": outcome.text,
            "speakers": None if outcome.speakers is None else text_of(outcome.speakers),
            "error": None if outcome.error is None else text_of(outcome.error),
            "warnings": text_of(warnings),
            # without audio there may be recordings of known speakers, which list_with_audio() has to find
            "blob": row["id"] if row["blob"] is None and row["class"] == BATCH else row["blob"],
        },
    )
    tx.run_many(
        "INSERT INTO artifacts (job, kind, blob, sha256, bytes) VALUES (?, ?, ?, ?, ?)",
        [(row["id"], made.kind, made.blob, made.sha256, made.bytes) for made in outcome.artifacts],
    )
    _settle(tx, row, heard_s, outcome.translated_characters, returned=returned)
    fairness.charge_end(tx, row, state, heard_s)
    used_s = 0.0 if returned else heard_s or 0.0
    tx.run(
        "INSERT INTO usage (job, account, environment, state, audio_s, model, finished_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (row["id"], row["account"], row["environment"], state, used_s, outcome.model, tx.now),
    )
    append(tx, row["id"], [*outcome.entries, JobEnd(state)])
    if outcome.text and row["kept"]:
        where = {"account": row["account"], "environment": row["environment"], "job_id": row["id"]}
        archive.index(tx, **where, terms=index_terms(outcome.text))
    ended = tx.one("SELECT * FROM jobs WHERE id = ?", (row["id"],))
    assert ended is not None
    job = job_of(ended)
    enqueue(tx, job)
    return job


def _settle(tx: Transaction, row: SqlRow, heard_s: float | None, characters: int, *, returned: bool) -> None:
    """Give the reserved allowance back, or adjust it to the audio and the translated *characters* that were used."""
    for quota in quotas_of(row["quotas"]):
        if returned:
            change(tx, row["account"], quota, -quota.amount)
        elif quota.name == "audio_seconds" and heard_s is not None:
            change(tx, row["account"], quota, math.ceil(heard_s) - quota.amount)
        elif quota.name == TRANSLATED_CHARACTERS:
            change(tx, row["account"], quota, characters)


def cancel(tx: Transaction, row: SqlRow, *, return_quota: bool) -> None:
    """Cancel the job. A live session counts up to its last word: its own process knows more, but is not asked."""
    outcome = Outcome(state=State.CANCELED, return_quota=return_quota)
    if row["class"] == LIVE and row["duration_s"] is None and (spoken_s := seconds(end_of_words(tx, row["id"]))):
        outcome = replace(outcome, duration_s=spoken_s, heard_s=spoken_s * job_of(row).order.counted_sessions)
    end_job(tx, row, Cause.CANCELED, outcome)


def fail(tx: Transaction, row: SqlRow, cause: Cause, error: JobError) -> None:
    end_job(tx, row, cause, Outcome(state=State.FAILED, error=error, return_quota=returns_quota(error.code)))


def lapse(tx: Transaction, row: SqlRow) -> None:
    """End an expired lease. The job goes back into the queue, or ends if it was canceled or has no attempt left."""
    if row["class"] == BATCH and row["stuck"] >= MAX_ATTEMPTS and row["cancel_requested_at"] is None:
        last = None if row["last_error"] is None else error_of(row["last_error"])
        message = f"the engine stopped answering; {row['attempt']} attempts were made"
        message += f", an earlier one said: {last.message}" if last else ""
        fail(tx, row, Cause.BROKE, JobError(code="engine_error", message=message, retryable=True))
    else:
        put_back(tx, row, Cause.LEASE_LOST, delay_ms=0, counted=True, error=None)


def put_back(
    tx: Transaction, row: SqlRow, cause: Cause, *, delay_ms: int, counted: bool, error: JobError | None
) -> None:
    """Queue the job of *row* again. A job with a requested cancel is canceled instead.

    *delay_ms*: no worker gets the job before.
    *counted*: True counts the attempt as failed and charges the account for its time.
    *error*: why, for the job's record. None keeps the earlier one.
    """
    if row["cancel_requested_at"] is not None:
        cancel(tx, row, return_quota=False)
        return
    state = step(State(row["state"]), cause)
    cost = fairness.charge_attempt(tx, row) if counted and row["class"] == BATCH else 0.0
    tx.run(
        "UPDATE jobs SET state = :state, queued_at = :now, run_after = :run_after,"
        " attempt = attempt - :uncounted, stuck = CASE WHEN stuck > 0 THEN stuck - :uncounted ELSE 0 END,"
        " virtual_time = virtual_time + :cost, lease_id = NULL,"
        " owner = NULL, lease_until = NULL, stage = NULL, last_error = coalesce(:error, last_error) WHERE id = :id",
        {
            "id": row["id"],
            "state": state,
            "now": tx.now,
            "run_after": tx.now + delay_ms if delay_ms else AT_ONCE,
            "uncounted": int(not counted),
            "cost": cost,
            "error": None if error is None else text_of(error),
        },
    )
    append(tx, row["id"], [StateChange(state, row["progress"])])
    tx.announce(QUEUE_TOPIC)
