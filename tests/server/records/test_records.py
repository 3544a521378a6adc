"""Tests of records.py: which members of a job clients see and when, and which they never see."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
from jsonschema import Draft202012Validator
from msgspec.json import encode

from pipeline.timeline import entries_of
from server.http.openapi import SCHEMAS
from server.model.accounts import SigningKeys
from server.model.jobs import Job, LiveProgress, State
from server.model.orders import Order, Source
from server.records.records import Links, Records, record
from tests.server.serving import chunk
from tests.server.storing import NOON, checkpoint, claim, completion, submit

LINKS = Links("https://speech.example", SigningKeys({"1": b"k" * 32}, "1"))
JOB = Job(
    id="job_01JD4W2M8Q7Z5K3N9V6B1XTRGH",
    account="acct_1",
    environment="production",
    state=State.QUEUED,
    order=Order(output_formats=("json", "srt"), metadata={"k": "v"}, prompt="secret words", webhook_url="https://h/x"),
    source=Source(type="upload", filename="a.mp3", bytes=3, format="mp3"),
    created_at=NOON,
)
DONE = replace(
    JOB, state=State.COMPLETED, started_at=NOON + 1, finished_at=NOON + 2, progress=1.0, duration_s=1.23456,
    language="en", language_probability=0.123456, model="base", engine="whisper", text="so my",
)  # fmt: skip


class NobodyLive:
    async def progress(self, job: Job) -> LiveProgress:
        raise AssertionError(f"{job.id} is not live")


def members(answer: object, name: str = "Job") -> dict[str, Any]:
    """Return what a client gets, which fits the schema *name*."""
    shown: dict[str, Any] = orjson.loads(encode(answer))
    Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": {"schemas": SCHEMAS}}).validate(shown)
    return shown


def shown_of(job: Job) -> dict[str, Any]:
    return members(record(job, LINKS))


def test_a_waiting_job_shows_no_result():
    shown = shown_of(JOB)
    assert (shown["status"], shown["formats"], shown["started_at"], shown["text"]) == ("queued", {}, None, None)
    assert "schema" not in shown
    assert "words" not in shown


def test_a_finished_job_has_one_link_per_format_and_names_its_schema():
    shown = shown_of(DONE)
    assert (shown["status"], shown["schema"], list(shown["formats"])) == ("completed", "service_v1", ["json", "srt"])
    assert (shown["duration"], shown["language_probability"], shown["progress"]) == (1.235, 0.1235, 1.0)
    assert shown["created_at"] == "2026-11-20T12:00:00.000Z"
    assert shown["events_url"] == f"https://speech.example/v1/jobs/{JOB.id}/events"


def test_what_is_nobodys_business_is_not_shown():
    shown = str(shown_of(DONE))
    assert "secret words" not in shown
    assert "acct_1" not in shown


async def test_words_are_shown_once_completed_and_only_to_who_asked_for_them(sqlite):
    records = Records(sqlite, LINKS, NobodyLive())
    for wanted in (True, False):
        job_id = await submit(sqlite, order=Order(word_timestamps=wanted))
        lease = await claim(sqlite)
        for index, texts in enumerate((("so", "my"), ("fellow",))):
            entries = entries_of(chunk(index, *texts), words=2 * index, segments=index, shown=wanted)
            await sqlite.jobs.checkpoint(lease, entries, progress=0.5, lease_s=30)
        working = await sqlite.jobs.get(job_id)
        assert "words" not in members(await records.full(working))
        await sqlite.jobs.finish(lease, completion())
        ended = await sqlite.jobs.get(job_id)
        shown = members(await records.full(ended))
        assert [word["word"] for word in shown.get("words", [])] == (["so", "my", "fellow"] if wanted else [])
        assert ("words" in shown) is wanted


async def test_lists_have_warnings_but_no_words_and_no_text(sqlite):
    records = Records(sqlite, LINKS, NobodyLive())
    shown = members(records.list_item(replace(DONE, warnings=({"code": "x"},))))
    assert not shown.keys() & {"text", "words"}
    assert shown["warnings"] == [{"code": "x"}]


async def test_a_notice_says_what_happened_when_and_drops_a_long_text(sqlite):
    records = Records(sqlite, LINKS, NobodyLive())
    notice = members(records.notice(DONE), "Notice")
    assert (notice["type"], notice["timestamp"]) == ("job.completed", "2026-11-20T12:00:00.002Z")
    assert notice["data"]["text"] == "so my"
    assert "words" not in notice["data"]
    assert "text" in members(records.notice(replace(DONE, text="ä" * 2048)), "Notice")["data"]
    assert "text" not in members(records.notice(replace(DONE, text="ä" * 2049)), "Notice")["data"]


async def test_an_unreadable_entry_is_an_error_not_a_shorter_transcript(sqlite):
    job_id = await submit(sqlite, order=Order(word_timestamps=True))
    lease = await claim(sqlite)
    await checkpoint(sqlite, lease)
    await sqlite.jobs.database.write(lambda tx: tx.run("UPDATE timeline SET body = '[]' WHERE kind = 'w'"))
    await sqlite.jobs.finish(lease, completion())
    ended = await sqlite.jobs.get(job_id)
    with pytest.raises(Exception, match="no entry of a timeline"):
        await Records(sqlite, LINKS, NobodyLive()).full(ended)
