"""Tests of OpenAI's realtime transcription sessions: the real openai package, and the messages of agent frameworks."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import openai
import pytest
import soundfile
from openai.resources.realtime.realtime import AsyncRealtimeConnection
from openai.types.realtime import RealtimeTranscriptionSessionCreateRequest
from openai.types.realtime.realtime_transcription_session_create_response import (
    RealtimeTranscriptionSessionCreateResponse,
)
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from server.http.problems import Problem
from server.routes.openai.items import ItemNames, Items
from server.routes.openai.realtime import close_code
from tests.server.running import SPEECH, Server
from tests.server.serving import LIMITS, Served, served
from tests.server.storing import in_a_loop
from tests.server.talking import HASTY

RATE = 24_000
INTENT = {"intent": "transcription"}
JFK = SPEECH / "human" / "jfk.flac"
SILENCE = bytes(2 * RATE)
DELTA = "conversation.item.input_audio_transcription.delta"
COMPLETED = "conversation.item.input_audio_transcription.completed"
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

PIPECAT = {
    "type": "session.update",
    "session": {
        "type": "transcription",
        "audio": {
            "input": {
                "format": {"type": "audio/pcm", "rate": 24000},
                "transcription": {"model": "gpt-realtime-whisper"},
                "turn_detection": None,
            }
        },
    },
}
"""What Pipecat 1.14 sends when it has seen session.created. It commits by its own voice detection."""


def speech() -> bytes:
    """Return President Kennedy's sentence at OpenAI's rate."""
    samples, rate = soundfile.read(JFK, dtype="float32")
    at = np.arange(len(samples) * RATE // rate) * (rate / RATE)
    return bytes((np.interp(at, np.arange(len(samples)), samples) * 32767).astype("<i2").tobytes())


def url(server: Server | Served, **query: str) -> str:
    asked = "&".join(f"{name}={value}" for name, value in {**INTENT, **query}.items())
    return f"ws{server.base.removeprefix('http')}/v1/realtime?{asked}"


def append(data: bytes) -> str:
    return json.dumps({"type": "input_audio_buffer.append", "audio": base64.b64encode(data).decode()})


@asynccontextmanager
async def talking(server: Server | Served, key: str, **query: str) -> AsyncIterator["Talk"]:
    headers = {"Authorization": f"Bearer {key}"}
    async with connect(url(server, **query), additional_headers=headers, proxy=None, max_queue=None) as socket:
        yield Talk(socket)


class Talk:
    """A socket without OpenAI's package, and every event that came over it."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self.events: list[dict[str, Any]] = []

    async def next(self) -> dict[str, Any]:
        self.events.append(json.loads(await asyncio.wait_for(self.socket.recv(), 45)))
        return self.events[-1]

    async def until(self, kind: str) -> dict[str, Any]:
        while (event := await self.next())["type"] != kind:
            pass
        return event

    async def say(self, kind: str, **members: object) -> None:
        await self.socket.send(json.dumps({"type": kind, **members}))

    async def send(self, audio: bytes) -> None:
        for at in range(0, len(audio), RATE // 10):  # 50 ms
            await self.socket.send(append(audio[at : at + RATE // 10]))

    async def configured(self, first: Mapping[str, Any]) -> dict[str, Any]:
        await self.socket.send(json.dumps(first))
        return await self.until("session.updated")

    def kinds(self) -> list[str]:
        return [event["type"] for event in self.events]


@asynccontextmanager
async def connected(server: Server | Served, key: str) -> AsyncIterator[AsyncRealtimeConnection]:
    async with (
        openai.AsyncOpenAI(base_url=server.base + "/v1", api_key=key) as client,
        client.realtime.connect(extra_query=INTENT) as connection,
    ):
        yield connection


async def heard(connection: AsyncRealtimeConnection) -> tuple[str, str]:
    """Return the deltas up to the next completed item, and its transcript."""
    said = ""
    while (event := await asyncio.wait_for(connection.recv(), 45)).type != COMPLETED:
        said += event.delta if event.type == DELTA else ""
    return said, event.transcript


# --- the real package and the real model ------------------------------------------------------------------------------


@in_a_loop
async def test_the_openai_package_commits_and_gets_deltas_that_add_up_to_the_transcript(bundled_server):
    audio = speech()
    async with connected(bundled_server, bundled_server.new_key()) as connection:
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
        said, transcript = await heard(connection)
    assert said == transcript
    assert "ask not what your country can do for you" in transcript


@in_a_loop
async def test_livekit_gets_its_items_without_a_commit(bundled_server):
    async with talking(bundled_server, bundled_server.new_key(), model="gpt-4o-mini-transcribe") as talk:
        await talk.socket.send(json.dumps(LIVEKIT))
        await talk.send(speech() + 2 * SILENCE)
        done = await talk.until(COMPLETED)
        assert "fellow Americans" in done["transcript"]
        assert done["languages"] == [{"code": "en"}]
        assert done["usage"]["seconds"] > 1
        began = next(event for event in talk.events if event["type"] == "input_audio_buffer.speech_started")
        ended = next(event for event in talk.events if event["type"] == "input_audio_buffer.speech_stopped")
        assert 0 <= began["audio_start_ms"] < 1000 < ended["audio_end_ms"]
        mine = [e for e in talk.events if done["item_id"] in (e.get("item_id"), e.get("item", {}).get("id"))]
        order = [event["type"] for event in mine if event["type"] != DELTA]
        assert order == [
            "input_audio_buffer.speech_started",
            "input_audio_buffer.speech_stopped",
            *COMMITTED,
            COMPLETED,
        ]
        assert {event["item_id"] for event in talk.events if event["type"] == DELTA} >= {done["item_id"]}


# --- the shapes of the protocol, with a scripted engine ---------------------------------------------------------------


@in_a_loop
async def test_pipecat_commits_twice_without_an_error(live_server):
    me = live_server.key()
    async with talking(live_server, me) as talk:
        assert (await talk.next())["type"] == "session.created"
        await talk.send(SILENCE)  # before session.updated, as Pipecat does
        assert (await talk.configured(PIPECAT))["session"]["audio"]["input"]["turn_detection"] is None
        await talk.send(SILENCE)
        await talk.say("input_audio_buffer.commit")
        first = await talk.until(COMPLETED)
        await talk.send(bytes(960))  # 20 ms
        await talk.say("input_audio_buffer.commit")
        second = await talk.until(COMPLETED)
        assert first["transcript"].startswith("This is")
        assert second["transcript"] == ""
        assert "error" not in talk.kinds()
        committed = [event for event in talk.events if event["type"] == "input_audio_buffer.committed"]
        assert [event["previous_item_id"] for event in committed] == [None, first["item_id"]]
        with live_server.client(me) as client:
            assert len(client.get("/v1/jobs").json()["data"]) == 1


@in_a_loop
async def test_each_commit_gets_the_words_before_it_though_the_next_follows_at_once(live_server):
    async with talking(live_server, live_server.key()) as talk:
        await talk.configured(PIPECAT)
        for _ in range(3):
            await talk.send(SILENCE)
            await talk.say("input_audio_buffer.commit")
        done = [await talk.until(COMPLETED) for _ in range(3)]
    assert done[0]["transcript"] == "This is"
    assert all(event["transcript"] for event in done)
    deltas = {event["item_id"]: "" for event in done}
    for event in talk.events:
        if event["type"] == DELTA:
            deltas[event["item_id"]] += event["delta"]
    assert deltas == {event["item_id"]: event["transcript"] for event in done}


@in_a_loop
async def test_a_commit_of_nothing_is_openais_error_and_the_socket_goes_on(live_server):
    async with talking(live_server, live_server.key()) as talk:
        await talk.configured(PIPECAT)
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


@in_a_loop
async def test_what_is_cleared_is_not_told(live_server):
    async with talking(live_server, live_server.key()) as talk:
        await talk.configured(PIPECAT)
        await talk.say("input_audio_buffer.clear")
        await talk.until("input_audio_buffer.cleared")
        await talk.send(SILENCE)
        await talk.say("input_audio_buffer.clear")
        await talk.until("input_audio_buffer.cleared")
        seen = len(talk.events)
        await talk.send(SILENCE)
        await talk.say("input_audio_buffer.commit")
        done = await talk.until(COMPLETED)
        assert "This" not in done["transcript"]
        later = {event.get("item_id") for event in talk.events[seen:] if "item_id" in event}
        assert later == {done["item_id"]}


@in_a_loop
async def test_an_idle_socket_costs_no_session_and_takes_audio_after_its_session_ended(tmp_path):
    idle = replace(HASTY, idle_s=0.4, writerless_s=0.4)
    with served(tmp_path, live=idle) as server:
        me = server.key("free")  # which may have one live session
        async with talking(server, me) as talk:
            await talk.configured(PIPECAT)
            with server.client(me) as client:
                assert client.get("/v1/jobs").json()["data"] == []
                await talk.send(SILENCE)
                await talk.say("input_audio_buffer.commit")
                await talk.until(COMPLETED)
                until_ended = asyncio.get_running_loop().time() + 20
                while client.get("/v1/jobs").json()["data"][0]["status"] != "completed":
                    assert asyncio.get_running_loop().time() < until_ended
                    await asyncio.sleep(0.1)
                await talk.send(SILENCE)
                await talk.say("input_audio_buffer.commit")
                assert (await talk.until(COMPLETED))["transcript"] == "This is"
                assert len(client.get("/v1/jobs").json()["data"]) == 2
        assert "error" not in talk.kinds()


@in_a_loop
async def test_a_change_between_items_begins_a_new_session_with_it(live_server):
    async with talking(live_server, live_server.key("free")) as talk:  # which may have one live session
        await talk.configured(PIPECAT)
        await talk.send(SILENCE)
        await talk.say("input_audio_buffer.commit")
        await talk.until(COMPLETED)
        inputs = {"format": {"type": "audio/pcmu"}, "transcription": {"keywords": ["Siobhan"], "language": "de"}}
        changed = await talk.configured(
            {"type": "session.update", "session": {"type": "transcription", "audio": {"input": inputs}}}
        )
        shown = changed["session"]["audio"]["input"]
        assert (shown["format"], shown["turn_detection"]) == ({"type": "audio/pcmu"}, None)
        await talk.socket.send(append(bytes(8000)))
        await talk.say("input_audio_buffer.commit")
        done = await talk.until(COMPLETED)
        assert (done["transcript"], done["usage"]["seconds"]) == ("This is", 0.992)


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ({"transcription": {"model": "gpt-9"}}, "model_not_found"),
        ({"transcription": {"language": "xx"}}, "invalid_parameter"),
        ({"format": {"type": "audio/pcm", "rate": 16000}}, "invalid_parameter"),
        ({"format": {"type": "audio/mp3"}}, "invalid_parameter"),
        ({"turn_detection": {"type": "magic"}}, "invalid_parameter"),
        ({"turn_detection": {"type": "semantic_vad", "eagerness": "very"}}, "invalid_parameter"),
    ],
)
@in_a_loop
async def test_what_cannot_be_done_is_refused_and_nothing_changes(live_server, inputs, code):
    async with talking(live_server, live_server.key()) as talk:
        before = (await talk.configured(PIPECAT))["session"]
        await talk.say("session.update", session={"type": "transcription", "audio": {"input": inputs}})
        assert (await talk.until("error"))["error"]["code"] == code
        after = (await talk.configured({"type": "session.update", "session": {"type": "transcription"}}))["session"]
        assert after["audio"] == before["audio"]


@in_a_loop
async def test_a_client_secret_opens_one_door_with_its_session(live_server):
    me = live_server.key()
    async with openai.AsyncOpenAI(base_url=live_server.base + "/v1", api_key=me) as client:
        secret = await client.realtime.client_secrets.create(
            expires_after={"anchor": "created_at", "seconds": 30},
            session={"type": "transcription", "audio": {"input": {"turn_detection": None}}},
        )
    assert isinstance(secret.session, RealtimeTranscriptionSessionCreateResponse)
    async with connected(live_server, secret.value) as connection:
        created = await connection.recv()
        assert created.session.audio.input.turn_detection is None
    async with openai.AsyncOpenAI(base_url=live_server.base + "/v1", api_key=secret.value) as client:
        with pytest.raises(openai.AuthenticationError):
            await client.models.list()
        with pytest.raises(openai.AuthenticationError):
            await client.realtime.client_secrets.create()
    with live_server.client(me) as own:
        key_id = own.get("/v1/keys").json()["data"][0]["key_id"]
        own.delete(f"/v1/keys/{key_id}")
    with pytest.raises(InvalidStatus) as refused:
        async with talking(live_server, secret.value):
            pass
    assert refused.value.response.status_code == 401


@in_a_loop
async def test_a_browser_sends_its_key_as_a_subprotocol(live_server):
    offered = ["realtime", f"openai-insecure-api-key.{live_server.key()}"]
    async with connect(url(live_server, model="whisper-1"), subprotocols=offered, proxy=None) as socket:
        assert socket.subprotocol == "realtime"
        assert json.loads(await socket.recv())["type"] == "session.created"


@pytest.mark.parametrize(
    ("query", "headers", "status"),
    [
        ({}, {"Authorization": "Bearer sw_live_wrong"}, 401),
        ({}, {"Authorization": "Bearer ek_wrong"}, 401),
        ({"intent": "conversation"}, {}, 422),
        ({"model": "gpt-realtime"}, {}, 404),
        ({}, {"OpenAI-Beta": "realtime=v1"}, 422),
    ],
)
@in_a_loop
async def test_a_handshake_that_leads_nowhere_is_refused_in_openais_shape(live_server, query, headers, status):
    given = {"Authorization": f"Bearer {live_server.key()}", **headers}
    with pytest.raises(InvalidStatus) as refused:
        async with connect(url(live_server, **query), additional_headers=given, proxy=None):
            pass
    answer = refused.value.response
    assert answer.status_code == status
    assert set(json.loads(answer.body)["error"]) == {"message", "type", "param", "code"}


@in_a_loop
async def test_over_quota_the_client_is_told_and_not_invited_to_come_back(tmp_path):
    plan = replace(LIMITS.plans["free"], transcriptions_per_month=1)
    with served(tmp_path, limits=replace(LIMITS, plans={**LIMITS.plans, "free": plan})) as server:
        me = server.key("free")
        async with talking(server, me) as talk:
            await talk.configured(PIPECAT)
            await talk.send(SILENCE)
            await talk.configured({"type": "session.update", "session": {"audio": {"input": {
                "format": {"type": "audio/pcma"}}}}})  # fmt: skip
            await talk.socket.send(append(bytes(8000)))
            assert (await talk.until("error"))["error"]["type"] in ("insufficient_quota", "rate_limit_error")
            with pytest.raises(ConnectionClosed) as closed:
                await talk.until("never")
    assert closed.value.rcvd.code in (1008, 1013)


@in_a_loop
async def test_sockets_of_an_account_are_bounded_also_while_they_are_idle(live_server):
    me = live_server.key("free")  # one session: 20 + 2 sockets
    async with AsyncExitStack() as open_sockets:
        for _ in range(22):
            await open_sockets.enter_async_context(talking(live_server, me))
        with pytest.raises(InvalidStatus) as refused:
            async with talking(live_server, me):
                pass
        assert refused.value.response.status_code == 429
        assert json.loads(refused.value.response.body)["error"]["code"] == "too_many_connections"
        async with talking(live_server, live_server.key("free")) as other:
            await other.until("session.created")


def test_a_commit_after_the_end_of_its_session_is_answered():
    items = Items(ItemNames(), manual=True)
    items.hear({"type": "word", "word": "so", "start": 0.1, "end": 0.4})
    assert items.finish(1.0)[-1]["transcript"] == "so"
    last = items.commit(0.0)[-1]
    assert (last["type"], last["transcript"]) == (COMPLETED, "")


def test_close_codes_say_whether_to_come_back():
    codes = ("quota_exceeded", "concurrency_limited", "queue_full", "shutting_down", "internal")
    assert [close_code(Problem(code, "")) for code in codes] == [1008, 1013, 1013, 1001, 1011]
