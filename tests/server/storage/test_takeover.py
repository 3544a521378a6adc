"""Tests of migrate_0_1.py: data of version 0.1, made by it, goes on in SQLite and in PostgreSQL.

version_0_1/rows.sql has a data folder of that version: finished files and sessions, a file of which one part was done,
and two sessions whose server was killed within a segment. postgres.sql has that version's tables.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest

from pipeline.audio import RATE
from pipeline.timeline import unpack
from pipeline.transcription import Transcription
from server.metrics import Metrics
from server.model.jobs import State
from server.storage.sql.storage import Storage
from server.storage.sqlite.open import FILE_NAME, make_private
from tests.server.postgres import shared_cluster
from tests.server.serving import ScriptedBatch, wav
from tests.server.session_registries import is_over, session_registry
from tests.server.storing import BACKENDS, LEASE_S, NOON, ManualClock
from tests.server.talking import script_words
from tests.server.working import WorkerHarness, speak

OLD = Path(__file__).parent / "version_0_1"
JOBS = ("job_words", "job_plain", "job_voices", "job_half", "job_live", "job_sides", "job_labels", "job_killed",
        "job_killed_sides")  # fmt: skip
ENDED = JOBS[:3] + JOBS[4:7]


def old_rows() -> sqlite3.Connection:
    """The data of version 0.1, in memory."""
    old = sqlite3.connect(":memory:")
    old.row_factory = sqlite3.Row
    old.executescript((OLD / "rows.sql").read_text())
    return old


def restore_in_sqlite(folder: Path) -> None:
    make_private(folder)
    with closing(sqlite3.connect(folder / FILE_NAME)) as database:
        database.executescript((OLD / "rows.sql").read_text())


def restore_in_postgres(folder: Path) -> None:
    make_private(folder)
    url = shared_cluster().new_database()
    (folder / "database-url").write_text(url)
    with closing(old_rows()) as old, psycopg.connect(url, autocommit=True) as database:
        database.execute((OLD / "postgres.sql").read_text().encode(), prepare=False)
        for table in ("jobs", "metadata", "chunks", "artifacts", "events", "fairness", "usage"):
            for row in old.execute(f"SELECT * FROM {table}"):
                names = ", ".join(row.keys())
                marks = ", ".join(["%s"] * len(row))
                database.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})".encode(), [*row])


RESTORE: dict[str, Callable[[Path], None]] = {"sqlite": restore_in_sqlite, "postgres": restore_in_postgres}


@pytest.fixture(params=[*RESTORE])
async def taken(request, tmp_path) -> AsyncIterator[tuple[Storage, ManualClock]]:
    """The storage that this version makes of the data, and its clock."""
    RESTORE[request.param](tmp_path / "data")
    clock = ManualClock(NOON + 1000)
    async with BACKENDS[request.param].storage_in(tmp_path, clock) as storage:
        yield storage, clock


def old_events(job_id: str) -> list[tuple[int, int, str, Any]]:
    with closing(old_rows()) as old:
        rows = old.execute("SELECT * FROM events WHERE stream = ? ORDER BY seq", (job_id,)).fetchall()
    return [(row["seq"], row["at"], row["type"], orjson.loads(row["body"])) for row in rows]


def old_words(job_id: str) -> list[list[Any]]:
    """The words of the chunks, channel by channel, with all that was stored of them."""
    with closing(old_rows()) as old:
        rows = old.execute("SELECT body FROM chunks WHERE job = ? ORDER BY idx", (job_id,)).fetchall()
    chunks = [orjson.loads(row["body"]) for row in rows]
    chunks.sort(key=lambda chunk: chunk.get("channel") or 0)
    return [word[:5] for chunk in chunks for segment in chunk["segments"] for word in segment["words"]]


async def transcription(storage: Storage, job_id: str) -> Transcription:
    return Transcription.of([unpack(body) for body in await storage.timelines.entries(job_id)])


@pytest.mark.parametrize("job_id", JOBS)
async def test_a_reader_of_before_comes_back_with_any_id_and_gets_equal_events(taken, job_id):
    storage, _ = taken
    expected = old_events(job_id)
    assert await storage.timelines.last(job_id) == len(expected) > 0
    for after in range(len(expected) + 1):
        found = await storage.timelines.read(job_id, after=after, limit=1000)
        assert [(one.seq, one.at, one.type, orjson.loads(one.body)) for one in found] == expected[after:]


@pytest.mark.parametrize("job_id", ENDED)
async def test_finished_jobs_have_every_word_to_the_last_bit(taken, job_id):
    storage, _ = taken
    past = await transcription(storage, job_id)
    segments = sorted(
        (segment for chunk in past.chunks() for segment in chunk.segments), key=lambda one: one.channel or 0
    )
    words = [word for segment in segments for word in segment.words]
    assert [[word.text, word.start, word.end, word.probability, word.spaced] for word in words] == old_words(job_id)
    assert words
    job = await storage.jobs.get(job_id)
    assert sorted(job.text.split()) == sorted(word.text for word in words)


async def test_the_turns_and_notes_of_a_finished_file_are_kept(taken):
    storage, _ = taken
    past = await transcription(storage, "job_voices")
    assert [(turn.speaker, turn.start, turn.end) for turn in past.turns] == [("S1", 0, RATE), ("Anna", RATE, 4 * RATE)]
    assert past.chunks()[-1].notes == ("quiet_input: speak up",)


async def test_a_file_half_done_goes_on_after_its_last_part(taken):
    storage, clock = taken
    async with storage.blobs.create("job_half/source") as sink:
        await sink.write(wav(4.0))
    batch, done = ScriptedBatch(), []

    async def script(path: Path, options: object, parts: Any) -> Any:
        done.append(len(parts))
        async for part in speak(path, options, parts):
            yield part

    batch.scripts["gate"] = script
    harness = WorkerHarness(storage, clock, batch, Metrics())
    clock.advance(s=31)
    async with harness.run_workers():
        job = await harness.wait_for_end("job_half")
    whole = await storage.jobs.get("job_words")
    assert (done, job.state, job.text, job.duration_s) == ([1], State.COMPLETED, whole.text, whole.duration_s)
    spoken = [
        [(one.type, one.body) for one in await storage.timelines.read(name, after=0, limit=999)
         if one.type in ("word", "segment")]
        for name in ("job_half", "job_words")
    ]  # fmt: skip
    assert [kind for kind, _ in spoken[0]] == [kind for kind, _ in spoken[1]]
    assert [orjson.loads(body) for _, body in spoken[0]] == [orjson.loads(body) for _, body in spoken[1]]


@pytest.mark.parametrize("job_id", ["job_killed", "job_killed_sides"])
async def test_a_session_killed_within_a_segment_goes_on_after_its_last_word(taken, job_id):
    storage, clock = taken
    before = old_events(job_id)
    words = [body for _, _, kind, body in before if kind == "word"]
    clock.advance(s=LEASE_S)
    async with session_registry(storage) as registry:
        live = await registry.open(await storage.jobs.get(job_id))
        begin = live.progress()
        assert 0 < begin.received_s <= min(words[-1]["end"], words[-2]["end"])
        frame = 2 * live.options.channels
        async with live.seat() as seat, asyncio.timeout(30):
            await seat.write(bytes(frame * 9 * RATE - begin.received_bytes))
            seat.finish()
        assert await is_over(storage, job_id) is State.COMPLETED
    found = await storage.timelines.read(job_id, after=0, limit=9999)
    assert [one.seq for one in found] == [*range(1, len(found) + 1)]
    said = [orjson.loads(one.body) for one in found if one.type == "word"]
    assert said[: len(words)] == words, "what readers had stays"
    assert [one["index"] for one in said] == [*range(len(said))]
    for channel in {one.get("channel") for one in said}:
        own = [one["word"] for one in said if one.get("channel") == channel]
        assert own == script_words(9), "no word is missing or comes twice"
