"""Commits whose outcome can always be found out, and the notifications by which other processes learn of them.

Each transaction that writes also inserts a random mark into the table `commits`, in the same message as its COMMIT. If
the connection is lost before the answer, the caller tries to insert the same mark. If the mark exists, the transaction
was committed. If not, the caller's insert prevents the commit for ever: should the lost message still arrive, its mark
violates the primary key and its transaction is rolled back.
"""

import re
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress

import psycopg

from server.logs import log
from server.model.errors import StorageError
from server.storage.postgres.connections import NOW, Connection, connect, translating
from server.storage.scratch import start_vital
from server.storage.waiting import Watches

CHANNEL = "scribewire"
MAX_PAYLOAD_BYTES = 7_900  # PostgreSQL takes 7,999
EVERYTHING = "*"  # stands for more topics than fit
TOPIC = re.compile(r"[\w.-]+")
RELAY_CHANNEL = "scribewire_relay"
POLL_S = 1.0  # between two looks without notifications, and between two checks that the database answers
MISSED_S = 15.0  # notifications may get lost with a dying process, so all tasks look again after this time
LEADER_LOCK = 7_269_002  # held by the process that sweeps; two such processes do no harm
SILENT_S = 5.0  # without an answer for this long, the database counts as away
SEEN_S = 5.0  # how often a process says that it is alive
DEAD_MS = 20_000  # a process that has said nothing for this long is gone
RETRY_S = 0.25


def payload(sender: str, topics: Collection[str]) -> str:
    """The payload of a notification: its sender and the topics, or EVERYTHING if the topics do not fit."""
    text = " ".join((sender, *sorted(topics)))
    plain = all(TOPIC.fullmatch(topic) for topic in topics)
    return text if plain and len(text.encode()) <= MAX_PAYLOAD_BYTES else f"{sender} {EVERYTHING}"


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


class NotificationListener:
    """A thread with a connection of its own. It wakes watches, and records in `nodes` that this process is alive.

    If notifications are switched off or the connection is down, all waiting tasks read the database once a second.
    """

    def __init__(self, conninfo: str, watches: Watches, *, boot: str, name: str, notify: bool) -> None:
        """Raises StorageAway or StorageError if there is no connection at first."""
        self._conninfo = conninfo
        self._watches = watches
        self._boot = boot
        self._name = name
        self._notify = notify
        self.relayed: list[Callable[[str], None]] = []  # each gets the messages of other nodes
        self._closing = threading.Event()
        self._answered_at = 0.0
        self._seen_at = 0.0
        self._woken_at = 0.0
        self._leads = False
        self._connection = self._open()
        with translating():
            self._record_alive()
        self._thread = start_vital(self._run, name="database-listen")

    @property
    def answers(self) -> bool:
        """Whether the database answered within the last seconds."""
        return time.monotonic() - self._answered_at < SILENT_S

    @property
    def leads(self) -> bool:
        """Whether this process was chosen to sweep. It remains chosen until its connection ends."""
        return self._leads and self.answers

    def stop(self) -> None:
        """Stop listening after the next notification, or within POLL_S."""
        self._closing.set()

    def join(self) -> None:
        """Wait until the thread has deleted this process from `nodes` and ended."""
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._listen()
            except (psycopg.Error, OSError) as error:  # OSError: also where no more files can be opened
                self._reconnect(error)
        with suppress(psycopg.Error):  # if the database is away, the row grows old by itself
            self._connection.execute("DELETE FROM nodes WHERE boot = %s", (self._boot,))
        self._connection.close()

    def _listen(self) -> None:
        """Wake watches until the connection is lost."""
        while not self._closing.is_set():
            self._check_answers()
            now = time.monotonic()
            if not self._notify or now - self._woken_at >= MISSED_S:
                self._woken_at = now
                self._watches.wake_all()
            if not self._notify:
                self._closing.wait(POLL_S)
                continue
            for notice in self._connection.notifies(timeout=POLL_S, stop_after=1):
                self._dispatch(notice)

    def _dispatch(self, notice: psycopg.Notify) -> None:
        try:
            sender, *topics = notice.payload.split()
        except ValueError:  # no sender: any role may send notifications
            log.warning("a notification that no node sent is ignored", extra={"channel": notice.channel})
            return
        if sender == self._boot:
            return
        if notice.channel == RELAY_CHANNEL:
            self._relay(" ".join(topics))
        elif EVERYTHING in topics:
            self._watches.wake_all()
        else:
            self._watches.wake(dict.fromkeys(topics))

    def _relay(self, message: str) -> None:
        for handle in self.relayed:
            try:
                handle(message)
            except Exception:  # noqa: BLE001  any message may get lost, but not those after it
                log.exception("a message of another node could not be read")

    def _check_answers(self) -> None:
        now = time.monotonic()
        if now - self._answered_at < POLL_S / 2:
            return
        if now - self._seen_at >= SEEN_S:
            self._record_alive()
        else:
            self._connection.execute("SELECT 1")
        self._answered_at = time.monotonic()

    def _record_alive(self) -> None:
        self._connection.execute(
            f"INSERT INTO nodes (boot, name, seen_at) VALUES (%s, %s, ({NOW})) ON CONFLICT (boot)"  # noqa: S608  a constant
            " DO UPDATE SET seen_at = excluded.seen_at",
            (self._boot, self._name),
        )
        self._seen_at = time.monotonic()
        if not self._leads:
            (row,) = self._connection.execute("SELECT pg_try_advisory_lock(%s) AS got", (LEADER_LOCK,))
            self._leads = bool(row["got"])

    def _reconnect(self, error: Exception) -> None:
        """Connect again. Until that succeeds the database counts as away, and all waiting tasks look again."""
        log.warning("the database does not answer", extra={"error": type(error).__name__})
        self._connection.close()
        self._leads = False
        self._answered_at = 0.0
        while not self._closing.wait(RETRY_S):
            with suppress(StorageError, OSError):  # tried again until it works
                self._connection = self._open()
                log.info("the database answers again")
                break
        self._watches.wake_all()

    def _open(self) -> Connection:
        connection = connect(self._conninfo)
        with translating():
            if self._notify:
                connection.execute(f"LISTEN {CHANNEL}; LISTEN {RELAY_CHANNEL}".encode(), prepare=False)
        self._seen_at = 0.0
        self._answered_at = time.monotonic()
        return connection
