"""Tests of jobs whose speakers are told apart by their voices, with the sandbox's two who take turns by sentences."""

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest

from server.model.errors import StorageError
from server.model.offers import DIARIZING_MODEL
from tests.server.serving import AppServer, wav
from tests.waiting import until


@pytest.fixture(scope="module")
def sandbox(live_server: AppServer) -> Iterator[httpx.Client]:
    with live_server.new_client(sandbox=True) as client:
        yield client


def ask(client: httpx.Client, **members: str) -> httpx.Response:
    form = {"diarize": "true", "word_timestamps": "true", "output_formats": "json,srt,vtt,txt", **members}
    return client.post("/v1/transcribe", files={"file": wav(40)}, data=form)


def events(client: httpx.Client, job_id: str) -> list[tuple[str, dict[str, Any]]]:
    text = client.get(f"/v1/jobs/{job_id}/events").text
    blocks = [dict(line.split(": ", 1) for line in block.splitlines() if ": " in line) for block in text.split("\n\n")]
    return [(block["event"], json.loads(block["data"])) for block in blocks if "event" in block]


def test_the_record_the_documents_and_the_events_agree_on_every_speaker(sandbox):
    record = ask(sandbox).json()
    assert [one["speaker"] for one in record["speakers"]] == ["S1", "S2"]
    document = httpx.get(record["formats"]["json"]).json()
    assert document["speakers"] == record["speakers"]
    assert document["words"] == record["words"]
    assert {turn["speaker"] for turn in document["turns"]} == {"S1", "S2"}
    for before, after in zip(record["words"], record["words"][1:], strict=False):
        assert (before["speaker"] != after["speaker"]) == before["word"].endswith((".", "?", "!"))
    told = events(sandbox, record["job_id"])
    (revision,) = [data for name, data in told if name == "speakers.revised"]
    assert revision["final"] is True
    labels = {n: run["speaker"] for run in revision["words"] for n in range(run["first"], run["last"] + 1)}
    heard = {data["index"]: (data["start"], data["word"]) for name, data in told if name == "word"}
    assert labels.keys() == heard.keys()
    shown = [(word["start"], word["word"], word["speaker"]) for word in record["words"]]
    assert sorted((*heard[index], labels[index]) for index in heard) == sorted(shown)
    assert httpx.get(record["formats"]["srt"]).text.count("\nS2: ") > 0
    assert "<v S2>" in httpx.get(record["formats"]["vtt"]).text
    assert "\nS2: " in httpx.get(record["formats"]["txt"]).text
    assert sandbox.get(f"/v1/jobs/{record['job_id']}").json()["speakers"] == record["speakers"]


def test_without_word_times_the_segments_alone_have_speakers(sandbox):
    record = ask(sandbox, word_timestamps="false").json()
    assert "words" not in record
    document = httpx.get(record["formats"]["json"]).json()
    assert {segment["speaker"] for segment in document["segments"]} == {"S1", "S2"}
    assert "speakers.revised" not in [name for name, _ in events(sandbox, record["job_id"])]


def test_a_job_in_which_nobody_speaks_has_nobody(sandbox):
    record = ask(sandbox, sandbox_scenario="empty").json()
    assert record["speakers"] == []
    assert httpx.get(record["formats"]["json"]).json()["turns"] == []
    assert [data["words"] for name, data in events(sandbox, record["job_id"]) if name == "speakers.revised"] == [[]]


def test_a_job_that_does_not_ask_for_speakers_has_none(sandbox):
    record = ask(sandbox, diarize="false").json()
    assert "speakers" not in record
    assert "turns" not in httpx.get(record["formats"]["json"]).json()


def test_speakers_are_erased_with_the_words(sandbox):
    answer = ask(sandbox, retention="none").json()
    assert [one["speaker"] for one in answer["speakers"]] == ["S1", "S2"]
    erased = until(lambda: (r := sandbox.get(f"/v1/jobs/{answer['job_id']}").json())["erased_at"] and r)
    assert "speakers" not in erased


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"diarize": "perhaps"}, "diarize"),
        ({"max_speakers": "0"}, "max_speakers"),
        ({"max_speakers": "11"}, "max_speakers"),
    ],
)
def test_members_are_checked(sandbox, members, param):
    answer = ask(sandbox, **members)
    assert (answer.status_code, answer.json()["errors"][0]["param"]) == (422, param)


def test_a_limit_of_speakers_without_labels_is_warned_of(sandbox):
    ignored = [{"code": "ignored_parameter", "param": "max_speakers"}]
    assert ask(sandbox, diarize="false", max_speakers="2").json()["warnings"] == ignored
    assert ask(sandbox, max_speakers="2").json()["warnings"] == []
    assert sandbox.post("/v1/live", json={"max_speakers": 2}).json()["warnings"] == ignored


