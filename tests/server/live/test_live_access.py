"""Tests of access to live sessions: who may write and read, and what others are told."""

import json
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from websockets.exceptions import InvalidStatus

from tests.server.serving import LIMITS, serve, wav
from tests.server.talking import Caller, check_refusal, open_talk, silence


async def test_a_token_client_is_told_in_a_frame_why_it_may_not(me):
    record, other = await me.start(), await me.start()
    events, ingest = [await me.token(record["job_id"], scope) for scope in ("events", "ingest")]
    for token, path, code, name in [
        ("st_nonsense", "audio", 4401, "invalid_token"),
        (me.secret, "audio", 4401, "invalid_token"),
        (events, "audio", 4403, "insufficient_scope"),
        (ingest, "stream", 4403, "insufficient_scope"),
    ]:
        async with open_talk(f"{me.socket(record, path)}?token={token}") as talk:
            await check_refusal(talk, code, name)
    async with open_talk(f"{me.socket(other)}?token={ingest}") as talk:
        await check_refusal(talk, 4403, "insufficient_scope")
    async with open_talk(f"{me.socket(record)}?token={ingest}") as talk:
        assert (await talk.next())["type"] == "session.started"


async def test_a_key_client_is_refused_in_http_before_the_socket_opens(me, live_server):
    record = await me.start()
    stranger = Caller(live_server, live_server.key())
    sandbox = Caller(live_server, live_server.key(environment="sandbox"))
    for headers, status, code in [
        ({}, 401, "missing_credentials"),
        ({"Authorization": "Bearer nonsense"}, 401, "invalid_key"),
        (sandbox.headers, 403, "environment_mismatch"),
        (stranger.headers, 404, "job_not_found"),
    ]:
        for path in ("audio", "stream"):
            with pytest.raises(InvalidStatus) as refusal:
                async with open_talk(me.socket(record, path), headers):
                    pass
            answer = refusal.value.response
            assert answer.status_code == status
            assert answer.headers["content-type"] == "application/problem+json"
            assert json.loads(answer.body)["code"] == code


async def test_a_live_session_has_many_readers_and_an_end_of_seats(tmp_path):
    with serve(tmp_path, limits=replace(LIMITS, streams=replace(LIMITS.streams, per_session=30))) as server:
        me = Caller(server, server.key())
        record = await me.start()
        token = await me.token(record["job_id"], "events")
        address = f"{me.socket(record, 'stream')}?token={token}"
        async with AsyncExitStack() as open_readers:
            for _ in range(30):
                await open_readers.enter_async_context(open_talk(address))
            async with open_talk(address) as late:
                await check_refusal(late, 4429, "too_many_connections")


async def test_a_file_job_takes_no_live_audio(me):
    async with me.client() as client:
        job = (await client.post("/v1/transcribe", files={"file": ("a.wav", wav())})).json()
        posted = await client.post(f"/v1/jobs/{job['job_id']}/audio", content=silence(1))
        assert (posted.status_code, posted.json()["code"]) == (404, "not_found")
    with pytest.raises(InvalidStatus):
        async with open_talk(me.socket(job), me.headers):
            pass


async def test_only_pages_of_named_origins_open_sockets_where_origins_are_named(tmp_path):
    with serve(tmp_path, CORS_ORIGINS="https://app.example") as server:
        me = Caller(server, server.key())
        record = await me.start()
        async with open_talk(record["live"]["ingest_ws"], origin="https://evil.example") as talk:
            await check_refusal(talk, 4403, "origin_not_allowed")
        async with open_talk(record["live"]["ingest_ws"], origin="https://app.example") as talk:
            assert (await talk.next())["type"] == "session.started"
        async with open_talk(record["live"]["ingest_ws"] + "&last_event_id=99") as talk:
            await check_refusal(talk, 4400, "invalid_last_event_id")
