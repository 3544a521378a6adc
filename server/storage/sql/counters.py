"""The Counter: one row per (subject, name, window), changed in the transaction that it counts."""

from collections.abc import Sequence
from dataclasses import asdict, replace

from server.model.accounts import Count, Quota
from server.storage.sql.database import SqlStore, Transaction, lookup_method, write_method
from server.storage.sql.rows import UNBOUNDED


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
