"""Tests of OpenAI's streamed answer when it takes long, or when the server stops before its end."""

import math
import threading
from collections.abc import AsyncGenerator
from dataclasses import replace

import orjson

from pipeline.words import Chunk
from tests.server.serving import LIMITS, chunk, serve, wav
from tests.waiting import eventually, until

FORM = {"model": "whisper-1", "stream": "true", "prompt": "slow"}
GO = threading.Event()


async def slow(*_: object) -> AsyncGenerator[Chunk]:
    """Yield one chunk, and the second when GO is set."""
    yield chunk(0, "so")
    await eventually(GO.is_set)
    yield chunk(1, "my")


def test_a_stream_that_has_nothing_to_say_gives_signs_of_life(tmp_path):
    GO.clear()
    quick = replace(LIMITS, streams=replace(LIMITS.streams, keep_alive_s=0.05))
    with serve(tmp_path, limits=quick) as server, server.new_client() as client:
        server.batch.scripts["slow"] = slow
        with client.stream("POST", "/v1/audio/transcriptions", files={"file": wav(2)}, data=FORM) as answer:
            lines = answer.iter_lines()
            assert any(line.startswith(": ") for line in lines)
            GO.set()
            told = [orjson.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert [event["type"] for event in told][-2:] == ["transcript.text.delta", "transcript.text.done"]
    assert told[-1]["text"] == "so my"


def test_a_server_that_stops_says_that_the_answer_is_not_whole(tmp_path):
    GO.clear()
    with serve(tmp_path) as server, server.new_client() as client:
        server.batch.scripts["slow"] = slow
        with client.stream("POST", "/v1/audio/transcriptions", files={"file": wav(2)}, data=FORM) as answer:
            lines = answer.iter_lines()
            until(lambda: next(lines).startswith("data: "))
            server.call(server.service.begin_stop)
            told = [orjson.loads(line[6:]) for line in lines if line.startswith("data: {")]
        GO.set()
    assert told[-1]["type"] == "error"
    assert told[-1]["error"]["code"] == "unfinished"


async def without_spaces(*_: object) -> AsyncGenerator[Chunk]:
    made = chunk(0, "你", "好")
    words = tuple(replace(word, spaced=False) for word in made.segments[0].words)
    yield replace(made, segments=(replace(made.segments[0], words=words),))


def test_streamed_deltas_of_a_script_without_spaces_add_up_to_the_text(tmp_path):
    with serve(tmp_path) as server, server.new_client() as client:
        server.batch.scripts["slow"] = without_spaces
        answer = client.post("/v1/audio/transcriptions", files={"file": wav(2)}, data=FORM)
        told = [orjson.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    assert "".join(event["delta"] for event in told if event["type"] == "transcript.text.delta") == told[-1]["text"]
    assert told[-1]["text"] == "你好"


def test_log_probabilities_of_a_script_without_spaces_join_to_the_text_and_are_those_of_the_words(tmp_path):
    with serve(tmp_path) as server, server.new_client() as client:
        server.batch.scripts["slow"] = without_spaces
        form = {"model": "whisper-1", "prompt": "slow", "include[]": "logprobs"}
        answer = client.post("/v1/audio/transcriptions", files={"file": wav(2)}, data=form).json()
    assert [one["token"] for one in answer["logprobs"]] == ["你", "好"]
    said = chunk(0, "你", "好").segments[0].words
    assert [round(math.exp(one["logprob"]), 4) for one in answer["logprobs"]] == [one.probability for one in said]
