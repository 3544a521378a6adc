"""Tests of live sessions whose channels are separate speakers: one transcript that names them, live and at the end."""

import asyncio
import io
import random
from collections import Counter
from collections.abc import Sequence

import httpx
import numpy as np
import pytest
import soundfile

from tests.server.talking import (
    Caller,
    Frame,
    check_refusal,
    durable,
    open_talk,
    script_words,
    silence,
    write_with_drops,
)


def of(frames: Sequence[Frame], channel: int, kind: str = "word") -> list[Frame]:
    return [frame for frame in frames if frame["type"] == kind and frame["channel"] == channel]


def words(frames: Sequence[Frame], channel: int) -> list[str]:
    return [frame["word"] for frame in of(frames, channel)]


async def output(job: Frame, name: str) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.get(job["formats"][name])


async def test_both_sides_are_heard_by_themselves_and_are_one_log_and_one_transcript(me):
    record = await me.start(channels="separate", output_formats=["json", "srt", "vtt"], record=True, max_utterance_s=3)
    assert (record["live"]["channels"], record["live"]["separate"]) == (2, True)
    async with open_talk(record["live"]["ingest_ws"]) as talk:
        assert (await talk.next())["channels"] == 2
        await talk.send(silence(8) * 2)
        await talk.close()
    assert words(talk.frames, 0) == words(talk.frames, 1) == script_words(8)
    told = talk.of("word")
    assert [word["index"] for word in told] == list(range(len(told)))
    assert {(word["channel"], word["speaker"]) for word in told} == {(0, "S1"), (1, "S2")}
    assert {partial["speaker"] for partial in talk.of("partial")} == {"S1", "S2"}
    segments = talk.of("segment")
    assert sorted(segment["id"] for segment in segments) == list(range(len(segments)))
    counted = Counter(word["segment"] for word in told)
    for segment in segments:
        own = [word for word in told if word["segment"] == segment["id"]]
        assert {word["channel"] for word in own} == {segment["channel"]}
        assert len(segment["text"].split()) == counted[segment["id"]]
    assert [frame["seq"] for frame in durable(talk.frames)] == list(range(1, len(durable(talk.frames)) + 1))
    await check_result(me, record["job_id"])


async def test_a_session_that_is_deleted_while_it_runs_counts_every_second_of_each_channel(me):
    async with me.speaking(channels="separate") as (record, talk), me.client() as client:
        await talk.send(silence(2 * 8))
        while not (talk.of("word") and talk.of("word")[-1]["end"] > 7):
            await talk.next()
        assert (await client.delete(f"/v1/jobs/{record['job_id']}?force=true")).status_code == 204
        usage = {row["name"]: row["used"] for row in (await client.get("/v1/usage")).json()["usage"]}
    assert 14 < usage["audio_seconds"] <= 16
    assert usage["transcriptions"] == 1


async def check_result(me: Caller, job_id: str) -> None:
    job = await me.job(job_id)
    assert (job["status"], job["duration"], len(job["words"])) == ("completed", 8, 2 * len(script_words(8)))
    starts = [word["start"] for word in job["words"]]
    assert starts == sorted(starts)
    assert "\nS1: This" in (await output(job, "srt")).text
    assert "\n<v S2>This" in (await output(job, "vtt")).text
    document = (await output(job, "json")).json()
    assert {segment["speaker"] for segment in document["segments"]} == {"S1", "S2"}
    async with me.client() as client:
        growing = await client.get(f"/v1/jobs/{job_id}/live.vtt")
        usage = {row["name"]: row["used"] for row in (await client.get("/v1/usage")).json()["usage"]}
        audio = await client.get(job["live"]["audio_url"])
    assert "\n<v S1>" in growing.text
    assert (usage["audio_seconds"], usage["transcriptions"]) == (16, 1), "each channel counts"
    assert soundfile.info(io.BytesIO(audio.content)).channels == 2


@pytest.mark.parametrize(
    ("order", "param"),
    [
        ({"channels": "both"}, "channels"),
        ({"channels": "separate", "channel_count": 9}, "channel_count"),
        ({"channels": "separate", "channel_count": 1}, "channel_count"),
        ({"channels": 2, "channel_count": 2}, "channel_count"),
    ],
)
def test_an_order_for_channels_that_cannot_be_met_names_its_member(live_server, order, param):
    with live_server.new_client() as client:
        answer = client.post("/v1/live", json=order)
    assert (answer.status_code, answer.json()["errors"][0]["param"]) == (422, param)


async def test_up_to_eight_channels_are_kept_apart_at_any_rate(me):
    async with me.speaking(channels="separate", channel_count=8, encoding="mulaw") as (_, talk):
        await talk.send(bytes([255]) * 8 * 8000 * 2)
        await talk.close()
    for channel in range(8):
        assert words(talk.frames, channel) == script_words(2)


async def test_the_channels_of_a_container_are_counted_and_kept_apart(me):
    for count, file_channels in ((2, 2), (2, 1)):
        record = await me.start(channels="separate", channel_count=count, encoding="container")
        file = io.BytesIO()
        soundfile.write(file, np.zeros((3 * 44_100, file_channels)), 44_100, format="OGG")
        async with open_talk(record["live"]["ingest_ws"]) as talk:
            await talk.socket.send(file.getvalue())
            await talk.say("close")
            if file_channels == count:
                assert await talk.to_the_end() == (1000, "")
                assert words(talk.frames, 0) == words(talk.frames, 1) == script_words(3)
            else:
                await check_refusal(talk, 4415, "invalid_audio")
                assert "1 channels" in talk.frames[-1]["error"]["detail"]


def test_a_session_takes_as_many_seats_of_its_plan_as_it_has_channels(live_server):
    with live_server.new_client("free") as client:  # one session at a time
        refusal = client.post("/v1/live", json={"channels": "separate"})
        assert (refusal.status_code, refusal.json()["code"]) == (429, "concurrency_limited")
        assert client.post("/v1/live", json={"channels": 2}).status_code == 201


async def test_finalize_is_answered_once_for_all_channels(me):
    async with me.speaking(channels="separate") as (_, talk):
        await talk.send(silence(2) * 2)
        await talk.say("finalize")
        answer = await talk.until("finalized")
        assert (answer["at"], "channel" in answer) == (1.984, False)
        assert words(talk.frames, 0) == words(talk.frames, 1) == script_words(2)
        await talk.close()
    assert len(talk.of("finalized")) == 1


async def test_a_writer_that_loses_its_connection_loses_no_word_of_any_channel(me):
    record = await me.start(channels="separate", max_utterance_s=3)
    reader = asyncio.create_task(me.events(record["job_id"]))
    await write_with_drops(record["live"]["ingest_ws"], silence(12) * 2, random.Random(3), drops=4)
    frames: list[Frame] = [{"type": kind, **data} for _, kind, data in await reader]
    assert words(frames, 0) == words(frames, 1) == script_words(12)
