"""Tests of files that are translated: a step of the job, with checkpoints, that a crash does not repeat."""

import time
from collections.abc import Iterator

import httpx
import pytest

from tests.server.serving import chunk, serve, wav
from tests.server.stand_in import Translator, said, stand_in


async def sentences(_path, _options, done):
    for index in range(len(done), 6):
        yield chunk(index, f"Number{index}", "is", "said.")


@pytest.fixture(scope="module")
def translator() -> Iterator[Translator]:
    with stand_in() as there:
        yield there


@pytest.fixture(scope="module")
def server(translator, tmp_path_factory):
    with serve(tmp_path_factory.mktemp("files"), TRANSLATION_WAIT_S="4", **translator.variables) as started:
        started.batch.scripts["six"] = sentences
        yield started


@pytest.fixture(autouse=True)
def obedient(translator) -> None:
    translator.behave, translator.delay_s = (lambda _text, _count: None), 0.0
    translator.asked.clear()


@pytest.fixture
def client(server):
    with server.new_client("enterprise") as one:
        yield one


def transcribe(client: httpx.Client, **form: object):
    form = {"prompt": "six", "output_formats": "json,srt,txt", "wait": 20, **form}
    return client.post("/v1/transcribe", files={"file": ("a.wav", wav(6))}, data=form).json()


def test_a_file_has_its_translations_sentence_by_sentence(client, translator):
    record = transcribe(client, translate_to="de,fr")
    assert record["status"] == "completed"
    assert set(record["formats"]) == {"json", "srt", "txt", "srt.de", "srt.fr", "txt.de", "txt.fr"}
    assert translator.asked.count("Number3 is said.") == 2, "once for each target"
    assert client.get(record["formats"]["txt.de"]).text.split() == [
        word for index in range(6) for word in (f"NUMBER{index}", "IS", "SAID.")
    ]
    shown = client.get(record["formats"]["json"]).json()["translations"]
    assert [(one["first"], one["last"]) for one in shown["fr"]] == [(3 * index, 3 * index + 2) for index in range(6)]
    events = client.get(f"/v1/jobs/{record['job_id']}/events").text
    assert events.count("event: translation") == 12
    name = client.get(record["formats"]["srt.de"]).headers["content-disposition"]
    assert "a.de.srt" in name


def test_what_a_person_corrects_is_translated_again_and_its_subtitles_keep_their_places(client, translator):
    record = transcribe(client, translate_to="de", output_formats="srt,txt")
    before = client.get(record["formats"]["srt.de"]).text
    path = f"/v1/jobs/{record['job_id']}"
    ten = "one two three four five six seven eight nine ten"
    changes = [{"first": 4, "last": 4, "text": ten}, {"first": 9, "last": 10, "text": ""}]
    assert client.post(f"{path}/corrections", json={"changes": changes}).status_code == 201
    until = time.monotonic() + 20
    while "SAID." in (text := client.get(record["formats"]["txt.de"]).text) and "NUMBER3 IS" in text:
        assert time.monotonic() < until, text
        time.sleep(0.05)
    assert text.split()[3:15] == ["NUMBER1", *ten.upper().split(), "SAID."]
    assert translator.asked[-2:] == [f"Number1 {ten} said.", "said."]
    shown = client.get(record["formats"]["srt.de"]).text
    assert next(line for line in shown.splitlines() if "-->" in line) == before.splitlines()[1]
    assert client.get(f"{path}/live.vtt", params={"lang": "de"}).status_code == 200
    assert ten in client.get(record["formats"]["txt"]).text


def test_a_file_whose_translator_fails_says_what_is_lacking(client, translator):
    translator.behave = lambda text, _count: said("") if "Number2" in text else None
    record = transcribe(client, translate_to="de")
    [warning] = record["warnings"]
    assert warning == {"code": "translation_incomplete", "message": "no translation into de: 2.0 to 3.0 s"}
    assert "NUMBER2" not in client.get(record["formats"]["txt.de"]).text


def test_a_file_ends_though_the_translator_never_answers(client, translator):
    translator.behave = lambda _text, _count: (503, {"Retry-After": "100"}, b"")
    record = transcribe(client, translate_to="de")
    assert record["status"] == "completed"
    assert {one["code"] for one in record["warnings"]} == {"translation_incomplete"}


def test_a_job_that_keeps_nothing_hands_its_translations_over_once(client):
    record = transcribe(client, translate_to="de", retention="none", output_formats="txt")
    assert "NUMBER0" in record["outputs"]["txt.de"]
    again = client.get(f"/v1/jobs/{record['job_id']}").json()
    assert not again.get("outputs")


def test_a_server_that_stops_in_a_translation_goes_on_after_the_last_one(translator, tmp_path):
    translator.delay_s = 0.3
    variables = dict(translator.variables)
    with serve(tmp_path, **variables) as first:
        first.batch.scripts["six"] = sentences
        key = first.key("enterprise")
        form = {"prompt": "six", "output_formats": "txt", "translate_to": "de"}
        headers = {"Prefer": "respond-async"}
        with first.client(key) as client:
            job = client.post("/v1/transcribe", files={"file": ("a.wav", wav(6))}, data=form, headers=headers).json()
        translator.server.wait_for(len(translator.server.got) + 3)
    asked = list(translator.asked)
    assert len(asked) < 6
    with serve(tmp_path, **variables) as second:
        second.batch.scripts["six"] = sentences
        with second.client(key) as client:
            record = client.get(f"/v1/jobs/{job['job_id']}", params={"wait": 20}).json()
    assert record["status"] == "completed"
    assert not record["warnings"]
    assert len(translator.asked) - len(asked) <= 7 - len(asked), "at most the one in flight is asked for again"