def test_a_server_without_the_models_says_what_to_install(live_server, monkeypatch):
    offers = live_server.service.parts.offers
    monkeypatch.setitem(offers, "production", replace(offers["production"], speakers=False))  # type: ignore[arg-type]  # other nodes may change it too
    with live_server.new_client() as client:
        for answer in (ask(client), client.post("/v1/live", json={"diarize": True})):
            assert answer.status_code == 422
            assert answer.json()["errors"][0]["param"] == "diarize"
            assert "scripts/setup speakers" in answer.json()["errors"][0]["message"]
        assert client.get("/v1/models").json()["data"][0]["speakers"] is False


@pytest.fixture(scope="module")
def openai_client(live_server: AppServer) -> Iterator[openai.OpenAI]:
    key = live_server.key("pro", "sandbox")
    with openai.OpenAI(api_key=key, base_url=live_server.base + "/sandbox/v1", max_retries=0) as client:
        yield client


def openai_answer(client: openai.OpenAI, model: str, **members: Any) -> Any:
    return client.audio.transcriptions.create(file=("a.wav", wav(40)), model=model, **members)


def test_openais_clients_get_segments_with_letters(openai_client):
    answer = openai_answer(openai_client, DIARIZING_MODEL, response_format="diarized_json")
    assert [segment.speaker for segment in answer.segments][:3] == ["A", "B", "A"]
    assert " ".join(segment.text for segment in answer.segments) == answer.text
    streamed = list(openai_answer(openai_client, DIARIZING_MODEL, response_format="diarized_json", stream=True))
    told = [(one.speaker, one.text) for one in streamed if one.type == "transcript.text.segment"]
    assert told == [(segment.speaker, segment.text) for segment in answer.segments]
    assert "".join(one.delta for one in streamed if one.type == "transcript.text.delta") == answer.text


def test_the_diarizing_model_labels_every_format_of_openais(openai_client):
    assert "\nS2: " in openai_answer(openai_client, DIARIZING_MODEL, response_format="srt")
    verbose = openai_answer(
        openai_client, DIARIZING_MODEL, response_format="verbose_json", timestamp_granularities=["word", "segment"]
    )
    assert {segment.speaker for segment in verbose.segments} == {word.speaker for word in verbose.words} == {"S1", "S2"}
    other = openai_answer(openai_client, "whisper-1", response_format="srt", extra_body={"diarize": "true"})
    assert "\nS2: " in other
    assert "S2" not in openai_answer(openai_client, "whisper-1", response_format="srt")


def test_deepgrams_clients_get_numbers_from_zero_and_utterances_of_one_speaker(live_server):
    key = live_server.key("pro", "sandbox")
    with httpx.Client(base_url=live_server.base + "/sandbox", headers={"Authorization": f"Token {key}"}) as client:
        query = {"diarize": "true", "utterances": "true", "paragraphs": "true", "punctuate": "true"}
        results = client.post("/v1/listen", params=query, content=wav(40), timeout=60).json()["results"]
        said = results["channels"][0]["alternatives"][0]
        assert {word["speaker"] for word in said["words"]} == {0, 1}
        assert {word["speaker_confidence"] for word in said["words"]} == {1.0}
        assert [one["speaker"] for one in results["utterances"]][:3] == [0, 1, 0]
        assert all({word["speaker"] for word in one["words"]} == {one["speaker"]} for one in results["utterances"])
        paragraphs = said["paragraphs"]["paragraphs"]
        assert [one["speaker"] for one in paragraphs][:2] == [0, 1]
        texts = said["paragraphs"]["transcript"].strip().split("\n\n")
        for at, (one, text) in enumerate(zip(paragraphs, texts, strict=True)):
            new = not at or paragraphs[at - 1]["speaker"] != one["speaker"]
            assert text.startswith(f"Speaker {one['speaker']}: {one['sentences'][0]['text']}") == new
        by_model = client.post("/v1/listen", params={"diarize_model": "latest"}, content=wav(40), timeout=60)
        assert "scribewire-warning" not in by_model.headers
        words = by_model.json()["results"]["channels"][0]["alternatives"][0]["words"]
        assert [word["speaker"] for word in words] == [word["speaker"] for word in said["words"]]
        plain = client.post("/v1/listen", content=wav(40), timeout=60).json()["results"]
        assert "speaker" not in plain["channels"][0]["alternatives"][0]["words"][0]


def data_url(data: bytes) -> str:
    return f"data:audio/wav;base64,{base64.b64encode(data).decode()}"


