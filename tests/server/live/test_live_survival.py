"""Tests of live sessions in which something dies: the connection of the writer or a reader, or the server."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from server.live.parts import LiveRules
from tests.server.running import run_server
from tests.server.serving import AppServer, serve
from tests.server.talking import (
    SECOND,
    Caller,
    Frame,
    Talk,
    drop,
    durable,
    open_talk,
    script_words,
    silence,
    write_with_drops,
)

RUNS = 50
AT_ONCE = 5
AUDIO_S = 12.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppServer]:
    with serve(tmp_path_factory.mktemp("live"), live=LiveRules(ack_s=0.05)) as started:
        yield started


async def read(url: str, headers: dict[str, str], chance: random.Random, *, leaves: int) -> list[Frame]:
    """Return every event of a reader that loses its WebSocket *leaves* times, and continues after the last id."""
    frames: list[Frame] = []
    while True:
        last = frames[-1]["seq"] if frames else 0
        async with open_talk(f"{url}?last_event_id={last}", headers) as talk:
            if leaves:
                leaves -= 1
                with suppress(ConnectionClosed):
                    for _ in range(chance.randrange(1, 12)):
                        await talk.next()
                await drop(talk, chance)
            else:
                assert await talk.to_the_end() == (1000, "")
            frames += durable(talk.frames)
            if frames and frames[-1]["type"] == "job.completed":
                return frames


async def survive(me: Caller, seed: int) -> None:
    chance = random.Random(seed)
    record = await me.start(max_utterance_s=3, word_timestamps=True)
    stream = me.socket(record, "stream")
    early = asyncio.create_task(me.events(record["job_id"]))
    restless = asyncio.create_task(read(stream, me.headers, chance, leaves=3))
    await write_with_drops(record["live"]["ingest_ws"], silence(AUDIO_S), chance, drops=chance.randrange(1, 6))
    late = await read(stream, me.headers, chance, leaves=0)
    job = await me.job(record["job_id"])
    assert job["text"] == " ".join(script_words(AUDIO_S))
    assert job["live"]["received_bytes"] == AUDIO_S * SECOND
    assert [frame["word"] for frame in late if frame["type"] == "word"] == script_words(AUDIO_S)
    assert [frame["seq"] for frame in late] == list(range(1, len(late) + 1))
    assert await restless == late
    assert durable({"type": kind, **data} for number, kind, data in await early if number is not None) == late


@pytest.mark.parametrize("first", range(0, RUNS, AT_ONCE))
async def test_a_writer_that_loses_its_connection_loses_no_word_and_no_reader_sees_one_twice(server, first):
    callers = [Caller(server, server.key()) for _ in range(AT_ONCE)]
    async with asyncio.TaskGroup() as tasks:
        for number, me in enumerate(callers):
            tasks.create_task(survive(me, first + number))


def test_a_server_that_stops_sends_its_clients_away_and_the_next_goes_on(tmp_path):
    async def first(server: AppServer, me: Caller) -> tuple[Frame, Talk, int]:
        record = await me.start(max_utterance_s=3, record=True)
        async with (
            open_talk(record["live"]["ingest_ws"]) as talk,
            open_talk(me.socket(record, "stream"), me.headers) as reader,
        ):
            await talk.send(silence(7.3))
            await talk.until(lambda frame: frame.get("index") == 14)
            server.call(server.service.begin_stop)
            assert (await talk.to_the_end())[0] == 1001
            assert (await reader.to_the_end())[0] == 1001
        return record, talk, durable(talk.frames)[-1]["seq"]

    async def second(me: Caller, record: Frame, last: int) -> Talk:
        async with open_talk(f"{me.socket(record)}?last_event_id={last}", me.headers) as talk:
            at = (await talk.next())["received_bytes"]
            assert 0 < at <= 7.3 * SECOND
            await talk.send(silence(12 - at / SECOND))
            await talk.close()
        return talk

    with serve(tmp_path) as server:
        me = Caller(server, server.key())
        record, before, last = asyncio.run(first(server, me))
    with serve(tmp_path) as server:
        me = Caller(server, me.secret)
        after = asyncio.run(second(me, record, last))
        job = asyncio.run(me.job(record["job_id"]))
    assert before.words + after.words == script_words(12)
    assert [word["index"] for word in before.of("word") + after.of("word")] == list(range(len(script_words(12))))
    assert (job["text"], job["duration"]) == (" ".join(script_words(12)), 12)
    assert "recording_incomplete" in [warning["code"] for warning in job["warnings"]], "it begins after the restart"
    segments = [frame["id"] for frame in before.of("segment") + after.of("segment")]
    assert segments == list(range(len(segments)))


def run_killed_session(
    folder: Path, order: dict[str, object], audio: bytes, rest: bytes
) -> tuple[dict[str, object], list[Frame]]:
    """Run a session whose server is killed after *audio*. The writer sends the *rest* to the next server."""

    async def first(me: Caller) -> tuple[dict[str, object], list[Frame]]:
        async with me.speaking(**order) as (record, talk):
            await talk.send(audio, piece_s=0.25)
            await talk.until(lambda frame: frame.get("index") == 20)
            server.kill()
            with suppress(ConnectionClosed):
                while True:
                    await talk.next()
        return record, talk.frames

    async def second(me: Caller, record: dict[str, object], last: int) -> list[Frame]:
        url = f"{me.socket(record)}?last_event_id={last}"
        async with open_talk(url, me.headers) as talk:  # at once: it does not wait for the lease of the dead process
            at = (await talk.next())["received_bytes"]
            await talk.send((audio + rest)[at:])
            await talk.close()
            return talk.frames

    with run_server(folder, ENGINE="scripted") as server:
        me = Caller(server, server.new_key())
        record, before = asyncio.run(first(me))
        server.start()
        last = durable(before)[-1]["seq"]
        after = asyncio.run(second(me, record, last))
        return asyncio.run(me.job(str(record["job_id"]))), before + after


def test_a_server_that_is_killed_has_told_no_word_that_changes_or_comes_twice(tmp_path):
    job, frames = run_killed_session(tmp_path / "data", {"max_utterance_s": 3}, silence(10), silence(5))
    words = [frame for frame in frames if frame["type"] == "word"]
    assert [word["word"] for word in words] == script_words(15)
    assert [word["index"] for word in words] == list(range(len(words)))
    numbers = [frame["seq"] for frame in frames if "seq" in frame]
    assert numbers == list(range(1, len(numbers) + 1))
    assert (job["text"], job["duration"]) == (" ".join(script_words(15)), 15)
    assert [word["word"] for word in job["words"]] == script_words(15)
