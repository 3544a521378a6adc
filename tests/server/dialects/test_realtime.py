"""Tests of OpenAI's realtime transcription sessions: the real openai package, and the messages of agent frameworks."""

import asyncio
import base64
import json
from dataclasses import replace

import numpy as np
import pytest
import soundfile
from openai.resources.realtime.realtime import AsyncRealtimeConnection
from openai.types.realtime import RealtimeTranscriptionSessionCreateRequest

from server.dialects.openai.items import ItemNames, Items
from tests.server.realtime_client import COMPLETED, PIPECAT, RATE, SILENCE, append, connect_client, open_talk
from tests.server.running import SPEECH
from tests.server.serving import serve
from tests.server.talking import HASTY
from tests.waiting import eventually

JFK = SPEECH / "human" / "jfk.flac"
DELTA = "conversation.item.input_audio_transcription.delta"
COMMITTED = ["input_audio_buffer.committed", "conversation.item.added", "conversation.item.done"]

LIVEKIT = {
    "type": "session.update",
    "session": {
        "type": "transcription",
        "audio": {
            "input": {
                "format": {"type": "audio/pcm", "rate": 24000},
                "transcription": {"model": "gpt-4o-mini-transcribe", "prompt": "", "language": "en"},
                "turn_detection": {
                    "type": "server_vad",
                    "threshold": 0.5,
                    "prefix_padding_ms": 600,
                    "silence_duration_ms": 350,
                },
                "noise_reduction": None,
            }
        },
    },
}
"""What LiveKit 1.8.9 sends as soon as the socket is open."""


