"""The EventLog: one sequence per job without gaps, written only in the transactions that change the job."""

from collections import deque
from collections.abc import Sequence
from typing import Self

import orjson

from server.model.events import Event, NewEvent
from server.model.jobs import TERMINAL, State
from server.storage.sql.database import Database, SqlStore, Transaction, read_method

PAGE = 500  # events that are read at once


def append(tx: Transaction, job_id: str, events: Sequence[NewEvent]) -> list[Event]:
    """Append *events* to the job's log. Its followers are woken after the commit."""
    tx.announce(job_id)
    row = tx.one("UPDATE jobs SET last_seq = last_seq + ? WHERE id = ? RETURNING last_seq", (len(events), job_id))
    assert row is not None, "events are only logged for jobs that exist"
    first = row["last_seq"] - len(events) + 1
    logged = [Event(job_id, seq, tx.now, event.type, event.body) for seq, event in enumerate(events, first)]
    tx.run_many(
        "INSERT INTO events (stream, seq, at, type, body) VALUES (?, ?, ?, ?, ?)",
        [(event.stream, event.seq, event.at, event.type, event.body) for event in logged],
    )
    return logged


def status_event(state: State, progress: float) -> NewEvent:
    return NewEvent("job.status", orjson.dumps({"status": state, "progress": progress}))


def progress_event(progress: float) -> NewEvent:
    return NewEvent("job.progress", orjson.dumps({"progress": progress}))


def terminal_event(state: State) -> NewEvent:
    """The last event of a job. It has only a type: the job's record is rendered when it is sent."""
    kind = f"job.{state}"
    return NewEvent(kind, orjson.dumps({"type": kind}))


def _read(tx: Transaction, stream: str, *, after: int, limit: int) -> list[Event]:
    rows = tx.all("SELECT * FROM events WHERE stream = ? AND seq > ? ORDER BY seq LIMIT ?", (stream, after, limit))
    return [Event(row["stream"], row["seq"], row["at"], row["type"], row["body"]) for row in rows]


def _last(tx: Transaction, stream: str) -> int:
    """The number of the last event; 0 if the stream is empty or unknown."""
    row = tx.one("SELECT last_seq FROM jobs WHERE id = ?", (stream,))
    return 0 if row is None else int(row["last_seq"])


class EventLog(SqlStore):
    """The events of every job, in order."""

    read = read_method(_read)
    last = read_method(_last)

    async def read_all(self, stream: str) -> list[Event]:
        """Every event so far, read page by page: a long session has tens of thousands."""
        found: list[Event] = []
        while page := await self.read(stream, after=found[-1].seq if found else 0, limit=PAGE):
            found += page
        return found

    def tail(self, stream: str, *, after: int) -> "Tail":
        """Every event after number *after*, then new ones as they come, without gaps or repetitions.

        It ends after the last event of a job, or when the job is deleted. A caller may cancel the wait for an event,
        for example to send a keep-alive, and wait again: no event is lost.
        """
        return Tail(self.database, stream, after)


class Tail:
    """Iterates over a stream's events from a position on. Unlike a generator, it survives a cancelled wait."""

    def __init__(self, database: Database, stream: str, after: int) -> None:
        self._database = database
        self._stream = stream
        self._after = after
        self._read: deque[Event] = deque()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if not self._read and not await self._fill():
            raise StopAsyncIteration
        event = self._read.popleft()
        self._after = event.seq
        return event

    async def _fill(self) -> bool:
        """Wait for events. Returns False if none can come any more."""
        with self._database.watch(self._stream) as watch:
            while True:
                events, over = await self._database.read(self._look)
                if events or over:
                    self._read.extend(events)
                    return bool(events)
                await watch.wait()

    def _look(self, tx: Transaction) -> tuple[list[Event], bool]:
        """Read the new events, and whether none can follow them."""
        job = tx.one("SELECT state FROM jobs WHERE id = ?", (self._stream,))
        events = _read(tx, self._stream, after=self._after, limit=PAGE)
        return events, job is None or State(job["state"]) in TERMINAL
