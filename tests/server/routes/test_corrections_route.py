"""Corrections by people over HTTP, with a real server: by the API, by documents, by links, live, after a kill."""

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from tests.server.receiving import receiver
from tests.server.running import SPEECH, Server, run_server, until_over

SAID = (
    "This is the sandbox speaking. Every word stands where the clock says, not where a voice was heard. "
    "The same recording always gives the same words, so"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    with run_server(tmp_path_factory.mktemp("corrected") / "data", ENGINE="scripted") as started:
        yield started


@pytest.fixture
def client(server) -> httpx.Client:
    return server.client(server.new_key())


def transcribe(client: httpx.Client, **fields: str) -> dict[str, Any]:
    data = {"output_formats": "json,srt,vtt,txt", "word_timestamps": "true", **fields}
    with (SPEECH / "human" / "jfk.flac").open("rb") as file:
        answer = client.post("/v1/transcribe", files={"file": file}, data=data)
    assert answer.status_code == 200, answer.text
    return answer.json()


def correct(client: httpx.Client, job_id: str, *changes: dict[str, object], **more: Any) -> httpx.Response:
    return client.post(f"/v1/jobs/{job_id}/corrections", json={"changes": [*changes]}, **more)


def output(client: httpx.Client, job_id: str, name: str, **params: int) -> str:
    answer = client.get(f"/v1/jobs/{job_id}/outputs/{name}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.text


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_a_correction_is_in_the_record_in_every_document_and_in_the_list(client):
    job_id = transcribe(client)["job_id"]
    made = correct(client, job_id, {"first": 3, "last": 4, "text": "Ljubljana"}, headers={"If-Match": '"0"'})
    assert (made.status_code, made.json()["revision"], made.headers["etag"]) == (201, 1, '"1"')
    record = client.get(f"/v1/jobs/{job_id}").json()
    text = SAID.replace("sandbox speaking.", "Ljubljana")
    assert (record["revision"], record["corrected"], record["text"]) == (1, True, text)
    word = record["words"][3]
    assert (word["word"], word["corrected"], word["heard"]) == ("Ljubljana", True, "sandbox speaking.")
    assert output(client, job_id, "txt") == text + "\n"
    assert output(client, job_id, "txt", revision=0) == SAID + "\n"
    assert "Ljubljana" in output(client, job_id, "srt")
    assert "Ljubljana" in output(client, job_id, "vtt")
    words = json.loads(output(client, job_id, "json"))["words"]
    before = json.loads(output(client, job_id, "json", revision=0))["words"]
    assert words[:3] + words[4:] == before[:3] + before[5:]
    listed = client.get(f"/v1/jobs/{job_id}/corrections").json()["data"]
    assert [(one["revision"], one["by"], one["changes"][0]["text"]) for one in listed] == [(1, "test", "Ljubljana")]


def test_the_words_say_by_which_numbers_they_are_corrected(client):
    job_id = transcribe(client)["job_id"]
    correct(client, job_id, {"first": 0, "last": 1, "text": "These"}, {"first": 2, "last": 2, "text": ""})
    correct(client, job_id, {"first": 3, "last": 4, "speaker": "Anna"})
    shown = client.get(f"/v1/jobs/{job_id}/words").json()
    assert (shown["revision"], shown["speakers"]) == (2, {"Anna": "Anna"})
    places = [(word["index"], word.get("last"), word["word"], word.get("name")) for word in shown["words"][:5]]
    assert places == [
        (0, 1, "These", None),
        (2, None, "", None),
        (3, None, "sandbox", "Anna"),
        (4, None, "speaking.", "Anna"),
        (5, None, "Every", None),
    ]


def test_two_editors_at_once_and_a_revision_that_is_taken_back(client):
    job_id = transcribe(client)["job_id"]
    correct(client, job_id, {"first": 0, "last": 0, "text": "That"})
    late = correct(client, job_id, {"first": 1, "last": 1, "text": "was"}, headers={"If-Match": '"0"'})
    assert code(late) == (412, "revision_changed")
    assert correct(client, job_id, {"first": 0, "last": 1, "text": "These were"}).status_code == 201
    under = client.post(f"/v1/jobs/{job_id}/corrections", json={"revert": 1})
    assert code(under) == (409, "not_revertible")
    back = client.post(f"/v1/jobs/{job_id}/corrections", json={"revert": 2}).json()
    assert (back["revision"], back["reverts"]) == (3, 2)
    assert output(client, job_id, "txt") == SAID.replace("This", "That", 1) + "\n"
    pages = client.get(f"/v1/jobs/{job_id}/corrections", params={"limit": 2}).json()
    assert [one["revision"] for one in pages["data"]] == [1, 2]
    rest = client.get(f"/v1/jobs/{job_id}/corrections", params={"limit": 2, "cursor": pages["next_cursor"]}).json()
    assert [one["revision"] for one in rest["data"]] == [3]


def test_many_editors_in_parallel_lose_nothing(client):
    job_id = transcribe(client)["job_id"]

    def edit(number: int) -> None:
        with httpx.Client(base_url=client.base_url, headers=client.headers, timeout=60) as own:
            assert correct(own, job_id, {"first": number, "last": number, "text": f"w{number}"}).status_code == 201

    threads = [threading.Thread(target=edit, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    record = client.get(f"/v1/jobs/{job_id}").json()
    assert record["revision"] == 12
    assert record["text"].startswith(" ".join(f"w{number}" for number in range(12)))


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"changes": []},
        {"changes": [{"first": 0}]},
        {"changes": [{"first": 0, "last": 99, "text": "x"}]},
        {"changes": [{"first": True, "last": 0, "text": "x", "more": 1}]},
        {"changes": [{"speaker": "S7", "name": "Anna"}]},
        {"changes": [{"first": 0, "last": 0, "text": "\u0000"}]},
        {"revert": "1"},
    ],
)
def test_what_cannot_be_changed_is_refused_and_named(client, body):
    job_id = transcribe(client)["job_id"]
    answer = client.post(f"/v1/jobs/{job_id}/corrections", json=body)
    assert code(answer) == (422, "invalid_parameter")
    assert answer.json()["errors"]
    assert client.get(f"/v1/jobs/{job_id}").json()["revision"] == 0


def test_a_subtitle_file_from_an_editor_is_given_back(client):
    job_id = transcribe(client)["job_id"]
    srt = output(client, job_id, "srt")
    edited = (
        srt.replace("speaking.", "<i>talking</i>!").replace("\nclock", " clock").replace("heard.", "heard,\nperhaps.")
    )
    headers = {"Content-Type": "application/x-subrip"}
    path = f"/v1/jobs/{job_id}/corrections"
    assert client.post(path, content=srt.encode(), headers=headers).json()["changes"] == []
    made = client.post(path, content=edited.encode(), headers=headers)
    assert made.status_code == 201, made.text
    text = output(client, job_id, "txt")
    assert "sandbox talking! Every word" in text
    assert "was heard, perhaps. The same" in text
    strange = client.post(
        path, content=b"Something else entirely was in this file.", headers={"Content-Type": "text/plain"}
    )
    assert code(strange) == (422, "not_aligned")
    assert output(client, job_id, "txt") == text


def test_an_edit_link_corrects_one_job_and_a_reading_link_does_not(server, client):
    job_id, other = transcribe(client)["job_id"], transcribe(client)["job_id"]
    link = client.post(f"/v1/jobs/{job_id}/edit-links", json={"expires_in": 3600}).json()
    assert link["url"].endswith(f"/edit/{job_id}#token={link['token']}")
    stranger = server.client(None)
    change = {"changes": [{"first": 0, "last": 0, "text": "That"}]}
    made = stranger.post(f"/v1/jobs/{job_id}/corrections", params={"token": link["token"]}, json=change)
    assert (made.status_code, made.json()["by"]) == (201, "edit link")
    assert stranger.get(f"/v1/jobs/{job_id}/corrections", params={"token": link["token"]}).status_code == 200
    elsewhere = stranger.post(f"/v1/jobs/{other}/corrections", params={"token": link["token"]}, json=change)
    assert elsewhere.status_code in (401, 403)
    reading = client.post("/v1/tokens", json={"job_id": job_id, "scope": "events"}).json()["token"]
    refused = stranger.post(f"/v1/jobs/{job_id}/corrections", params={"token": reading}, json=change)
    assert code(refused) == (403, "insufficient_scope")
    assert stranger.post(f"/v1/jobs/{job_id}/corrections", json=change).status_code == 401
    assert server.client(server.new_key()).post(f"/v1/jobs/{job_id}/corrections", json=change).status_code == 404


def test_an_edit_link_plays_the_audio_if_it_was_kept_and_a_reading_link_does_not(server, client):
    job_id, without = transcribe(client, record="true")["job_id"], transcribe(client)["job_id"]
    stranger = server.client(None)

    def play(job: str, token: str) -> httpx.Response:
        return stranger.get(f"/v1/jobs/{job}/audio", params={"token": token}, headers={"Range": "bytes=0-3"})

    token = client.post(f"/v1/jobs/{job_id}/edit-links", json={}).json()["token"]
    played = play(job_id, token)
    assert (played.status_code, played.content) == (206, b"fLaC")
    assert code(play(without, client.post(f"/v1/jobs/{without}/edit-links", json={}).json()["token"])) == (
        404,
        "output_not_found",
    )
    reading = client.post("/v1/tokens", json={"job_id": job_id, "scope": "events"}).json()["token"]
    assert code(play(job_id, reading)) == (403, "insufficient_scope")


def test_what_a_person_types_is_redacted_and_nothing_of_it_is_stored(server, client):
    job_id = transcribe(client, redact="phone", phone_region="US")["job_id"]
    made = correct(client, job_id, {"first": 0, "last": 3, "text": "call 212 555 0178 today"})
    assert made.status_code == 201
    assert output(client, job_id, "txt").startswith("call [PHONE] today speaking.")
    assert not [path for path in server.data_dir.rglob("*") if path.is_file() and b"0178" in path.read_bytes()]


def test_a_job_whose_results_are_not_kept_cannot_be_corrected(client):
    job_id = transcribe(client, retention="none")["job_id"]
    assert code(correct(client, job_id, {"first": 0, "last": 0, "text": "x"})) == (409, "not_correctable")


def test_a_kill_after_a_correction_loses_neither_it_nor_its_documents(tmp_path):
    with run_server(tmp_path / "data", ENGINE="scripted") as server:
        key = server.new_key()
        client = server.client(key)
        job_id = transcribe(client)["job_id"]
        correct(client, job_id, {"first": 3, "last": 3, "text": "server"})
        server.kill()
        server.start()
        client = server.client(key)
        assert "the server speaking." in output(client, job_id, "srt")
        assert [job["job_id"] for job in client.get("/v1/jobs", params={"q": '"the server"'}).json()["data"]] == [
            job_id
        ]


def test_a_webhook_tells_of_a_correction_if_it_was_asked_for(client):
    with receiver() as received:
        fields = {"webhook_url": received.url, "webhook_events": "job.corrected"}
        data = {"output_formats": "txt", "wait": "30", **fields}
        with (SPEECH / "human" / "jfk.flac").open("rb") as file:
            job_id = client.post("/v1/transcribe", files={"file": file}, data=data).json()["job_id"]
        correct(client, job_id, {"first": 0, "last": 0, "text": "That"})
        [delivery] = received.wait_for(1)
        body = json.loads(delivery.body)
        assert (body["type"], body["data"]["revision"]) == ("job.corrected", 1)


# --- live


async def test_a_live_reader_gets_a_correction_between_the_words_and_the_end_has_it(server, client):
    record = client.post("/v1/live", json={"sample_rate": 16000, "output_formats": ["txt", "json"]}).json()
    job_id, base = record["job_id"], server.base.replace("http", "ws")
    headers = dict(client.headers)
    async with (
        connect(record["live"]["ingest_ws"]) as writer,
        connect(
            f"{base}/v1/jobs/{job_id}/stream", additional_headers={"Authorization": headers["authorization"]}
        ) as reader,
    ):
        for _ in range(30):
            await writer.send(bytes(6400))
            await asyncio.sleep(0)
        while (event := json.loads(await asyncio.wait_for(reader.recv(), 30)))["type"] != "word":
            pass
        assert event["index"] == 0
        made = await asyncio.to_thread(correct, client, job_id, {"first": 0, "last": 0, "text": "That"})
        assert made.status_code == 201, made.text
        seqs = []
        while (event := json.loads(await asyncio.wait_for(reader.recv(), 30)))["type"] != "corrected":
            seqs.append(event.get("seq"))
        assert (event["first"], event["last"], event["text"]) == (0, 0, "That")
        await writer.send(json.dumps({"type": "close"}))
        async for message in reader:
            event = json.loads(message)
            seqs.append(event.get("seq"))
    assert event["type"] == "job.completed"
    ended = until_over(client, job_id)
    assert ended["revision"] == 1
    assert ended["text"].startswith("That is")
    assert "That" in client.get(f"/v1/jobs/{job_id}/live.vtt").text


# --- the archive


def test_the_archive_finds_words_and_phrases_whatever_their_case_and_accents_newest_first(server):
    client = server.client(server.new_key())
    first, second = transcribe(client)["job_id"], transcribe(client)["job_id"]
    correct(client, first, {"first": 0, "last": 0, "text": "Caf\u00e9 \u6771\u4eac\u3067"})

    def found(q: str) -> list[str]:
        return [job["job_id"] for job in client.get("/v1/jobs", params={"q": q}).json()["data"]]

    assert found("CLOCK voice") == [second, first]
    assert found('"the clock says"') == [second, first]
    assert found('"clock the"') == []
    assert found("cafe") == [first]
    assert found("\u6771\u4eac") == [first]
    assert found("\u4eac\u6771") == []
    assert found("nowhere") == []
    [match] = client.get("/v1/jobs", params={"q": "cafe"}).json()["data"][0]["matches"]
    assert (match["text"], match["before"], match["start"]) == ("Caf\u00e9", "", 0.0)
    assert match["after"].startswith("\u6771")
    client.delete(f"/v1/jobs/{first}")
    assert found("cafe") == []
    assert found("clock") == [second]


def test_strangers_find_nothing_of_others(server):
    mine, stranger = server.client(server.new_key()), server.client(server.new_key())
    transcribe(mine)
    assert stranger.get("/v1/jobs", params={"q": "clock"}).json()["data"] == []
