"""Fair queueing among accounts: jobs are taken in the order of their virtual times.

The virtual time of an account's next job is that of its last job plus audio / weight, but never before the time that
the queue has reached. If a job costs more than its stated audio, the difference is added to the job's later attempts
and to the account's later jobs.
"""

from server.model.jobs import State
from server.storage.sql.database import Transaction
from server.storage.sql.rows import BATCH, SqlRow

ASSUMED_AUDIO_S = 300.0  # for a source of unknown length
MIN_COUNTED_AUDIO_S = 1.0  # each file counts at least this much: a thousand tiny ones are work too
LAST_CLAIMED = ""  # the row of the fairness table that belongs to no account


def counted_s(audio_s: float | None) -> float:
    """The seconds that a job with *audio_s* seconds of audio counts when it enters the queue."""
    return max(MIN_COUNTED_AUDIO_S, ASSUMED_AUDIO_S if audio_s is None else audio_s)


def enter(tx: Transaction, account: str, cost: float) -> float:
    """Enter a job of the account that costs *cost* (seconds / weight). Returns its virtual time."""
    virtual_time = _next_virtual_time(tx, account) + cost
    _advance(tx, account, virtual_time)
    return virtual_time


def remember_claimed(tx: Transaction, virtual_time: float) -> None:
    """Note that the queue has reached *virtual_time*. An account that was idle does not start before it."""
    _advance(tx, LAST_CLAIMED, virtual_time)


def charge_attempt(tx: Transaction, row: SqlRow) -> float:
    """Charge the account for the time that the failed attempt of *row* held its lease. Returns the cost."""
    held_ms = min(tx.now, row["lease_until"]) - row["claimed_at"]
    return _charge(tx, row, held_ms / 1000)


def charge_end(tx: Transaction, row: SqlRow, state: State, duration_s: float | None) -> None:
    """Charge what the job of *row*, which ends in *state*, cost beyond the seconds counted when it was queued."""
    if row["class"] != BATCH or row["lease_until"] is None:
        return
    if state is State.COMPLETED:
        _charge(tx, row, max(0.0, (duration_s or 0.0) - row["counted_s"]))
    else:
        charge_attempt(tx, row)


def _charge(tx: Transaction, row: SqlRow, more_s: float) -> float:
    cost: float = more_s / row["weight"]
    if cost > 0:
        _advance(tx, row["account"], _next_virtual_time(tx, row["account"]) + cost)
    return cost


def _next_virtual_time(tx: Transaction, account: str) -> float:
    """The virtual time at which the account's next job would stand if it cost nothing."""
    (row,) = tx.all(
        "SELECT coalesce(max(virtual_time), 0) AS reached FROM fairness WHERE account IN (?, ?)",
        (account, LAST_CLAIMED),
    )
    return float(row["reached"])


def _advance(tx: Transaction, account: str, virtual_time: float) -> None:
    tx.run(
        "INSERT INTO fairness (account, virtual_time) VALUES (?, ?)"
        " ON CONFLICT (account) DO UPDATE SET virtual_time = excluded.virtual_time"
        " WHERE fairness.virtual_time < excluded.virtual_time",
        (account, virtual_time),
    )
