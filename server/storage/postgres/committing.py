"""Committing, with the certainty that SQLite gives for free: whether a commit happened is looked up, never guessed.

Each transaction that writes leaves a random mark in the table `commits`, in the same message as its COMMIT. If the
connection is lost before the answer, whoever wants to know writes the same mark. If the mark is there, the transaction
was committed. If not, it never will be: should its message still arrive, its own mark is refused and it is undone.
"""

import re
import secrets
from collections.abc import Collection

from server.storage.postgres.connecting import Connection

CHANNEL = "scribewire"
MAX_PAYLOAD_BYTES = 7_900  # PostgreSQL takes 7,999
EVERYTHING = "*"  # stands for more topics than fit
TOPIC = re.compile(r"[\w.-]+")


def new_mark() -> str:
    return secrets.token_hex(16)


def payload(sender: str, topics: Collection[str]) -> str:
    """What is told to other processes: who sends it, and which topics changed."""
    text = " ".join((sender, *sorted(topics)))
    plain = all(TOPIC.fullmatch(topic) for topic in topics)
    return text if plain and len(text.encode()) <= MAX_PAYLOAD_BYTES else f"{sender} {EVERYTHING}"


def read_payload(text: str) -> tuple[str, list[str]]:
    """The sender and the topics. Raises ValueError if there is no sender: any role of the database may notify."""
    sender, *topics = text.split()
    return sender, topics


def commit(connection: Connection, *, mark: str, now: int, told: str | None) -> None:
    """Commit with *mark*, then notify other processes of *told*, in one message.

    The notification is a transaction of its own, which waits for no disk: PostgreSQL lets only one transaction at a
    time commit a notification.
    """
    message = f"INSERT INTO commits (id, at) VALUES ('{mark}', {now}); COMMIT"  # noqa: S608  both are made here
    if told is not None:
        message += f"; SELECT pg_notify('{CHANNEL}', '{told}')"
    connection.execute(message.encode(), prepare=False)


def was_committed(connection: Connection, mark: str, now: int) -> bool:
    """Whether the transaction with *mark* was committed. It cannot be committed any more if the answer is False."""
    row = connection.execute(
        "INSERT INTO commits (id, at) VALUES (%s, %s) ON CONFLICT (id) DO NOTHING RETURNING id", (mark, now)
    ).fetchone()
    return row is None
