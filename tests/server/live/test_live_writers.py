"""Tests of writers of live sessions on a real server: one at a time, reconnecting, and within limits."""

import asyncio
import time
from contextlib import suppress
from dataclasses import replace

import pytest
from websockets.exceptions import ConnectionClosed

from server.clock import parse_iso
from tests.server.serving import serve
from tests.server.talking import (
    HASTY,
    IMPATIENT,
    SECOND,
    Caller,
    check_refusal,
    open_talk,
    script_words,
    silence,
    wait_for_bytes,
)


async def test_a_second_writer_is_4409_and_the_first_goes_on(me):
    async with me.speaking() as (record, first):
        await first.send(silence(1))
        await first.until("session.started")
        async with open_talk(record["live"]["ingest_ws"]) as second:
            await check_refusal(second, 4409, "ingest_busy")
        async with open_talk(me.socket(record), me.headers) as third:
            await check_refusal(third, 4409, "ingest_busy")
        async with me.client() as client:
            posted = await client.post(f"/v1/jobs/{record['job_id']}/audio", content=silence(1))
        assert (posted.status_code, posted.json()["code"]) == (409, "ingest_busy")
        await first.send(silence(1))
        await first.close()
    assert first.words == script_words(2)


async def test_a_writer_that_fell_silent_gives_way_to_the_next(hasty_caller):
    async with hasty_caller.speaking() as (record, dead):
        await dead.send(silence(1))
        await dead.until("ack")
        await asyncio.sleep(HASTY.takeover_s * 1.5)
        async with open_talk(record["live"]["ingest_ws"]) as fresh:
            assert (await fresh.next())["received_bytes"] == SECOND
            await check_refusal(dead, 4409, "ingest_busy")
            await fresh.send(silence(1))
            await fresh.close()
    assert fresh.words == script_words(2)


async def test_a_writer_is_told_what_has_arrived(hasty_caller):
    async with hasty_caller.speaking() as (record, talk):
        await talk.send(silence(1))
        ack = await talk.until(lambda frame: frame["type"] == "ack" and frame["received_bytes"] == SECOND)
        assert ack["received_seconds"] == 1
        shown = (await hasty_caller.job(record["job_id"]))["live"]
        assert (shown["received_bytes"], shown["received_seconds"]) == (SECOND, 1)


async def test_nothing_comes_behind_the_last_event_however_late_the_log_is_known_to_end(tmp_path, monkeypatch):
    with serve(tmp_path, live=replace(HASTY, ack_s=0.2)) as server:
        me = Caller(server, server.key("enterprise"))
        log = type(server.storage.timelines)
        tail = log.tail

        async def slow_to_end(self, stream, *, after):
            async for event in tail(self, stream, after=after):
                yield event
            await asyncio.sleep(1)

        monkeypatch.setattr(log, "tail", slow_to_end)
        async with me.speaking() as (_, talk):
            await talk.send(silence(1))
            await talk.close()
    assert talk.frames[-1]["type"] == "job.completed"


@pytest.mark.parametrize("text", ["not json", "[]", "{}", '{"type":"stop"}', '{"type":["close"]}', "7", ""])
async def test_a_message_that_means_nothing_is_4400_and_the_session_waits(me, text):
    async with me.speaking() as (record, talk):
        await talk.send(silence(1))
        await talk.socket.send(text)
        await check_refusal(talk, 4400, "invalid_message")
    async with open_talk(record["live"]["ingest_ws"]) as talk:
        assert (await talk.next())["received_bytes"] == SECOND
        await talk.close()


