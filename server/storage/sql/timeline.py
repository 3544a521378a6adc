"""The timelines of jobs: entries are appended in the transactions that change the job, and read as events or whole.

An event is a rendering of an entry. Events have the numbers 1, 2, 3, ... of their job. The row of an entry has the
number of the last event up to it, so that a reader finds its place by the number alone.
"""

from collections.abc import AsyncGenerator, Sequence
from functools import partial

from pipeline.timeline import Correction, Entry, JobEnd, Progress, StateChange, Words, pack, tag_of, unpack
from server.model.events import Event, render
from server.model.jobs import TERMINAL, TERMINAL_EVENTS, State
from server.storage.sql.database import SqlStore, Transaction, read_method
from server.storage.sql.rows import SqlRow
from server.storage.waiting import patiently

PAGE = 500  # entries that are read at once
FEW = 50  # entries of a job that are read on the event loop, some 10 kB
ABOUT_THE_JOB = tuple(tag_of(kind) for kind in (StateChange, Progress, JobEnd))
"""The kinds of entries that say nothing of what was said."""


def append(tx: Transaction, job_id: str, entries: Sequence[Entry]) -> int:
    """Append *entries* to the job's timeline, and return the number of its last event.

    After the commit the followers in this process get the events, and those elsewhere are woken to read them.
    """
    last = append_where(tx, "id = :id", {"id": job_id}, entries)
    assert last is not None, "entries are only written for jobs that exist"
    return last


def append_where(tx: Transaction, held: str, job: dict[str, object], entries: Sequence[Entry]) -> int | None:
    """Append *entries* as append() does, if the job meets the condition *held*. Returns None if it does not.

    *job* has the parameters of *held*, among them the job's id.
    """
    rendered = [render(entry) for entry in entries]
    row = tx.one(
        "UPDATE jobs SET last_seq = last_seq + :events, last_entry = last_entry + :entries"  # noqa: S608  made of constants
        f" WHERE {held} RETURNING last_seq, last_entry",
        {**job, "events": sum(map(len, rendered)), "entries": len(entries)},
    )
    if row is None:
        return None
    job_id, seq = str(job["id"]), int(row["last_seq"]) - sum(map(len, rendered))
    rows, events = [], list[Event]()
    first = int(row["last_entry"]) - len(entries) + 1
    for number, (entry, shown) in enumerate(zip(entries, rendered, strict=True), first):
        events += [Event(job_id, at, tx.now, one.type, one.body) for at, one in enumerate(shown, seq + 1)]
        seq += len(shown)
        rows.append((job_id, seq, number, tx.now, tag_of(type(entry)), pack(entry)))
    if events:
        tx.announce(job_id, events)
    tx.run_many("INSERT INTO timeline (job, seq, number, at, kind, body) VALUES (?, ?, ?, ?, ?, ?)", rows)
    return seq


def has_words(tx: Transaction, job_id: str) -> bool:
    """Whether anybody can have read a word of the job, or a part of its audio is done."""
    found = "SELECT 1 FROM timeline WHERE job = ? AND kind IN ('w', 'd') LIMIT 1"
    return tx.one(found, (job_id,)) is not None


def end_of_words(tx: Transaction, job_id: str) -> int:
    """The position at which the newest word ends; 0 if there is none."""
    newest = "SELECT body FROM timeline WHERE job = ? AND kind = 'w' ORDER BY seq DESC, number DESC LIMIT 1"
    row = tx.one(newest, (job_id,))
    entry = None if row is None else unpack(row["body"])
    return entry.words[-1].end if isinstance(entry, Words) else 0


def erase_words(tx: Transaction, job_id: str) -> None:
    """Delete everything but the entries about the job itself."""
    tx.run("DELETE FROM timeline WHERE job = ? AND kind NOT IN (?, ?, ?)", (job_id, *ABOUT_THE_JOB))


def _events(job_id: str, row: SqlRow) -> list[Event]:
    shown = render(unpack(row["body"]))
    first = row["seq"] - len(shown) + 1
    return [Event(job_id, seq, row["at"], one.type, one.body) for seq, one in enumerate(shown, first)]


def _page(tx: Transaction, job_id: str, *, after: int, limit: int) -> tuple[list[Event], bool]:
    """At most *limit* events after number *after*, and whether there may be more."""
    rows = tx.all(
        "SELECT seq, at, body FROM timeline WHERE job = ? AND seq > ? ORDER BY seq, number LIMIT ?",
        (job_id, after, limit),
    )
    events = [event for row in rows for event in _events(job_id, row) if event.seq > after]
    return events[:limit], len(rows) == limit or len(events) > limit


def _read(tx: Transaction, job_id: str, *, after: int, limit: int) -> list[Event]:
    return _page(tx, job_id, after=after, limit=limit)[0]


def _last(tx: Transaction, job_id: str) -> int:
    """The number of the last event; 0 if the job is unknown."""
    row = tx.one("SELECT last_seq FROM jobs WHERE id = ?", (job_id,))
    return 0 if row is None else int(row["last_seq"])


def _look(tx: Transaction, job_id: str, *, after: int) -> tuple[list[Event], bool, bool]:
    """The next events, whether there may be more, and whether none can follow those because the job is over or gone."""
    job = tx.one("SELECT state FROM jobs WHERE id = ?", (job_id,))
    events, more = _page(tx, job_id, after=after, limit=PAGE)
    return events, more, job is None or State(job["state"]) in TERMINAL


def _corrections(tx: Transaction, job_id: str, *, after: int, limit: int) -> list[tuple[Correction, int]]:
    """Corrections after revision *after*, each with when it was made (ms since 1970 UTC)."""
    rows = tx.all("SELECT at, body FROM timeline WHERE job = ? AND kind = 'c' ORDER BY seq, number", (job_id,))
    found = [(entry, row["at"]) for row in rows if isinstance(entry := unpack(row["body"]), Correction)]
    return [one for one in found if one[0].revision > after][:limit]


def _bodies(tx: Transaction, job_id: str, *, limit: int = -1) -> list[bytes]:
    some = "" if limit < 0 else f" LIMIT {limit}"
    rows = tx.all(f"SELECT body FROM timeline WHERE job = ? ORDER BY seq, number{some}", (job_id,))  # noqa: S608  a number
    return [row["body"] for row in rows]


class Timelines(SqlStore):
    """The timeline of every job, in order."""

    read = read_method(_read)
    last = read_method(_last)
    corrections = read_method(_corrections)
    _look = read_method(_look)

    async def entries(self, job_id: str) -> list[bytes]:
        """The stored form of every entry so far: Transcription.of(map(unpack, ...)) reads it."""
        few = await self.database.look_up(lambda tx: _bodies(tx, job_id, limit=FEW + 1))
        return few if len(few) <= FEW else await self.database.read(lambda tx: _bodies(tx, job_id))

    async def tail(self, job_id: str, *, after: int) -> AsyncGenerator[Event]:
        """Every event after number *after*, then new ones as they come, without gaps or repetitions.

        It ends after the last event of a job, or when the job is deleted. Events that this process commits come without
        being read back. While the database is away, it waits. Close it when it is not read to its end.
        """
        behind = True  # whether the database may have events that the watch did not bring
        with self.database.watch(job_id) as watch:
            while True:
                if behind:
                    events, behind, over = await patiently(partial(self._look, job_id, after=after))
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
