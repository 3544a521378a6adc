"""What accounts use up: their allowances, and their turns in the queue.

Allowances are counters, one row per (subject, name, window), changed in the transaction that they count. The queue is
fair among accounts: jobs are taken in the order of their virtual times. The virtual time of an account's next job is
that of its last job plus audio / weight, but never before the time that the queue has reached. If a job costs more than
its stated audio, the difference is added to the job's later attempts and to the account's later jobs.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace

from server.model.accounts import Count, Quota
from server.model.jobs import State
from server.storage.sql.database import SqlStore, Transaction, lookup_method, write_method
from server.storage.sql.rows import BATCH, UNBOUNDED, SqlRow

ASSUMED_AUDIO_S = 300.0  # for a source of unknown length

MIN_COUNTED_AUDIO_S = 1.0  # each file counts at least this much: a thousand tiny ones are work too

LAST_CLAIMED = ""  # the row of the fairness table that belongs to no account


def spend(tx: Transaction, subject: str, quota: Quota) -> Count:
    """Spend quota.amount if it fits under the limit, otherwise nothing."""
    taken, most = None, UNBOUNDED if quota.limit is None else quota.limit - quota.amount  # used before
    if most >= 0:
        taken = tx.one(
            'INSERT INTO counters (subject, name, "window", used, resets_at) VALUES (?, ?, ?, ?, ?)'
            ' ON CONFLICT (subject, name, "window") DO UPDATE SET used = counters.used + excluded.used'
            " WHERE counters.used <= ? RETURNING used",
            (subject, quota.name, quota.window, quota.amount, quota.resets_at, most),
        )
    if taken is None:
        return replace(look(tx, subject, quota), allowed=False)
    return Count(True, taken["used"], quota.limit, quota.resets_at)


def look(tx: Transaction, subject: str, quota: Quota) -> Count:
    """Whether spend() would spend quota.amount now, and how much is used so far."""
    used = _read_used(tx, subject, quota.name, quota.window)
    allowed = quota.limit is None or used + quota.amount <= quota.limit
    return Count(allowed, used, quota.limit, quota.resets_at)


def change(tx: Transaction, subject: str, quota: Quota, amount: int) -> None:
    """Add *amount*, which may be negative, to the used part of the quota. It may pass the limit; 0 is the least."""
    tx.run(
        'INSERT INTO counters (subject, name, "window", used, resets_at)'
        " VALUES (:subject, :name, :window, :first, :resets_at)"
        ' ON CONFLICT (subject, name, "window") DO UPDATE SET used ='
        " CASE WHEN counters.used + :amount > 0 THEN counters.used + :amount ELSE 0 END",
        {**asdict(quota), "subject": subject, "first": max(0, amount), "amount": amount},
    )


def _read_used(tx: Transaction, subject: str, name: str, window: str) -> int:
    row = tx.one('SELECT used FROM counters WHERE subject = ? AND name = ? AND "window" = ?', (subject, name, window))
    return 0 if row is None else int(row["used"])


def _amounts_used(tx: Transaction, subject: str, windows: Sequence[tuple[str, str]]) -> list[int]:
    return [_read_used(tx, subject, name, window) for name, window in windows]


class Counter(SqlStore):
    """Counts what accounts and addresses use of their allowances in each calendar window. Durable and atomic."""

    spend = write_method(spend)
    give_back = write_method(lambda tx, subject, quota: change(tx, subject, quota, -quota.amount))
    amounts_used = lookup_method(_amounts_used)


def counted_s(audio_s: float | None) -> float:
    """The seconds that a job with *audio_s* seconds of audio counts when it enters the queue."""
    return max(MIN_COUNTED_AUDIO_S, ASSUMED_AUDIO_S if audio_s is None else audio_s)


def enter_queue(tx: Transaction, account: str, cost: float) -> float:
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
