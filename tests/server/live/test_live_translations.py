"""Tests of translations beside the words of a live session, by a stand-in for a chat model."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
from websockets.exceptions import ConnectionClosed

from server.storage.sql import leases
from tests.server.running import run_server
from tests.server.serving import serve
from tests.server.stand_in import Translator, said, stand_in
from tests.server.talking import HASTY, IMPATIENT, SECOND, Caller, Frame, durable, open_talk, script_words, silence

SPOKEN = 16.0  # seconds of audio: 40 words of the script


@pytest.fixture(scope="module")
def translator() -> Iterator[Translator]:
    with stand_in() as there:
        yield there


@pytest.fixture(scope="module")
def server(translator, tmp_path_factory):
    more = {"TRANSLATION_WAIT_S": "4", "TRANSLATION_TIMEOUT_S": "5"}
    with serve(tmp_path_factory.mktemp("translated"), live=HASTY, **translator.variables, **more) as started:
        yield started


@pytest.fixture
def caller(server, translator) -> Caller:
    translator.behave, translator.delay_s = (lambda _text, _count: None), 0.0
    translator.asked.clear()
    return Caller(server, server.key("enterprise"))


async def speak(caller: Caller, **order: object) -> tuple[Frame, list[Frame]]:
    """Say SPOKEN seconds of the script, and return the record and all events."""
    async with caller.speaking(**order) as (record, talk):
        for _ in range(round(SPOKEN)):
            await talk.send(bytes(SECOND))
        await talk.close()
    events = [data | {"type": kind, "seq": seq} for seq, kind, data in await caller.events(record["job_id"])]
    return await caller.job(record["job_id"]), events


def of(events: list[Frame], kind: str, **members: object) -> list[Frame]:
    return [one for one in events if one["type"] == kind and members.items() <= one.items()]


async def test_every_word_has_one_translation_that_names_it(caller):
    record, events = await speak(caller, translate_to=["de", "fr"], output_formats=["json", "srt", "txt"])
    words = of(events, "word")
    assert len(words) == len(script_words(SPOKEN))
    for target in ("de", "fr"):
        told = of(events, "translation", target=target)
        covered = [number for one in told for number in range(one["first"], one["last"] + 1)]
        assert covered == list(range(len(words))), "each word once, in order"
        for one in told:
            said_there = words[one["first"] : one["last"] + 1]
            assert one["text"] == " ".join(word["word"] for word in said_there).upper()
            assert (one["start"], one["end"]) == (said_there[0]["start"], said_there[-1]["end"])
            assert one["lag_ms"] >= 0
    assert record["translate_to"] == ["de", "fr"]
    assert set(record["formats"]) == {"json", "srt", "srt.de", "srt.fr", "txt", "txt.de", "txt.fr"}
    assert "warnings" not in record or not record["warnings"]


async def test_documents_have_the_translation_and_the_json_has_its_numbers(caller):
    record, events = await speak(caller, translate_to="de", output_formats=["json", "srt", "vtt", "txt"])
    async with caller.client() as client:

        async def output(name: str) -> str:
            answer = await client.get(f"/v1/jobs/{record['job_id']}/outputs/{name}")
            assert answer.status_code == 200, name
            return answer.text

        assert (await output("txt.de")).split() == (await output("txt")).upper().split()
        assert (await output("srt.de")).count("-->") >= (await output("srt")).count("-->") - 1
        assert (await output("vtt.de")).startswith("WEBVTT\n")
        assert (await client.get(f"/v1/jobs/{record['job_id']}/outputs/srt.fr")).status_code == 404
        shown = (await client.get(record["formats"]["json"])).json()["translations"]["de"]
    keys = ("first", "last", "start", "end", "text")
    assert shown == [{key: one[key] for key in keys} for one in of(events, "translation")]


async def test_readers_ask_for_the_languages_that_they_want(caller):
    record, events = await speak(caller, translate_to=["de", "fr"])
    async with caller.client() as client:

        async def kinds(lang: str) -> dict[str, list[str]]:
            answer = await client.get(f"/v1/jobs/{record['job_id']}/events", params={"lang": lang})
            lines = [line.partition(": ")[2] for line in answer.text.splitlines() if line.startswith("event")]
            targets = [part[:2] for part in answer.text.split('"target":"')[1:]]
            return {"kinds": lines, "targets": targets}

        german, both = await kinds("de"), await kinds("original,fr")
        assert set(german["targets"]) == {"de"}
        assert "word" not in german["kinds"]
        assert german["kinds"][-1] == "job.completed"
        assert set(both["targets"]) == {"fr"}
        assert both["kinds"].count("word") == len(of(events, "word"))
        wrong = await client.get(f"/v1/jobs/{record['job_id']}/events", params={"lang": "xx"})
        assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid_parameter")
        vtt = await client.get(f"/v1/jobs/{record['job_id']}/live.vtt", params={"lang": "de"})
        assert of(events, "translation", target="de")[0]["text"].split()[0] in vtt.text
        original = await client.get(f"/v1/jobs/{record['job_id']}/live.vtt")
        assert original.text != vtt.text


async def test_a_slow_translator_gets_longer_units_and_delays_no_word(caller, translator):
    translator.delay_s = 1.0
    record, events = await speak(caller, translate_to="de")
    told = of(events, "translation")
    assert [n for one in told for n in range(one["first"], one["last"] + 1)] == list(range(len(script_words(SPOKEN))))
    assert max(one["last"] - one["first"] for one in told) > 15
    assert max(word["lag_ms"] for word in of(events, "word")) < 3000
    assert not record["warnings"]


async def test_a_translator_that_fails_is_warned_of_and_what_it_missed_is_translated_then(caller, translator):
    translator.behave = lambda _text, count: (500, {}, b"") if count <= 2 else None
    record, events = await speak(caller, translate_to="de")
    assert [n for one in of(events, "translation") for n in range(one["first"], one["last"] + 1)] == list(range(40))
    [warning] = [one for one in record["warnings"] if one["code"] == "translation_unavailable"]
    assert warning["message"].startswith("translations into de were late or missing from 0.0 to")
    assert of(events, "warning", code="translation_unavailable")


async def test_what_has_no_translation_is_named_with_its_seconds(caller, translator):
    translator.behave = lambda text, _count: said(text * 10) if "clock" in text else None
    record, events = await speak(caller, translate_to="de", output_formats=["txt"])
    [warning] = [one for one in record["warnings"] if one["code"] == "translation_incomplete"]
    words, told = of(events, "word"), of(events, "translation")
    covered = {number for one in told for number in range(one["first"], one["last"] + 1)}
    lacking = [word for number, word in enumerate(words) if number not in covered]
    assert lacking
    assert f"{lacking[0]['start']:.1f} to" in warning["message"]


async def test_a_translator_that_never_answers_holds_the_end_no_longer_than_said(caller, translator):
    translator.behave = lambda _text, _count: (503, {}, b"")
    record, events = await asyncio.wait_for(speak(caller, translate_to="de"), 30)
    assert record["status"] == "completed"
    assert not of(events, "translation")
    assert {one["code"] for one in record["warnings"]} == {"translation_unavailable", "translation_incomplete"}


async def test_what_is_spoken_in_the_targets_language_needs_no_translation(caller, translator):
    record, events = await speak(caller, translate_to="en", output_formats=["txt"])
    assert not of(events, "translation")
    assert translator.asked == []
    async with caller.client() as client:
        original, english = [(await client.get(record["formats"][name])).text for name in ("txt", "txt.en")]
    assert original == english


async def test_redacted_words_are_not_sent(caller, translator):
    record, _ = await speak(caller, translate_to="de", replace=["sandbox:secret"], redact=["numbers"])
    assert translator.asked
    assert all("sandbox" not in text for text in translator.asked), "what was replaced is not sent"
    assert record["status"] == "completed"


async def test_a_session_without_a_record_erases_translations_too(caller):
    record, _ = await speak(caller, translate_to="de", retention="none", output_formats=["txt"])
    assert not record["formats"]
    async with caller.client() as client:
        async with asyncio.timeout(10):
            while (await caller.job(record["job_id"], wait=1))["erased_at"] is None:
                pass
        answer = await client.get(f"/v1/jobs/{record['job_id']}/events")
        assert "translation" not in answer.text


async def test_no_translation_is_ever_withdrawn(caller):
    await speak(caller, translate_to=["de", "fr"])
    async with caller.client() as client:
        assert "scribewire_translations_withdrawn_total 0.0" in (await client.get("/metrics")).text


async def test_usage_counts_the_characters_that_were_translated(caller, translator):
    await speak(caller, translate_to=["de", "fr"])
    async with caller.client() as client:
        usage = {row["name"]: row["used"] for row in (await client.get("/v1/usage")).json()["usage"]}
    assert usage["translated_characters"] == sum(map(len, translator.asked))


def test_a_server_that_is_killed_between_words_and_translation_translates_them_then(translator, tmp_path):
    translator.behave, translator.delay_s = (lambda _text, _count: None), 1.5

    async def first(me: Caller) -> tuple[Frame, list[Frame]]:
        async with me.speaking(translate_to="de") as (record, talk):
            await talk.send(silence(10), piece_s=0.25)
            await talk.until(lambda frame: frame.get("index") == 20)
            running.kill()
            with suppress(ConnectionClosed):
                while True:
                    await talk.next()
        return record, talk.frames

    async def second(me: Caller, record: Frame, last: int) -> list[Frame]:
        async with open_talk(f"{me.socket(record)}?last_event_id={last}", me.headers) as talk:
            at = (await talk.next())["received_bytes"]
            await talk.send(silence(15)[at:])
            await talk.close()
            return talk.frames

    with run_server(tmp_path / "data", ENGINE="scripted", **translator.variables) as running:
        me = Caller(running, running.new_key())
        record, before = asyncio.run(first(me))
        assert len(of(before, "translation")) <= 1
        translator.delay_s = 0.0
        running.start()
        after = asyncio.run(second(me, record, durable(before)[-1]["seq"]))
        job = asyncio.run(me.job(record["job_id"]))
    told = of([*before, *after], "translation")
    covered = [number for one in told for number in range(one["first"], one["last"] + 1)]
    assert covered == list(range(len(script_words(15)))), "each word once, in order"
    assert not job["warnings"]


async def test_a_session_that_nobody_continues_is_translated_to_its_end(translator, tmp_path, monkeypatch):
    translator.behave, translator.delay_s = (lambda _text, _count: None), 5.0
    with serve(tmp_path, live=HASTY, **translator.variables) as server:
        me = Caller(server, server.key("enterprise"))
        async with me.speaking(translate_to="de") as (record, talk):
            await talk.send(silence(6))
            await talk.until(lambda frame: frame.get("index") == 10)
            server.call(server.service.begin_stop)
            await talk.to_the_end()
    translator.delay_s = 0.0
    monkeypatch.setattr(leases, "LIVE_GRACE_MS", 0)
    with serve(tmp_path, live=replace(IMPATIENT, stale_s=0.2), **translator.variables) as server:
        me = Caller(server, me.secret)
        job = await me.job(record["job_id"], wait=30)
        events = [data | {"type": kind} for _, kind, data in await me.events(record["job_id"])]
    assert job["status"] == "completed"
    told = of(events, "translation")
    covered = [number for one in told for number in range(one["first"], one["last"] + 1)]
    assert covered == list(range(len(of(events, "word"))))


async def test_an_answer_in_another_language_is_shown_as_it_came(caller, translator):
    translator.behave = lambda text, _count: said(f"не то: {text}")
    record, events = await speak(caller, translate_to="de", output_formats=["txt"])
    assert {one["text"].startswith("не то: ") for one in of(events, "translation")} == {True}
    assert record["status"] == "completed"
    assert not record["warnings"]


async def test_twenty_sessions_into_three_languages_lose_nothing(caller, translator):
    translator.delay_s = 0.3
    targets = ["de", "fr", "es"]
    for record, events in await asyncio.gather(*(speak(caller, translate_to=targets) for _ in range(20))):
        for target in targets:
            told = of(events, "translation", target=target)
            covered = [number for one in told for number in range(one["first"], one["last"] + 1)]
            assert covered == list(range(len(script_words(SPOKEN))))
        assert record["status"] == "completed"
        assert all(one["code"] != "translation_incomplete" for one in record["warnings"])
