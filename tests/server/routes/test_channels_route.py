"""Tests of channels: one address that shows session after session, for whoever has it, until it is deleted."""

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.server.running import CLIP, Server
from tests.server.serving import wav

PIECE = CLIP.read_bytes()


@pytest.fixture(scope="module")
def client(server: Server) -> httpx.Client:
    return server.client(server.new_key("pro"))


def channel(client: httpx.Client, name: str) -> dict[str, str]:
    made = client.post("/v1/channels", json={"name": name})
    assert made.status_code == 201, made.text
    return dict(made.json())


def begin(client: httpx.Client, name: str) -> str:
    made = client.post("/v1/live", json={"encoding": "container", "channel": name})
    assert made.status_code == 201, made.text
    assert made.json()["live"]["channel"] == name
    return str(made.json()["job_id"])


def speak(client: httpx.Client, job: str) -> None:
    client.post(f"/v1/jobs/{job}/audio?final=true", content=PIECE, timeout=120).raise_for_status()


def parse_events(answer: httpx.Response) -> Iterator[tuple[str, str, dict[str, object]]]:
    """Yield (id, type, body) of every event of the stream."""
    place = kind = ""
    for line in answer.iter_lines():
        name, _, value = line.partition(": ")
        if name == "id":
            place = value
        elif name == "event":
            kind = value
        elif name == "data":
            yield place, kind, json.loads(value)


def test_a_reader_gets_one_session_after_the_other(client):
    stage = channel(client, "one after the other")
    first = begin(client, stage["name"])
    with httpx.stream("GET", stage["events_url"], timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = parse_events(answer)
        speak(client, first)
        heard = [next(events)]
        while heard[-1][1] != "job.completed":
            heard.append(next(events))
        second = begin(client, stage["name"])
        speak(client, second)
        later = [next(events)]
        while later[-1][1] != "job.completed":
            later.append(next(events))
    for job, seen in ((first, heard), (second, later)):
        assert {body["job_id"] for _, kind, body in seen if kind == "word"} == {job}
        numbered = [place for place, kind, _ in seen if kind != "partial"]
        assert numbered == [f"{job}:{number}" for number in range(1, len(numbered) + 1)]
    assert client.get("/v1/channels").json()["data"][0]["job_id"] == second


def test_sessions_that_are_over_at_once_are_shown_too(client):
    stage = channel(client, "short ones")
    speak(client, begin(client, stage["name"]))  # before anybody reads
    with httpx.stream("GET", stage["events_url"], timeout=20) as answer:
        events = parse_events(answer)
        for _ in range(3):
            job = begin(client, stage["name"])
            client.post(f"/v1/jobs/{job}/audio?final=true", content=wav(0.1), timeout=20).raise_for_status()
            while (seen := next(events))[1] != "job.completed":
                pass
            assert seen[0].startswith(job)


def test_a_reader_that_comes_back_goes_on_where_it_was(client):
    stage = channel(client, "coming back")
    job = begin(client, stage["name"])
    speak(client, job)
    with httpx.stream("GET", stage["events_url"], headers={"Last-Event-ID": f"{job}:2"}, timeout=60) as answer:
        assert next(parse_events(answer))[0] == f"{job}:3"
    refused = httpx.get(stage["events_url"], headers={"Last-Event-ID": "7"})
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_last_event_id")


def test_the_subtitles_are_those_of_the_newest_session(client):
    stage = channel(client, "subtitles")
    assert httpx.get(stage["vtt_url"]).text == "WEBVTT\n\n"
    job = begin(client, stage["name"])
    speak(client, job)
    shown = httpx.get(stage["vtt_url"])
    assert shown.text == client.get(f"/v1/jobs/{job}/live.vtt").text
    assert shown.text.count("-->") > 1
    assert httpx.get(stage["vtt_url"] + "&max_lines=9").status_code == 422


def test_an_address_works_until_its_channel_is_deleted(client, server):
    stage = channel(client, "for a while")
    assert channel(client, "for a while") == stage
    stranger = server.client(server.new_key("pro"))
    path = f"/v1/channels/{stage['channel_id']}"
    assert stranger.delete(path).json()["code"] == "channel_not_found"
    assert stranger.get(f"{path}/live.vtt").status_code == 404
    assert client.get(f"{path}/live.vtt").status_code == 200
    assert httpx.get(server.base + f"{path}/live.vtt").status_code == 401
    assert httpx.get(stage["vtt_url"][:-1]).json()["code"] == "invalid_token"
    assert client.delete(path).status_code == 204
    for address in (stage["vtt_url"], stage["events_url"]):
        assert httpx.get(address).json()["code"] == "channel_not_found"
    assert channel(client, "for a while")["vtt_url"] != stage["vtt_url"]


def test_a_deleted_channel_ends_the_streams_of_its_readers(client):
    stage = channel(client, "ending")
    with httpx.stream("GET", stage["events_url"], timeout=30) as answer:
        assert client.delete(f"/v1/channels/{stage['channel_id']}").status_code == 204
        assert list(parse_events(answer)) == []


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 65, 7])
def test_a_name_that_cannot_be_used_is_refused(client, name):
    refused = client.post("/v1/channels", json={"name": name})
    assert (refused.status_code, refused.json()["errors"][0]["param"]) == (422, "name")


def test_a_session_cannot_name_a_channel_that_does_not_exist(client):
    refused = client.post("/v1/live", json={"channel": "nobody made this"})
    assert (refused.status_code, refused.json()["errors"][0]["param"]) == (422, "channel")
