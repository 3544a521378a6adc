"""Tests of live sessions on a real server on loopback: how they start, what they report to whom, and how they end."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pytest

from server.engines import MAX_SANDBOX_SESSIONS, open_engines
from server.http import sockets
from server.http.sockets import Socket
from server.live.session import LiveSession
from server.streams import feed
from tests.server.receiving import receiver
from tests.server.serving import config, serve
from tests.server.talking import HASTY, SECOND, Caller, check_refusal, open_talk, script_words, silence


async def test_a_session_is_a_job_with_places_to_send_audio_to(me):
    async with me.client() as client:
        answer = await client.post("/v1/live", json={"metadata": {"room": "1"}, "typo": 1})
    record = answer.json()
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/v1/jobs/{record['job_id']}"
    assert (record["status"], record["source"]) == ("queued", {"type": "live"})
    assert record["warnings"] == [{"code": "unknown_parameter", "param": "typo"}]
    assert record["live"]["ingest_ws"].startswith(f"{me.socket(record)}?token=st_")
    assert record["live"]["ingest_http"] == f"{me.served.base}/v1/jobs/{record['job_id']}/audio"
    assert record["live"]["events_url"] == record["events_url"]
    assert (record["live"]["received_bytes"], record["live"]["received_seconds"]) == (0, 0)
    live = (await me.job(record["job_id"]))["live"]
    assert (live["encoding"], live["latency"], live["endpointing"]) == ("pcm_s16le", "balanced", "silence")


@pytest.mark.parametrize(
    ("order", "param"),
    [
        ({"encoding": "opus"}, "encoding"),
        ({"sample_rate": 7999}, "sample_rate"),
        ({"sample_rate": "16000"}, "sample_rate"),
        ({"channels": 3}, "channels"),
        ({"interim_results": "maybe"}, "interim_results"),
        ({"endpointing_ms": 100}, "endpointing_ms"),
        ({"latency": "soon"}, "latency"),
        ({"endpointing": "meaning"}, "endpointing"),
        ({"eagerness": "low"}, "eagerness"),
        ({"endpointing": "semantic", "eagerness": "very"}, "eagerness"),
        ({"max_utterance_s": 60}, "max_utterance_s"),
        ({"language": "xx"}, "language"),
        ({"output_formats": ["doc"]}, "output_formats"),
        ({"webhook_events": ["job.completed"]}, "webhook_events"),
    ],
)
def test_an_order_that_cannot_be_met_names_its_member(live_server, order, param):
    with live_server.new_client() as client:
        answer = client.post("/v1/live", json=order)
    assert (answer.status_code, answer.json()["errors"][0]["param"]) == (422, param)


def test_every_answer_is_as_the_description_says(live_server):
    with live_server.new_client() as client:  # it checks every answer
        job_id = client.post("/v1/live", json={"record": True}).json()["job_id"]
        where = f"/v1/jobs/{job_id}"
        for path, status in (("/audio", 200), ("/audio?final=maybe", 422), ("/audio?final=true", 200),
                             ("/audio", 409), ("/finish", 200)):  # fmt: skip
            audio = {"Content-Type": "application/octet-stream"}
            assert client.post(where + path, content=silence(1), headers=audio).status_code == status
            assert client.get(where).json()["live"]["record"]
        assert client.post(f"{where}/audio", content=b"", headers={"Content-Type": "text/plain"}).status_code == 415
        assert client.get("/v1/jobs?source=live").json()["data"][0]["live"]["encoding"] == "pcm_s16le"
        assert client.get(f"{where}/outputs/audio").content.startswith(b"fLaC")


async def test_the_sandbox_has_live_sessions_of_its_own(live_server):
    secret = live_server.key(environment="sandbox")
    async with httpx.AsyncClient(
        base_url=f"{live_server.base}/sandbox", headers={"Authorization": f"Bearer {secret}"}
    ) as client:
        record = (await client.post("/v1/live", json={})).json()
        assert "/sandbox/v1/jobs/" in record["live"]["ingest_ws"]
        async with open_talk(record["live"]["ingest_ws"]) as talk:
            await talk.send(silence(2))
            await talk.close()
        job = (await client.get(f"/v1/jobs/{record['job_id']}")).json()
    assert (job["environment"], job["text"]) == ("sandbox", " ".join(script_words(2)))


def test_the_sandbox_has_a_bound_for_the_live_sessions_of_everybody(tmp_path):
    settings = config(ENGINE="scripted", DATA_DIR=str(tmp_path))
    with ThreadPoolExecutor(1) as threads, open_engines(settings, threads) as (engines, _):
        assert {name: engine.live.max_sessions for name, engine in engines.items()} == {
            "production": None,  # nothing was measured
            "sandbox": MAX_SANDBOX_SESSIONS,
        }


# --- words -----------------------------------------------------------------------------------------------------------


async def test_words_come_while_audio_is_still_sent_and_the_record_has_them_all(me):
    async with me.speaking(output_formats=["json", "txt"], max_utterance_s=3) as (record, talk):
        first = await talk.next()
        assert (first["type"], first["job_id"], first["received_bytes"]) == ("session.started", record["job_id"], 0)
        await talk.send(silence(4))
        word = await talk.until("word")
        assert word == word | {"index": 0, "segment": 0, "word": "This", "start": 0.0, "end": 0.32}
        assert word["lag_ms"] >= 0
        assert word["emitted_at"].endswith("Z")
        await talk.send(silence(6))
        await talk.close()
    assert talk.words == script_words(10)
    assert talk.frames[-1]["type"] == "job.completed"
    job = await me.job(record["job_id"])
    assert job["status"] == "completed"
    assert (job["duration"], job["language"], job["text"]) == (10, "en", " ".join(script_words(10)))
    assert [word["word"] for word in job["words"]] == script_words(10)
    assert job["source"] == {"type": "live", "bytes": 10 * SECOND, "format": "pcm_s16le"}
    assert (job["live"]["received_bytes"], job["live"]["received_seconds"]) == (10 * SECOND, 10)
    assert set(job["formats"]) == {"json", "txt"}
    async with httpx.AsyncClient() as client:
        assert (await client.get(job["formats"]["txt"])).text == " ".join(script_words(10)) + "\n"


async def test_events_are_numbered_without_holes_and_partials_stand_between_them(me):
    async with me.speaking(max_utterance_s=3) as (_, talk):
        await talk.send(silence(2))
        partial = await talk.until(lambda frame: frame["type"] == "partial" and frame["text"] != "")
        assert set(partial) == {"type", "job_id", "segment", "text", "start", "end"}
        await talk.close()
    numbers = [frame["seq"] for frame in talk.frames if "seq" in frame]
    assert numbers == list(range(1, len(numbers) + 1))
    kinds = {frame["type"] for frame in talk.frames}
    assert kinds >= {"speech.started", "language", "word", "segment", "speech.ended", "job.completed"}
    [segment] = talk.of("segment")
    assert segment == segment | {"id": 0, "text": " ".join(script_words(2)), "forced": False}


async def test_partials_are_not_told_to_who_does_not_want_them(me):
    record = await me.start(interim_results=False)
    reading = asyncio.create_task(me.events(record["job_id"]))
    async with open_talk(record["live"]["ingest_ws"]) as talk:
        await talk.send(silence(2))
        await talk.until("word")
        await talk.send(silence(1))
        await talk.close()
    assert talk.words == script_words(3)
    assert not talk.of("partial")
    assert "partial" not in [kind for _, kind, _ in await reading]


async def test_keep_alive_in_a_pause_decides_what_was_said_before_it(tmp_path):
    with serve(tmp_path, live=replace(HASTY, pause_s=0.5)) as server:
        me = Caller(server, server.key())
        async with me.speaking() as (_, talk):
            await talk.send(silence(1))
            await talk.say("keep_alive")  # audio came a moment ago
            await talk.send(silence(1))
            await asyncio.sleep(0.6)
            await talk.say("keep_alive")
            segment = await talk.until("segment")
            assert segment["text"] == " ".join(script_words(2))
            assert (await talk.until("finalized"))["at"] == 1.984
            await talk.say("keep_alive")
            await talk.send(silence(1))
            await talk.close()
        assert talk.words == script_words(3)
        assert len(talk.of("finalized")) == 1


async def test_each_finalize_is_answered_even_if_nothing_is_there_to_decide(me):
    async with me.speaking() as (record, talk):
        await talk.say("finalize")
        assert (await talk.until("finalized"))["at"] == 0
        await talk.send(silence(1))
        await talk.say("finalize")
        first = await talk.until("finalized")
        assert (talk.words, first["at"]) == (script_words(1), 0.992)
        await talk.say("finalize")
        again = await talk.until("finalized")
        assert (again["at"], "seq" in first, "seq" in again) == (0.992, True, False)
        await talk.close()
    logged = [data for _, kind, data in await me.events(record["job_id"]) if kind == "finalized"]
    assert [event["at"] for event in logged] == [0.992]


async def test_a_finalize_is_answered_that_comes_while_the_last_answer_is_being_stored(me, monkeypatch):
    """A reader sees an event as soon as it is stored, which the session itself may learn a moment later."""
    jobs = type(me.served.storage.jobs)
    append: Any = jobs.append

    async def slow(*given: Any) -> Any:
        last = await append(*given)
        await asyncio.sleep(0.3)
        return last

    async with me.speaking() as (_, talk):
        monkeypatch.setattr(jobs, "append", slow)
        await talk.send(silence(1))
        await talk.say("finalize")
        await talk.until("finalized")
        await talk.say("finalize")
        async with asyncio.timeout(5):
            again = await talk.until("finalized")
    assert (again["at"], "seq" in again) == (0.992, False)


async def test_a_request_with_audio_is_answered_at_once_when_its_session_breaks(me, monkeypatch):
    async def broken(_session: LiveSession) -> None:
        raise RuntimeError("a fault that nobody thought of")

    monkeypatch.setattr(LiveSession, "_write_events", broken)
    record = await me.start()
    async with me.client() as client, asyncio.timeout(5):
        answer = await client.post(record["live"]["ingest_http"], params={"final": "true"}, content=silence(1))
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")


async def test_a_writer_that_gets_its_words_slowly_gets_all_of_them_after_the_end(me, monkeypatch):
    send_frames = Socket.send_frames

    async def send_slowly(socket: Socket, frames: bytes) -> None:
        await asyncio.sleep(0.2)
        await send_frames(socket, frames)

    monkeypatch.setattr(Socket, "send_frames", send_slowly)
    monkeypatch.setattr(sockets, "CLOSING_S", 0.5)
    monkeypatch.setattr(feed, "KEPT", 1)
    monkeypatch.setattr(feed, "PAGE", 2)
    record = await me.start()
    async with open_talk(record["live"]["ingest_ws"]) as talk:
        await talk.send(silence(10))
        await talk.say("close")
        assert await talk.to_the_end() == (1000, "")
    assert [frame["index"] for frame in talk.frames if frame["type"] == "word"] == list(range(25))
    assert talk.frames[-1]["type"] == "job.completed"


# --- readers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("message", ["{}", b"audio"])
async def test_a_reader_that_speaks_is_4400(me, message):
    record = await me.start()
    async with open_talk(me.socket(record, "stream") + "?token=" + await me.token(record["job_id"], "events")) as talk:
        await talk.socket.send(message)
        await check_refusal(talk, 4400, "invalid_message")


# --- ends ------------------------------------------------------------------------------------------------------------


async def test_a_canceled_session_stops_and_says_so(hasty_caller):
    async with hasty_caller.speaking() as (record, talk), hasty_caller.client() as client:
        await talk.send(silence(1))
        await talk.until("ack")
        answer = await client.post(f"/v1/jobs/{record['job_id']}/cancel")
        assert answer.status_code == 202
        assert await talk.to_the_end() == (1000, "")
    assert talk.frames[-1]["type"] == "job.canceled"
    assert (await hasty_caller.job(record["job_id"]))["status"] == "canceled"


async def test_a_deleted_session_is_gone_for_everyone(hasty_caller):
    record = await hasty_caller.start()
    async with (
        open_talk(record["live"]["ingest_ws"]) as talk,
        open_talk(hasty_caller.socket(record, "stream"), hasty_caller.headers) as reader,
        hasty_caller.client() as client,
    ):
        await talk.send(silence(1))
        await talk.until("ack")
        assert (await client.delete(f"/v1/jobs/{record['job_id']}")).status_code == 409
        assert (await client.delete(f"/v1/jobs/{record['job_id']}?force=true")).status_code == 204
        await check_refusal(talk, 4404, "job_not_found")
        await check_refusal(reader, 4404, "job_not_found")


async def test_a_webhook_tells_that_a_session_is_over(me):
    with receiver() as hooks:
        record = await me.start(webhook_url=f"{hooks.url}/hook", metadata={"room": "7"})
        async with me.client() as client:
            await client.post(f"/v1/jobs/{record['job_id']}/audio?final=true", content=silence(2))
        [got] = await asyncio.to_thread(hooks.wait_for, 1)
    told = json.loads(got.body)
    assert told["type"] == "job.completed"
    assert told["data"] == told["data"] | {"job_id": record["job_id"], "text": " ".join(script_words(2))}
    assert told["data"]["metadata"] == {"room": "7"}


async def test_the_metrics_page_counts_what_live_sessions_do(me):
    async with me.client() as client:
        before = numbers((await client.get("/metrics")).text)
        async with me.speaking() as (_, talk):
            await talk.send(silence(2))
            await talk.until("word")
            assert numbers((await client.get("/metrics")).text)["scribewire_live_sessions"] >= 1
            await talk.close()
        after = numbers((await client.get("/metrics")).text)
    assert after["scribewire_live_words_total"] - before["scribewire_live_words_total"] == len(script_words(2))
    assert after["scribewire_word_lag_seconds_count"] >= len(script_words(2))
    assert after["scribewire_final_words_changed_total"] == 0
    heard = 'scribewire_model_audio_seconds_total{environment="production",model="test",urgency="final"}'
    assert after[heard] > before[heard]
    assert after['scribewire_model_calls_total{environment="production",model="test"}'] > 0
    assert 'scribewire_websockets_total{code="1000",route="/v1/jobs/{job_id}/audio"}' in after


def numbers(page: str) -> dict[str, float]:
    """Return the lines of the metrics page."""
    lines = [line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


async def test_a_session_that_never_got_a_writer_can_be_canceled_and_costs_nothing(live_server):
    me = Caller(live_server, live_server.key("free"))
    record = await me.start()
    async with me.client() as client:
        assert (await client.post(f"/v1/jobs/{record['job_id']}/cancel")).json()["status"] == "canceled"
        assert (await client.get("/v1/usage")).json()["usage"][0]["used"] == 0
