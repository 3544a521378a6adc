"""Tests of live.vtt: the subtitles of a job so far, in the shape that a player asks for."""

import asyncio
from types import SimpleNamespace

import httpx
import pytest
from starlette.requests import Request

from server.http.problems import Problem
from server.routes.events import Subtitles
from tests.server.running import CLIP, Server
from tests.server.storing import submit


@pytest.fixture(scope="module")
def client(server: Server) -> httpx.Client:
    return server.client(server.new_key("pro"))


def cue_blocks(answer: httpx.Response) -> list[str]:
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/vtt; charset=utf-8")
    first, *cues = answer.text.strip().split("\n\n")
    assert first == "WEBVTT"
    return cues


def request(query: str = "") -> Request:
    return Request({"type": "http", "method": "GET", "headers": [], "query_string": query.encode()})


def test_the_subtitles_grow_with_the_session(client):
    job = client.post("/v1/live", json={"encoding": "container"}).json()["job_id"]
    address = f"/v1/jobs/{job}/live.vtt"
    assert cue_blocks(client.get(address)) == []
    client.post(f"/v1/jobs/{job}/audio?final=true", content=CLIP.read_bytes(), timeout=120).raise_for_status()
    whole = client.get(address)
    assert len(cue_blocks(whole)) > 1
    narrow = cue_blocks(client.get(address, params={"max_columns": 20, "max_lines": 1}))
    assert all(len(cue.splitlines()) == 2 and len(cue.splitlines()[1]) <= 20 for cue in narrow)
    assert client.get(address, headers={"If-None-Match": whole.headers["etag"]}).status_code == 304
    token = client.post("/v1/tokens", json={"job_id": job}).json()["token"]
    assert httpx.get(str(client.base_url) + address, params={"token": token}).text == whole.text


def test_a_shape_that_cannot_be_is_named_and_strangers_see_nothing(client, server):
    job = client.post("/v1/transcribe", files={"file": CLIP.read_bytes()}).json()["job_id"]
    refused = client.get(f"/v1/jobs/{job}/live.vtt", params={"max_lines": 0})
    assert (refused.status_code, refused.json()["errors"][0]["param"]) == (422, "max_lines")
    assert server.client(server.new_key("pro")).get(f"/v1/jobs/{job}/live.vtt").status_code == 404
    assert httpx.get(f"{server.base}/v1/jobs/{job}/live.vtt").status_code == 401


def test_results_that_are_not_kept_are_not_shown_again(client):
    job = client.post("/v1/transcribe", files={"file": CLIP.read_bytes()}, data={"retention": "none"}).json()["job_id"]
    answer = client.get(f"/v1/jobs/{job}/live.vtt")
    assert (answer.status_code, answer.json()["code"]) == (404, "output_not_found")


async def test_a_player_that_asks_for_many_shapes_gets_few_and_the_others_get_theirs(sqlite):
    job = await sqlite.jobs.get(await submit(sqlite))
    subtitles = Subtitles(SimpleNamespace(jobs=sqlite.jobs, storage=sqlite))
    shapes = (subtitles.answer(request(f"max_columns={columns}"), job) for columns in range(10, 30))
    *answers, usual = await asyncio.gather(*shapes, subtitles.answer(request(), job), return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, Problem)]
    assert [problem.code for problem in refused] == 16 * ["too_many_connections"]
    assert bytes(usual.body) == b"WEBVTT\n\n"
