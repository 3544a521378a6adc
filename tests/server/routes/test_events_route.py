"""Tests of GET /v1/jobs/{id}/events: replay from any point and the tail, who may read, how many, and its end."""

import json
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from pipeline.words import Chunk
from server.clock import parse_iso
from server.requests import request as requests
from tests.server.serving import LIMITS, chunk, serve, wav
from tests.waiting import eventually, until

AUDIO = {"file": ("talk.wav", wav())}
QUIET_S = 0.2
SPOKEN = (("so", "my"), ("fellow",), ("americans",))
OPEN = threading.Event()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    limits = replace(LIMITS, streams=replace(LIMITS.streams, keep_alive_s=QUIET_S))
    with serve(tmp_path_factory.mktemp("served"), limits=limits, WORKERS="3") as it:
        it.batch.scripts |= {"speak": speak, "gate": gate}
        yield it


async def speak(*_: object) -> AsyncGenerator[Chunk]:
    for index, texts in enumerate(SPOKEN):
        yield chunk(index, *texts)


async def gate(*_: object) -> AsyncGenerator[Chunk]:
    yield chunk(0, "so")
    await eventually(OPEN.is_set)
    yield chunk(1, "my")


@pytest.fixture
def gated_job(client):
    """Make a running job that continues when OPEN is set."""
    OPEN.clear()
    record = submit(client, prompt="gate", wait="0", word_timestamps="true")
    until(lambda: client.get(f"/v1/jobs/{record['job_id']}").json()["progress"])  # asked without a pause, it refuses
    yield record
    OPEN.set()


def submit(client: httpx.Client, **data: str) -> dict[str, Any]:
    record: dict[str, Any] = client.post("/v1/transcribe", files=AUDIO, data=data).json()
    return record


@dataclass(frozen=True)
class StreamEvent:
    """One event as an EventSource reads it."""

    id: int | None
    event: str
    data: dict[str, Any]


@contextmanager
def follow_events(client: httpx.Client, job_id: str, *, after: object = None, **query: str) -> Iterator[httpx.Response]:
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    with client.stream("GET", f"/v1/jobs/{job_id}/events", headers=headers, params=query) as response:
        yield response


def blocks(response: httpx.Response) -> Iterator[list[str]]:
    """Yield the lines of each event or comment."""
    lines: list[str] = []
    for line in response.iter_lines():
        if line:
            lines.append(line)
        else:
            yield lines
            lines = []


def parse_event(lines: list[str]) -> StreamEvent | None:
    fields = dict(line.split(": ", 1) for line in lines if not line.startswith(":"))
    if "data" not in fields:
        return None
    return StreamEvent(int(fields["id"]) if "id" in fields else None, fields["event"], json.loads(fields["data"]))


def all_of(client: httpx.Client, job_id: str, **options: Any) -> list[StreamEvent]:
    with follow_events(client, job_id, **options) as response:
        assert response.status_code == 200
        return [event for lines in blocks(response) if (event := parse_event(lines))]


def without_links(events: list[StreamEvent]) -> list[StreamEvent]:
    """Return the events without the links in the last one, which are signed anew for every reader."""
    return [replace(event, data={}) if event.event == "job.completed" else event for event in events]


# --- replay and tail -------------------------------------------------------------------------------------------------


def test_a_finished_job_is_replayed_whole_and_the_stream_ends(client):
    record = submit(client, prompt="speak", word_timestamps="true")
    with follow_events(client, record["job_id"]) as response:
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["x-accel-buffering"] == "no"
        assert "content-encoding" not in response.headers
        lines = list(blocks(response))
    assert lines[0] == ["retry: 3000"]
    events = [event for event in map(parse_event, lines) if event]
    assert [event.id for event in events] == list(range(1, len(events) + 1))
    assert [event.data["word"] for event in events if event.event == "word"] == ["so", "my", "fellow", "americans"]
    assert [event.data["index"] for event in events if event.event == "word"] == [0, 1, 2, 3]
    assert all((event.data["job_id"], event.data["seq"]) == (record["job_id"], event.id) for event in events)
    last = events[-1]
    assert (last.event, last.data["type"], last.data["data"]["text"]) == (
        "job.completed", "job.completed", "so my fellow americans",
    )  # fmt: skip
    assert "words" not in last.data["data"]
    assert httpx.get(last.data["data"]["formats"]["json"]).status_code == 200


def test_without_word_timestamps_segments_are_told_and_no_words(client):
    kinds = {event.event for event in all_of(client, submit(client, prompt="speak")["job_id"])}
    assert kinds == {"job.status", "job.progress", "segment", "job.completed"}


def test_events_come_while_the_job_runs_and_silence_is_kept_alive(client, gated_job):
    with follow_events(client, gated_job["job_id"]) as response:
        lines = blocks(response)
        while (event := parse_event(next(lines))) is None or event.event != "job.progress":
            pass
        assert next(lines) == [": keep-alive"]
        OPEN.set()
        rest = [event.event for event in map(parse_event, lines) if event]
    assert rest == ["word", "segment", "job.completed"]


@pytest.mark.parametrize("by", ["header", "query", "both"])
def test_a_reader_goes_on_behind_the_last_event_it_had(client, by):
    job_id = submit(client, prompt="speak", word_timestamps="true")["job_id"]
    everything = all_of(client, job_id)
    for at in (1, 4, len(everything) - 1):
        ways = {
            "header": {"after": at},
            "query": {"last_event_id": str(at)},
            "both": {"after": at, "last_event_id": "1"},  # EventSource reconnects with the old query and a header
        }
        assert without_links(all_of(client, job_id, **ways[by])) == without_links(everything[at:])