async def test_audio_after_the_end_is_4410(me):
    async with me.speaking() as (record, talk):
        await talk.send(silence(1))
        frames = talk.socket.protocol
        frames.send_text(b'{"type": "close"}')
        frames.send_binary(silence(0.1))
        talk.socket.transport.write(b"".join(frames.data_to_send()))  # at once, so the session cannot end in between
        await check_refusal(talk, 4410, "ingest_finished")
    await me.job(record["job_id"], wait=10)
    for where, headers in ((record["live"]["ingest_ws"], None), (me.socket(record), me.headers)):
        async with open_talk(where, headers) as late:
            await check_refusal(late, 4410, "ingest_finished")
    async with me.client() as client:
        posted = await client.post(f"/v1/jobs/{record['job_id']}/audio", content=silence(1))
        again = await client.post(f"/v1/jobs/{record['job_id']}/finish")
    assert (posted.status_code, posted.json()["code"]) == (409, "ingest_finished")
    assert again.json() == again.json() | {"status": "completed", "received_bytes": SECOND}


async def test_silence_of_the_client_is_4408_and_what_was_heard_is_kept(impatient_caller):
    async with impatient_caller.speaking() as (_, talk):
        await talk.send(silence(2))
        await check_refusal(talk, 4408, "ingest_idle")
    assert talk.words == script_words(2)
    assert talk.frames[-2]["type"] == "job.completed"


async def test_keep_alive_and_new_connections_keep_no_session_without_audio_for_ever(tmp_path):
    with serve(tmp_path, live=replace(HASTY, audioless_s=1.0)) as server:
        me = Caller(server, server.key())
        async with me.speaking() as (record, talk):
            await talk.send(silence(1))
            began = time.monotonic()
            for _ in range(3):
                await talk.say("keep_alive")
                await asyncio.sleep(0.2)
        async with open_talk(record["live"]["ingest_ws"]) as talk:
            with suppress(ConnectionClosed):
                while True:
                    await talk.say("keep_alive")
                    await talk.say("finalize")
                    await asyncio.sleep(0.1)
            await check_refusal(talk, 4408, "ingest_idle")
            assert 0.9 < time.monotonic() - began < 10
        assert (await me.job(record["job_id"], wait=10))["text"] == " ".join(script_words(1))


async def test_a_session_ends_at_the_time_that_its_record_names_however_little_audio_comes(tmp_path):
    """The plan takes a minute of audio, and three seconds are left for it here."""
    with serve(tmp_path, live=replace(HASTY, margin_s=-57.0)) as server:
        me = Caller(server, server.key(audio_minutes_per_file=1))
        record = await me.start()
        began = time.monotonic()
        ends_s = parse_iso(record["live"]["expires_at"]) / 1000 - time.time()
        assert 2 < ends_s < 4
        async with open_talk(record["live"]["ingest_ws"]) as talk:
            with suppress(ConnectionClosed):
                while True:
                    await talk.send(silence(0.05))
                    await asyncio.sleep(0.1)
            await check_refusal(talk, 4413, "audio_too_long")
        assert abs(time.monotonic() - began - ends_s) < 2
        job = await me.job(record["job_id"], wait=10)
        assert (job["status"], job["duration"] > 0.5) == ("completed", True)


async def test_keep_alive_keeps_a_silent_session_alive(impatient_caller):
    async with impatient_caller.speaking() as (_, talk):
        await talk.send(silence(1))
        for _ in range(8):
            await talk.say("keep_alive")
            await asyncio.sleep(IMPATIENT.idle_s / 4)
        await talk.send(silence(1))
        await talk.close()
    assert talk.words == script_words(2)


async def test_a_session_whose_writer_stays_away_ends_with_what_was_heard(impatient_caller):
    async with impatient_caller.speaking() as (record, talk):
        await talk.send(silence(2))
        await talk.until("word")
    job = await impatient_caller.job(record["job_id"], wait=20)
    assert (job["status"], job["text"]) == ("completed", " ".join(script_words(2)))


async def test_a_message_over_a_mebibyte_is_1009_and_the_session_waits(me):
    async with me.speaking(encoding="pcm_f32le", sample_rate=48_000, channels=2) as (record, talk):
        await talk.socket.send(bytes(1024 * 1024))
        await talk.socket.send(bytes(1024 * 1024 + 1))
        code, _ = await talk.to_the_end()
        assert code == 1009
    assert (await me.job(record["job_id"]))["live"]["received_bytes"] == 1024 * 1024


