"""Tests of the audio of live sessions on a real server: encodings, containers, recordings, and too much of it."""

import asyncio
import io
import sys
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile
from websockets.exceptions import ConnectionClosed

from pipeline.ingest.recording import Recording
from server.client import Client
from tests.server.running import CLIP
from tests.server.talking import Caller, check_refusal, open_talk, script_words, silence
from tests.waiting import until


@pytest.mark.parametrize(
    ("encoding", "rate", "channels", "bytes_per_s"),
    [
        ("pcm_s16le", 48_000, 2, 192_000),
        ("pcm_f32le", 16_000, 1, 64_000),
        ("pcm_f32le", 44_100, 2, 352_800),
        ("mulaw", 8_000, 1, 8_000),
        ("alaw", 8_000, 2, 16_000),
    ],
)
async def test_every_raw_encoding_keeps_time(me, encoding, rate, channels, bytes_per_s):
    async with me.speaking(encoding=encoding, sample_rate=rate, channels=channels) as (record, talk):
        await talk.send(bytes(3 * bytes_per_s), piece_s=0.333)
        await talk.close()
    assert talk.words == script_words(3)
    job = await me.job(record["job_id"])
    assert job["duration"] == pytest.approx(3, abs=0.01)
    assert job["live"]["received_seconds"] == job["duration"]


@pytest.mark.parametrize(
    ("encoding", "rate", "bytes_per_s"),
    [("mulaw", 8_000, 8_000), ("alaw", 8_000, 8_000), ("pcm_s16le", 16_000, 32_000), ("pcm_f32le", 16_000, 64_000)],
)
async def test_without_a_rate_telephone_encodings_have_8000_samples_a_second_and_others_16000(
    me, encoding, rate, bytes_per_s
):
    async with Client(me.served.base, me.secret) as client, client.live(encoding=encoding) as stream:
        await stream.send(bytes(3 * bytes_per_s))
        stream.close()
        frames = [event async for event in stream.events()]
    assert [frame["word"] for frame in frames if frame["type"] == "word"] == script_words(3)
    job = await me.job(stream.job_id)
    assert job["live"]["sample_rate"] == rate
    assert job["duration"] == pytest.approx(3, abs=0.01)


async def test_a_container_is_heard_as_it_comes(me):
    record = await me.start(encoding="container")
    clip = CLIP.read_bytes()
    async with open_talk(record["live"]["ingest_ws"]) as talk:
        await talk.send(clip, piece_s=0.05)
        await talk.close()
    job = await me.job(record["job_id"])
    assert talk.words == script_words(job["duration"])
    assert job["live"]["received_bytes"] == len(clip)
    assert job["source"]["format"] == "container"
    assert "sample_rate" not in job["live"]


async def test_recordings_behind_each_other_are_heard_and_bytes_that_are_none_are_named(me):
    """Browsers' recorders send a whole file for each piece of time."""
    record = await me.start(encoding="container")
    file, letter = io.BytesIO(), b"Dear Sir, " * 1000
    soundfile.write(file, *soundfile.read(CLIP, dtype="int16"), format="WAV")
    clip = file.getvalue()
    async with open_talk(record["live"]["ingest_ws"]) as talk:
        await talk.send(clip * 2 + letter, piece_s=0.05)
        await talk.close()
    job = await me.job(record["job_id"])
    assert job["duration"] == pytest.approx(2 * soundfile.info(CLIP).duration, abs=0.1)
    assert [warning["code"] for warning in job["warnings"]] == ["bytes_not_heard"]
    assert job["warnings"][0]["message"].startswith("10000 bytes")


@pytest.mark.parametrize("rubbish", [b"this is no audio at all " * 1000, b"\x00" * 50_000])
async def test_what_no_decoder_can_read_is_4415(me, rubbish):
    async with me.speaking(encoding="container") as (record, talk):
        await talk.socket.send(rubbish)
        await talk.say("close")
        await check_refusal(talk, 4415, "unsupported_audio_format")
    job = await me.job(record["job_id"])
    assert (job["status"], job["error"]["code"]) == ("failed", "unsupported_audio_format")


@pytest.mark.parametrize("encoding", ["pcm_s16le", "container"])
async def test_a_session_without_audio_is_completed_without_words(me, encoding):
    async with me.speaking(encoding=encoding, output_formats=["json", "srt", "vtt"]) as (record, talk):
        await talk.close()
    job = await me.job(record["job_id"])
    assert (job["status"], job["text"], job["duration"]) == ("completed", "", 0)


async def test_what_was_heard_is_kept_as_flac_where_that_is_ordered(me):
    record = await me.start(encoding="pcm_f32le", record=True)
    noise = np.random.default_rng(7).uniform(-1, 1, 3 * 16_000).astype("<f4")
    async with open_talk(record["live"]["ingest_ws"]) as talk:
        await talk.send(noise.tobytes())
        await talk.close()
    job = await me.job(record["job_id"])
    async with httpx.AsyncClient() as client:
        audio = await client.get(job["live"]["audio_url"])
    assert audio.headers["content-type"] == "audio/flac"
    kept, rate = soundfile.read(io.BytesIO(audio.content), dtype="float32")
    assert (rate, kept.shape) == (16_000, noise.shape)
    assert np.abs(kept - noise).max() < 1e-4
    assert set(job["formats"]) == {"json"}


@pytest.mark.skipif(sys.platform != "linux", reason="reads the names of open files from /proc")
async def test_a_recording_lies_in_the_data_folder_while_it_is_made(me, live_server):
    async with me.speaking(record=True) as (_, talk):
        await talk.send(silence(3))
        scratch = str(live_server.storage.blobs.scratch)
        await asyncio.to_thread(until, lambda: any(name.startswith(scratch) for name in open_files()))
        assert not list(live_server.storage.blobs.scratch.iterdir()), "it has no name"
        await talk.close()
    await asyncio.to_thread(until, lambda: not any(name.startswith(scratch) for name in open_files()))


def open_files() -> list[str]:
    """The names of the files that this process, in which the server runs, has open."""
    names = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            names.append(str(descriptor.readlink()))
    return names


async def test_a_recording_that_cannot_be_kept_costs_no_word(me, monkeypatch):
    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(Recording, "write", full)
    async with me.speaking(record=True) as (record, talk):
        await talk.send(silence(3))
        await talk.close()
    assert talk.words == script_words(3)
    job = await me.job(record["job_id"])
    assert "recording_failed" in [warning["code"] for warning in job["warnings"]]
    assert "audio_url" not in job["live"]


async def test_more_bytes_than_the_plan_takes_end_a_session_with_what_was_heard(live_server):
    me = Caller(live_server, live_server.key(upload_mib=1))
    async with me.speaking(max_utterance_s=3) as (record, talk):
        with suppress(ConnectionClosed):  # it may be closed before the last piece
            for _ in range(34):
                await talk.send(silence(1))
        await check_refusal(talk, 4413, "payload_too_large")
    job = await me.job(record["job_id"], wait=20)
    assert job["status"] == "completed"
    assert job["text"].startswith(" ".join(script_words(30)))


async def test_no_audio_is_kept_where_nobody_ordered_it_or_none_came(me):
    for order in ({}, {"record": True}):
        record = await me.start(**order)
        async with me.client() as client:
            where = f"/v1/jobs/{record['job_id']}/outputs/audio"
            if order:
                assert (await client.get(where)).json()["code"] == "job_not_completed"
            await client.post(f"/v1/jobs/{record['job_id']}/finish")
            assert (await client.get(where)).json()["code"] == "output_not_found"
        assert "audio_url" not in (await me.job(record["job_id"]))["live"]
