"""The EventLog: one sequence per job without gaps, written only in the transactions that change the job."""

from collections.abc import AsyncGenerator, Sequence
from functools import partial

import orjson

from server.model.events import Event, NewEvent
from server.model.jobs import TERMINAL, TERMINAL_EVENTS, State
from server.storage.patience import patiently
from server.storage.sql.database import SqlStore, Transaction, read_method

PAGE = 500  # events that are read at once


def append(tx: Transaction, job_id: str, events: Sequence[NewEvent]) -> int:
    """Append *events* to the job's log, and return the number of its last event.

    After the commit the log's followers in this process get the events, and those elsewhere are woken to read them.
    """
    last = append_where(tx, "id = :id", {"id": job_id}, events)
    assert last is not None, "events are only logged for jobs that exist"
    return last


def append_where(tx: Transaction, held: str, job: dict[str, object], events: Sequence[NewEvent]) -> int | None:
    """Append *events* as append() does, if the job has what *held* says. Returns None if it has not.

    *job* has the parameters of *held*, among them the job's id.
    """
    sql = f"UPDATE jobs SET last_seq = last_seq + :added WHERE {held} RETURNING last_seq"  # noqa: S608  made of constants
    row = tx.one(sql, {**job, "added": len(events)})
    if row is None:
        return None
    job_id, last = str(job["id"]), int(row["last_seq"])
    logged = [Event(job_id, seq, tx.now, one.type, one.body) for seq, one in enumerate(events, last - len(events) + 1)]
    if logged:
        tx.announce(job_id, logged)
    tx.run_many(
        "INSERT INTO events (stream, seq, at, type, body) VALUES (?, ?, ?, ?, ?)",
        [(event.stream, event.seq, event.at, event.type, event.body) for event in logged],
    )
    return last


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


def _look(tx: Transaction, stream: str, *, after: int) -> tuple[list[Event], bool]:
    """The next events of the log, and whether no other can follow because the job is over or was deleted."""
    job = tx.one("SELECT state FROM jobs WHERE id = ?", (stream,))
    return _read(tx, stream, after=after, limit=PAGE), job is None or State(job["state"]) in TERMINAL


class EventLog(SqlStore):
    """The events of every job, in order."""

    read = read_method(_read)
    last = read_method(_last)
    _look = read_method(_look)

    async def read_all(self, stream: str) -> list[Event]:
        """Every event so far, read page by page: a long session has tens of thousands."""
        found: list[Event] = []
        while page := await self.read(stream, after=found[-1].seq if found else 0, limit=PAGE):
            found += page
        return found

    async def tail(self, stream: str, *, after: int) -> AsyncGenerator[Event]:
        """Every event after number *after*, then new ones as they come, without gaps or repetitions.

        It ends after the last event of a job, or when the job is deleted. Events that this process commits come without
        being read back. While the database is away, it waits. Close it when it is not read to its end.
        """
        behind = True  # whether the database may have events that the watch did not bring
        with self.database.watch(stream) as watch:
            while True:
                if behind:
                    events, over = await patiently(partial(self._look, stream, after=after))
                    behind = len(events) == PAGE
                else:
                    await watch.wait()
                    announced, over = watch.drain_events(), False
                    events = [event for event in announced or () if event.seq > after]  # a read may have brought some
                    numbers = [event.seq for event in events]  # threads may announce their commits in another order
                    behind = announced is None or numbers != [*range(after + 1, after + 1 + len(events))]
                    events = [] if behind else events
                for event in events:
                    yield event
                    after = event.seq
                    over = over or event.type in TERMINAL_EVENTS
                if over and not behind:
                    return
