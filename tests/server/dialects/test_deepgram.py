"""Tests of live audio at /v1/listen, with the real deepgram-sdk and with the messages of agent frameworks."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
import soundfile
from deepgram import AsyncDeepgramClient, DeepgramClient
from deepgram.core.api_error import ApiError
from deepgram.core.unchecked_base_model import construct_type
from deepgram.listen.v1.socket_client import V1SocketClientResponse
from deepgram.listen.v1.types.listen_v1metadata import ListenV1Metadata
from deepgram.listen.v1.types.listen_v1results import ListenV1Results
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from server.dialects.deepgram.answers import plain
from server.dialects.deepgram.live import Results
from server.dialects.deepgram.parameters import LiveRequest
from server.model.orders import Order
from tests.server.deepgram_client import environment
from tests.server.running import SPEECH, Server
from tests.server.serving import AppServer, serve
from tests.server.talking import HASTY, Talk, script_words, silence

JFK = SPEECH / "human" / "jfk.flac"
COUNTRY = "what your country can do for you"
LIVEKIT = {
    "model": "nova-3",
    "punctuate": "true",
    "smart_format": "false",
    "no_delay": "true",
    "interim_results": "true",
    "encoding": "linear16",
    "vad_events": "true",
    "sample_rate": "16000",
    "channels": "1",
    "endpointing": "25",
    "filler_words": "true",
    "profanity_filter": "false",
    "numerals": "false",
    "mip_opt_out": "false",
    "language": "en-US",
}
"""What LiveKit 1.8.9 asks for."""


def pcm() -> bytes:
    samples, rate = soundfile.read(JFK, dtype="int16")
    assert rate == 16_000
    return bytes(samples.tobytes())


def transcript_of(message: dict[str, Any]) -> str:
    return str(message["channel"]["alternatives"][0]["transcript"])


@asynccontextmanager
async def open_talk(server: Server | AppServer, key: str, **query: str) -> AsyncIterator[Talk]:
    asked = {"model": "nova-3", "encoding": "linear16", "sample_rate": "16000", **query}
    address = httpx.URL(f"ws{server.base.removeprefix('http')}/v1/listen", params=asked)
    headers = {"Authorization": f"Token {key}"}
    async with connect(str(address), additional_headers=headers, proxy=None, max_queue=None) as socket:
        yield Talk(socket)


# --- the real package and the real model ------------------------------------------------------------------------------


async def test_the_deepgram_package_hears_a_sentence_and_gets_the_answer_to_finalize(bundled_server):
    client = AsyncDeepgramClient(api_key=bundled_server.new_key(), environment=environment(bundled_server))
    final: list[str] = []
    async with client.listen.v1.connect(
        model="nova-3", encoding="linear16", sample_rate="16000", punctuate="true", interim_results="true"
    ) as connection:
        audio = pcm()
        for at in range(0, len(audio), 1600):
            await connection.send_media(audio[at : at + 1600])
        await connection.send_finalize()
        async with asyncio.timeout(60):
            async for message in connection:
                assert isinstance(message, ListenV1Results)
                if message.is_final:
                    final.append(message.channel.alternatives[0].transcript)
                if message.from_finalize:
                    break
            await connection.send_keep_alive()
            await connection.send_close_stream()
            async for message in connection:
                if isinstance(message, ListenV1Metadata):
                    assert 10.9 < message.duration < 11.1
                    assert len(message.sha256) == 64
                    break
    assert COUNTRY in " ".join(final).lower()  # the model may begin a sentence there
    assert "Americans" in " ".join(final)


def test_the_deepgram_package_sends_a_file(bundled_server):
    with httpx.Client(timeout=60) as http:
        client = DeepgramClient(
            api_key=bundled_server.new_key(), environment=environment(bundled_server), httpx_client=http
        )
        answer = client.listen.v1.media.transcribe_file(
            request=JFK.read_bytes(), model="nova-3", smart_format=True, utterances=True, detect_language=True
        )
    [channel] = answer.results.channels
    [alternative] = channel.alternatives
    assert COUNTRY in alternative.transcript
    assert alternative.words[0].punctuated_word == "And"
    assert alternative.words[0].word == "and"
    assert 0.5 < alternative.confidence <= 1
    assert alternative.paragraphs.paragraphs[0].sentences[0].text
    assert channel.detected_language == "en"
    assert answer.results.utterances[0].transcript
    assert (answer.metadata.duration, answer.metadata.channels) == (11.0, 1)
    assert len(answer.metadata.sha256) == 64


# --- the shapes of the protocol, with a scripted engine ---------------------------------------------------------------


async def test_livekits_query_is_taken_and_its_messages_have_what_it_indexes(live_server):
    async with open_talk(live_server, live_server.key(), **LIVEKIT) as talk:
        assert talk.socket.response.headers["dg-request-id"].startswith("job_")
        await talk.say("KeepAlive")
        await talk.send(silence(2))
        await talk.say("Finalize")
        last = await talk.until("Results", from_finalize=True)
        assert (last["is_final"], last["speech_final"]) == (True, True)
        assert "This is the" in transcript_of(last)
        await talk.say("CloseStream")
        await talk.until("Metadata")
        with pytest.raises(ConnectionClosed) as closed:
            await talk.next()
    assert closed.value.rcvd.code == 1000
    assert talk.of("SpeechStarted")
    for message in talk.frames:
        assert (
            type(construct_type(type_=V1SocketClientResponse, object_=message)).__name__ == f"ListenV1{message['type']}"
        )
    for message in talk.of("Results"):
        assert message["metadata"]["request_id"]
        assert message["channel"]["alternatives"][0].keys() >= {"transcript", "confidence", "words"}


def final_results(talk: Talk) -> list[dict[str, Any]]:
    """The final results, each of which begins where the one before it ends."""
    finals = [message for message in talk.of("Results") if message["is_final"]]
    ends = [round(message["start"] + message["duration"], 3) for message in finals]
    assert [message["start"] for message in finals] == [0, *ends[:-1]]
    return finals


async def test_each_finalize_is_answered_once_even_if_nothing_was_said(live_server):
    async with open_talk(live_server, live_server.key()) as talk:
        await talk.say("Finalize")
        assert transcript_of(await talk.until("Results", from_finalize=True)) == ""
        await talk.send(silence(1))
        await talk.say("Finalize")
        await talk.say("Finalize")
        first = await talk.until("Results", from_finalize=True)
        second = await talk.until("Results", from_finalize=True)
        assert (transcript_of(first), transcript_of(second)) == ("this is", "")
        await talk.send(silence(1))
        await talk.say("CloseStream")
        await talk.until("Metadata")
    assert len([message for message in talk.of("Results") if message["from_finalize"]]) == 3
    assert transcript_of(final_results(talk)[-1]) == "sandbox speaking"


async def test_finals_join_to_the_transcript_and_come_before_the_speaker_pauses(live_server):
    me = live_server.key()
    async with open_talk(live_server, me, punctuate="true", interim_results="true") as talk:
        await talk.send(silence(8))
        await talk.say("CloseStream")
        await talk.until("Metadata")
    finals = final_results(talk)
    assert not finals[0]["speech_final"]
    assert finals[-1]["speech_final"]
    with live_server.client(me) as client:
        record = client.get("/v1/jobs").json()["data"][0]
        text = client.get(f"/v1/jobs/{record['job_id']}").json()["text"]
    assert " ".join(map(transcript_of, finals)).strip() == text


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ({"utterance_end_ms": "999", "interim_results": "true"}, "utterance_end_ms: Invalid value of '999'."),
        ({"utterance_end_ms": "1000"}, "needs interim_results=true"),
        ({"encoding": "g729"}, "encoding"),
        ({"sample_rate": ""}, "needs a rate"),
        ({"language": "xx"}, "language"),
        ({"channels": "9", "multichannel": "true"}, "from 2 to 8"),
        ({"channels": "3", "multichannel": "false"}, "from 1 to 2"),
        ({"callback": "https://example.org"}, "callback"),
        ({"redact": "pii"}, "redact: unknown value 'pii'; allowed: pci, ssn"),
        ({"search": "?"}, "search"),
        ({"replace": "fox"}, "replace: must be heard:wanted"),
    ],
)
async def test_a_wrong_parameter_is_told_in_the_handshake(live_server, query, told):
    with pytest.raises(InvalidStatus) as refused:
        async with open_talk(live_server, live_server.key(), **query):
            pass
    answer = refused.value.response
    assert answer.status_code == 400
    assert told in answer.headers["dg-error"]
    assert json.loads(answer.body)["request_id"] == answer.headers["dg-request-id"]


async def test_options_that_make_no_difference_are_told_in_the_handshake_and_those_that_are_off_are_not(live_server):
    query = {"topics": "true", "tag": "grün", "numerals": "false", "no_delay": "true", "model": "nova-3"}
    me = live_server.key()
    async with open_talk(live_server, me, **query) as talk:
        told = talk.socket.response.headers["scribewire-warning"]
        await talk.say("CloseStream")
    assert told == 'unknown_parameter;param="topics", unknown_parameter;param="tag"'
    async with open_talk(live_server, me, **LIVEKIT) as talk:
        assert talk.socket.response.headers["scribewire-warning"] == 'unknown_parameter;param="filler_words"'


async def test_credentials_are_taken_from_a_subprotocol_and_wrong_ones_refused(live_server):
    address = f"ws{live_server.base.removeprefix('http')}/v1/listen?model=nova-3"
    offered = ["token", live_server.key(), "x-deepgram-session-id", "1"]
    async with connect(address, subprotocols=offered, proxy=None) as socket:
        assert socket.subprotocol == "token"
    client = AsyncDeepgramClient(api_key="sw_live_wrong", environment=environment(live_server))
    with pytest.raises(ApiError) as refused:
        async with client.listen.v1.connect(model="nova-3"):
            pass
    assert refused.value.status_code == 401


async def test_what_is_no_audio_and_what_is_no_message_are_told_apart(live_server):
    async with open_talk(live_server, live_server.key()) as talk:
        await talk.socket.send("no JSON")
        assert (await talk.until("Error"))["variant"] == "invalid_message"
        await talk.say("Configure")
        await talk.until("ConfigureFailure")
        await talk.socket.send(b"")
        await talk.send(silence(1))
        await talk.say("CloseStream")
        await talk.until("Metadata")
    address = f"ws{live_server.base.removeprefix('http')}/v1/listen?model=nova-3"
    headers = {"Authorization": f"Token {live_server.key()}"}
    async with connect(address, additional_headers=headers, proxy=None) as socket:
        await socket.send(b"no audio at all " * 4096)
        await socket.send(json.dumps({"type": "CloseStream"}))
        assert json.loads(await socket.recv())["type"] == "Error"
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
    assert closed.value.rcvd.code == 1008


async def test_a_client_that_falls_silent_is_told_so(tmp_path):
    with serve(tmp_path, live=replace(HASTY, idle_s=0.5)) as server:
        async with open_talk(server, server.key()) as talk:
            with pytest.raises(ConnectionClosed) as closed:
                await talk.until("never")
    assert closed.value.rcvd.code == 1011
    assert "NET-0001" in closed.value.rcvd.reason


async def test_a_client_that_comes_back_at_once_need_not_wait_for_the_session_that_it_left(live_server):
    me = live_server.key("free")  # which may have one live session
    async with open_talk(live_server, me) as talk:
        await talk.send(silence(1))
    async with open_talk(live_server, me) as again:
        with pytest.raises(InvalidStatus, match="429"):  # nobody left this one
            async with open_talk(live_server, me):
                pass
        await again.say("CloseStream")
        await again.until("Metadata")


async def test_the_deepgram_package_gets_the_results_of_each_channel(live_server):
    client = AsyncDeepgramClient(api_key=live_server.key(), environment=environment(live_server))
    finals: dict[tuple[float, ...], list[str]] = {(0, 2): [], (1, 2): []}
    interims, answers = set(), []
    async with client.listen.v1.connect(
        model="nova-3",
        encoding="linear16",
        sample_rate="16000",
        channels="2",
        multichannel="true",
        interim_results="true",
        punctuate="true",
    ) as connection:
        for _ in range(20):
            await connection.send_media(silence(0.2) * 2)
        async with asyncio.timeout(30):
            async for message in connection:
                if isinstance(message, ListenV1Metadata):
                    break
                assert isinstance(message, ListenV1Results)
                channel = tuple(message.channel_index)
                if message.is_final:
                    finals[channel].append(message.channel.alternatives[0].transcript)
                elif channel not in interims:
                    interims.add(channel)
                    if interims == set(finals):
                        await connection.send_finalize()
                answers += [channel] if message.from_finalize else []
                if len(answers) == 2:
                    await connection.send_close_stream()
    assert {channel: " ".join(texts).strip() for channel, texts in finals.items()} == dict.fromkeys(
        finals, " ".join(script_words(4))
    )
    assert sorted(answers) == sorted(finals)
    assert (message.channels, message.duration) == (2, 4.0)


def test_an_utterance_ends_when_no_word_came_for_long_enough():
    listening = LiveRequest(order=Order(), interim=True, utterance_end_ms=1000)
    results = Results(listening, "job", lambda _: "base")
    word = {"type": "word", "word": "Hello.", "start": 0.1, "end": 0.5, "probability": 0.9}
    assert results.render(word) == []
    results.render({"type": "segment", "forced": False, "end": 0.5})
    assert results.advance(1.4) == []
    assert results.advance(1.5) == [{"type": "UtteranceEnd", "channel": [0, 1], "last_word_end": 0.5}]
    assert results.advance(9) == []
    results.render({"type": "segment", "forced": False, "end": 9.5})
    results.render({"type": "speech.started", "at": 10.0})
    assert results.advance(20) == []


def test_live_words_name_the_model_that_heard_their_language():
    results = Results(LiveRequest(order=Order()), "job", lambda language: "tiny.en" if language == "en" else "base")

    def named(language: str) -> str:
        spoken = {"type": "word", "word": "No.", "start": 0.1, "end": 0.5, "probability": 0.9, "language": language}
        results.render(spoken)
        [message] = results.render({"type": "segment", "forced": False, "end": 0.5})
        return str(message["metadata"]["model_info"]["name"])

    assert [named("es"), named("en")] == ["scribewire-base", "scribewire-tiny.en"]


def test_words_are_plain_unless_punctuation_is_asked_for():
    assert plain("Hello, Mr. O'Neill - it's 5.30!") == "hello mr o'neill it's 5.30"
    assert plain("¿Qué?") == "qué"