async def test_more_audio_in_a_message_than_anybody_can_speak_meanwhile_is_4429(me):
    async with me.speaking(encoding="mulaw", sample_rate=8000) as (record, talk):
        await talk.socket.send(bytes(8000 * 30))
        await talk.socket.send(bytes(8000 * 30 + 1))
        await check_refusal(talk, 4429, "audio_too_fast")
    assert (await me.job(record["job_id"]))["live"]["received_bytes"] == 8000 * 30


async def test_audio_over_the_plan_is_4413_after_what_fits_was_finished(live_server):
    me = Caller(live_server, live_server.key(audio_minutes_per_file=1))
    async with me.speaking() as (record, talk):
        sending = asyncio.create_task(talk.send(silence(62), piece_s=1))
        await check_refusal(talk, 4413, "audio_too_long")
        await asyncio.wait({sending})
        assert sending.exception() is None or isinstance(sending.exception(), ConnectionClosed)
    assert talk.words == script_words(60)
    job = await me.job(record["job_id"])
    assert (job["status"], job["duration"]) == ("completed", 60)
    assert [warning["code"] for warning in job["warnings"]] == ["audio_truncated"]


# --- in HTTP requests -----------------------------------------------------------------------------------------------


async def test_three_requests_give_what_one_socket_gives(me):
    record = await me.start(max_utterance_s=3)
    where = f"/v1/jobs/{record['job_id']}/audio"

    async def pieces():
        for _ in range(20):
            yield silence(0.1)

    async with me.client() as client:
        first = await client.post(where, content=silence(3), headers={"Content-Type": "application/octet-stream"})
        second = await client.post(where, content=pieces())
        third = await client.post(where, content=silence(5), params={"final": "true"})
    assert first.json() == first.json() | {"received_bytes": 3 * SECOND, "received_seconds": 3, "status": "processing"}
    assert second.json()["received_bytes"] == 5 * SECOND
    assert third.json() == third.json() | {"received_bytes": 10 * SECOND, "status": "completed"}
    assert (await me.job(record["job_id"]))["text"] == " ".join(script_words(10))


async def test_finish_ends_a_session_from_elsewhere_and_may_be_repeated(me):
    async with me.speaking() as (record, talk), me.client() as client:
        await talk.send(silence(2))
        await talk.until("word")
        for _ in range(2):
            done = await client.post(f"/v1/jobs/{record['job_id']}/finish")
            assert done.json() == done.json() | {"status": "completed", "received_bytes": 2 * SECOND}
        assert await talk.to_the_end() == (1000, "")
    assert talk.words == script_words(2)


async def test_a_request_that_breaks_off_counts_what_arrived(me):
    record = await me.start()

    async def broken():
        yield silence(2)
        await wait_for_bytes(me, record, 2 * SECOND)
        raise ConnectionResetError

    async with me.client() as client:
        with pytest.raises(ConnectionResetError):
            await client.post(f"/v1/jobs/{record['job_id']}/audio", content=broken())
        async with asyncio.timeout(10):
            while True:  # until the server has seen it
                rest = await client.post(f"/v1/jobs/{record['job_id']}/audio?final=1", content=silence(1))
                if rest.status_code == 200:
                    break
    assert rest.json()["received_bytes"] == 3 * SECOND
    assert (await me.job(record["job_id"]))["text"] == " ".join(script_words(3))


async def test_a_request_is_told_why_its_audio_is_refused(live_server):
    me = Caller(live_server, live_server.key(audio_minutes_per_file=1))
    record, nonsense = await me.start(), await me.start(encoding="container")
    async with me.client() as client:
        long = await client.post(f"/v1/jobs/{record['job_id']}/audio", content=silence(61))
        rubbish = await client.post(f"/v1/jobs/{nonsense['job_id']}/audio?final=true", content=b"no audio" * 5000)
    assert (long.status_code, long.json()["code"]) == (413, "audio_too_long")
    assert (await me.job(record["job_id"]))["status"] == "completed"
    assert (rubbish.status_code, rubbish.json()["code"]) == (415, "unsupported_audio_format")
