"""Tests of who may open a realtime transcription session, how many, and with what they are sent away."""

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import replace

import openai
import pytest
from openai.types.realtime.realtime_transcription_session_create_response import (
    RealtimeTranscriptionSessionCreateResponse,
)
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from server.dialects.openai.realtime import STOPPING_S, close_code
from server.http.problems import Problem
from tests.server.realtime_client import PIPECAT, SILENCE, append, connect_client, open_talk, url
from tests.server.serving import LIMITS, serve


async def test_a_client_secret_opens_one_door_with_its_session(live_server):
    me = live_server.key()
    async with openai.AsyncOpenAI(base_url=live_server.base + "/v1", api_key=me) as client:
        secret = await client.realtime.client_secrets.create(
            expires_after={"anchor": "created_at", "seconds": 30},
            session={"type": "transcription", "audio": {"input": {"turn_detection": None}}},
        )
    assert isinstance(secret.session, RealtimeTranscriptionSessionCreateResponse)
    async with connect_client(live_server, secret.value) as connection:
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
        async with open_talk(live_server, secret.value):
            pass
    assert refused.value.response.status_code == 401


def test_a_session_that_is_no_object_makes_no_client_secret(live_server):
    with live_server.client(live_server.key()) as own:
        for session in ([], "", 0, False, "transcription"):
            answer = own.post("/v1/realtime/client_secrets", json={"session": session})
            assert answer.status_code in (400, 422), session
        assert own.post("/v1/realtime/client_secrets", json={"session": None}).status_code == 200


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
async def test_a_handshake_that_leads_nowhere_is_refused_in_openais_shape(live_server, query, headers, status):
    given = {"Authorization": f"Bearer {live_server.key()}", **headers}
    with pytest.raises(InvalidStatus) as refused:
        async with connect(url(live_server, **query), additional_headers=given, proxy=None):
            pass
    answer = refused.value.response
    assert answer.status_code == status
    assert set(json.loads(answer.body)["error"]) == {"message", "type", "param", "code"}


async def test_over_quota_the_client_is_told_and_not_invited_to_come_back(tmp_path):
    plan = replace(LIMITS.plans["free"], transcriptions_per_month=1)
    with serve(tmp_path, limits=replace(LIMITS, plans={**LIMITS.plans, "free": plan})) as server:
        me = server.key("free")
        async with open_talk(server, me) as talk:
            await talk.configure(PIPECAT)
            await talk.send(SILENCE)
            await talk.configure({"type": "session.update", "session": {"audio": {"input": {
                "format": {"type": "audio/pcma"}}}}})  # fmt: skip
            await talk.socket.send(append(bytes(8000)))
            assert (await talk.until("error"))["error"]["type"] in ("insufficient_quota", "rate_limit_error")
            with pytest.raises(ConnectionClosed) as closed:
                await talk.until("never")
    assert closed.value.rcvd.code in (1008, 1013)


async def test_sockets_of_an_account_are_bounded_also_while_they_are_idle(live_server):
    me = live_server.key("free")  # one session: 20 + 2 sockets
    async with AsyncExitStack() as open_sockets:
        for _ in range(22):
            await open_sockets.enter_async_context(open_talk(live_server, me))
        with pytest.raises(InvalidStatus) as refused:
            async with open_talk(live_server, me):
                pass
        assert refused.value.response.status_code == 429
        assert json.loads(refused.value.response.body)["error"]["code"] == "too_many_connections"
        async with open_talk(live_server, live_server.key("free")) as other:
            await other.until("session.created")


def test_close_codes_say_whether_to_come_back():
    codes = ("quota_exceeded", "concurrency_limited", "queue_full", "shutting_down", "internal")
    assert [close_code(Problem(code, "")) for code in codes] == [1008, 1013, 1013, 1001, 1011]


async def test_who_comes_while_the_server_stops_is_sent_away_when_nobody_listens_any_more(tmp_path):
    """Pipecat gives up for good after three sockets in a row that were closed soon after they opened."""
    with serve(tmp_path) as server:
        me = server.key()
        server.call(server.service.begin_stop)
        async with open_talk(server, me) as talk:
            came = asyncio.get_running_loop().time()
            with pytest.raises(ConnectionClosed) as closed:
                await talk.next()
            assert asyncio.get_running_loop().time() - came > STOPPING_S - 0.1
    assert closed.value.rcvd.code == 1001
