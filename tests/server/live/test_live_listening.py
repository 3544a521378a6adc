"""Tests of translations into English by the Whisper model that is here: it hears the audio of each unit once more."""

import asyncio
from contextlib import suppress

import soundfile
from websockets.exceptions import ConnectionClosed

from tests.server.running import SPEECH, run_server
from tests.server.talking import SECOND, Caller, Frame, durable, open_talk, silence

CLIPS = ("es_09", "es_10", "es_11", "es_12")
ORDER = {"language": "es", "translate_to": "en", "output_formats": ["txt"]}


def spoken() -> bytes:
    """Return Spanish sentences with pauses between them."""
    clips = [soundfile.read(SPEECH / "espeak" / f"{name}.flac", dtype="int16")[0].tobytes() for name in CLIPS]
    return b"".join(clip + silence(1.2) for clip in clips)


def of(events: list[Frame], kind: str) -> list[Frame]:
    return [one for one in events if one["type"] == kind]


def covered(events: list[Frame]) -> list[int]:
    return [number for one in of(events, "translation") for number in range(one["first"], one["last"] + 1)]


async def test_live_words_have_a_translation_that_comes_after_them(server):
    me = Caller(server, server.new_key())
    async with me.speaking(**ORDER) as (record, talk):
        await talk.send(spoken())
        await talk.close()
    words = of(talk.frames, "word")
    assert words
    lacking = [one for one in (await me.job(record["job_id"]))["warnings"] if one["code"] == "translation_incomplete"]
    assert set(covered(talk.frames)) == set(range(len(words))) or lacking, "no word without one that is not named"
    assert len(covered(talk.frames)) == len(set(covered(talk.frames)))
    numbers = {frame["index"]: frame["seq"] for frame in words}
    assert all(one["seq"] > numbers[one["last"]] for one in of(talk.frames, "translation"))


async def test_a_file_is_translated_like_a_session(server):
    me = Caller(server, server.new_key())
    with (SPEECH / "espeak" / "es_09.flac").open("rb") as audio:
        async with me.client() as client:
            answer = await client.post(
                "/v1/transcribe",
                files={"file": audio},
                data={"language": "es", "translate_to": "en", "output_formats": "txt"},
            )
            record = answer.json()
            assert record["status"] == "completed"
            text = (await client.get(record["formats"]["txt.en"])).text
            assert text or record["warnings"]
            refused = await client.post("/v1/live", json={"translate_to": "de"})
    assert refused.status_code == 422
    assert "into en" in refused.json()["errors"][0]["message"]


def test_after_a_kill_the_audio_of_what_was_not_translated_is_asked_for_again(tmp_path):
    audio = spoken()

    async def first(me: Caller) -> tuple[Frame, list[Frame]]:
        async with me.speaking(**ORDER) as (record, talk):
            await talk.send(audio[: 8 * SECOND], piece_s=0.25)
            await talk.until("word")
            running.kill()
            with suppress(ConnectionClosed):
                while True:
                    await talk.next()
        return record, talk.frames

    async def second(me: Caller, record: Frame, last: int) -> list[Frame]:
        async with open_talk(f"{me.socket(record)}?last_event_id={last}", me.headers) as talk:
            at = (await talk.next())["received_bytes"]
            await talk.send(audio[at:])
            await talk.close()
            return talk.frames

    with run_server(tmp_path / "data") as running:
        me = Caller(running, running.new_key())
        record, before = asyncio.run(first(me))
        running.start()
        after = asyncio.run(second(me, record, durable(before)[-1]["seq"]))
        job = asyncio.run(me.job(record["job_id"]))
    frames = [*before, *after]
    words = of(frames, "word")
    assert [one["index"] for one in words] == list(range(len(words)))
    assert len(covered(frames)) == len(set(covered(frames)))
    lacking = set(range(len(words))) - set(covered(frames))
    named = [one for one in job["warnings"] if one["code"] == "translation_incomplete"]
    assert not lacking or named
