"""Tests of OpenAI's protocol for live translation, with OpenAI's own client."""

import asyncio
import base64
from collections.abc import Iterator
from typing import Any

import pytest
from openai import AsyncOpenAI
from websockets.exceptions import InvalidStatus

from tests.server.serving import AppServer, serve
from tests.server.stand_in import Translator, stand_in
from tests.server.talking import HASTY, script_words

SECOND = base64.b64encode(bytes(2 * 24_000)).decode()


@pytest.fixture(scope="module")
def translator() -> Iterator[Translator]:
    with stand_in() as there:
        yield there


@pytest.fixture(scope="module")
def server(translator, tmp_path_factory) -> Iterator[AppServer]:
    with serve(tmp_path_factory.mktemp("translations"), live=HASTY, **translator.variables) as started:
        yield started


def client(server: AppServer) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{server.base}/v1", api_key=server.key("enterprise"))


async def read(connection: Any, until: str) -> list[Any]:
    events = []
    async with asyncio.timeout(20):
        while not events or events[-1].type != until:
            events.append(await connection.recv())
    return events


def joined(events: list[Any], kind: str) -> str:
    return "".join(event.delta for event in events if event.type == f"session.{kind}_transcript.delta")


async def test_openais_client_gets_the_translation_and_the_words(server):
    async with client(server) as openai, openai.realtime.translations.connect(model="gpt-realtime-translate") as open_:
        [created] = await read(open_, "session.created")
        assert created.session.to_dict()["output_modalities"] == ["text"]
        assert created.session.audio.output.language == "en"
        audio = {"output": {"language": "de"}, "input": {"transcription": {"model": "gpt-realtime-whisper"}}}
        await open_.session.update(session={"audio": audio})
        [updated] = await read(open_, "session.updated")
        assert updated.session.audio.output.language == "de"
        for _ in range(8):
            await open_.session.input_audio_buffer.append(audio=SECOND)
        await open_.session.close()
        events = await read(open_, "session.closed")
    words = script_words(8)
    assert joined(events, "input") == " ".join(words)
    assert joined(events, "output") == " ".join(words).upper()
    assert {event.type for event in events} == {
        "session.input_transcript.delta", "session.output_transcript.delta", "session.closed"
    }  # fmt: skip
    assert all(event.event_id for event in events)
    assert all(event.elapsed_ms % 200 == 0 for event in events[:-1])


async def test_what_is_spoken_in_the_output_language_comes_as_it_is(server):
    async with client(server) as openai, openai.realtime.translations.connect(model="whisper-1") as open_:
        for _ in range(4):
            await open_.session.input_audio_buffer.append(audio=SECOND)
        await open_.session.close()
        events = await read(open_, "session.closed")
    assert joined(events, "output") == " ".join(script_words(4))
    assert joined(events, "input") == ""


async def test_another_language_from_then_on(server):
    async with client(server) as openai, openai.realtime.translations.connect(model="whisper-1") as open_:
        for language in ("de", "fr"):
            await open_.session.update(session={"audio": {"output": {"language": language}}})
            await open_.session.input_audio_buffer.append(audio=SECOND)
        await open_.session.close()
        events = await read(open_, "session.closed")
    assert joined(events, "output") == " ".join([*script_words(1)] * 2).upper()


@pytest.mark.parametrize(
    ("session", "param"),
    [
        ({"audio": {"output": {"language": "klingon"}}}, "session.audio.output.language"),
        ({"type": "transcription"}, "session.type"),
        ({"audio": 5}, "session.audio"),
    ],
)
async def test_a_mistake_is_named_and_the_session_goes_on(server, session, param):
    async with client(server) as openai, openai.realtime.translations.connect(model="whisper-1") as open_:
        await open_.send({"type": "session.update", "session": session, "event_id": "mine"})
        error = (await read(open_, "error"))[-1].error
        assert (error.param, error.event_id) == (param, "mine")
        await open_.send({"type": "input_audio_buffer.commit"})
        assert "takes no event" in (await read(open_, "error"))[-1].error.message
        await open_.session.close()
        await read(open_, "session.closed")


async def test_a_client_secret_opens_the_session_that_it_was_made_for_and_nothing_else(server):
    async with client(server) as owner:
        secret = await owner.realtime.translations.client_secrets.create(
            session={"model": "gpt-realtime-translate", "audio": {"output": {"language": "de"}}},
            expires_after={"anchor": "created_at", "seconds": 30},
        )
        other = await owner.realtime.client_secrets.create(session={"type": "transcription"})
    assert secret.session.audio.output.language == "de"
    async with AsyncOpenAI(base_url=f"{server.base}/v1", api_key=secret.value) as browser:
        async with browser.realtime.translations.connect(model="gpt-realtime-translate") as open_:
            [created] = await read(open_, "session.created")
            assert created.session.audio.output.language == "de"
            for _ in range(4):
                await open_.session.input_audio_buffer.append(audio=SECOND)
            await open_.session.close()
            assert joined(await read(open_, "session.closed"), "output") == " ".join(script_words(4)).upper()
        with pytest.raises(InvalidStatus):
            async with browser.realtime.connect(model="whisper-1"):
                pass
    async with AsyncOpenAI(base_url=f"{server.base}/v1", api_key=other.value) as browser:
        with pytest.raises(InvalidStatus):
            async with browser.realtime.translations.connect(model="whisper-1"):
                pass
