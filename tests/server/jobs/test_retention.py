"""Results that are not kept: handed over once, to whoever waits for them, then erased down to the last byte."""

import asyncio
import base64
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from server.client import Client
from server.clock import now_ms
from server.jobs import housekeeping
from server.jobs.housekeeping import Eraser
from server.metrics import Metrics
from server.model.deliveries import Attempt
from server.model.jobs import UNANSWERED_KEPT_MS, Artifact, ErasedPart, Erasure, ErasureReason, Outcome
from server.model.orders import Order
from server.storage.sql.storage import Storage
from tests.server.jobs.test_erasing import traces
from tests.server.receiving import receiver
from tests.server.running import Server
from tests.server.serving import AppServer, chunk, serve, wav
from tests.server.storing import (
    HOOK,
    NOON,
    ManualClock,
    checkpoint,
    claim,
    completion,
    failure,
    parts_done,
    storage_in,
    submit,
    types_of,
)
from tests.server.talking import Caller, open_talk, script_words, silence
from tests.waiting import eventually, until

SPOKEN = "Spokenmarker"
HINT = "writtenmarker of a prompt"
TERM = "keywordmarker"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("retention")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[AppServer]:
    async def says_marker(_path, _options, done):
        if not done:
            yield chunk(0, SPOKEN, "and")
            yield chunk(1, "more")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(housekeeping, "TIDY_S", 0.1)
        with serve(folder) as it:
            it.batch.scripts[HINT] = says_marker
            yield it


@pytest.fixture
def client(server: AppServer) -> Iterator[httpx.Client]:
    with server.new_client() as client:
        yield client


def transcribe(client: httpx.Client, **fields: str) -> httpx.Response:
    data = {"prompt": HINT, "retention": "none", "word_timestamps": "true", "output_formats": "json,srt", **fields}
    return client.post("/v1/transcribe", files={"file": ("a.wav", wav())}, data=data)


def assert_whole(record: dict[str, Any]) -> None:
    """The record has all results, without links."""
    assert (record["status"], record["retention"], record["erased_at"]) == ("completed", "none", None)
    assert record["text"] == f"{SPOKEN} and more"
    assert [word["word"] for word in record["words"]] == [SPOKEN, "and", "more"]
    assert record["formats"] == {}
    assert record["outputs"].keys() == {"json", "srt"}
    assert SPOKEN in record["outputs"]["srt"]
    assert orjson.loads(record["outputs"]["json"])["text"] == record["text"]


def assert_erased(server: AppServer, client: httpx.Client, folder: Path, job_id: str) -> None:
    """The record stands without results from now on, and soon no file has a trace of them."""
    assert client.get(f"/v1/jobs/{job_id}").json()["text"] is None
    shown = until(lambda: (seen := client.get(f"/v1/jobs/{job_id}").json())["erased_at"] and seen)
    assert (shown["status"], shown["text"], shown["formats"]) == ("completed", None, {})
    assert not shown.keys() & {"words", "outputs"}
    assert shown["erased_at"] is not None
    for name in ("json", "srt"):
        answer = client.get(f"/v1/jobs/{job_id}/outputs/{name}")
        assert (answer.status_code, answer.json()["code"]) == (404, "output_not_found")
    events = client.get(f"/v1/jobs/{job_id}/events").text
    assert SPOKEN not in events
    assert "event: job.completed" in events
    [line] = server.wait(server.storage.upkeep.erasures(job_id=job_id, limit=9))
    assert (line.what, line.why) == (ErasedPart.OUTPUTS, ErasureReason.NOT_KEPT)
    assert until(lambda: not traces(folder, SPOKEN, HINT))


def test_the_answer_of_the_post_is_the_only_one_with_results(server, client, folder):
    answer = transcribe(client, wait="20", keywords=TERM)
    assert answer.status_code == 200
    assert_whole(answer.json())
    assert_erased(server, client, folder, answer.json()["job_id"])
    assert until(lambda: not traces(folder, TERM))


def test_the_first_poll_of_a_finished_job_is_the_only_one_with_results(server, client, folder):
    job_id = transcribe(client, wait="0").json()["job_id"]
    until(lambda: client.get("/v1/jobs").json()["data"][0]["status"] == "completed")  # a list hands nothing over
    assert client.head(f"/v1/jobs/{job_id}").status_code == 200  # nor does this
    assert_whole(client.get(f"/v1/jobs/{job_id}", params={"wait": 20}).json())
    assert_erased(server, client, folder, job_id)


