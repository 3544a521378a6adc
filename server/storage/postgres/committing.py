"""Commits whose outcome can always be found out, even if the connection is lost before the answer.

Theory. Each transaction that writes also inserts a random mark into the table `commits`, in the same message as its
COMMIT. If the answer is lost, the caller tries to insert the same mark. If the mark exists, the transaction was
committed. If not, the caller's insert prevents the commit for ever: should the lost message still arrive, its mark
violates the primary key and its transaction is rolled back.
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
    """The payload of a notification: its sender and the topics, or EVERYTHING if the topics do not fit."""
    text = " ".join((sender, *sorted(topics)))
    plain = all(TOPIC.fullmatch(topic) for topic in topics)
    return text if plain and len(text.encode()) <= MAX_PAYLOAD_BYTES else f"{sender} {EVERYTHING}"


def read_payload(text: str) -> tuple[str, list[str]]:
    """The sender and the topics. Raises ValueError if there is no sender, because any role may send notifications."""
    sender, *topics = text.split()
    return sender, topics


def commit(connection: Connection, *, mark: str, now: int, notification: str | None) -> None:
    """Commit with *mark*, then send *notification* to other processes, both in one message to the database.

    The notification is a transaction of its own that does not wait for the disk, because PostgreSQL lets only one
    transaction at a time commit a notification.
    """
    message = f"INSERT INTO commits (id, at) VALUES ('{mark}', {now}); COMMIT"  # noqa: S608  both are made here
    if notification is not None:
        message += f"; SELECT pg_notify('{CHANNEL}', '{notification}')"
    connection.execute(message.encode(), prepare=False)


def was_committed(connection: Connection, mark: str, now: int) -> bool:
    """Whether the transaction with *mark* was committed. If the answer is False, it never can be."""
    row = connection.execute(
        "INSERT INTO commits (id, at) VALUES (%s, %s) ON CONFLICT (id) DO NOTHING RETURNING id", (mark, now)
    ).fetchone()
    return row is None