def test_after_the_end_there_is_nothing_to_come_back_for(client):
    job_id = submit(client)["job_id"]
    last = all_of(client, job_id)[-1].id
    with follow_events(client, job_id, after=last) as response:
        assert (response.status_code, response.read()) == (204, b"")


@pytest.mark.parametrize("after", ["x", "-1", "1.5", "999", "٣", "1 2"])
def test_an_id_that_this_stream_never_gave_is_400(client, after):
    job_id = submit(client)["job_id"]
    response = client.get(f"/v1/jobs/{job_id}/events", headers=[(b"Last-Event-ID", after.encode())])
    assert (response.status_code, response.json()["code"]) == (400, "invalid_last_event_id")


def test_a_canceled_job_ends_its_streams_too(server, client, gated_job):
    client.post(f"/v1/jobs/{gated_job['job_id']}/cancel")
    assert all_of(client, gated_job["job_id"])[-1].event == "job.canceled"
    server.wait(server.storage.jobs.delete(gated_job["job_id"]))


def test_deleting_the_job_ends_its_streams(client, gated_job):
    with follow_events(client, gated_job["job_id"]) as response:
        lines = blocks(response)
        next(lines)
        assert client.delete(f"/v1/jobs/{gated_job['job_id']}?force=1").status_code == 204
        assert all((event := parse_event(block)) is None or not event.event.startswith("job.c") for block in lines)


# --- who may read ----------------------------------------------------------------------------------------------------


def test_a_token_opens_the_stream_of_its_job_and_nothing_else(server, client):
    job_id, other = submit(client)["job_id"], submit(client)["job_id"]
    token = client.post("/v1/tokens", json={"job_id": job_id}).json()["token"]
    ingest = client.post("/v1/tokens", json={"job_id": job_id, "scope": "ingest"}).json()["token"]
    key = client.headers["authorization"].removeprefix("Bearer ")
    with server.client() as anybody:
        assert all_of(anybody, job_id, token=token)[-1].event == "job.completed"
        for path, given, status, code in (
            (f"/v1/jobs/{other}/events", token, 403, "insufficient_scope"),
            (f"/v1/jobs/{job_id}/events", ingest, 403, "insufficient_scope"),
            (f"/v1/jobs/{job_id}/events", token[:-1], 401, "invalid_token"),
            (f"/v1/jobs/{job_id}/events", "", 401, "invalid_token"),
            (f"/v1/jobs/{job_id}/events", key, 401, "invalid_token"),
            (f"/sandbox/v1/jobs/{job_id}/events", token, 404, "job_not_found"),
            (f"/v1/jobs/{job_id}", token, 401, "missing_credentials"),
        ):
            response = anybody.get(path, params={"token": given})
            assert (response.status_code, response.json()["code"]) == (status, code)
            assert ("www-authenticate" in response.headers) is (status in (401, 403))


def test_a_token_ends(server, client, monkeypatch):
    job_id = submit(client)["job_id"]
    made = client.post("/v1/tokens", json={"job_id": job_id, "ttl_seconds": 1}).json()
    monkeypatch.setattr(requests, "now_ms", lambda: parse_iso(made["expires_at"]))
    with server.client() as anybody:
        response = anybody.get(f"/v1/jobs/{job_id}/events", params={"token": made["token"]})
        assert (response.status_code, response.json()["code"]) == (401, "invalid_token")


# --- how it may be asked ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("text/event-stream", 200),
        ("*/*", 200),
        ("text/*;q=0.5, application/json", 200),
        ("application/json", 406),
        ("text/html, application/xhtml+xml", 406),
        ("text/event-stream;q=0", 406),
    ],
)
def test_only_event_streams_are_given_here(client, accept, status):
    job_id = submit(client)["job_id"]
    response = client.get(f"/v1/jobs/{job_id}/events", headers={"Accept": accept})
    assert response.status_code == status


def test_head_tells_the_headers_without_waiting(client, gated_job):
    response = client.head(f"/v1/jobs/{gated_job['job_id']}/events")
    assert (response.status_code, response.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


# --- how many --------------------------------------------------------------------------------------------------------


def test_five_streams_of_a_job_may_be_open_and_a_closed_one_makes_room(client, gated_job):
    with ExitStack() as open_streams:
        for _ in range(5):
            response = open_streams.enter_context(follow_events(client, gated_job["job_id"]))
            assert response.status_code == 200
        refused = client.get(f"/v1/jobs/{gated_job['job_id']}/events")
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_connections")
        assert int(refused.headers["retry-after"]) >= 1
    assert until(lambda: client.head(f"/v1/jobs/{gated_job['job_id']}/events").status_code != 429)
    assert client.head(f"/v1/jobs/{gated_job['job_id']}/events").status_code == 200


def test_many_at_once_find_no_more_seats_than_there_are(server, client, gated_job):
    statuses: list[int] = []
    go = threading.Barrier(12)

    def open_one() -> None:
        with server.client(client.headers["authorization"].removeprefix("Bearer ")) as mine:
            go.wait()
            with follow_events(mine, gated_job["job_id"]) as response:
                statuses.append(response.status_code)
                if response.status_code == 200:
                    for lines in blocks(response):
                        if (event := parse_event(lines)) and event.event.startswith("job.c"):
                            return

    threads = [threading.Thread(target=open_one) for _ in range(12)]
    for thread in threads:
        thread.start()
    until(lambda: len(statuses) == 12)
    OPEN.set()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] * 5 + [429] * 7