REFERENCE = data_url(wav())
ANN = {"known_speaker_names": ["Ann"], "known_speaker_references": [REFERENCE]}
TWO = {"known_speaker_names": ["Ann", "Bob"], "known_speaker_references": [REFERENCE] * 2}


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({**ANN, "diarize": False}, "known_speaker_names"),
        ({**TWO, "known_speaker_references": [REFERENCE]}, "known_speaker_names"),
        ({**TWO, "known_speaker_names": ["Ann", "ann"]}, "known_speaker_names"),
        ({**TWO, "known_speaker_names": ["\u00c9va", "E\u0301va"]}, "known_speaker_names"),
        ({**TWO, "known_speaker_names": []}, "known_speaker_names"),
        *(
            ({**ANN, "known_speaker_names": [name]}, "known_speaker_names")
            for name in ("S1", "A", " ", "x" * 65, 7, ["Ann"], "\u202eAnn", "S\u200d1", "\uff331", "\u200d")
        ),
        ({**ANN, "known_speaker_references": ["https://example.org/a"]}, "known_speaker_references"),
        ({**ANN, "known_speaker_references": ["data:audio/wav;base64,?"]}, "known_speaker_references"),
        ({**ANN, "known_speaker_references": ["data:" + "a" * 500_000]}, "known_speaker_references"),
        ({**ANN, "known_speaker_references": ["data:audio/wav;base64,UklGR=Rg"]}, "known_speaker_references"),
        ({**ANN, "known_speaker_references": ["data:audio/wav,RIFF"]}, "known_speaker_references"),
        ({**TWO, "max_speakers": 1}, "max_speakers"),
    ],
)
def test_known_speakers_are_checked(sandbox, members, param):
    file = sandbox.post("/v1/transcribe", json={"url": "https://example.org/a.wav", "diarize": True, **members})
    live = sandbox.post("/v1/live", json={"diarize": True, **members})
    for answer in (file, live):
        assert (answer.status_code, answer.json()["errors"][0]["param"]) == (422, param)


def test_empty_lists_of_known_speakers_name_nobody(sandbox):
    nobody = {"known_speaker_names": [], "known_speaker_references": []}
    for diarize in (True, False):
        assert sandbox.post("/v1/live", json={**nobody, "diarize": diarize}).status_code == 201


@pytest.mark.parametrize("brackets", ["", "[]"])
def test_known_speakers_are_repeated_parts_and_their_recordings_go_with_the_audio(live_server, brackets):
    form = {
        "diarize": "true",
        f"known_speaker_names{brackets}": ["Ann", "Bob"],
        f"known_speaker_references{brackets}": [REFERENCE, data_url(wav(9))],
    }
    with live_server.new_client() as client:
        answer = client.post("/v1/transcribe", files={"file": wav()}, data=form)
    assert answer.status_code == 200, answer.text
    assert not answer.json()["warnings"]
    speakers = live_server.batch.options[-1].speakers
    assert list(speakers.known) == ["Ann", "Bob"]
    until(lambda: not live_server.wait(is_stored(live_server, f"{answer.json()['job_id']}/voices/known")))


@pytest.mark.parametrize(
    "url",
    [
        f"data:audio/wav;base64,{base64.encodebytes(wav()).decode()}",
        f" DATA:Audio/WAV; codecs=1;BASE64,{base64.b64encode(wav()).decode().rstrip('=')}\r\n",
    ],
)
def test_references_are_read_as_browsers_read_data_urls_and_names_may_be_of_any_script(live_server, url):
    japanese = "\u5c71\u7530\u3000\u592a\u90ce"  # with an ideographic space
    name = "\u0639\u0644\u06cc\u200c\u0631\u0636\u0627"  # Alireza in Persian has a zero-width non-joiner
    form = {
        "diarize": "true",
        "known_speaker_names": ["1", name, japanese],
        "known_speaker_references": [data_url(wav(9)), url, data_url(wav(8))],
    }
    with live_server.new_client() as client:
        answer = client.post("/v1/transcribe", files={"file": wav()}, data=form)
    assert answer.status_code == 200, answer.text
    speakers = live_server.batch.options[-1].speakers
    assert list(speakers.known) == ["1", name, japanese]


@pytest.mark.parametrize("path", ["/v1/transcribe", "/v1/live"])
def test_a_repeated_key_with_the_recording_of_another_voice_is_refused(sandbox, path):
    source = {"url": "https://example.org/a.wav"} if path == "/v1/transcribe" else {}
    people = ANN, ANN, {**ANN, "known_speaker_references": [data_url(wav(9))]}
    first, again, other = (
        sandbox.post(path, json={**source, "diarize": True, **who}, headers={"Idempotency-Key": f'"{path}"'})
        for who in people
    )
    assert again.json()["job_id"] == first.json()["job_id"]
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


async def is_stored(serve: AppServer, key: str) -> bool:
    try:
        return bool([piece async for piece in serve.storage.blobs.read(key)])
    except (StorageError, OSError):
        return False
