"""Chooses the due deliveries that are sent next: accounts take turns, and full hosts are left out.

Each account is looked up by an index, so the backlog of one account costs the others nothing.
"""

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence

from server.model.deliveries import Crowding
from server.storage.sql.database import Transaction, marks
from server.storage.sql.rows import SqlRow

WAITING_ACCOUNTS = """
    WITH RECURSIVE line (account) AS (
        SELECT min(account) FROM deliveries WHERE state = 'pending'
        UNION ALL
        SELECT (SELECT min(account) FROM deliveries WHERE state = 'pending' AND account > line.account)
        FROM line WHERE account IS NOT NULL
    ), oldest (account, next_at) AS (
        SELECT account, (SELECT min(next_at) FROM deliveries WHERE state = 'pending' AND account = line.account)
        FROM line WHERE account IS NOT NULL
    )
    SELECT account, next_at FROM oldest WHERE next_at <= ?
"""
"""Every account with a due delivery, and when its oldest came due. It takes one index step for each account."""

DUE_OF_ACCOUNT = """
    SELECT id, host, next_at FROM deliveries
    WHERE state = 'pending' AND account = ? AND next_at <= ? AND (next_at, id) > (?, ?){elsewhere}
    ORDER BY next_at, id LIMIT ?
"""
HOSTS_OF_ACCOUNT = """
    WITH RECURSIVE known (host, n) AS (
        SELECT min(host), 1 FROM deliveries WHERE state = 'pending' AND account = :account
        UNION ALL
        SELECT (SELECT min(host) FROM deliveries WHERE state = 'pending' AND account = :account AND host > known.host),
            n + 1
        FROM known WHERE host IS NOT NULL AND n < :limit
    )
    SELECT host, (
        SELECT min(next_at) FROM deliveries WHERE state = 'pending' AND account = :account AND host = known.host
    ) AS next_at FROM known WHERE host IS NOT NULL
"""
"""The hosts to which the account has pending deliveries, and when the oldest of each came or comes due."""

PAGE = 32
HOSTS_TRIED = 64


def choose(tx: Transaction, crowding: Crowding, limit: int) -> list[str]:
    """The ids of at most *limit* due deliveries that there is room for, in the order in which they are sent."""
    hosts = Counter(crowding.hosts)
    turns = _turns(tx, crowding)
    chosen: list[str] = []
    lines: dict[str, Iterator[SqlRow]] = {}
    while turns and len(chosen) < limit:
        busy, turn, _, account = heapq.heappop(turns)
        if busy >= crowding.per_account or (busy and limit - len(chosen) <= crowding.kept):
            continue
        line = lines.setdefault(account, _due(tx, account, hosts, crowding.per_host))
        row = next(line, None)
        if row is not None:
            chosen.append(row["id"])
            hosts[row["host"]] += 1
            heapq.heappush(turns, (busy + 1, turn, row["next_at"], account))
    return chosen


def _turns(tx: Transaction, crowding: Crowding) -> list[tuple[int, int, int, str]]:
    """A heap of the accounts with due deliveries: (deliveries under way, turn, when the oldest came due, account)."""
    turns = [
        (
            crowding.accounts.get(row["account"], 0),
            crowding.turns.get(row["account"], 0),
            row["next_at"],
            row["account"],
        )
        for row in tx.all(WAITING_ACCOUNTS, (tx.now,))
    ]
    heapq.heapify(turns)
    return turns


def _due(tx: Transaction, account: str, hosts: Counter[str], per_host: int) -> Iterator[SqlRow]:
    """Yield the account's due deliveries, the oldest first, without those to a host that is full by then."""
    place = (0, "")
    while True:
        full = [host for host, busy in hosts.items() if busy >= per_host]
        if not _may_find_due(tx, account, full):
            return
        elsewhere = f" AND host NOT IN ({marks(full)})" if full else ""
        page = tx.all(DUE_OF_ACCOUNT.format(elsewhere=elsewhere), (account, tx.now, *place, *full, PAGE))
        for row in page:
            if hosts[row["host"]] < per_host:
                yield row
        if len(page) < PAGE:
            return
        place = (page[-1]["next_at"], page[-1]["id"])


def _may_find_due(tx: Transaction, account: str, full: Sequence[str]) -> bool:
    """Whether the account may have a due delivery to a host that is not *full*.

    If all its deliveries go to one dead host the answer is False, and its long queue is not read.
    """
    if not full:
        return True
    known = tx.all(HOSTS_OF_ACCOUNT, {"account": account, "limit": HOSTS_TRIED})
    return len(known) == HOSTS_TRIED or any(row["next_at"] <= tx.now and row["host"] not in full for row in known)
