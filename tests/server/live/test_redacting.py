"""Tests that what is redacted is nowhere: not with the client, in the data folder, in logs, metrics or webhooks."""

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile

from pipeline.audio import RATE
from tests.server.receiving import receiver
from tests.server.serving import AppServer, serve, wav
from tests.server.talking import Caller, silence

SECRETS = ("42429371", "88881117")  # so long that they stand in no address or signature by chance
SCRIPT = "My card is 42429371 88881117 thank you. The fox has twenty five dogs, okay?".split()  # noqa: SIM905
"""14 words, of 0.4 s each, over and over."""
SHOWN = "My card is [CARD] thank you. The fox has 25 dogs, okay?"
ORDER = {"redact": "pci", "numerals": "true"}
ROUND_S = 0.4 * len(SCRIPT)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("redacting")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[AppServer]:
    with serve(folder, script=SCRIPT) as started:
        yield started


def assert_nowhere(*texts: str | bytes) -> None:
    for text in texts:
        data = text if isinstance(text, bytes) else text.encode()
        assert not [secret for secret in SECRETS if secret.encode() in data], data[:300]


def assert_not_stored(folder: Path) -> None:
    assert_nowhere(*(path.read_bytes() for path in folder.rglob("*") if path.is_file()))


def tone(duration_s: float) -> bytes:
    """Return a constant level, in the default encoding: silence in it can be told apart."""
    return np.full(round(duration_s * RATE), 8000, "<i2").tobytes()


def test_a_file_is_redacted_wherever_it_is_shown_or_stored(server, folder, caplog):
    caplog.set_level(logging.DEBUG)
    with server.client(server.key(environment="sandbox"), sandbox=True) as client:
        form = {**ORDER, "output_formats": "json,srt,vtt,txt", "word_timestamps": "true"}
        answer = client.post("/v1/transcribe", files={"file": wav(ROUND_S)}, data=form)
        record = answer.json()
        assert (record["status"], record["text"]) == ("completed", SHOWN)
        assert record["text_options"] == {"numerals": True, "redact": ["pci"]}
        assert record["words"][3] == {
            "word": "[CARD]",
            "start": 1.2,
            "end": 1.92,
            "probability": 0.99,
            "redacted": True,
        }
        assert record["words"][9]["heard"] == "twenty five"
        outputs = [httpx.get(link).text for link in record["formats"].values()]
        events = client.get(f"/v1/jobs/{record['job_id']}/events").text
        with receiver() as there:
            hooked = client.post(
                "/v1/transcribe",
                files={"file": wav(ROUND_S)},
                data={**ORDER, "webhook_url": f"{there.url}/x", "wait": 30},
            )
            [told] = there.wait_for(1)
        metrics = client.get("/metrics").text
    assert "[CARD]" in told.body.decode()
    assert all("[CARD]" in text for text in (*outputs, events))
    assert_nowhere(answer.text, *outputs, events, hooked.text, told.body, metrics, caplog.text)
    assert_not_stored(folder)


async def test_a_live_session_tells_nobody_and_keeps_nothing(server, folder, caplog):
    caplog.set_level(logging.DEBUG)
    me = Caller(server, server.key())
    async with me.speaking(redact=["pci"], numerals=True, record=True) as (record, talk):
        await talk.send(tone(ROUND_S), piece_s=0.1)
        await talk.close()
    assert [frame["word"] for frame in talk.frames if frame["type"] == "word"] == SHOWN.split()
    job, events = await me.job(record["job_id"]), await me.events(record["job_id"])
    assert job["text"] == SHOWN
    assert_nowhere(json.dumps(talk.frames), json.dumps(job), json.dumps(events), caplog.text)
    assert_not_stored(folder)
    async with me.client() as client:
        audio, _ = soundfile.read(io.BytesIO((await client.get(job["live"]["audio_url"])).content), dtype="float32")
    assert len(audio) == round(ROUND_S * RATE)
    quiet = np.flatnonzero(audio == 0) / RATE
    assert (quiet[0], quiet[-1]) == pytest.approx((1.2 - 0.25, 1.92 + 0.25), abs=0.04)
    assert not audio[round(1.0 * RATE) : round(2.1 * RATE)].any()


async def test_a_session_that_is_finalized_amid_a_card_shows_none_of_it(server, folder):
    me = Caller(server, server.key())
    async with me.speaking(redact=["pci"]) as (_, talk):
        await talk.send(silence(1.7))
        await talk.say("finalize")
        await talk.until("finalized")
        await talk.send(silence(ROUND_S - 1.7))
        await talk.close()
    assert " ".join(frame["word"] for frame in talk.frames if frame["type"] == "word").startswith(
        "My card is [CARD] thank"
    )
    assert_nowhere(json.dumps(talk.frames))
    assert_not_stored(folder)