def test_a_repeated_request_is_answered_by_the_record_that_is_left(client):
    headers = {"Idempotency-Key": "once"}
    fields = {"retention": "none", "wait": "20"}
    first, second = (
        client.post("/v1/transcribe", files={"file": ("a.wav", wav())}, data=fields, headers=headers).json()
        for _ in range(2)
    )
    assert first["job_id"] == second["job_id"]
    assert (first["text"], second["text"]) == ("so my fellow", None)


def test_results_stay_until_the_webhook_has_them(server, client, folder):
    """It failed at first. An answer to a poll meanwhile takes nothing away from it."""
    with receiver() as hook:
        hook.answer = lambda _got: (500, {}, b"")
        job_id = transcribe(client, webhook_url=hook.url).json()["job_id"]
        hook.wait_for(1)
        assert_whole(client.get(f"/v1/jobs/{job_id}", params={"wait": 20}).json())
        hook.answer = lambda _got: (204, {}, b"")
        [row] = client.get(f"/v1/jobs/{job_id}/deliveries").json()["data"]
        client.post(f"/v1/jobs/{job_id}/deliveries/{row['delivery_id']}/redeliver")
        assert_whole(orjson.loads(hook.wait_for(2)[1].body)["data"])
        assert_erased(server, client, folder, job_id)


