"""Tests of what hostile users send through the doors for other services' clients: it is refused, and harms nobody."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.server.serving import AppServer, wav

SILENCE = "A" * 64_000  # a second of PCM, as base64
MEMBER_BYTES = 10_000


def nest(depth: int) -> str:
    return depth * "[" + depth * "]"


def update(inputs: str) -> str:
    return f'{{"type":"session.update","session":{{"audio":{{"input":{inputs}}}}}}}'


@asynccontextmanager
async def realtime(server: AppServer, key: str) -> AsyncIterator[Any]:
    """Yield a WebSocket on which session.created has come."""
    address = f"ws{server.base.removeprefix('http')}/v1/realtime?intent=transcription"
    async with connect(address, additional_headers={"Authorization": f"Bearer {key}"}, proxy=None) as socket:
        assert (await answer(socket))["type"] == "session.created"
        yield socket


async def answer(socket: Any) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(await asyncio.wait_for(socket.recv(), 20))
    return message


async def test_messages_that_no_client_means_are_refused_and_the_socket_goes_on(live_server):
    transcription = '{"transcription":{"languages":[%s],"x":%s}}'
    messages = (
        f'{{"type":{nest(1000)}}}',
        f'{{"type":"session.update","session":{nest(1000)}}}',
        update(f'{{"noise_reduction":{{"type":{nest(300)}}}}}'),
        update(transcription % ('"en"', nest(300))),
        update(transcription % (nest(1000), "1")),
        update('{"format":{"type":["audio/pcm"]}}'),
        update(f'{{"turn_detection":{{"type":{nest(1000)}}}}}'),
        update('{"turn_detection":{"type":"semantic_vad","eagerness":["low"]}}'),
        update('{"turn_detection":{"type":"server_vad","threshold":"low"}}'),
    )
    async with realtime(live_server, live_server.key()) as socket:
        for message in messages:
            await socket.send(message)
            error = await answer(socket)
            assert error["error"]["code"] in ("invalid_message", "invalid_json", "invalid_parameter"), message[:80]


async def test_a_session_does_not_grow_with_every_update(live_server):
    async with realtime(live_server, live_server.key()) as socket:
        told = []
        for number in range(5):
            await socket.send(update(f'{{"transcription":{{"member{number}":"{MEMBER_BYTES * "x"}"}}}}'))
            told.append((await answer(socket))["type"])
    assert told == ["session.updated", *4 * ["error"]]


@pytest.mark.parametrize("path", ["/v1/realtime?intent=transcription", "/v1/listen"])
async def test_a_message_of_a_million_values_is_not_parsed(live_server, path):
    values = f'"x":[{"[]," * 1_000_000}1]'
    message = '{"type":"Configure",%s}' if "listen" in path else '{"type":"input_audio_buffer.clear",%s}'
    headers = {"Authorization": f"Bearer {live_server.key()}"}
    address = f"ws{live_server.base.removeprefix('http')}{path}"
    async with connect(address, additional_headers=headers, proxy=None) as socket:
        await socket.send(message % values)
        while (said := await answer(socket))["type"] == "session.created":
            pass
    assert said["type"].lower() == "error"


async def test_a_socket_that_was_open_before_its_key_was_revoked_opens_no_session_after_it(live_server):
    me = live_server.key()
    async with realtime(live_server, me) as socket:
        with live_server.client(me) as client:
            (key,) = client.get("/v1/keys").json()["data"]
            client.delete(f"/v1/keys/{key['key_id']}")
        await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": SILENCE}))
        assert (await answer(socket))["error"]["code"] == "invalid_key"
        with pytest.raises(ConnectionClosed):
            await socket.recv()
    assert socket.close_code == 1008


def test_a_session_that_is_nested_too_deeply_gets_no_client_secret(live_server):
    with live_server.client(live_server.key()) as client:
        body = f'{{"session":{{"x":{nest(300)}}}}}'
        refused = client.post("/v1/realtime/client_secrets", content=body, headers={"Content-Type": "application/json"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (422, "session")


@pytest.mark.parametrize(
    "session",
    [
        {"redact": "pci"},
        {"audio": {"input": {"transcription": {"redact": ["pci", "ssn"]}}}},
        {"include": [{"more": {"redact": True}}]},
    ],
)
def test_a_realtime_session_that_is_to_redact_is_refused(live_server, session):
    with live_server.client(live_server.key()) as client:
        refused = client.post("/v1/realtime/client_secrets", json={"session": session})
    assert (refused.status_code, refused.json()["error"]["param"]) == (422, "session.redact")


async def test_a_realtime_session_is_refused_redaction_in_its_query_too(live_server):
    address = f"{live_server.base.replace('http', 'ws', 1)}/v1/realtime?intent=transcription&redact=pci"
    with pytest.raises(InvalidStatus) as refused:
        await connect(address, additional_headers={"Authorization": f"Bearer {live_server.key()}"}, proxy=None)
    assert (refused.value.response.status_code, b"redact nothing" in refused.value.response.body) == (422, True)


def test_a_switch_or_a_number_that_is_nested_deeply_is_refused(live_server):
    with live_server.client(live_server.key()) as client:
        for member in ("wait", "word_timestamps"):
            body = f'{{"url":"https://example.org/a","{member}":{nest(1000)}}}'
            refused = client.post("/v1/transcribe", content=body, headers={"Content-Type": "application/json"})
            assert (refused.status_code, refused.json()["errors"][0]["param"]) == (422, member)


def test_an_empty_parameter_counts_as_left_out(live_server):
    with httpx.Client(base_url=live_server.base, headers={"Authorization": f"Token {live_server.key()}"}) as client:
        answer = client.post("/v1/listen?callback_method=&language=", content=wav())
    assert answer.status_code == 200, answer.text