def test_clients_of_other_services_get_the_same(server, folder):
    sandbox = server.key(environment="sandbox")
    with server.client(sandbox, sandbox=True) as client:
        query = (
            "redact=true&numerals=true&punctuate=true&paragraphs=true&replace=fox:cat"
            "&search=fox&search=the%20cat&search=wolf&search=4242%209371"
        )
        answer = client.post(f"/v1/listen?{query}", content=wav(ROUND_S))
        [channel] = answer.json()["results"]["channels"]
        openai = client.post(
            "/v1/audio/transcriptions",
            files={"file": wav(ROUND_S)},
            data={"model": "whisper-1", "redact[]": ["pci", "ssn"], "response_format": "text"},
        )
        plain = client.post("/v1/listen?redact=credit_card", content=wav(ROUND_S)).json()
    [said] = channel["alternatives"]
    assert said["transcript"] == "My card is [CARD] thank you. The cat has [NUMBER] dogs, okay?"
    assert [len(one["hits"]) for one in channel["search"]] == [1, 1, 0, 0]
    assert [len(one["sentences"]) for one in said["paragraphs"]["paragraphs"]] == [2]
    assert plain["results"]["channels"][0]["alternatives"][0]["transcript"].startswith(
        "my card is [CARD] thank you the fox"
    )
    assert openai.text == "My card is [CARD] thank you. The fox has twenty five dogs, okay?\n"
    assert_nowhere(answer.text, openai.text, json.dumps(plain))
    assert_not_stored(folder)


@pytest.mark.parametrize(
    ("order", "param", "says"),
    [
        ({"redact": "pii"}, "redact", "pci, ssn, iban, email, phone, numbers"),
        ({"redact": ""}, "redact", "must name at least one of pci"),
        ({"numerals": "perhaps"}, "numerals", "must be true or false"),
        ({"replace": "fox"}, "replace", "must be heard:wanted"),
        ({"replace": "a " * 13 + ":b"}, "replace", "at most 12 words"),
        ({"replace": '["a:b", 1]'}, "replace", "must be a list of strings"),
        ({"search": "..."}, "search", "must be words"),
        ({"sounds_like": "true"}, "sounds_like", "needs keywords"),
        ({"phone_region": "ZZ", "redact": "phone"}, "phone_region", "GB"),
    ],
)
def test_what_is_not_there_is_refused_by_name(server, order, param, says):
    with server.client(server.key(environment="sandbox"), sandbox=True) as client:
        refused = client.post("/v1/transcribe", files={"file": wav()}, data=order)
    [fault] = refused.json()["errors"]
    assert (refused.status_code, fault["param"]) == (422, param)
    assert says in fault["message"]


def test_redaction_in_a_query_that_nobody_reads_is_refused(server):
    with server.client(server.key()) as client:
        answers = [
            client.post("/v1/transcribe?redact=pci", files={"file": wav()}),
            client.post("/v1/audio/transcriptions?redact=pci", files={"file": wav()}, data={"model": "whisper-1"}),
            client.post("/v1/live?redact[]=pci", json={}),
        ]
        listening = client.post("/v1/listen", json={"url": "https://example.com/a.mp3", "redact": ["pci"]})
    assert [(answer.status_code, "belongs into the body" in answer.text) for answer in answers] == [(422, True)] * 3
    assert (listening.status_code, "belongs into the query" in listening.text) == (400, True)


def test_lists_may_be_named_as_many_clients_write_them(server):
    with server.client(server.key(environment="sandbox"), sandbox=True) as client:
        form = {"redact[]": ["pci", "ssn"], "replace[]": ["fox:cat", "dogs:wolves"]}
        record = client.post("/v1/transcribe", files={"file": wav(ROUND_S)}, data=form).json()
        listened = client.post("/v1/listen?redact[]=pci&punctuate=true", content=wav(ROUND_S)).json()
    assert record["text"] == "My card is [CARD] thank you. The cat has twenty five wolves, okay?"
    assert record["warnings"] == []
    said = listened["results"]["channels"][0]["alternatives"][0]["transcript"]
    assert said.startswith("My card is [CARD] thank you.")


def test_paragraphs_and_terms_are_in_the_record_and_the_files(server):
    with server.client(server.key(environment="sandbox"), sandbox=True) as client:
        form = {"paragraphs": "true", "search": '["Twenty five dogs", "wolf"]', "output_formats": '["json", "txt"]'}
        record = client.post("/v1/transcribe", files={"file": wav(ROUND_S)}, data=form).json()
        document = httpx.get(record["formats"]["json"]).json()
        text = httpx.get(record["formats"]["txt"]).text
    assert record["text_options"] == {"paragraphs": True, "search": ["Twenty five dogs", "wolf"]}
    assert record["search"] == document["search"]
    assert record["paragraphs"] == document["paragraphs"]
    [found, missing] = record["search"]
    assert (found["query"], found["hits"][0]["snippet"], missing["hits"]) == (
        "Twenty five dogs",
        "twenty five dogs,",
        [],
    )
    [paragraph] = record["paragraphs"]
    assert [one["text"] for one in paragraph["sentences"]] == [
        "My card is 42429371 88881117 thank you.",
        "The fox has twenty five dogs, okay?",
    ]
    assert text == record["text"] + "\n"