def test_a_stream_hands_over_all_results_with_its_last_event(server, client, folder):
    job_id = transcribe(client, wait="0").json()["job_id"]
    lines = client.get(f"/v1/jobs/{job_id}/events").text.splitlines()
    told = [orjson.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    assert [body["word"] for body in told if "word" in body] == [SPOKEN, "and", "more"]
    assert_whole(told[-1]["data"])
    assert_erased(server, client, folder, job_id)


def test_everybody_who_waits_for_the_end_gets_the_results(server, client):
    go = threading.Event()

    async def slow(_path, _options, done):
        await asyncio.to_thread(go.wait, 20)
        if not done:
            yield chunk(0, SPOKEN)

    server.batch.scripts["slow"] = slow
    job_id = transcribe(client, prompt="slow", wait="0").json()["job_id"]
    texts: list[str | None] = []

    def wait() -> None:
        texts.append(client.get(f"/v1/jobs/{job_id}", params={"wait": 20}).json()["text"])

    waiting = [threading.Thread(target=wait) for _ in range(3)]
    for thread in waiting:
        thread.start()
    until(lambda: server.service.parts.eraser._holders[job_id] == 3)
    go.set()
    for thread in waiting:
        thread.join(20)
    assert texts == [SPOKEN] * 3
    until(lambda: client.get(f"/v1/jobs/{job_id}").json()["erased_at"])


@pytest.mark.parametrize("by", ["writer", "reader", "poll"])
async def test_a_live_session_hands_over_its_words_and_keeps_none(server, folder, by):
    me = Caller(server, server.key())

    record = await me.start(retention="none", metadata={"k": "v"})
    async with open_talk(me.socket(record), me.headers) as it:
        await it.send(silence(4.0))
        if by == "writer":
            await it.close()
            last = it.frames[-1]["data"]
            assert it.words == script_words(4.0)
        else:
            await it.until("word")
    if by != "writer":
        async with me.client() as client:
            await client.post(f"/v1/jobs/{record['job_id']}/finish")
    if by == "reader":
        last = (await me.events(record["job_id"]))[-1][2]["data"]
    elif by == "poll":
        last = await me.job(record["job_id"], wait=20)
    assert last["text"].startswith("This is the sandbox")
    assert orjson.loads(last["outputs"]["json"])["text"] == last["text"]

    async def is_erased() -> bool:
        return (await me.job(record["job_id"]))["erased_at"] is not None

    await eventually(is_erased)
    shown = await me.job(record["job_id"])
    assert (shown["text"], shown["formats"], shown["metadata"]) == (None, {}, {"k": "v"})
    assert not shown.keys() & {"words", "outputs"}
    await asyncio.to_thread(until, lambda: not traces(folder, '"word":"This"'))


def test_a_recording_cannot_be_ordered_and_not_kept(server, client):
    answers = [client.post("/v1/live", json={"record": True, "retention": "none"})]
    key = client.post("/v1/keys", json={"retention": "none"}).json()["key"]
    with server.client(key) as other:
        answers.append(other.post("/v1/live", json={"record": True}))
    answers.append(transcribe(client, record="true"))
    hidden = {"url": "https://example.org/a", "record": True, "redact": ["email"]}
    answers.append(client.post("/v1/transcribe", json=hidden))
    assert [(answer.status_code, answer.json()["errors"][0]["param"]) for answer in answers] == [(422, "record")] * 4


def test_a_word_file_is_delivered_in_base64(client):
    record = transcribe(client, output_formats="docx,txt").json()
    assert SPOKEN in record["outputs"]["txt"]
    assert base64.b64decode(record["outputs"]["docx"], validate=True).startswith(b"PK")


@pytest.mark.parametrize("value", ["", "all", "7d", "null", "none,none"])
def test_any_other_retention_is_refused(client, value):
    refused = [
        transcribe(client, retention=value),
        client.post("/v1/transcribe", json={"url": "https://example.org/a", "retention": value}),
        client.post("/v1/live", json={"retention": value}),
        client.post("/v1/keys", json={"retention": value}),
    ]
    assert [(answer.status_code, answer.json()["errors"][0]["param"]) for answer in refused] == [(422, "retention")] * 4


def test_a_key_may_order_so_for_all_its_jobs(server, client):
    made = client.post("/v1/keys", json={"retention": "none"}).json()
    assert made["retention"] == "none"
    with server.client(made["key"]) as other:
        rotated = other.post(f"/v1/keys/{made['key_id']}/rotate").json()
    with server.client(rotated["key"]) as other:
        shown = {row["key_id"]: row["retention"] for row in other.get("/v1/keys").json()["data"]}
        assert (shown[rotated["key_id"]], shown[made["key_id"]], [*shown.values()].count(None)) == ("none", "none", 1)
        record = other.post("/v1/transcribe", files={"file": ("a.wav", wav())}, data={"wait": "20"}).json()
        assert (record["retention"], record["text"], record["formats"]) == ("none", "so my fellow", {})
        assert other.get(f"/v1/jobs/{record['job_id']}").json()["text"] is None


def test_the_command_line_makes_such_a_key(folder):
    told = Server(folder / "data").cli("keys", "create", "--retention", "none")
    assert orjson.loads(told)["retention"] == "none"


@pytest.mark.parametrize("shape", ["json", "verbose_json", "text", "srt", "stream"])
def test_openais_clients_can_order_so_too(client, folder, shape):
    data = {"model": "whisper-1", "retention": "none", "prompt": HINT}
    data |= {"stream": "true"} if shape == "stream" else {"response_format": shape}
    answer = client.post("/v1/audio/transcriptions", files={"file": ("a.wav", wav())}, data=data)
    assert answer.status_code == 200
    assert SPOKEN in answer.text
    job = client.get("/v1/jobs").json()["data"][0]
    until(lambda: client.get(f"/v1/jobs/{job['job_id']}").json()["erased_at"])
    assert until(lambda: not traces(folder, SPOKEN, HINT))
    estimate = client.get(f"/v1/jobs/{job['job_id']}/estimate")
    assert (estimate.status_code, estimate.json()["code"]) == (404, "output_not_found")


async def test_the_python_client_returns_the_record_and_the_files_in_it(server, tmp_path):
    file = tmp_path / "a.wav"
    file.write_bytes(wav())

    async with Client(server.base, server.key()) as client:
        record = await client.transcribe(file, output_formats=["srt"], prompt=HINT, retention="none")
        assert SPOKEN.encode() in await client.output(record, "srt")
        assert (await client.job(record["job_id"]))["text"] is None


# --- in the store -------------------------------------------------------------------------------------------------


async def end_job(storage: Storage, outcome: Outcome, **order: Any) -> str:
    """A job with *outcome* whose results are not kept. It has a word and an output."""
    job_id = await submit(storage, order=Order(retention="none", prompt=HINT, metadata={"k": "v"}, **order))
    lease = await claim(storage)
    await checkpoint(storage, lease)
    made = Artifact(kind="json", blob=f"{job_id}/1.json", sha256="0", bytes=1)
    await storage.jobs.finish(lease, replace(outcome, artifacts=(made,)))
    return job_id


async def test_results_are_erased_once_they_were_handed_over(storage, clock):
    job_id = await end_job(storage, completion())
    assert await storage.jobs.list_to_erase(limit=9) == []
    assert await storage.jobs.erase_outputs(job_id) is None
    await storage.jobs.note_answered(job_id)
    clock.advance(s=1)
    await storage.jobs.note_answered(job_id)
    [job] = await storage.jobs.list_to_erase(limit=9)
    assert (job.id, job.text, job.answered_at, job.erased_at) == (job_id, "hello", NOON, None)
    assert await storage.jobs.erase_outputs(job_id) == job_id
    job = await storage.jobs.get(job_id)
    assert (job.text, job.order.prompt, job.order.metadata, job.erased_at) == (None, "", {"k": "v"}, clock.now)
    assert await parts_done(storage, job_id) == 0
    assert await storage.jobs.artifact(job_id, "json") is None
    assert "word" not in await types_of(storage, job_id)
    assert (await types_of(storage, job_id))[-1] == "job.completed"
    assert await storage.jobs.list_to_erase(limit=9) == []
    assert await storage.jobs.erase_outputs(job_id) is None
    told = Erasure(job_id=job_id, at=clock.now, what=ErasedPart.OUTPUTS, why=ErasureReason.NOT_KEPT)
    assert await storage.upkeep.erasures(limit=9) == [told]


async def test_a_pending_webhook_keeps_results_until_it_is_over(storage):
    job_id = await end_job(storage, completion(), webhook_url=HOOK, webhook_events=("job.completed",))
    await storage.jobs.note_answered(job_id)
    assert await storage.jobs.erase_outputs(job_id) is None
    [row] = await storage.outbox.of_job(job_id)
    tried = Attempt(n=1, at=NOON, status_code=500, duration_ms=1, error="no", next_attempt_at=None)
    await storage.outbox.record(row.id, tried, state="failed")
    assert [job.id for job in await storage.jobs.list_to_erase(limit=9)] == [job_id]


async def test_a_job_that_did_not_complete_has_nothing_to_hand_over(storage):
    job_id = await end_job(storage, failure())
    assert [job.id for job in await storage.jobs.list_to_erase(limit=9)] == [job_id]
    await storage.jobs.erase_outputs(job_id)
    assert "word" not in await types_of(storage, job_id)


async def test_results_that_are_kept_are_never_erased_so(storage):
    job_id = await submit(storage)
    await storage.jobs.note_answered(job_id)
    await storage.jobs.finish(await claim(storage), completion())
    await storage.jobs.note_answered(job_id)
    assert await storage.jobs.list_to_erase(limit=9) == []
    assert await storage.jobs.erase_outputs(job_id) is None
    job = await storage.jobs.get(job_id)
    assert (job.text, job.answered_at) == ("hello", None)


async def test_who_still_reads_delays_the_erasing_for_a_minute_at_most(tmp_path):
    clock = ManualClock(now_ms())
    async with storage_in(tmp_path, clock) as storage:
        eraser, job_id = Eraser(storage, Metrics()), await end_job(storage, completion())
        with eraser.holding(job_id):
            await eraser.note_answered(job_id)
            await eraser.tidy()
            job = await storage.jobs.get(job_id)
            assert job.erased_after_delivery
            assert job.shows_results(clock.now - 1)
            assert not job.shows_results(clock.now)
            clock.now = job.answered_at or 0
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(housekeeping, "HELD_MS", -1)
                await eraser.tidy()
        job = await storage.jobs.get(job_id)
        assert job.text is None


def test_results_that_nobody_takes_are_not_kept_for_longer_than_a_day(server, client):
    job_id = transcribe(client, wait="0").json()["job_id"]
    [job] = [job for job in until(lambda: server.wait(job_columns(server.storage, job_id))) if job]
    assert job.expires_at - job.finished_at == UNANSWERED_KEPT_MS


async def job_columns(storage: Storage, job_id: str) -> list[Any]:
    job = await storage.jobs.get(job_id)
    return [job] if job is not None and job.terminal else []