def speech() -> bytes:
    """Return President Kennedy's sentence at OpenAI's rate."""
    samples, rate = soundfile.read(JFK, dtype="float32")
    at = np.arange(len(samples) * RATE // rate) * (rate / RATE)
    return bytes((np.interp(at, np.arange(len(samples)), samples) * 32767).astype("<i2").tobytes())


async def next_item(connection: AsyncRealtimeConnection) -> tuple[str, str]:
    """Return the deltas up to the next completed item, and its transcript."""
    said = ""
    while (event := await asyncio.wait_for(connection.recv(), 45)).type != COMPLETED:
        said += event.delta if event.type == DELTA else ""
    return said, event.transcript


# --- the real package and the real model ------------------------------------------------------------------------------


async def test_the_openai_package_commits_and_gets_deltas_that_add_up_to_the_transcript(bundled_server):
    audio = speech()
    async with connect_client(bundled_server, bundled_server.new_key()) as connection:
        created = await connection.recv()
        assert created.type == "session.created"
        assert isinstance(created.session, RealtimeTranscriptionSessionCreateRequest)
        await connection.session.update(
            session={
                "type": "transcription",
                "audio": {
                    "input": {
                        "format": {"type": "audio/pcm", "rate": RATE},
                        "transcription": {"model": "gpt-4o-transcribe", "language": "en"},
                        "turn_detection": None,
                    }
                },
            }
        )
        updated = await connection.recv()
        assert isinstance(updated.session, RealtimeTranscriptionSessionCreateRequest)
        assert updated.session.audio.input.turn_detection is None
        assert updated.session.audio.input.transcription.model == "gpt-4o-transcribe"
        for at in range(0, len(audio), 4800):
            await connection.input_audio_buffer.append(audio=base64.b64encode(audio[at : at + 4800]).decode())
        await connection.input_audio_buffer.commit()
        said, transcript = await next_item(connection)
    assert said == transcript
    assert "ask not what your country can do for you" in transcript.lower()  # the model may end a sentence before it


async def test_livekit_gets_its_items_without_a_commit(bundled_server):
    async with open_talk(bundled_server, bundled_server.new_key(), model="gpt-4o-mini-transcribe") as talk:
        await talk.socket.send(json.dumps(LIVEKIT))
        await talk.send(speech() + 2 * SILENCE)
        done = await talk.until(COMPLETED)
        assert "fellow Americans" in done["transcript"]
        assert done["languages"] == [{"code": "en"}]
        assert done["usage"]["seconds"] > 1
        began = next(event for event in talk.frames if event["type"] == "input_audio_buffer.speech_started")
        ended = next(event for event in talk.frames if event["type"] == "input_audio_buffer.speech_stopped")
        assert 0 <= began["audio_start_ms"] < 1000 < ended["audio_end_ms"]
        mine = [e for e in talk.frames if done["item_id"] in (e.get("item_id"), e.get("item", {}).get("id"))]
        order = [event["type"] for event in mine if event["type"] != DELTA]
        assert order == [
            "input_audio_buffer.speech_started",
            "input_audio_buffer.speech_stopped",
            *COMMITTED,
            COMPLETED,
        ]
        assert {event["item_id"] for event in talk.frames if event["type"] == DELTA} >= {done["item_id"]}


# --- the shapes of the protocol, with a scripted engine ---------------------------------------------------------------


async def test_pipecat_commits_twice_without_an_error(live_server):
    me = live_server.key()
    async with open_talk(live_server, me) as talk:
        assert (await talk.next())["type"] == "session.created"
        await talk.send(SILENCE)  # before session.updated, as Pipecat does
        assert (await talk.configure(PIPECAT))["session"]["audio"]["input"]["turn_detection"] is None
        await talk.send(SILENCE)
        await talk.say("input_audio_buffer.commit")
        first = await talk.until(COMPLETED)
        await talk.send(bytes(960))  # 20 ms
        await talk.say("input_audio_buffer.commit")
        second = await talk.until(COMPLETED)
        assert first["transcript"].startswith("This is")
        assert second["transcript"] == ""
        assert "error" not in talk.kinds()
        committed = [event for event in talk.frames if event["type"] == "input_audio_buffer.committed"]
        assert [event["previous_item_id"] for event in committed] == [None, first["item_id"]]
        with live_server.client(me) as client:
            assert len(client.get("/v1/jobs").json()["data"]) == 1


async def test_each_commit_gets_the_words_before_it_though_the_next_follows_at_once(live_server):
    async with open_talk(live_server, live_server.key()) as talk:
        await talk.configure(PIPECAT)
        for _ in range(3):
            await talk.send(SILENCE)
            await talk.say("input_audio_buffer.commit")
        done = [await talk.until(COMPLETED) for _ in range(3)]
    assert done[0]["transcript"] == "This is"
    assert all(event["transcript"] for event in done)
    deltas = {event["item_id"]: "" for event in done}
    for event in talk.frames:
        if event["type"] == DELTA:
            deltas[event["item_id"]] += event["delta"]
    assert deltas == {event["item_id"]: event["transcript"] for event in done}


async def test_a_commit_of_nothing_is_openais_error_and_the_socket_goes_on(live_server):
    async with open_talk(live_server, live_server.key()) as talk:
        await talk.configure(PIPECAT)
        await talk.say("input_audio_buffer.commit", event_id="mine")
        error = (await talk.until("error"))["error"]
        assert (error["code"], error["event_id"]) == ("input_audio_buffer_commit_empty", "mine")
        await talk.say("response.create")
        assert "response.create" in (await talk.until("error"))["error"]["message"]
        await talk.socket.send("no JSON")
        await talk.until("error")
        await talk.say("input_audio_buffer.append", audio="not base64!")
        await talk.until("error")
        await talk.send(SILENCE)
        await talk.say("input_audio_buffer.commit")
        assert (await talk.until(COMPLETED))["transcript"]


async def test_what_is_cleared_is_not_told(live_server):
    async with open_talk(live_server, live_server.key()) as talk:
        await talk.configure(PIPECAT)
        await talk.say("input_audio_buffer.clear")
        await talk.until("input_audio_buffer.cleared")
        await talk.send(SILENCE)
        await talk.say("input_audio_buffer.clear")
        await talk.until("input_audio_buffer.cleared")
        seen = len(talk.frames)
        await talk.send(SILENCE)
        await talk.say("input_audio_buffer.commit")
        done = await talk.until(COMPLETED)
        assert "This" not in done["transcript"]
        later = {event.get("item_id") for event in talk.frames[seen:] if "item_id" in event}
        assert later == {done["item_id"]}


async def test_an_idle_socket_costs_no_session_and_takes_audio_after_its_session_ended(tmp_path):
    idle = replace(HASTY, idle_s=0.4, writerless_s=0.4)
    with serve(tmp_path, live=idle) as server:
        me = server.key("free", requests_per_minute=1000)  # which may have one live session
        async with open_talk(server, me) as talk:
            await talk.configure(PIPECAT)
            with server.client(me) as client:
                assert client.get("/v1/jobs").json()["data"] == []
                await talk.send(SILENCE)
                await talk.say("input_audio_buffer.commit")
                await talk.until(COMPLETED)
                await eventually(lambda: '"status":"completed"' in client.get("/v1/jobs").text)
                await talk.send(SILENCE)
                await talk.say("input_audio_buffer.commit")
                assert (await talk.until(COMPLETED))["transcript"] == "This is"
                assert len(client.get("/v1/jobs").json()["data"]) == 2
        assert "error" not in talk.kinds()


async def test_a_change_between_items_begins_a_new_session_with_it(live_server):
    async with open_talk(live_server, live_server.key("free")) as talk:  # which may have one live session
        await talk.configure(PIPECAT)
        await talk.send(SILENCE)
        await talk.say("input_audio_buffer.commit")
        await talk.until(COMPLETED)
        inputs = {"format": {"type": "audio/pcmu"}, "transcription": {"keywords": ["Siobhan"], "language": "en"}}
        changed = await talk.configure(
            {"type": "session.update", "session": {"type": "transcription", "audio": {"input": inputs}}}
        )
        shown = changed["session"]["audio"]["input"]
        assert (shown["format"], shown["turn_detection"]) == ({"type": "audio/pcmu"}, None)
        await talk.socket.send(append(bytes(8000)))
        await talk.say("input_audio_buffer.commit")
        done = await talk.until(COMPLETED)
        assert (done["transcript"], done["usage"]["seconds"]) == ("This is", 0.992)


@pytest.mark.parametrize(
    ("inputs", "param"),
    [
        ({"transcription": {"model": "gpt-9"}}, "model"),
        ({"transcription": {"language": "xx"}}, "language"),
        ({"format": {"type": "audio/pcm", "rate": 16000}}, "session.audio.input.format.rate"),
        ({"format": {"type": "audio/mp3"}}, "session.audio.input.format"),
        ({"turn_detection": {"type": "magic"}}, "session.audio.input.turn_detection"),
        (
            {"turn_detection": {"type": "semantic_vad", "eagerness": "very"}},
            "session.audio.input.turn_detection.eagerness",
        ),
    ],
)
async def test_what_cannot_be_done_is_refused_and_nothing_changes(live_server, inputs, param):
    async with open_talk(live_server, live_server.key()) as talk:
        before = (await talk.configure(PIPECAT))["session"]
        await talk.say("session.update", session={"type": "transcription", "audio": {"input": inputs}})
        assert (await talk.until("error"))["error"]["param"] == param
        after = (await talk.configure({"type": "session.update", "session": {"type": "transcription"}}))["session"]
        assert after["audio"] == before["audio"]


def test_a_commit_after_the_end_of_its_session_is_answered():
    items = Items(ItemNames(), manual=True)
    items.render({"type": "word", "word": "so", "start": 0.1, "end": 0.4})
    assert items.finish(1.0)[-1]["transcript"] == "so"
    last = items.commit(0.0)[-1]
    assert (last["type"], last["transcript"]) == (COMPLETED, "")
